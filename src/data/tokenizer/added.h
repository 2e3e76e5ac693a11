/* added.h - finds added tokens (those of "added_tokens" in tokenizer.json) in text.
 *
 * Added tokens are matched in the text itself, before it is split into words. */
#pragma once

#include "data/tokenizer/internal.h"

typedef struct strait_added_match {
    size_t start, end;  // including white space that the token strips (lstrip, rstrip)
    size_t first, last; // without it
    int32_t id;
} strait_added_match;

/* Prepares the search, when all added tokens have been read. */
strait_err strait_added_sort(struct strait_tokenizer *t);

/* Finds the first added token in text[from..n), which must be well-formed UTF-8; of those that
 * start at the same offset, the longest. Returns whether there is one. `is_normalized` selects the
 * tokens that are searched for after normalisation (1) or before it (0). Any thread. */
int strait_added_find(const struct strait_tokenizer *t, int is_normalized,
                      const unsigned char *text, size_t n, size_t from, strait_added_match *out);
