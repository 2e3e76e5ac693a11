/* hf_folder.h - the tensors of a Hugging Face folder: model.safetensors, or the shards that
 * model.safetensors.index.json lists.
 *
 * Files are mapped, not read: memory is taken by what is looked at. Nothing in the folder is
 * trusted. Pickle files are refused, because reading one runs the code in it. */
#pragma once

#include "base/error.h"
#include "store/safetensors.h"

#include <stddef.h>

struct strait_hf_index;

/* Reads the text of an index. STRAIT_EDATA: it has no "weight_map" from tensors to files of the
 * same folder. The caller closes it. */
strait_err strait_hf_index_parse(const char *text, size_t bytes, struct strait_hf_index **out);
void strait_hf_index_close(struct strait_hf_index **index); // accepts NULL in it

/* The number of files that it names, and the i-th of them. Borrowed until close. */
int strait_hf_index_files(const struct strait_hf_index *index);
const char *strait_hf_index_file(const struct strait_hf_index *index, int i);
/* The file that should have a tensor; -1: none. */
int strait_hf_index_find(const struct strait_hf_index *index, const char *tensor);

struct strait_hf_folder;

/* Opens all tensor files. STRAIT_EDATA names the file that is missing, damaged or of another kind.
 * The caller closes it. */
strait_err strait_hf_folder_open(const char *path, struct strait_hf_folder **out);
void strait_hf_folder_close(struct strait_hf_folder **folder); // accepts NULL in it

/* A tensor by its name; NULL if there is none. Borrowed until close. */
const strait_safetensor *strait_hf_folder_find(const struct strait_hf_folder *folder,
                                               const char *name);
/* Tells the kernel that a tensor is read soon, or that its pages are not needed any more. */
void strait_hf_folder_prefetch(const struct strait_hf_folder *folder, const char *name);
void strait_hf_folder_drop_pages(const struct strait_hf_folder *folder, const char *name);

/* The number of tensors in all files, and the i-th of them, file by file; NULL past the last. */
const strait_safetensor *strait_hf_folder_at(const struct strait_hf_folder *folder, int i);

/* The folder, for messages. Borrowed until close. */
const char *strait_hf_folder_path(const struct strait_hf_folder *folder);
