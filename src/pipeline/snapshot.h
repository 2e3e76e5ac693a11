/* snapshot.h - a worker's weights, moments and codec state, to and from checkpoints. */
#pragma once

#include "pipeline/worker.h"
#include "store/checkpoint.h"

/* Writes the files of one stage into the checkpoint of `step` that was begun in a run's folder. */
strait_err strait_snapshot_write(struct strait_worker *worker, const char *folder, int64_t step);

/* Everything a worker goes on with: weights, moments, what its codecs remember. */
strait_err strait_snapshot_read(struct strait_checkpoint *checkpoint, struct strait_worker *worker);

/* Calls `visit` with every tensor a worker goes on with, weights first, always in the same order;
 * an error ends it. After all were overwritten, strait_snapshot_restored tells the codecs. */
typedef strait_err strait_snapshot_visit(void *user, struct strait_stream *stream, const char *name,
                                         strait_tensor tensor, int is_state);
strait_err strait_snapshot_each(struct strait_worker *worker, strait_snapshot_visit *visit,
                                void *user);
strait_err strait_snapshot_restored(struct strait_worker *worker);

/* The same of a stage that nobody serves here: tensors without memory, and no stream. */
strait_err strait_snapshot_expect(const strait_recipe *recipe, int stage,
                                  strait_snapshot_visit *visit, void *user);

/* The weights of a stage alone, and a codec half with what it remembers. */
strait_err strait_snapshot_read_stage(struct strait_checkpoint *checkpoint,
                                      struct strait_stage *stage);
strait_err strait_snapshot_read_codec(struct strait_checkpoint *checkpoint,
                                      struct strait_codec *codec, struct strait_stream *stream);
