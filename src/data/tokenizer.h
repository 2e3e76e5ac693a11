/* tokenizer.h - text to token ids and back, by byte-pair encoding.
 *
 * Reads the tokenizer.json of Hugging Face with a BPE model: GPT-2, LLaMA, Qwen, Gemma and what
 * "strait tokenizer train" writes. A file that asks for anything this program does not know is
 * refused with the name of the key; nothing is ignored. docs/formats.md lists what is known.
 *
 * A tokenizer does not change after it is opened: any number of threads may share it. Each thread
 * encodes with an encoder of its own (data/encoder.h) and decodes with a decoder (data/decoder.h).
 */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct strait_tokenizer;

/* STRAIT_EDATA names the file and the key at fault. */
strait_err strait_tokenizer_open(const char *path, struct strait_tokenizer **out);

/* The same from JSON in memory. */
strait_err strait_tokenizer_parse(const char *json, size_t bytes, struct strait_tokenizer **out);

void strait_tokenizer_close(struct strait_tokenizer **tokenizer); // accepts NULL

/* One more than the largest id: what a model's vocabulary must hold. */
int32_t strait_tokenizer_vocab(const struct strait_tokenizer *tokenizer);

/* How many ids have a token; ids without one decode to nothing. */
int32_t strait_tokenizer_count(const struct strait_tokenizer *tokenizer);

/* 32 hexadecimal digits that change with anything that changes ids. Borrowed. */
const char *strait_tokenizer_fingerprint(const struct strait_tokenizer *tokenizer);

/* The id of a token: an added token by its text, any other by its bytes. -1 when there is none. */
int32_t strait_tokenizer_find(const struct strait_tokenizer *tokenizer, const void *bytes,
                              size_t n);

/* The bytes that an id stands for, borrowed; NULL for an id outside the vocabulary. */
const unsigned char *strait_tokenizer_bytes(const struct strait_tokenizer *tokenizer, int32_t id,
                                            size_t *n);

int strait_tokenizer_is_special(const struct strait_tokenizer *tokenizer, int32_t id);

/* The token that ends a document: <|endoftext|>, <|end_of_text|>, </s> or <eos>, whichever is
 * there first; -1 when none is. */
int32_t strait_tokenizer_end(const struct strait_tokenizer *tokenizer);

/* Whether a text may be cut after a line and encoded in parts without changing one id; see
 * strait_text_cut in data/text.h. */
int strait_tokenizer_may_cut_lines(const struct strait_tokenizer *tokenizer);
