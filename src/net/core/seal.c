/* seal.c - AES-256-GCM under a key derived from the identity. The label is authenticated too, so a
 * sealed secret cannot be moved to another place. */
#include "net/core/seal.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

enum {
    NONCE = 12,
    TAG = 16,
    KEY = 32
};

/* Derives the key for a label. The private key itself encrypts nothing. */
static strait_err derive(const struct strait_identity *identity, strait_seal_label label,
                         unsigned char out[KEY]) {
    unsigned char private[KEY];
    size_t n = sizeof private;
    unsigned n_out = 0;
    const int is_good = label.bytes <= STRAIT_SEAL_LABEL_MAX &&
                        EVP_PKEY_get_raw_private_key(strait_identity_key(identity), private, &n) ==
                            1 &&
                        HMAC(EVP_sha256(), private, (int)n, label.data, label.bytes, out, &n_out) !=
                            NULL;
    OPENSSL_cleanse(private, sizeof private);
    if (is_good && n_out == KEY) return STRAIT_OK;
    ERR_clear_error();
    return STRAIT_FAIL(STRAIT_EDEVICE, "OpenSSL cannot derive a key from this identity");
}

/* One pass of the cipher, in either direction. */
struct pass {
    int encrypts;
    strait_seal_label label;
    const unsigned char *nonce, *from;
    unsigned char *to;
    size_t bytes;
    unsigned char tag[TAG]; // written when it encrypts, compared when it decrypts
};

static int run_cipher(EVP_CIPHER_CTX *cipher, struct pass *p) {
    int n = 0;
    if (EVP_CipherUpdate(cipher, NULL, &n, p->label.data, (int)p->label.bytes) != 1) return 0;
    if (EVP_CipherUpdate(cipher, p->to, &n, p->from, (int)p->bytes) != 1) return 0;
    if (!p->encrypts && EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_SET_TAG, TAG, p->tag) != 1)
        return 0;
    if (EVP_CipherFinal_ex(cipher, p->to + n, &n) != 1) return 0;
    return !p->encrypts || EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_GET_TAG, TAG, p->tag) == 1;
}

/* Returns 0 if the cipher fails or the tag is wrong. */
static int run_pass(const unsigned char key[KEY], struct pass *p) {
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    const int is_good = cipher != NULL &&
                        EVP_CipherInit_ex(cipher, EVP_aes_256_gcm(), NULL, key, p->nonce,
                                          p->encrypts) == 1 &&
                        run_cipher(cipher, p);
    EVP_CIPHER_CTX_free(cipher);
    ERR_clear_error();
    return is_good;
}

strait_err strait_seal(const struct strait_identity *identity, strait_seal_label label,
                       const void *secret, size_t bytes, unsigned char *out) {
    unsigned char key[KEY];
    struct pass p = {.encrypts = 1,
                     .label = label,
                     .nonce = out,
                     .from = secret,
                     .to = out + NONCE,
                     .bytes = bytes};
    STRAIT_TRY(derive(identity, label, key));
    STRAIT_TRY(strait_identity_random(out, NONCE));
    const int is_good = run_pass(key, &p);
    OPENSSL_cleanse(key, sizeof key);
    if (!is_good) return STRAIT_FAIL(STRAIT_EDEVICE, "OpenSSL cannot encrypt a secret");
    memcpy(out + NONCE + bytes, p.tag, TAG);
    return STRAIT_OK;
}

strait_err strait_unseal(const struct strait_identity *identity, strait_seal_label label,
                         const unsigned char *sealed, size_t bytes, void *out) {
    unsigned char key[KEY];
    struct pass p = {
        .label = label, .nonce = sealed, .from = sealed + NONCE, .to = out, .bytes = bytes};
    memcpy(p.tag, sealed + NONCE + bytes, TAG);
    STRAIT_TRY(derive(identity, label, key));
    const int is_good = run_pass(key, &p);
    OPENSSL_cleanse(key, sizeof key);
    return is_good
               ? STRAIT_OK
               : STRAIT_FAIL(STRAIT_EAUTH, "a secret was sealed with another key, or is damaged");
}
