/* tokenizer.h - text to token ids and back, by byte-pair encoding.
 *
 * Reads the tokenizer.json of Hugging Face with a BPE model: GPT-2, LLaMA, Qwen, Gemma and what
 * "strait tokenizer train" writes. A file that asks for anything this program does not know is
 * refused with the name of the key; nothing is ignored. docs/formats.md lists what is known.
 *
 * A tokenizer does not change after it is opened: any number of threads may share it. Each thread
 * encodes with an encoder of its own (data/encoder.h) and decodes with a decoder
 * (data/tokenizer/decoder.h).
 */
#pragma once

#include <strait/tokenizer.h>

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Like strait_tokenizer_open, from JSON in memory. */
strait_err strait_tokenizer_parse(const char *json, size_t bytes, struct strait_tokenizer **out);
