/* safetensors.h - read the tensors of a safetensors file.
 *
 *     struct strait_safetensors *file = NULL;
 *     strait_safetensors_open("model.safetensors", &file);
 *     for (int i = 0; i < strait_safetensors_count(file); i++)
 *         puts(strait_safetensors_at(file, i)->name);
 *     strait_safetensors_close(&file);
 *
 * The reader does not trust its input: it bounds and checks the header, and verifies that every
 * tensor lies inside the file, that none overlap, and that sizes follow from shape and dtype. An
 * open file does not change; several threads may read it. */
#pragma once

#include <strait/error.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    STRAIT_SAFETENSORS_DIMS = 8 // dimensions of a tensor, at most
};

/* A tensor in an open file. All pointers are borrowed from the file. */
typedef struct strait_safetensor {
    const char *name;
    const char *dtype; // as the file spells it: "F32", "BF16", "I64"
    int n_dims;
    int64_t dims[STRAIT_SAFETENSORS_DIMS];
    const unsigned char *data; // little-endian values, unaligned, mapped from the file
    size_t bytes;
} strait_safetensor;

struct strait_safetensors;

/* Maps a file into memory and checks its header. STRAIT_EIO: the file cannot be read. STRAIT_EDATA:
 * it is not a valid safetensors file; the detail names the file and the tensor. */
STRAIT_API strait_err strait_safetensors_open(const char *path, struct strait_safetensors **out);

/* Unmaps the file; everything borrowed from it becomes invalid. Sets *file to NULL; accepts NULL in
 * it. */
STRAIT_API void strait_safetensors_close(struct strait_safetensors **file);

/* How many tensors the file has, and the i-th of them, sorted by name, with 0 <= i < count. */
STRAIT_API int strait_safetensors_count(const struct strait_safetensors *file);
STRAIT_API const strait_safetensor *strait_safetensors_at(const struct strait_safetensors *file,
                                                          int i);

/* The tensor, or the metadata value, with this name; NULL if there is none. Borrowed until close.
 */
STRAIT_API const strait_safetensor *strait_safetensors_find(const struct strait_safetensors *file,
                                                            const char *name);
STRAIT_API const char *strait_safetensors_metadata(const struct strait_safetensors *file,
                                                   const char *key);

#ifdef __cplusplus
}
#endif
