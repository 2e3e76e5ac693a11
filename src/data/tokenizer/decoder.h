/* decoder.h - converts token ids to text, one id at a time.
 *
 * A token may end in the middle of a UTF-8 character. The decoder holds such bytes back until the
 * character is complete, so that every write is whole characters. */
#pragma once

#include "data/tokenizer/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

/* A plain value that borrows the tokenizer. One thread uses it at a time. */
typedef struct strait_decoder {
    const struct strait_tokenizer *tokenizer;
    unsigned char partial[4]; // bytes of an incomplete character
    size_t n_partial;
    int n_strip;       // spaces still to be removed at the start of the text
    int skips_special; // the caller may set it: special tokens decode to nothing
} strait_decoder;

/* Starts a new text. */
void strait_decoder_init(strait_decoder *decoder, const struct strait_tokenizer *tokenizer);

/* The largest number of bytes that one call of push or finish may write. */
size_t strait_decoder_bound(const struct strait_tokenizer *tokenizer);

/* Decodes `id` and writes the characters that are complete to `out`. Returns the number of bytes.
 * An id outside the vocabulary writes nothing. */
size_t strait_decoder_push(strait_decoder *decoder, int32_t id, unsigned char *out);

/* Writes the bytes that were held back and returns their number. */
size_t strait_decoder_finish(strait_decoder *decoder, unsigned char *out);
