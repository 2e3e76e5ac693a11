/* snapshot.h - a worker's weights, moments and codec state, to and from checkpoints. */
#pragma once

#include "stage/runner.h"
#include "store/checkpoint.h"

/* Writes the files of one stage into the checkpoint of `step` that was begun in a run's folder. */
strait_err strait_runner_state_write(struct strait_runner *worker, const char *folder,
                                     int64_t step);

/* Everything a worker goes on with: weights, moments, what its codecs remember. */
strait_err strait_runner_state_read(struct strait_checkpoint *checkpoint,
                                    struct strait_runner *worker);

/* Calls `visit` with every tensor a worker goes on with, weights first, always in the same order;
 * an error ends it. After all were overwritten, strait_runner_state_restored tells the codecs. */
typedef strait_err strait_runner_state_visit(void *user, struct strait_stream *stream,
                                             const char *name, strait_tensor tensor, int is_state);
strait_err strait_runner_state_each(struct strait_runner *worker, strait_runner_state_visit *visit,
                                    void *user);
strait_err strait_runner_state_restored(struct strait_runner *worker);

/* The same of a stage that nobody serves here: tensors without memory, and no stream. */
strait_err strait_runner_state_expect(const strait_run_plan *plan, int stage,
                                      strait_runner_state_visit *visit, void *user);

/* The weights of a stage alone, and a codec half with what it remembers. */
strait_err strait_runner_state_read_stage(struct strait_checkpoint *checkpoint,
                                          struct strait_stage *stage);
strait_err strait_runner_state_read_codec(struct strait_checkpoint *checkpoint,
                                          struct strait_codec *codec, struct strait_stream *stream);
