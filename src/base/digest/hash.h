/* hash.h - a fast 128-bit digest that detects damaged files. It does not authenticate: use SHA-256
 * for data that an attacker may have chosen. */
#pragma once

#include "base/error.h"

#include <stddef.h>

enum {
    STRAIT_HASH_TEXT = 33 // 32 hexadecimal digits and a terminating zero
};

/* The XXH3 digest, 128 bits, in hexadecimal. */
void strait_hash_text(const void *data, size_t bytes, char out[STRAIT_HASH_TEXT]);
strait_err strait_hash_file(const char *path, char out[STRAIT_HASH_TEXT]);

/* The same of bytes that come one part after the other. One thread uses it. STRAIT_ENOMEM. */
struct strait_hash;
strait_err strait_hash_open(struct strait_hash **out);
void strait_hash_add(struct strait_hash *hash, const void *data, size_t bytes);
/* Writes the digest of everything that was added, and closes *hash. */
void strait_hash_finish(struct strait_hash **hash, char out[STRAIT_HASH_TEXT]);
void strait_hash_close(struct strait_hash **hash); // without a digest; accepts NULL in it
