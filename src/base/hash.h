/* hash.h - a 128-bit digest that tells a damaged file from a whole one. Not for authentication. */
#pragma once

#include "base/error.h"

#include <stddef.h>

enum {
    STRAIT_HASH_TEXT = 33 // 32 hexadecimal digits and a zero
};

/* XXH3, 128 bits, in hexadecimal. */
void strait_hash_text(const void *data, size_t bytes, char out[STRAIT_HASH_TEXT]);
strait_err strait_hash_file(const char *path, char out[STRAIT_HASH_TEXT]);
