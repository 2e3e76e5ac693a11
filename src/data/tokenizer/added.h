/* added.h - finding added tokens in text. */
#pragma once

#include "data/tokenizer/internal.h"

typedef struct strait_added_match {
    size_t start, end; // with the white space that the token swallows
    int32_t id;
} strait_added_match;

/* The first added token in text[from..n), the longest of those that start at one place; says
 * whether there is one. `is_normalized` chooses which tokens are looked for. */
int strait_added_find(const struct strait_tokenizer *t, int is_normalized,
                      const unsigned char *text, size_t n, size_t from, strait_added_match *out);
