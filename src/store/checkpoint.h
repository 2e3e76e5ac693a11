/* checkpoint.h - saved states of a run, from which it resumes to the same bits.
 *
 *     RUN/checkpoints/00000200/manifest.json              lists its files with sizes and hashes
 *                              stage-0.safetensors        weights of the first stage
 *                              stage-0.state.safetensors  optimizer moments and codec state
 *                              stage-0.replica-1.state.safetensors  of one that trains on its own
 *
 * The folder is named by the step, with at least eight digits, so that names sort by age. A
 * checkpoint is written as STEP.tmp, synced and renamed. A folder without ".tmp" is therefore
 * complete, or was damaged later, which the hashes reveal. Tensors are found by name in whichever
 * file holds them, so a checkpoint loads into any number of stages. One process at a time saves
 * into a run; any process may read. */
#pragma once

#include <strait/checkpoint.h>

#include "base/error.h"
#include "base/folder_lock.h"
#include "store/safetensors.h"

#include <stdint.h>

/* One file of a checkpoint. */
typedef struct strait_checkpoint_stage_file {
    int stage;
    int is_state; // optimizer and codec state, not weights
    int replica;  // from 1: state of a replica that trains on its own; 0: of the stage
    int n_items;
    const strait_safetensors_item *items;
    strait_err (*load)(void *user, int i, const void **out); // as in strait_safetensors_content
    void *user;
    char *hash; // as there: if write has filled it in, commit need not read the file again
} strait_checkpoint_stage_file;

/* What to save. All pointers are borrowed for the duration of the call. */
typedef struct strait_checkpoint_plan {
    int64_t step;
    const char *tokenizer;                // its fingerprint; "" if there is none
    const strait_safetensors_pair *model; // properties of the model as text: "width", "256"
    int n_model;
    const strait_checkpoint_stage_file *files;
    int n_files;
    int keep;                        // how many checkpoints up to this step to keep; at least 1
    int keeps_first;                 // that of step 0 is kept in any case
    struct strait_folder_lock *lock; // checked before it is installed; NULL: not checked
} strait_checkpoint_plan;

/* Creates RUN/checkpoints and removes what an interrupted save left there. The saving process calls
 * this once, before its first save. */
strait_err strait_checkpoint_prepare(const char *run_folder);

/* Saves a checkpoint, then removes older ones beyond plan->keep. A checkpoint of the same step is
 * replaced. On error (for example a full disk) earlier checkpoints are unchanged and the unfinished
 * one is removed if possible. */
strait_err strait_checkpoint_save(const char *run_folder, const strait_checkpoint_plan *plan);

/* The same in separate calls, for stages that run in several processes: the coordinator begins,
 * each stage writes its files, and the coordinator commits a plan that lists those files. After an
 * error before the commit, abandon removes what was written and adds the step to the error message.
 * STRAIT_EDEPOSED from commit: plan->lock was taken by another process; nothing was installed. */
strait_err strait_checkpoint_begin(const char *run_folder, int64_t step);
strait_err strait_checkpoint_write(const char *run_folder, int64_t step,
                                   const strait_checkpoint_stage_file *file);
strait_err strait_checkpoint_commit(const char *run_folder, const strait_checkpoint_plan *plan);
void strait_checkpoint_abandon(const char *run_folder, int64_t step);

/* Arguments and result of strait_checkpoint_open_valid, which opens the newest undamaged
 * checkpoint. It has the signature of a task because opening hashes every byte and may be run on
 * another thread. */
typedef struct strait_checkpoint_request {
    const char *folder;
    struct strait_checkpoint *checkpoint;
} strait_checkpoint_request;

strait_err strait_checkpoint_open_valid(void *request);

/* Opens the newest checkpoint of a run, or a single one, without hashing its files, for callers
 * that do so while they read it: what was read counts only if strait_checkpoint_check succeeds. It
 * hashes the files with weights and, with_state, the others; another thread may do it. */
strait_err strait_checkpoint_open_unchecked(const char *folder, struct strait_checkpoint **out);
strait_err strait_checkpoint_check(const struct strait_checkpoint *checkpoint, int with_state);

/* Whether some file has a tensor of this name. */
int strait_checkpoint_has(const struct strait_checkpoint *checkpoint, const char *name);

/* Copies a tensor from whichever file has it into `into`, which is host memory. STRAIT_EDATA: the
 * tensor is missing or has another shape; the message names the tensor and both shapes. */
strait_err strait_checkpoint_read(const struct strait_checkpoint *checkpoint, const char *name,
                                  strait_tensor into);

/* The same without a copy: *out points to the values, unaligned, and is valid until close. Only the
 * shape and dtype of `shape` are used. `drop_pages` tells the kernel that the pages are not
 * needed for now. */
strait_err strait_checkpoint_view(const struct strait_checkpoint *checkpoint, const char *name,
                                  strait_tensor shape, const unsigned char **out);
void strait_checkpoint_drop_pages(const struct strait_checkpoint *checkpoint, const char *name);

/* Tells the kernel that the tensor is read soon. */
void strait_checkpoint_prefetch(const struct strait_checkpoint *checkpoint, const char *name);
