/* identity.h - the identity of a peer: an Ed25519 key, known to others by the SHA-256 of its public
 * half, the fingerprint.
 *
 * An identity carries a self-signed certificate because TLS requires one; only the key inside the
 * certificate is ever examined. An identity is immutable once created and may be used by all
 * threads. */
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
/* Writes the fingerprint as 64 lower-case hexadecimal digits. */
void strait_fingerprint_text(const strait_fingerprint *f, char out[STRAIT_FINGERPRINT_TEXT]);
/* STRAIT_ECONFIG unless `text` is exactly 64 hexadecimal digits, of either case. */
strait_err strait_fingerprint_parse(const char *text, strait_fingerprint *out);

struct strait_identity;

/* Creates a key from the system's random numbers. STRAIT_EAUTH when OpenSSL lacks Ed25519. */
strait_err strait_identity_generate(struct strait_identity **out);

/* Loads the key in `path`, PEM in PKCS #8. STRAIT_EIO when it cannot be read, STRAIT_ECONFIG when
 * other users may read the file or it holds no Ed25519 key. */
strait_err strait_identity_load(const char *path, struct strait_identity **out);

/* Writes the key to a new file that only its owner may read. STRAIT_EIO; an existing file is never
 * replaced. */
strait_err strait_identity_save(const struct strait_identity *identity, const char *path);

void strait_identity_close(struct strait_identity **identity); // sets it to NULL; accepts NULL

/* Borrowed from the identity. */
const strait_fingerprint *strait_identity_fingerprint(const struct strait_identity *identity);

/* Fills `out` with cryptographically secure random bytes, for ids and tokens. STRAIT_EDEVICE. */
strait_err strait_identity_random(void *out, size_t bytes);

/* For tls.c: the objects that OpenSSL needs, borrowed from the identity. */
EVP_PKEY *strait_identity_key(const struct strait_identity *identity);
X509 *strait_identity_certificate(const struct strait_identity *identity);
/* Computes the fingerprint of any key; STRAIT_EAUTH when it is not an Ed25519 key. */
strait_err strait_identity_of_key(EVP_PKEY *key, strait_fingerprint *out);
