/* format.h - the GGUF file format, version 3: a header with typed keys, descriptions of tensors,
 * then their data, each tensor at a multiple of 32 bytes. Little-endian throughout.
 *
 * The header is built in memory and written first; tensors follow one at a time. */
#pragma once

#include "base/error.h"
#include "data/buffer.h"

#include <stdint.h>
#include <stdio.h>

/* Types of tensors, as ggml numbers them. */
typedef enum strait_gguf_type {
    STRAIT_GGUF_F32 = 0,
    STRAIT_GGUF_F16 = 1,
    STRAIT_GGUF_Q8_0 = 8, // blocks of 32 values: an f16 scale and 32 signed bytes
    STRAIT_GGUF_BF16 = 30,
} strait_gguf_type;

enum {
    STRAIT_GGUF_ALIGN = 32,
    STRAIT_GGUF_BLOCK = 32 // values that share a scale in Q8_0
};

/* The header that is being built. Zeroed: empty. Errors of the calls below are STRAIT_ENOMEM. */
struct strait_gguf {
    strait_buffer keys, tensors;
    uint64_t n_keys, n_tensors;
    uint64_t data_bytes; // of the tensors so far, padding included
};

void strait_gguf_fini(struct strait_gguf *gguf);

/* Each adds one key. */
strait_err strait_gguf_u32(struct strait_gguf *gguf, const char *key, uint32_t value);
strait_err strait_gguf_f32(struct strait_gguf *gguf, const char *key, float value);
strait_err strait_gguf_bool(struct strait_gguf *gguf, const char *key, int value);
strait_err strait_gguf_text(struct strait_gguf *gguf, const char *key, const char *value);

/* Adds a key with a list of n items, which the caller appends next: texts or i32 numbers. */
strait_err strait_gguf_texts(struct strait_gguf *gguf, const char *key, uint64_t n);
strait_err strait_gguf_item_text(struct strait_gguf *gguf, const char *text, size_t bytes);
strait_err strait_gguf_numbers(struct strait_gguf *gguf, const char *key, uint64_t n);
strait_err strait_gguf_item_number(struct strait_gguf *gguf, int32_t value);

/* Bytes of n values; n is a multiple of STRAIT_GGUF_BLOCK for Q8_0. */
uint64_t strait_gguf_bytes(strait_gguf_type type, int64_t n);

/* Describes the next tensor; rows 1: a vector. */
strait_err strait_gguf_tensor(struct strait_gguf *gguf, const char *name, strait_gguf_type type,
                              int64_t rows, int64_t cols);

/* Writes the header up to the first tensor. Write errors are found by strait_file_finish. */
void strait_gguf_write_header(const struct strait_gguf *gguf, FILE *file);
/* Writes the values of a tensor, converted in place, and its padding. */
void strait_gguf_write_tensor(FILE *file, strait_gguf_type type, float *values, int64_t n);
