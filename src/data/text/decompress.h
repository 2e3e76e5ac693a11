/* decompress.h - gzip, xz and zstd behind one streaming interface, for input.c; and recognising
 * other formats by their first bytes, so that they are not mistaken for text. */
#pragma once

#include "base/error.h"

#include <stddef.h>

/* Buffers of one decompression step. The step subtracts what it consumed from n_in and what it
 * produced from n_out. */
typedef struct strait_decompress_io {
    const unsigned char *in;
    size_t n_in;
    unsigned char *out;
    size_t n_out;
    int is_last;  // no more input follows
    int is_whole; // set by the step: the data is complete if no more input follows
} strait_decompress_io;

/* One format. States are not shared between threads. */
struct strait_decompress_ops {
    const char *name;
    const char *extension; // of file names, with its dot
    unsigned char magic[6];
    size_t n_magic;
    strait_err (*open)(void **state);                          // STRAIT_ENOMEM
    strait_err (*step)(void *state, strait_decompress_io *io); // STRAIT_EDATA: damaged input
    void (*close)(void *state);
};

/* The format whose magic number these bytes start with, or NULL. */
const struct strait_decompress_ops *strait_decompress_find(const unsigned char *start, size_t n);

/* The name of the format that the extension of a file name stands for, or NULL. */
const char *strait_decompress_name_of_extension(const char *path);

/* The name, with its article, of an unsupported format that these (decompressed) bytes start like;
 * NULL if they may be text. */
const char *strait_decompress_find_unsupported(const unsigned char *start, size_t n);
