/* snapshot.h - a worker's weights and moments, to and from checkpoints. */
#pragma once

#include "pipeline/worker.h"

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

/* Saves the state after `step` steps as a checkpoint of the run in `folder`. */
strait_err strait_snapshot_save(struct strait_worker *worker, const char *folder, int64_t step,
                                const char *tokenizer, int keep);

/* Loads weights and, unless `optimizer` is NULL, its moments. */
strait_err strait_snapshot_load(const struct strait_checkpoint *checkpoint,
                                struct strait_stage *stage, struct strait_optimizer *optimizer);
