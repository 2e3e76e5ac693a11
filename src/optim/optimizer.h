/* optimizer.h - from gradients to new weights.
 *
 * A step is: gradients are ready; measure; clip (over the totals of this stage, or of all stages
 * gathered by the caller) into scale; step. Everything is queued on the stream and stays on the
 * device; nothing is allocated after open. One thread at a time.
 *
 * When a gradient is not finite, neither is the norm in scale[1], and a step of Muon would spoil
 * the moments for good: a caller that wants to go on downloads scale, and discards the step. */
#pragma once

#include "backend/backend.h"
#include "tensor/param.h"

#include <stddef.h>
#include <stdint.h>

typedef enum strait_optim_kind {
    /* Decoupled weight decay, w *= 1 - rate decay, then the bias-corrected update. */
    STRAIT_OPTIM_ADAMW,
    /* The same with one second moment per input unit: per column of a matrix [outputs x inputs],
     * per row (token) of an embedding. The update is then a scalar times the first moment for all
     * that one input writes, so weights whose gradients lie in a subspace stay in it. Gains keep a
     * second moment each. */
    STRAIT_OPTIM_ADAMW_ROWS,
    /* Orthogonalised momentum (muon.h) for MATRIX, WRITES_RESIDUAL, BOUNDARY and FRAME with more
     * than one row and column, AdamW for the rest. */
    STRAIT_OPTIM_MUON,
} strait_optim_kind;

typedef struct strait_optim_group {
    float rate, decay;
    int64_t steps; // by which the rate has fallen to nothing, for good; 0: only the schedule's way
} strait_optim_group;

typedef struct strait_optim_spec {
    strait_optim_kind kind;
    float beta1, beta2, epsilon;                  // AdamW
    float momentum, momentum_start;               // Muon
    int64_t momentum_warmup;                      // steps from momentum_start to momentum
    double max_norm;                              // of all gradients together; 0 never clips
    strait_optim_group groups[STRAIT_ROLE_COUNT]; // by the role of the parameter
} strait_optim_spec;

struct strait_optimizer;

/* Keeps `params` and the tensors in it, and `be`, until close. STRAIT_ECONFIG names a setting out
 * of its bounds; STRAIT_EINVAL a parameter without an f32 value and gradient of one shape. */
strait_err strait_optimizer_open(const strait_optim_spec *spec, struct strait_backend *be,
                                 strait_param *params, int n, struct strait_optimizer **out);
void strait_optimizer_close(struct strait_optimizer **opt); // sets *opt to NULL; accepts NULL

/* One without memory, to be asked for its bytes and moments and closed: only shapes and roles of
 * `params` are read, values and gradients may be absent. */
strait_err strait_optimizer_open_dry(const strait_optim_spec *spec, const strait_param *params,
                                     int n, struct strait_optimizer **out);

size_t strait_optimizer_bytes(const struct strait_optimizer *opt); // of device memory

/* Whether a group learns nothing more at `step`, from 1: its rate is 0 or its own steps are over.
 * Its gradients count for nothing, and a step leaves weights and moments as they are. */
int strait_optim_is_still(const strait_optim_group *group, int64_t step);

/* Sum of squares of each gradient into totals, so that stages can add up theirs; 0 for one that
 * `step`, the same that follows, leaves alone, whatever its gradient. */
strait_err strait_optimizer_measure(struct strait_optimizer *opt, struct strait_stream *s,
                                    int64_t step);
strait_tensor strait_optimizer_totals(const struct strait_optimizer *opt); // [n x 1]

/* [2 x 1]: the factor on every gradient, and the norm. Before the first clip the factor is 0. */
strait_tensor strait_optimizer_scale(const struct strait_optimizer *opt);

/* Measure, then scale from our own totals alone: all there is to clipping in one stage. */
strait_err strait_optimizer_clip(struct strait_optimizer *opt, struct strait_stream *s,
                                 int64_t step);

/* Whether a step after clip leaves everything as it is when the norm is not finite, without anyone
 * looking: AdamW does, Muon does not. */
int strait_optimizer_is_guarded(const struct strait_optimizer *opt);

/* A group's rate at `step`, from 1: the schedule's factor times its rate, and no more than what is
 * left of a straight way down over its own steps. */
float strait_optim_rate(const strait_optim_group *group, int64_t step, float rate_factor);

/* Updates every weight but those of groups that are still. `step` counts from 1 over the whole run,
 * also after a resume; rate_factor (rate.h) multiplies the rate of each group. */
strait_err strait_optimizer_step(struct strait_optimizer *opt, struct strait_stream *s,
                                 int64_t step, float rate_factor);

/* What a checkpoint must keep besides the weights. */
typedef struct strait_optim_state {
    char name[STRAIT_PARAM_NAME + 2]; // "blocks.0.attention.q.m": the parameter's, then m or v
    strait_tensor tensor;             // on the device; to be read or overwritten between steps
} strait_optim_state;

int strait_optimizer_states(const struct strait_optimizer *opt); // how many moments

/* The i-th moment, i from 0, in an order that follows from the parameters. STRAIT_EINVAL past the
 * last. */
strait_err strait_optimizer_state(const struct strait_optimizer *opt, int i,
                                  strait_optim_state *out);
