/* tokenizer.h - the tokenizer of <strait/tokenizer.h>, which documents it, and opening one from
 * memory. Encoding is in encoder.h, decoding id by id in decoder.h. */
#pragma once

#include <strait/tokenizer.h>

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Like strait_tokenizer_open, but parses `bytes` bytes of JSON in memory. */
strait_err strait_tokenizer_parse(const char *json, size_t bytes, struct strait_tokenizer **out);
