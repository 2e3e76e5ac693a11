/* encoder.h - the encoder of <strait/tokenizer.h>, and its use for training a tokenizer. */
#pragma once

#include "base/error.h"
#include "data/tokenizer/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

/* Encodes text of which marks[i] is 1 where byte i comes from elsewhere, such as a user: there no
 * special token is recognised, so that what spells one stays text. The ids are borrowed until the
 * next call. */
strait_err strait_encoder_encode_marked(struct strait_encoder *encoder, const void *text,
                                        const unsigned char *marks, size_t n, const int32_t **ids,
                                        size_t *n_ids);

/* Receives one word of n bytes, valid during the call. An error ends the visit. */
typedef strait_err (*strait_encoder_visitor)(void *arg, const unsigned char *word, size_t n);

/* Splits text into words exactly as encoding does, but calls `visit` with every word instead of
 * encoding it. Added tokens are skipped. Used to count words when a tokenizer is trained. */
strait_err strait_encoder_visit_words(struct strait_encoder *encoder, const void *text, size_t n,
                                      strait_encoder_visitor visit, void *arg);
