/* run.h - the description of a run: model, data, training, stages, links and device.
 *
 * A run file is YAML; docs/run-file.md lists its keys, `strait options` prints them. A key that the
 * file leaves out has a default; model.family, train.optimizer and link.codec.variant choose
 * defaults for other keys, and some keys are derived from others.
 *
 *     struct strait_run *run = NULL;
 *     int64_t steps = 0;
 *     strait_run_load("run.yaml", NULL, 0, &run);
 *     strait_run_set(run, "train.learning_rate", "0.002");
 *     strait_run_get_int(run, "train.steps", &steps);
 *     strait_run_close(&run);
 *
 * Every function returns STRAIT_OK or an error that strait_err_detail() describes. One thread at a
 * time may use a run; different runs are independent. */
#pragma once

#include <strait/api.h>
#include <strait/error.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    STRAIT_RUN_STAGES = 64,       /* most stages of a run */
    STRAIT_RUN_VALUE_BYTES = 2048 /* enough for any value as text, with the final zero */
};

struct strait_run;

/* Reads a run file and then the overrides, such as "train.steps=10"; later ones win. Relative paths
 * in the file start at its folder, those in overrides at the current folder. The caller closes
 * *out. STRAIT_ECONFIG names the file, line and column, or first the override ("KEY=VALUE"), and
 * the keys that do not fit together; *out is then untouched. */
STRAIT_API strait_err strait_run_load(const char *path, const char *const *sets, int n_sets,
                                      struct strait_run **out);

/* Like strait_run_load from text in memory; `name` stands for the file in errors, and relative
 * paths stay relative. */
STRAIT_API strait_err strait_run_parse(const char *name, const char *text, size_t bytes,
                                       const char *const *sets, int n_sets,
                                       struct strait_run **out);

/* A run in which every key has its default. The caller closes *out. */
STRAIT_API strait_err strait_run_default(struct strait_run **out);

/* Sets one key as an override on the command line would: keys that were not set explicitly are
 * derived again. STRAIT_ECONFIG for an unknown key, or a value out of bounds or in conflict with
 * other keys; the run is then unchanged. A relative path starts at the current folder. */
STRAIT_API strait_err strait_run_set(struct strait_run *run, const char *key, const char *value);

/* The value of a key as a run file would have it, without quotes; derived values are the values in
 * use. STRAIT_ECONFIG for an unknown key, STRAIT_EINVAL where `capacity` is too small. */
STRAIT_API strait_err strait_run_get_text(const struct strait_run *run, const char *key, char *out,
                                          size_t capacity);

/* The value of a whole number; 0 or 1 of a key that is true or false. STRAIT_ECONFIG for an unknown
 * key, STRAIT_EINVAL for a key of another kind. */
STRAIT_API strait_err strait_run_get_int(const struct strait_run *run, const char *key,
                                         int64_t *out);

/* The value of a number of any kind; durations in seconds, bandwidths in bits per second. Errors as
 * strait_run_get_int. */
STRAIT_API strait_err strait_run_get_real(const struct strait_run *run, const char *key,
                                          double *out);

/* Writes a run file that loads to the same values, replacing `path` in one step. Keys that were
 * set are written as such; the others follow as comments with the values in use. STRAIT_EIO. */
STRAIT_API strait_err strait_run_save(const struct strait_run *run, const char *path);

/* Frees a run and sets *run to NULL; accepts NULL. */
STRAIT_API void strait_run_close(struct strait_run **run);

#ifdef __cplusplus
}
#endif
