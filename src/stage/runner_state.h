/* runner_state.h - the persistent state of a runner (weights, optimizer moments, codec state): to
 * and from checkpoints, and tensor by tensor for snapshots.
 *
 * All functions run on the runner's thread. */
#pragma once

#include "stage/runner.h"
#include "store/checkpoint.h"

/* Writes the two files of one stage, weights and other state, into the checkpoint of `step` that
 * was begun in the run's folder. Waits for queued work of the device. With an outer step the
 * weights are the averaged ones, and the state has also what this replica alone has; with
 * is_partial one file has that and nothing else, under names with the number of the replica. */
strait_err strait_runner_state_write(struct strait_runner *runner, const char *folder, int64_t step,
                                     int is_partial);

/* The digest of everything that write would write. Waits for queued work of the device. */
strait_err strait_runner_state_digest(struct strait_runner *runner, strait_digest *out);

/* Restores everything from a checkpoint. A replica with an outer step that the checkpoint does not
 * know takes the averaged weights and the moments of another one. After an error part of the
 * tensors may be overwritten. */
strait_err strait_runner_state_read(struct strait_checkpoint *checkpoint,
                                    struct strait_runner *runner);

/* Called with one tensor; `is_state` is 0 for weights and 1 for moments, codec state and the state
 * of an outer step. A stream of NULL means host memory. */
typedef strait_err strait_runner_state_visit(void *user, struct strait_stream *stream,
                                             const char *name, strait_tensor tensor, int is_state);

/* Visits every tensor of the state, weights first, always in the same order; stops at the first
 * error. */
strait_err strait_runner_state_each(struct strait_runner *runner, strait_runner_state_visit *visit,
                                    void *user);

/* Must follow after a visitor has overwritten the tensors: refreshes the copies that the codecs and
 * the model derive from them. */
strait_err strait_runner_state_restored(struct strait_runner *runner);

/* The same after a visitor has overwritten all of them: those of an outer step, too. */
strait_err strait_runner_state_taken(struct strait_runner *runner);

/* Visits the names and shapes of the same tensors in the same order for a stage that does not run
 * on this machine, so that what another worker sends can be checked. The tensors have no memory
 * (data is NULL) and `stream` is NULL. */
strait_err strait_runner_state_describe(const strait_run_plan *plan, int stage,
                                        strait_runner_state_visit *visit, void *user);

/* Restores the weights of a stage alone, and one side of a codec with its state. For inference. */
strait_err strait_runner_state_read_stage(struct strait_checkpoint *checkpoint,
                                          struct strait_stage *stage);
strait_err strait_runner_state_read_codec(struct strait_checkpoint *checkpoint,
                                          struct strait_codec *codec, struct strait_stream *stream);
