/* unpack.h - gzip, xz and zstd as one kind of stream; for input.c. */
#pragma once

#include "base/error.h"

#include <stddef.h>

/* One step of unpacking: in and out move forward by what was used and made. */
typedef struct strait_decompress_io {
    const unsigned char *in;
    size_t n_in;
    unsigned char *out;
    size_t n_out;
    int is_last;  // no more input follows
    int is_whole; // set when the stream could end here
} strait_decompress_io;

struct strait_decompress_ops {
    const char *name;
    const char *ending; // of file names
    unsigned char magic[6];
    size_t n_magic;
    strait_err (*open)(void **state);
    strait_err (*step)(void *state, strait_decompress_io *io);
    void (*close)(void *state);
};

/* The format whose magic these bytes start with; NULL for none. */
const struct strait_decompress_ops *strait_decompress_find(const unsigned char *start, size_t n);

/* The format that a file's name speaks of; NULL for none. */
const char *strait_decompress_name_of_extension(const char *path);

/* What else these bytes, unpacked, are the start of, with its article; NULL for none. */
const char *strait_decompress_find_unsupported(const unsigned char *start, size_t n);
