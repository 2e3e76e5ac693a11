/* tokenizer.h - a tokenizer.json as keys of a GGUF file. */
#pragma once

#include "convert/gguf/format.h"

/* Adds the tokens, their kinds, the merges and the split pattern. `vocab` is the model's, which may
 * have more ids than the tokenizer. STRAIT_ENOTSUP: llama.cpp has no such tokenizer: only
 * byte-level BPE with the patterns of GPT-2, Llama 3 and Qwen 2 is written. */
strait_err strait_gguf_tokenizer(struct strait_gguf *gguf, const char *path, int64_t vocab,
                                 int32_t end_id);
