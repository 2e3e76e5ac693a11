/* encoder.h - text to token ids. One encoder a thread. */
#pragma once

#include "base/error.h"
#include "data/tokenizer/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

/* For learning: calls `visit` with every word instead of encoding it. */
typedef strait_err (*strait_encoder_visitor)(void *arg, const unsigned char *word, size_t n);
strait_err strait_encoder_visit_words(struct strait_encoder *encoder, const void *text, size_t n,
                                      strait_encoder_visitor visit, void *arg);
