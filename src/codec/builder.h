/* parts.h - what codecs are built from: planned tensors, parameters, state, first values. */
#pragma once

#include "base/rng.h"
#include "codec/codec.h"

/* y = a b, a b^T, a^T b; and the same added to y. */
static const strait_matmul_params strait_ab = {.alpha = 1};
static const strait_matmul_params strait_abt = {.alpha = 1, .transpose_b = 1};
static const strait_matmul_params strait_atb = {.alpha = 1, .transpose_a = 1};
static const strait_matmul_params strait_add_ab = {.alpha = 1, .beta = 1};
static const strait_matmul_params strait_add_abt = {.alpha = 1, .beta = 1, .transpose_b = 1};
static const strait_matmul_params strait_add_atb = {.alpha = 1, .beta = 1, .transpose_a = 1};

/* While planning: f32 tensors of this half. `where` stays put, usually in c->state. */
typedef struct strait_codec_part {
    strait_tensor *where;
    int64_t rows, cols;
} strait_codec_part;

strait_err strait_codec_add(struct strait_codec *c, const strait_codec_part *parts, size_t n);

/* Rows of a tensor with room for every slot; for every slot whose gradient waits for param_grads,
 * which is one where nothing is deferred. And the rows of one slot in them. */
int64_t strait_codec_slot_rows(const struct strait_codec *c);
int64_t strait_codec_grad_slot_rows(const struct strait_codec *c);
strait_tensor strait_codec_slot(const struct strait_codec *c, strait_tensor slots, int slot);
strait_tensor strait_codec_grad_slot(const struct strait_codec *c, strait_tensor slots, int slot);

/* A parameter with its gradient, and a state tensor, called "boundary.B.HALF.name"; they become
 * c->params[n] and c->states[n] in the order of the calls. */
strait_err strait_codec_add_param(struct strait_codec *c, const char *name, strait_role role,
                                  int64_t rows, int64_t cols);
strait_err strait_codec_add_state(struct strait_codec *c, const char *name, strait_dtype dtype,
                                  int64_t rows, int64_t cols);

/* While starting: normal numbers of this size, from the seed and the parameter's name. */
strait_err strait_codec_draw(struct strait_codec *c, struct strait_stream *s,
                             const strait_param *param, double std);

/* The same in the first columns, zeros in the others; ones on the diagonal of a square matrix. */
strait_err strait_codec_draw_cols(struct strait_codec *c, struct strait_stream *s,
                                  const strait_param *param, double std, int64_t cols);
strait_err strait_codec_set_identity(struct strait_stream *s, strait_tensor t);

typedef struct strait_codec_frame {
    const char *name; // of the numbers it is drawn from
    int64_t k;
    double gain;
    int is_transposed;
} strait_codec_frame;

/* Orthonormal columns [d x k] times the gain, into the first k columns of t [d x n], or the
 * transpose into its first k rows; 0 elsewhere. The same frame for the same seed and name. */
strait_err strait_codec_draw_frame(struct strait_codec *c, struct strait_stream *s, strait_tensor t,
                                   strait_codec_frame how);

static inline int strait_codec_bits(const strait_codec_spec *spec, strait_direction direction) {
    return direction == STRAIT_FORWARD ? spec->bits : spec->grad_bits;
}

/* What this half sends: activations from a head, gradients from a tail. */
static inline strait_direction strait_codec_sends(const struct strait_codec *c) {
    return c->side == STRAIT_SENDER ? STRAIT_FORWARD : STRAIT_BACKWARD;
}

static inline strait_direction strait_codec_receives(const struct strait_codec *c) {
    return c->side == STRAIT_SENDER ? STRAIT_BACKWARD : STRAIT_FORWARD;
}

/* Where a kernel adds what it saw of so many rows (STRAIT_METER_PACK or STRAIT_METER_UNPACK);
 * absent when packing in an evaluation, of which only what was refused leaves a trace. */
strait_tensor strait_codec_stats(const struct strait_codec *c, const strait_crossing *at,
                                 int64_t rows, int which);

/* Of a padded codec: so many columns of codes that rows of them start at 16 bytes. */
static inline int64_t strait_codec_pad(int64_t keep) {
    return (keep + 7) / 8 * 8;
}

/* While planning: a tensor of this type. */
strait_err strait_codec_add_typed(struct strait_codec *c, strait_dtype dtype,
                                  const strait_codec_part *parts, size_t n);

/* While planning: strait_codec_refresh will copy `value` to rows of `to`, from `row` on, its
 * columns as `how` says. */
strait_err strait_codec_add_copy(struct strait_codec *c, const strait_tensor *value,
                                 const strait_tensor *to, int64_t row, strait_regroup_params how);

/* The gradient that a tail packs, until param_grads: lent by the caller, or kept where gradients
 * may wait (spec.can_defer), for which a padded codec plans `kept`, gradient slots. */
typedef struct strait_codec_held {
    strait_tensor kept, lent;
} strait_codec_held;

strait_err strait_codec_hold(struct strait_codec *c, const strait_crossing *at,
                             strait_codec_held *held, strait_tensor d);
strait_tensor strait_codec_held_at(const struct strait_codec *c, const strait_crossing *at,
                                   const strait_codec_held *held);

/* Adds to `grad` the product that has it in its first rows, in the columns where a copy of this
 * `how` has what grad is the gradient of. */
strait_err strait_codec_gather(struct strait_codec *c, const strait_crossing *at,
                               strait_tensor grad, strait_tensor product,
                               strait_regroup_params how);

/* Adds a' b to `grad`; where that is not of its shape, by way of `room`, f32 and large enough. */
strait_err strait_codec_add_gradient(struct strait_codec *c, const strait_crossing *at,
                                     strait_tensor grad, strait_tensor a, strait_tensor b,
                                     strait_tensor capacity, strait_regroup_params how);

/* The columns of a copy: all of them in their place; each of n groups of `keep` columns padded. */
static inline strait_regroup_params strait_codec_whole(int64_t cols) {
    return (strait_regroup_params){.n_groups = 1, .to_cols = cols, .from_cols = cols, .alpha = 1};
}

static inline strait_regroup_params strait_codec_padded(int64_t n, int64_t keep) {
    return (strait_regroup_params){
        .n_groups = n, .to_cols = strait_codec_pad(keep), .from_cols = keep, .alpha = 1};
}

/* The join of codecs whose halves on one stage read each other's code: both must be there, but at
 * the ends, and keep the same number of values. */
strait_err strait_codec_join_codes(struct strait_codec *c);

int strait_codec_is_variant(const strait_codec_spec *spec, const char *variant);

/* For check: `value` 0 becomes `otherwise`; STRAIT_ECONFIG unless 1 <= value <= most. */
strait_err strait_codec_need(const strait_codec_spec *spec, const char *key, int64_t *value,
                             int64_t otherwise, int64_t most);
/* The same for the token table. */
strait_err strait_codec_need_vocab(const strait_codec_spec *spec);
