/* sha256.h - SHA-256, which shows that bytes are those that someone else has seen, even if an
 * attacker chose them. For damage alone, hash.h is faster. */
#pragma once

#include "base/error.h"

#include <stddef.h>

enum {
    STRAIT_DIGEST_BYTES = 32
};

typedef struct strait_digest {
    unsigned char bytes[STRAIT_DIGEST_BYTES];
} strait_digest;

/* Hashes `bytes` bytes. STRAIT_ENOMEM is the only error. */
strait_err strait_sha256(const void *data, size_t bytes, strait_digest *out);

/* HMAC-SHA256: a digest that only holders of `key` can compute. STRAIT_ENOMEM is the only error. */
strait_err strait_hmac_sha256(const void *key, size_t key_bytes, const void *data, size_t bytes,
                              strait_digest *out);

/* SHA-256 of bytes that come one part after the other. One thread uses it. */
struct strait_sha256;
strait_err strait_sha256_open(struct strait_sha256 **out);
strait_err strait_sha256_add(struct strait_sha256 *hash, const void *data, size_t bytes);
/* Writes the digest of everything that was added, and closes *hash also after an error. */
strait_err strait_sha256_finish(struct strait_sha256 **hash, strait_digest *out);
/* Gives up without a digest; accepts NULL. */
void strait_sha256_close(struct strait_sha256 **hash);

/* Extends *digest, zeros at first, by the next of several messages. Whoever has seen the same
 * messages in the same order has the same digest. STRAIT_ENOMEM is the only error. */
strait_err strait_digest_extend(strait_digest *digest, const void *data, size_t bytes);

int strait_digest_equal(const strait_digest *a, const strait_digest *b);
