/* safetensors.h - named tensors in one file: eight bytes of header length, a JSON header, the data.
 *
 * Files are those of the safetensors package. A reader trusts nothing: the header is bounded and
 * checked, every tensor lies inside the file, none overlap, sizes follow from shape and type.
 * Whatever is wrong is STRAIT_EDATA in one line with the file and the tensor. */
#pragma once

#include "base/error.h"
#include "tensor/tensor.h"

#include <stddef.h>
#include <stdint.h>

enum {
    STRAIT_SAFETENSORS_DIMS = 8
};

/* A tensor in an open file. Everything is borrowed from the file. */
typedef struct strait_safetensor {
    const char *name;
    const char *dtype; // as the file spells it: "F32", "BF16", "I64"
    int n_dims;
    int64_t dims[STRAIT_SAFETENSORS_DIMS];
    const unsigned char *data; // not aligned
    size_t bytes;
} strait_safetensor;

struct strait_safetensors;

strait_err strait_safetensors_open(const char *path, struct strait_safetensors **out);

/* The same from memory, which is lent until close; `name` stands for the file in errors. */
strait_err strait_safetensors_parse(const char *name, const void *data, size_t bytes,
                                    struct strait_safetensors **out);
void strait_safetensors_close(struct strait_safetensors **file); // accepts NULL

/* Tensors in the order of their names. */
int strait_safetensors_count(const struct strait_safetensors *file);
const strait_safetensor *strait_safetensors_at(const struct strait_safetensors *file, int i);

const strait_safetensor *strait_safetensors_find(const struct strait_safetensors *file,
                                                 const char *name); // NULL: not there
const char *strait_safetensors_metadata(const struct strait_safetensors *file,
                                        const char *key); // NULL: not there

/* How files spell a type: "F32". */
const char *strait_safetensors_dtype(strait_dtype dtype);

/* Lends the values of a tensor, which are not aligned, until close. Type and shape must be those of
 * `shape`; one dimension of n values is the same as [1 x n] and [n x 1]. */
strait_err strait_safetensors_view(const struct strait_safetensors *file, const char *name,
                                   strait_tensor shape, const unsigned char **out);

/* Its values are not needed for now: their memory may go, and comes back if they are read. */
void strait_safetensors_rest(const struct strait_safetensors *file, const char *name);

/* Copies a tensor into `into` on the host, which has its type and shape, as above. */
strait_err strait_safetensors_read(const struct strait_safetensors *file, const char *name,
                                   strait_tensor into);

typedef struct strait_safetensors_item {
    const char *name;
    strait_tensor tensor; // on the host; lent for the call
    int is_vector;        // written with one dimension
} strait_safetensors_item;

typedef struct strait_safetensors_pair {
    const char *key, *value;
} strait_safetensors_pair;

typedef struct strait_safetensors_content {
    const strait_safetensors_item *items; // written in this order
    int n_items;
    const strait_safetensors_pair *metadata;
    int n_metadata;
} strait_safetensors_content;

/* Writes a new file and syncs it. On error what was written so far is left for the caller to
 * remove. Data lies at a multiple of 8 bytes. */
strait_err strait_safetensors_write(const char *path, const strait_safetensors_content *content);
