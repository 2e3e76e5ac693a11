/* export_list.h - which tensors an export writes, under which names, and into which files. */
#pragma once

#include "convert/hf_config.h"
#include "convert/hf_names.h"
#include "convert/weights_source.h"

/* One tensor of the output: `count` values of a tensor of ours, from `first` on. */
typedef struct strait_export_item {
    char name[STRAIT_HF_NAME];      // in the output
    char source[STRAIT_PARAM_NAME]; // ours; empty: all ones
    int64_t source_rows, source_cols;
    int64_t first;
    int64_t rows, cols; // of the output; rows 1: a vector
    int file;           // which file of the output has it
} strait_export_item;

struct strait_export_list {
    strait_export_item *items;
    int n_items, n_files;
};

/* The class that computes what the checkpoint computes: one of transformers', or the one of
 * modeling_strait.py. */
strait_hf_class strait_export_class(const strait_run_plan *plan);

/* Lists the tensors of a model of that class. The caller calls fini, also after an error; `out` is
 * zeroed before. */
strait_err strait_export_list_init(const struct strait_checkpoint *checkpoint,
                                   const strait_run_plan *plan, strait_hf_class class,
                                   struct strait_export_list *out);
void strait_export_list_fini(struct strait_export_list *list);

/* Distributes the tensors, in order, to files of at most `most` bytes each, at `value` bytes per
 * value; a larger tensor gets a file of its own. */
void strait_export_list_split(struct strait_export_list *list, size_t value, size_t most);

/* The name of a file: model.safetensors, or model-00001-of-00003.safetensors. */
void strait_export_list_file(const struct strait_export_list *list, int file, char out[64]);
