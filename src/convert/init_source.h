/* init_source.h - where a new run takes weights from: a run, a checkpoint or a Hugging Face folder.
 *
 * Tensors are found by the names that this program gives them. */
#pragma once

#include "convert/files.h"
#include "convert/hf_read.h"
#include "convert/weights_source.h"

struct strait_init_source {
    struct strait_hf_model hf;            // if its folder is set
    struct strait_checkpoint *checkpoint; // otherwise
    strait_run_plan plan;                 // of the checkpoint
    struct strait_weights_source weights; // of the checkpoint
};

/* Opens a source; `source` is zeroed before. The caller calls close, also after an error. */
strait_err strait_init_source_open(const char *path, struct strait_init_source *source);
void strait_init_source_close(struct strait_init_source *source);

/* The i-th tensor: name and shape, as a model without coordinates has them. Returns 0 past the
 * last. */
int strait_init_source_at(const struct strait_init_source *source, int i, const char **name,
                          int64_t *rows, int64_t *cols);

/* The i-th tensor as it is stored, coordinates included; NULL for one of a Hugging Face folder.
 * Borrowed. */
const strait_safetensor *strait_init_source_stored(const struct strait_init_source *source, int i);

/* Copies the source's tokenizer, and the files that transformers keeps beside it, into a run's
 * folder, where they are not there already. `fingerprint` is that of the data's tokenizer, "": not
 * known. If it is another one, nothing is copied and a note says so. */
strait_err strait_init_source_take_tokenizer(const struct strait_init_source *source,
                                             const char *fingerprint, const char *run,
                                             const strait_convert_notes *notes);

/* Reads the i-th tensor as f32. */
strait_err strait_init_source_read(const struct strait_init_source *source, int i, float *out);
