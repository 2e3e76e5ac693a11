/* safetensors.h - the safetensors file format: header length (8 bytes), JSON header, tensor data.
 *
 * Files are compatible with Hugging Face's safetensors package. The reader does not trust its
 * input: it bounds and checks the header, and verifies that every tensor lies inside the file, that
 * none overlap, and that sizes follow from shape and dtype. Any violation is STRAIT_EDATA, with a
 * one-line message that names the file and the tensor. An open file may be read by several threads.
 */
#pragma once

#include <strait/safetensors.h>

#include "base/error.h"
#include "tensor/tensor.h"

#include <stddef.h>
#include <stdint.h>

/* Like strait_safetensors_open, for a file in memory, which is borrowed until close. `name` is used
 * in error messages.
 */
strait_err strait_safetensors_parse(const char *name, const void *data, size_t bytes,
                                    struct strait_safetensors **out);

/* The name of a dtype in safetensors files, for example "F32". */
const char *strait_safetensors_dtype(strait_dtype dtype);

/* Points *out to the values of a tensor, unaligned and valid until close. Dtype and shape must
 * equal those of `shape`; a file's vector of n values matches [1 x n] and [n x 1]. */
strait_err strait_safetensors_view(const struct strait_safetensors *file, const char *name,
                                   strait_tensor shape, const unsigned char **out);

/* Tells the kernel that the tensor is read soon. */
void strait_safetensors_prefetch(const struct strait_safetensors *file, const char *name);

/* Tells the kernel that the tensor's pages are not needed for now. They are read again on access.
 */
void strait_safetensors_drop_pages(const struct strait_safetensors *file, const char *name);

/* Copies a tensor into `into`, host memory of the same dtype and shape (as above). */
strait_err strait_safetensors_read(const struct strait_safetensors *file, const char *name,
                                   strait_tensor into);

typedef struct strait_safetensors_item {
    const char *name;
    strait_tensor tensor; // in host memory; borrowed for the call
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
    /* Where values are produced as they are written: called once for each item, in order, and sets
     * *out to its values, which are borrowed until the next call. The tensors of the items then
     * need no data. NULL: they have it. */
    strait_err (*load)(void *user, int i, const void **out);
    void *user;
    char *hash; // gets the digest of the file (base/digest/hash.h) as it is written; may be NULL
} strait_safetensors_content;

/* Writes a new file and syncs it. The data section starts at a multiple of 8 bytes. On error a
 * partial file may remain, which the caller removes. */
strait_err strait_safetensors_write(const char *path, const strait_safetensors_content *content);
