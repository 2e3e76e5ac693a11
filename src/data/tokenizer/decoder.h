/* decoder.h - token ids to text, one at a time. */
#pragma once

#include "data/tokenizer/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

/* A value; borrows the tokenizer. */
typedef struct strait_decoder {
    const struct strait_tokenizer *tokenizer;
    unsigned char partial[4]; // the start of a character that is not complete
    size_t n_partial;
    int n_strip; // spaces still to be left out at the start
    int skips_special;
} strait_decoder;

void strait_decoder_init(strait_decoder *decoder, const struct strait_tokenizer *tokenizer);

/* The most bytes that one call may write. */
size_t strait_decoder_bound(const struct strait_tokenizer *tokenizer);

/* Writes the text that `id` completes; the start of a character waits for its end. Says how many
 * bytes. An id outside the vocabulary writes nothing. */
size_t strait_decoder_push(strait_decoder *decoder, int32_t id, unsigned char *out);

/* Writes what still waits. */
size_t strait_decoder_finish(strait_decoder *decoder, unsigned char *out);
