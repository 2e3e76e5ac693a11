/* sha256.c - see sha256.h. OpenSSL computes it: it uses the SHA instructions of the processor. */
#include "base/digest/sha256.h"

#include "base/alloc.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

struct strait_sha256 {
    EVP_MD_CTX *context;
};

/* EVP functions on SHA-256 fail only where they cannot allocate. */
static strait_err fail(void) {
    return STRAIT_FAIL(STRAIT_ENOMEM, "SHA-256: out of memory");
}

strait_err strait_sha256(const void *data, size_t bytes, strait_digest *out) {
    return EVP_Digest(data, bytes, out->bytes, NULL, EVP_sha256(), NULL) == 1 ? STRAIT_OK : fail();
}

strait_err strait_hmac_sha256(const void *key, size_t key_bytes, const void *data, size_t bytes,
                              strait_digest *out) {
    return HMAC(EVP_sha256(), key, (int)key_bytes, data, bytes, out->bytes, NULL) != NULL
               ? STRAIT_OK
               : fail();
}

strait_err strait_sha256_open(struct strait_sha256 **out) {
    struct strait_sha256 *hash = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *hash, "hash", (void **)&hash));
    hash->context = EVP_MD_CTX_new();
    if (hash->context == NULL || EVP_DigestInit_ex(hash->context, EVP_sha256(), NULL) != 1) {
        strait_sha256_close(&hash);
        return fail();
    }
    *out = hash;
    return STRAIT_OK;
}

strait_err strait_sha256_add(struct strait_sha256 *hash, const void *data, size_t bytes) {
    return EVP_DigestUpdate(hash->context, data, bytes) == 1 ? STRAIT_OK : fail();
}

strait_err strait_sha256_finish(struct strait_sha256 **hash, strait_digest *out) {
    const int is_done = EVP_DigestFinal_ex((*hash)->context, out->bytes, NULL) == 1;
    strait_sha256_close(hash);
    return is_done ? STRAIT_OK : fail();
}

void strait_sha256_close(struct strait_sha256 **hash) {
    if (*hash == NULL) return;
    EVP_MD_CTX_free((*hash)->context);
    strait_alloc_free(*hash);
    *hash = NULL;
}

/* Digests are public, so the comparison need not take the same time for all of them. */
/* SHA-256 of the digest so far and that of the message: no state but 32 bytes, so that a digest can
 * be copied and continued from any message on. */
strait_err strait_digest_extend(strait_digest *digest, const void *data, size_t bytes) {
    strait_digest both[2] = {*digest};
    STRAIT_TRY(strait_sha256(data, bytes, &both[1]));
    return strait_sha256(both, sizeof both, digest);
}

int strait_digest_equal(const strait_digest *a, const strait_digest *b) {
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}
