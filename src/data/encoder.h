/* encoder.h - text to token ids. One encoder a thread. */
#pragma once

#include "base/error.h"
#include "data/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

struct strait_encoder;

/* Keeps `tokenizer` until close. */
strait_err strait_encoder_open(const struct strait_tokenizer *tokenizer,
                               struct strait_encoder **out);
void strait_encoder_close(struct strait_encoder **encoder); // accepts NULL

enum {
    STRAIT_ENCODE_TEMPLATE = 1 // put the tokens of the file's template around the text
};

/* Encodes text of any bytes, up to 2 GiB. The ids lie in the encoder until its next call.
 *
 * Special tokens written in the text become their ids. Bytes that are not UTF-8 are words of their
 * own: a byte-level or byte-fallback tokenizer keeps them, so that decoding gives them back; any
 * other takes U+FFFD in their place. */
strait_err strait_encoder_encode(struct strait_encoder *encoder, const void *text, size_t n,
                                 unsigned options, const int32_t **ids, size_t *n_ids);

/* How many characters so far had no token and no unknown token to stand for them, and so left no
 * id. */
int64_t strait_encoder_dropped(const struct strait_encoder *encoder);

/* For learning: calls `see` with every word instead of encoding it. */
typedef strait_err (*strait_encoder_see)(void *arg, const unsigned char *word, size_t n);
strait_err strait_encoder_words(struct strait_encoder *encoder, const void *text, size_t n,
                                strait_encoder_see see, void *arg);
