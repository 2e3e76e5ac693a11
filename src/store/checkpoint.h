/* checkpoint.h - the states of a run that it can go on from.
 *
 *     RUN/checkpoints/00000200/manifest.json              what belongs to it, with sizes and hashes
 *                              stage-0.safetensors        weights of the first stage
 *                              stage-0.state.safetensors  its optimizer's moments
 *
 * The folder is the step, eight digits or more, so that names sort by age. A checkpoint is written
 * as STEP.tmp, synced and renamed: a folder without ".tmp" is whole, or was damaged later, which
 * the hashes tell. A tensor is found by its name in whichever file holds it, so a checkpoint can
 * be loaded into any number of stages. One process saves into a run at a time; any may read. */
#pragma once

#include "base/error.h"
#include "store/safetensors.h"

#include <stdint.h>

/* One file of a checkpoint. */
typedef struct strait_checkpoint_part {
    int stage;
    int is_state; // moments and the like, not weights
    const strait_safetensors_item *items;
    int n_items;
} strait_checkpoint_part;

/* What to save. Everything is lent for the call. */
typedef struct strait_checkpoint_plan {
    int64_t step;
    const char *tokenizer;                // fingerprint of it; "" for none
    const strait_safetensors_pair *model; // its shape: "width", "256"
    int n_model;
    const strait_checkpoint_part *parts;
    int n_parts;
    int keep; // this many newest checkpoints up to this one stay, at least 1
} strait_checkpoint_plan;

/* To be called once by the process that will save: makes RUN/checkpoints and clears what a killed
 * save left there. */
strait_err strait_checkpoint_prepare(const char *run_folder);

/* Saves, and then removes older checkpoints beyond plan->keep. A checkpoint of the same step is
 * replaced. On error (a full disk, a folder that cannot be written) the message says so, the
 * earlier checkpoints are as they were, and the unfinished one is removed if that is possible. */
strait_err strait_checkpoint_save(const char *run_folder, const strait_checkpoint_plan *plan);

/* The same in pieces, for stages in processes of their own: one begins, each writes its parts, one
 * commits a plan whose parts name those files. On an error before commit, abandon removes what was
 * written and completes the error's words. */
strait_err strait_checkpoint_begin(const char *run_folder, int64_t step);
strait_err strait_checkpoint_write(const char *run_folder, int64_t step,
                                   const strait_checkpoint_part *part);
strait_err strait_checkpoint_commit(const char *run_folder, const strait_checkpoint_plan *plan);
void strait_checkpoint_abandon(const char *run_folder, int64_t step);

/* Steps of the checkpoints in a run, oldest first, whole or not; none if there is no such folder.
 * The caller releases *out with strait_alloc_free. */
strait_err strait_checkpoint_list(const char *run_folder, int64_t **out, int *n);

/* An open checkpoint. */
struct strait_checkpoint;

typedef enum strait_checkpoint_choice {
    STRAIT_CHECKPOINT_NEWEST, // the newest must be whole
    STRAIT_CHECKPOINT_WHOLE,  // the newest that is whole; see strait_checkpoint_skipped
} strait_checkpoint_choice;

/* Opens a checkpoint of a run, or the one that `folder` itself is, after checking every size and
 * hash. STRAIT_EDATA says what is damaged, or that there is none. */
strait_err strait_checkpoint_open(const char *folder, strait_checkpoint_choice choice,
                                  struct strait_checkpoint **out);
void strait_checkpoint_close(struct strait_checkpoint **checkpoint); // accepts NULL

/* The newest that is whole, for whoever lets another thread read it: opening reads all of it. */
typedef struct strait_checkpoint_request {
    const char *folder;
    struct strait_checkpoint *checkpoint;
} strait_checkpoint_request;

strait_err strait_checkpoint_open_whole(void *errand);

const char *strait_checkpoint_path(const struct strait_checkpoint *checkpoint);
int64_t strait_checkpoint_step(const struct strait_checkpoint *checkpoint);
const char *strait_checkpoint_tokenizer(const struct strait_checkpoint *checkpoint);

/* That this one is taken and why newer ones were passed over, in words for the user, or NULL if
 * none were. */
const char *strait_checkpoint_skipped(const struct strait_checkpoint *checkpoint);

/* A property of the model's shape as it was saved; NULL: not there. */
const char *strait_checkpoint_model(const struct strait_checkpoint *checkpoint, const char *key);

/* The i-th file; NULL past the last. Its name, "stage-0.safetensors", in *out_name unless NULL. */
const struct strait_safetensors *strait_checkpoint_file(const struct strait_checkpoint *checkpoint,
                                                        int i, const char **out_name);

/* Copies a tensor, from whichever file has it, into `into` on the host. STRAIT_EDATA names the
 * tensor with the expected and the found shape. */
strait_err strait_checkpoint_read(const struct strait_checkpoint *checkpoint, const char *name,
                                  strait_tensor into);

/* The same without a copy: lends its values, which are not aligned, until close. Only the shape and
 * type of `shape` are looked at. `rest` says that they are not needed for now. */
strait_err strait_checkpoint_view(const struct strait_checkpoint *checkpoint, const char *name,
                                  strait_tensor shape, const unsigned char **out);
void strait_checkpoint_rest(const struct strait_checkpoint *checkpoint, const char *name);
