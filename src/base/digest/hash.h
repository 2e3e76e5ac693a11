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
