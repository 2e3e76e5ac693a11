/* identity.c - keys, fingerprints and key files. OpenSSL reports errors in a queue of the thread:
 * it is cleared after every failure, so that an old entry is not reported for a later call. */
#include "net/core/identity.h"

#include "base/alloc.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

enum {
    PUBLIC_KEY_BYTES = 32 // of Ed25519
};

struct strait_identity {
    EVP_PKEY *key;
    X509 *certificate;
    strait_fingerprint fingerprint;
};

/* Not in constant time: a fingerprint is public. */
int strait_fingerprint_equal(const strait_fingerprint *a, const strait_fingerprint *b) {
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

void strait_fingerprint_text(const strait_fingerprint *f, char out[STRAIT_FINGERPRINT_TEXT]) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < STRAIT_FINGERPRINT_BYTES; i++) {
        out[2 * i] = digits[f->bytes[i] >> 4];
        out[2 * i + 1] = digits[f->bytes[i] & 15];
    }
    out[STRAIT_FINGERPRINT_TEXT - 1] = 0;
}

/* Both cases, since people copy fingerprints from other tools. */
static int digit_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Strict, because a fingerprint that people compare or paste must not match by its first half. */
strait_err strait_fingerprint_parse(const char *text, strait_fingerprint *out) {
    strait_fingerprint f = {{0}};
    size_t n = 0;
    while (n < STRAIT_FINGERPRINT_TEXT - 1 && digit_value(text[n]) >= 0) {
        f.bytes[n / 2] = (unsigned char)(f.bytes[n / 2] << 4 | digit_value(text[n]));
        n++;
    }
    if (n != STRAIT_FINGERPRINT_TEXT - 1 || text[n] != 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "fingerprint '%.70s': expected 64 hexadecimal digits",
                           text);
    *out = f;
    return STRAIT_OK;
}

/* Hashes the raw public key and not the certificate, so that the fingerprint survives a new one. */
strait_err strait_identity_of_key(EVP_PKEY *key, strait_fingerprint *out) {
    unsigned char raw[PUBLIC_KEY_BYTES];
    size_t bytes = sizeof raw;
    if (key == NULL || EVP_PKEY_get_id(key) != EVP_PKEY_ED25519 ||
        EVP_PKEY_get_raw_public_key(key, raw, &bytes) != 1 || bytes != sizeof raw) {
        ERR_clear_error();
        return STRAIT_FAIL(STRAIT_EAUTH, "expected an Ed25519 key, found another kind");
    }
    SHA256(raw, sizeof raw, out->bytes);
    return STRAIT_OK;
}

/* Never expires: the clocks of workers are often wrong, and peers pin the key, not the date. */
static int fill_certificate(X509 *x, EVP_PKEY *key) {
    X509_NAME *name = X509_get_subject_name(x);
    return X509_set_version(x, X509_VERSION_3) == 1 &&
           ASN1_INTEGER_set(X509_get_serialNumber(x), 1) == 1 &&
           ASN1_TIME_set_string_X509(X509_getm_notBefore(x), "19700101000000Z") == 1 &&
           ASN1_TIME_set_string_X509(X509_getm_notAfter(x), "99991231235959Z") == 1 &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"strait", -1,
                                      -1, 0) == 1 &&
           X509_set_issuer_name(x, name) == 1 && X509_set_pubkey(x, key) == 1 &&
           X509_sign(x, key, NULL) > 0;
}

/* Builds an identity around `key`, which it owns from here on, also after an error. */
static strait_err from_key(EVP_PKEY *key, struct strait_identity **out) {
    void *memory = NULL;
    strait_err err = strait_alloc(1, sizeof(struct strait_identity), "identity", &memory);
    if (err != STRAIT_OK) {
        EVP_PKEY_free(key);
        return err;
    }
    struct strait_identity *self = memory;
    self->key = key;
    STRAIT_TRY_GOTO(err, fail, strait_identity_of_key(key, &self->fingerprint));
    self->certificate = X509_new();
    if (self->certificate == NULL || !fill_certificate(self->certificate, key)) {
        ERR_clear_error();
        err = STRAIT_FAIL(STRAIT_ENOMEM, "cannot create a certificate for the key");
        goto fail;
    }
    *out = self;
    return STRAIT_OK;
fail:
    strait_identity_close(&self);
    return err;
}

strait_err strait_identity_generate(struct strait_identity **out) {
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    if (key == NULL) {
        ERR_clear_error();
        return STRAIT_FAIL(STRAIT_EAUTH,
                           "cannot generate an Ed25519 key: this OpenSSL does not support it");
    }
    return from_key(key, out);
}

strait_err strait_identity_load(const char *path, struct strait_identity **out) {
    FILE *file = fopen(path, "re");
    if (file == NULL) return STRAIT_FAIL(STRAIT_EIO, "%s: %s", path, uv_strerror(-errno));
    /* fstat of the open file, not stat of the path, which could be exchanged in between. */
    struct stat status;
    if (fstat(fileno(file), &status) != 0 || (status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        (void)fclose(file);
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "%s: other users may read this private key; run chmod 600 on it", path);
    }
    EVP_PKEY *key = PEM_read_PrivateKey(file, NULL, NULL, NULL);
    (void)fclose(file);
    if (key == NULL) {
        ERR_clear_error();
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s: expected an Ed25519 private key in PEM", path);
    }
    const strait_err err = from_key(key, out);
    if (err != STRAIT_OK) strait_err_prefix("%s", path);
    return err;
}

/* Writes the key to a new temporary file with mode 600 and syncs it to disk. */
static strait_err write_key(const struct strait_identity *identity, char *path) {
    const int fd = mkstemp(path);
    if (fd < 0) return STRAIT_FAIL(STRAIT_EIO, "%s: %s", path, uv_strerror(-errno));
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC); // child processes must not inherit a private key
    FILE *file = fdopen(fd, "w");
    if (file == NULL) {
        (void)close(fd);
        return STRAIT_FAIL(STRAIT_EIO, "%s: %s", path, uv_strerror(-errno));
    }
    /* Every step runs even after a failure: the file must be flushed and closed in any case. */
    int is_good = PEM_write_PKCS8PrivateKey(file, identity->key, NULL, NULL, 0, NULL, NULL) == 1;
    is_good = fflush(file) == 0 && fsync(fd) == 0 && is_good;
    is_good = fclose(file) == 0 && is_good;
    if (is_good) return STRAIT_OK;
    ERR_clear_error();
    return STRAIT_FAIL(STRAIT_EIO, "%s: cannot write the key; check that the disk is not full",
                       path);
}

/* Writes a temporary file and links it to `path`: a reader of `path` sees the whole key or no file,
 * and of two processes that save at once one fails instead of replacing the other's key. */
strait_err strait_identity_save(const struct strait_identity *identity, const char *path) {
    char temporary[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(temporary, "%s.XXXXXX", path));
    strait_err err = write_key(identity, temporary);
    if (err == STRAIT_OK && link(temporary, path) != 0) {
        const int exists = errno == EEXIST || access(path, F_OK) == 0;
        if (exists || rename(temporary, path) != 0) // a file system without hard links
            err = STRAIT_FAIL(STRAIT_EIO, "%s: %s", path, uv_strerror(-errno));
    }
    (void)unlink(temporary);
    /* The invites of a host name its key: it must not be another one after a power cut. */
    return err == STRAIT_OK ? strait_file_sync_parent(path) : err;
}

/* EVP_PKEY_free overwrites the private key. */
void strait_identity_close(struct strait_identity **identity) {
    if (*identity == NULL) return;
    X509_free((*identity)->certificate);
    EVP_PKEY_free((*identity)->key);
    strait_alloc_free(*identity);
    *identity = NULL;
}

const strait_fingerprint *strait_identity_fingerprint(const struct strait_identity *identity) {
    return &identity->fingerprint;
}

EVP_PKEY *strait_identity_key(const struct strait_identity *identity) {
    return identity->key;
}

X509 *strait_identity_certificate(const struct strait_identity *identity) {
    return identity->certificate;
}

/* From OpenSSL: tokens and keys need random numbers that nobody can predict, unlike base/rng. */
strait_err strait_identity_random(void *out, size_t bytes) {
    if (bytes > INT_MAX || RAND_bytes(out, (int)bytes) != 1)
        return STRAIT_FAIL(STRAIT_EDEVICE, "the system's random number generator failed");
    return STRAIT_OK;
}
