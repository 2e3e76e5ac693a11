/* identity.h - who a peer is: an Ed25519 key, known to others by the SHA-256 of its public half.
 *
 * An identity carries a self-signed certificate because TLS wants one; nothing in the certificate
 * but the key is ever looked at. An identity does not change after it is made and may be used by
 * all threads. */
#pragma once

#include "base/error.h"

#include <openssl/ssl.h>

enum {
    STRAIT_FINGERPRINT_BYTES = 32,
    STRAIT_FINGERPRINT_TEXT = 65 // 64 hexadecimal digits and a zero
};

typedef struct strait_fingerprint {
    unsigned char bytes[STRAIT_FINGERPRINT_BYTES];
} strait_fingerprint;

int strait_fingerprint_equal(const strait_fingerprint *a, const strait_fingerprint *b);
void strait_fingerprint_text(const strait_fingerprint *f, char out[STRAIT_FINGERPRINT_TEXT]);
/* STRAIT_ECONFIG unless `text` is exactly 64 hexadecimal digits. */
strait_err strait_fingerprint_parse(const char *text, strait_fingerprint *out);

struct strait_identity;

/* A new key from the system's random numbers. */
strait_err strait_identity_generate(struct strait_identity **out);

/* The key in `path`, PEM, PKCS #8. Refuses a file that others may read (STRAIT_ECONFIG). */
strait_err strait_identity_load(const char *path, struct strait_identity **out);

/* Writes the key to a new file that only its owner may read. An existing file is not replaced. */
strait_err strait_identity_save(const struct strait_identity *identity, const char *path);

void strait_identity_close(struct strait_identity **identity); // accepts NULL

const strait_fingerprint *strait_identity_fingerprint(const struct strait_identity *identity);

/* Random bytes that nobody can guess, for ids and tokens. */
strait_err strait_identity_random(void *out, size_t bytes);

/* For tls.c: the parts OpenSSL wants, borrowed. */
EVP_PKEY *strait_identity_key(const struct strait_identity *identity);
X509 *strait_identity_certificate(const struct strait_identity *identity);
/* The fingerprint of someone's key; STRAIT_EAUTH when it is not an Ed25519 key. */
strait_err strait_identity_of_key(EVP_PKEY *key, strait_fingerprint *out);
