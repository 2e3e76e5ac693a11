/* optimizer.h - turns gradients into new weights.
 *
 * For each step: once all gradients are computed, call measure, then clip (over the squared norms
 * of this stage, or of all stages gathered by the caller) into scale, then step. Everything is
 * queued on the stream and stays on the device; nothing is allocated after open. One thread at a
 * time. The optimizers themselves are tables (optimizer_ops.h, registry.c).
 *
 * When a gradient is not finite, neither is the norm in scale[1]. Unless the optimizer checks that
 * itself (strait_optimizer_checks_norm), a step would make its state non-finite for good: the
 * caller downloads scale first and skips the step. */
#pragma once

#include "backend/backend.h"
#include "tensor/param.h"

#include <stddef.h>
#include <stdint.h>

struct strait_optimizer_ops;

enum {
    STRAIT_OPTIM_PATTERNS = 512, // bytes of strait_optim_spec.freeze
    STRAIT_OPTIM_ONLY = 32       // and of .only
};

/* Settings of all parameters of one role. */
typedef struct strait_optim_group {
    float learning_rate, weight_decay;
    /* Caps the learning rate by a linear decay to zero over this many steps; then the group is
     * frozen. 0: only the schedule applies. */
    int64_t steps;
} strait_optim_group;

/* Which weights share second moments, where the optimizer is adamw-rows. */
typedef enum strait_row_moments {
    STRAIT_ROWS_CONSTRAINED, // those that codec subspace constrains: residual output projections
                             // and the embedding
    STRAIT_ROWS_ALL,         // all but gains: takes the least memory
} strait_row_moments;

typedef struct strait_optim_spec {
    const struct strait_optimizer_ops *ops;
    float beta1, beta2, epsilon; // decay of moment estimates, and what avoids division by zero
    strait_row_moments row_moments;
    float momentum, momentum_start; // of momentum methods
    int64_t momentum_warmup;        // steps from momentum_start to momentum
    int64_t group_values; // muon: values of the matrices that are updated together; 0: one matrix
    double max_norm;      // of all gradients together; 0 never clips
    strait_optim_group groups[STRAIT_ROLE_COUNT]; // by the role of the parameter
    /* Parameters with a name like one of these never learn. Patterns of a shell, separated by
     * commas; a star matches any characters. */
    char freeze[STRAIT_OPTIM_PATTERNS];
    /* If not empty, only parameters like these learn, and only they have state. */
    char only[STRAIT_OPTIM_ONLY];
} strait_optim_spec;

struct strait_optimizer;

/* The registry, ended by NULL, and the names in the same order. */
extern const struct strait_optimizer_ops *const strait_optimizers[];
extern const char *const strait_optimizer_names[];

/* The optimizer of this name, or NULL. */
const struct strait_optimizer_ops *strait_optimizer_find(const char *name);

/* The learning rate of a role whose option is not set, given those of matrices and embedding. */
double strait_optimizer_default_learning_rate(const struct strait_optimizer_ops *ops,
                                              strait_role role, double matrix, double embedding);

/* Keeps `params` and the tensors in it, and `be`, until close. STRAIT_ECONFIG names a setting that
 * is out of bounds; STRAIT_EINVAL a parameter without an f32 value and gradient of one shape. */
strait_err strait_optimizer_open(const strait_optim_spec *spec, struct strait_backend *be,
                                 strait_param *params, int n, struct strait_optimizer **out);
void strait_optimizer_close(struct strait_optimizer **opt); // sets *opt to NULL; accepts NULL

/* Opens an optimizer without device memory, only to be asked for its bytes and states and closed.
 * Reads only the shapes and roles of `params`: values and gradients may be absent. */
strait_err strait_optimizer_open_dry(const strait_optim_spec *spec, const strait_param *params,
                                     int n, struct strait_optimizer **out);

size_t strait_optimizer_bytes(const struct strait_optimizer *opt); // of device memory

/* Whether a group does not learn at `step`, from 1: its learning rate is 0 or its own steps are
 * over. Its gradients are left out of the norm, and a step changes neither weights nor state. */
int strait_optim_is_frozen(const strait_optim_group *group, int64_t step);

/* Whether parameter i learns at any step: it is not frozen by its name, nor has its role a learning
 * rate of 0. */
int strait_optimizer_learns(const struct strait_optimizer *opt, int i);

/* Whether a name is like one of the patterns of strait_optim_spec.freeze. */
int strait_optim_is_named(const char *patterns, const char *name);

/* Computes the sum of squares of each gradient into squared_norms, so that stages can add up
 * theirs; 0 for parameters that are frozen at `step`, whatever their gradient. */
strait_err strait_optimizer_measure(struct strait_optimizer *opt, struct strait_stream *s,
                                    int64_t step);
/* From now on measures the gradients of these n parameters instead of its own: those of a step
 * whose update comes later. */
void strait_optimizer_measure_at(struct strait_optimizer *opt, const strait_param *params);
strait_tensor strait_optimizer_squared_norms(const struct strait_optimizer *opt); // [n x 1]

/* [2 x 1]: the factor on every gradient, and the norm. Before the first clip the factor is 0. */
strait_tensor strait_optimizer_scale(const struct strait_optimizer *opt);

/* Measures, then computes scale from the squared norms of this optimizer alone. With several
 * stages, the caller adds up their squared norms and writes scale[0] instead. */
strait_err strait_optimizer_clip(struct strait_optimizer *opt, struct strait_stream *s,
                                 int64_t step);

/* Whether a step after clip changes nothing when the norm is not finite, so that the caller need
 * not wait for the norm. */
int strait_optimizer_checks_norm(const struct strait_optimizer *opt);

/* A group's learning rate at `step`, from 1: the schedule's factor times its own rate, capped by a
 * linear decay to zero over the group's own steps. */
float strait_optim_learning_rate(const strait_optim_group *group, int64_t step, float factor);

/* Updates all weights but those of frozen groups. `step` counts from 1 over the whole run, also
 * after a resume; `factor` (lr_schedule.h) multiplies the learning rate of each group. */
strait_err strait_optimizer_step(struct strait_optimizer *opt, struct strait_stream *s,
                                 int64_t step, float factor);

/* What a checkpoint must keep besides the weights. */
typedef struct strait_optim_state {
    char name[STRAIT_PARAM_NAME + 2]; // "blocks.0.attention.q.m"
    const strait_param *param;        // borrowed
    strait_tensor tensor;             // on the device; may be read or overwritten between steps
    int is_linear;                    // as in strait_optim_state_spec
    int is_only;                      // the parameter has no other
} strait_optim_state;

int strait_optimizer_n_states(const struct strait_optimizer *opt);

/* State tensor i, from 0, in an order that depends on the parameters only. STRAIT_EINVAL past the
 * last. */
strait_err strait_optimizer_state(const struct strait_optimizer *opt, int i,
                                  strait_optim_state *out);
