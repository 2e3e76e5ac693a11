/* snapshot.h - a worker's weights, moments and codec state, to and from checkpoints. */
#pragma once

#include "pipeline/worker.h"
#include "store/checkpoint.h"

/* The shape of a model as the text pairs of a manifest, and back. */
enum {
    STRAIT_SNAPSHOT_PAIRS = 20,
    STRAIT_SNAPSHOT_TEXT = 32
};
typedef struct strait_snapshot_shape {
    strait_safetensors_pair pairs[STRAIT_SNAPSHOT_PAIRS];
    char texts[STRAIT_SNAPSHOT_PAIRS][STRAIT_SNAPSHOT_TEXT];
    int n;
} strait_snapshot_shape;

void strait_snapshot_describe(const strait_shape *shape, strait_snapshot_shape *out);
strait_err strait_snapshot_shape_of(const struct strait_checkpoint *checkpoint, strait_shape *out);

/* Refuses a checkpoint of another model or tokenizer, naming the first difference. An empty
 * fingerprint on either side means unknown and matches. */
strait_err strait_snapshot_check(const struct strait_checkpoint *checkpoint,
                                 const strait_shape *shape, const char *tokenizer);

/* Writes the files of one stage into the checkpoint of `step` that was begun in a run's folder. */
strait_err strait_snapshot_write(struct strait_worker *worker, const char *folder, int64_t step);

/* Everything a worker goes on with: weights, moments, what its codecs remember. */
strait_err strait_snapshot_read(struct strait_checkpoint *checkpoint, struct strait_worker *worker);

/* The weights of a model alone. */
strait_err strait_snapshot_read_model(struct strait_checkpoint *checkpoint,
                                      struct strait_stage *model);
