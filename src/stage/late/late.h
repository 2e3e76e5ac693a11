/* late.h - the weights of a run whose updates are one step late (train.staleness 1).
 *
 * The optimizer updates w, which has every update. The passes of step t read w'(t), which lacks the
 * update of step t - 1: that one is still being computed when step t begins. The update of step t
 * turns w(t) into w(t + 1) and writes
 *
 *     w'(t + 2) = w(t + 1) + c (w(t + 1) - w(t))      c: train.extrapolation
 *
 * so that w' guesses the update it lacks from the last one; w'(0) and w'(1) are the first weights.
 * Two versions of w' exist, one for even and one for odd steps, in the precision that layers read.
 * Forward passes of step t + 1 and backward passes of step t may then alternate. The delay is one
 * step everywhere and always, whatever the network does: so are the bits.
 *
 * Layers and codecs read their parameters through strait_param, whose pointers `select` exchanges.
 * Between commands they point to w, which validations and checkpoints use. One thread uses it. */
#pragma once

#include "backend/slab.h"
#include "codec/codec.h"
#include "model/stage.h"

struct strait_late;

typedef struct strait_late_spec {
    const strait_param *params; // all of the stage, in the order of the optimizer; borrowed
    int n_params;
    struct strait_stage *model;             // borrowed, as are both codecs; NULL: a dry run
    struct strait_codec *receiver, *sender; // may be NULL
    float extrapolation;                    // c
    int keeps_gradients; // gradients of a step wait while those of the next are added
} strait_late_spec;

/* Device memory in bytes, without allocating it. Reads the shapes of the parameters only; `copies`
 * is the precision that layers read matrices in. */
typedef struct strait_late_memory {
    size_t weights, gradients;
} strait_late_memory;
strait_err strait_late_plan(const strait_late_spec *spec, strait_late_memory *out);

/* Allocates; the versions are zero until strait_late_start. */
strait_err strait_late_open(const strait_late_spec *spec, struct strait_backend *backend,
                            struct strait_late **out);
void strait_late_close(struct strait_late **late); // accepts NULL

/* The parameters as the optimizer sees them: w, and the gradients that wait. Borrowed. */
strait_param *strait_late_params(struct strait_late *late);

/* Sets both versions to w: before the first step, or for a checkpoint without them. */
strait_err strait_late_start(struct strait_late *late, struct strait_stream *stream);

/* Lets layers and codecs read the version of `step`; STRAIT_LATE_CURRENT: w itself. */
enum {
    STRAIT_LATE_CURRENT = -1
};
strait_err strait_late_select(struct strait_late *late, struct strait_stream *stream, int64_t step);

/* Puts the complete gradients of a step aside, for the optimizer. */
strait_err strait_late_keep_gradients(struct strait_late *late, struct strait_stream *stream);

/* Before and after the optimizer's update that ends `step`; a step that is skipped calls both, too.
 * The version of step + 2 overwrites that of `step`, whose passes must be over. */
strait_err strait_late_begin_update(struct strait_late *late, struct strait_stream *stream,
                                    int64_t step);
strait_err strait_late_end_update(struct strait_late *late, struct strait_stream *stream,
                                  int64_t step);

/* The versions, for checkpoints: "PARAMETER.e" for even steps, "PARAMETER.o" for odd ones. */
typedef struct strait_late_state {
    char name[STRAIT_PARAM_NAME + 2];
    strait_tensor tensor; // on the device
} strait_late_state;
int strait_late_n_states(const struct strait_late *late);
void strait_late_get_state(const struct strait_late *late, int i, strait_late_state *out);
