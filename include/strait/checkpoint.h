/* checkpoint.h - read the checkpoints of a run: steps, model properties, tensors.
 *
 * RUN/checkpoints/STEP holds one safetensors file of weights and one of optimizer and codec state
 * per stage, and a manifest with the size and hash of each. Several processes may read a run, also
 * while it is being trained. An open checkpoint does not change; several threads may read it.
 * strait_trainer_save writes checkpoints (trainer.h). */
#pragma once

#include <strait/error.h>
#include <strait/safetensors.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct strait_checkpoint;

/* Which checkpoint of a run to open. A folder that is itself a checkpoint is opened either way. */
typedef enum strait_checkpoint_choice {
    STRAIT_CHECKPOINT_NEWEST,       // the newest one; an error if it is damaged
    STRAIT_CHECKPOINT_NEWEST_VALID, // the newest undamaged one; see strait_checkpoint_skipped
} strait_checkpoint_choice;

/* Lists the steps of the checkpoints in a run, oldest first, without checking whether they are
 * complete. A folder that does not exist has none. The caller frees *out with strait_free. */
STRAIT_API strait_err strait_checkpoint_list(const char *run_folder, int64_t **out, int *n);

/* Opens a checkpoint after checking every size and hash, which reads all of it. `folder` is a run,
 * or a single checkpoint. STRAIT_EDATA: the checkpoint is damaged, or there is none; the detail
 * names the file. */
STRAIT_API strait_err strait_checkpoint_open(const char *folder, strait_checkpoint_choice choice,
                                             struct strait_checkpoint **out);

/* Releases the checkpoint and everything borrowed from it. Sets *checkpoint to NULL; accepts NULL
 * in it. */
STRAIT_API void strait_checkpoint_close(struct strait_checkpoint **checkpoint);

/* Its folder, the number of steps trained, and the fingerprint of the tokenizer that the data was
 * tokenized with, empty if unknown. Strings are borrowed until close. */
STRAIT_API const char *strait_checkpoint_path(const struct strait_checkpoint *checkpoint);
STRAIT_API int64_t strait_checkpoint_step(const struct strait_checkpoint *checkpoint);
STRAIT_API const char *strait_checkpoint_tokenizer(const struct strait_checkpoint *checkpoint);

/* A message for people that says why newer, damaged checkpoints were skipped; NULL if none were.
 * Borrowed until close. */
STRAIT_API const char *strait_checkpoint_skipped(const struct strait_checkpoint *checkpoint);

/* The saved value of a property of the model, such as "width" or "codec"; NULL if it was not saved.
 * Borrowed until close. */
STRAIT_API const char *strait_checkpoint_model(const struct strait_checkpoint *checkpoint,
                                               const char *key);

/* The model as the library understands it: visits every property with its value, defaults
 * included, and counts the trained parameters, those of codecs included. Strings are valid during
 * the call of `visit`, which may be NULL. STRAIT_EDATA: the checkpoint describes no model that this
 * version knows. */
STRAIT_API strait_err strait_checkpoint_describe(const struct strait_checkpoint *checkpoint,
                                                 void (*visit)(void *user, const char *key,
                                                               const char *value),
                                                 void *user, int64_t *parameters);

/* The i-th file, or NULL past the last. If out_name is not NULL it receives the file's name, for
 * example "stage-0.safetensors". Borrowed until close. */
STRAIT_API const struct strait_safetensors *strait_checkpoint_file(
    const struct strait_checkpoint *checkpoint, int i, const char **out_name);

#ifdef __cplusplus
}
#endif
