/* builder.h - what codecs are built from: planned tensors, slots, parameters, state, initial
 * values, and padded copies of parameters. For files of this module only.
 *
 * Functions that add something are called from ops->plan, those that draw or set values from
 * ops->start, and the others from crossings. */
#pragma once

#include "base/rng/rng.h"
#include "codec/codec.h"

#define STRAIT_COUNT(array) (sizeof(array) / sizeof(array)[0])

/* y = a b, a b^T, a^T b; and the same added to y. */
static const strait_matmul_params strait_ab = {.alpha = 1};
static const strait_matmul_params strait_abt = {.alpha = 1, .transpose_b = 1};
static const strait_matmul_params strait_atb = {.alpha = 1, .transpose_a = 1};
static const strait_matmul_params strait_add_ab = {.alpha = 1, .beta = 1};
static const strait_matmul_params strait_add_abt = {.alpha = 1, .beta = 1, .transpose_b = 1};
static const strait_matmul_params strait_add_atb = {.alpha = 1, .beta = 1, .transpose_a = 1};

/* A tensor to plan. `where` is written when memory is committed and must not move until then; it
 * usually lies in c->state. */
typedef struct strait_codec_tensor {
    strait_tensor *where;
    int64_t rows, cols;
} strait_codec_tensor;

/* Plan f32 tensors; tensors of another type. */
strait_err strait_codec_add(struct strait_codec *c, const strait_codec_tensor *tensors, size_t n);
strait_err strait_codec_add_typed(struct strait_codec *c, strait_dtype dtype,
                                  const strait_codec_tensor *tensors, size_t n);

/* A tensor may keep the rows of every slot, one after the other. Gradient slots keep what waits for
 * param_grads: one per slot where gradients may be deferred, otherwise a single one. The first two
 * give the rows to plan, the others the rows of one slot. */
int64_t strait_codec_slot_rows(const struct strait_codec *c);
int64_t strait_codec_grad_slot_rows(const struct strait_codec *c);
strait_tensor strait_codec_slot(const struct strait_codec *c, strait_tensor slots, int slot);
strait_tensor strait_codec_grad_slot(const struct strait_codec *c, strait_tensor slots, int slot);

/* Plan a parameter with its gradient, and a state tensor, called "boundary.B.SIDE.name"; they
 * become c->params[n] and c->states[n] in the order of the calls. */
strait_err strait_codec_add_param(struct strait_codec *c, const char *name, strait_role role,
                                  int64_t rows, int64_t cols);
strait_err strait_codec_add_state(struct strait_codec *c, const char *name, strait_dtype dtype,
                                  int64_t rows, int64_t cols);

/* Initialise a parameter with normal numbers of this deviation, which depend on the seed and the
 * parameter's name; the same in the first columns only, with zeros in the others. */
strait_err strait_codec_draw(struct strait_codec *c, struct strait_stream *s,
                             const strait_param *param, double std);
strait_err strait_codec_draw_cols(struct strait_codec *c, struct strait_stream *s,
                                  const strait_param *param, double std, int64_t cols);
/* Ones on the diagonal, zeros elsewhere. */
strait_err strait_codec_set_identity(struct strait_stream *s, strait_tensor t);

/* An orthonormal basis to draw. */
typedef struct strait_codec_basis_init {
    const char *name; // of the random stream: equal names and seeds give equal bases
    int64_t k;        // columns
    double gain;      // the columns are scaled by this
    int is_transposed;
} strait_codec_basis_init;

/* Writes the basis [d x k] into the first k columns of t [d x n], or its transpose into the first k
 * rows of t; zeros elsewhere. */
strait_err strait_codec_draw_basis(struct strait_codec *c, struct strait_stream *s, strait_tensor t,
                                   strait_codec_basis_init init);

static inline int strait_codec_bits(const strait_codec_spec *spec, strait_direction direction) {
    return direction == STRAIT_FORWARD ? spec->bits : spec->grad_bits;
}

/* What this side sends: a sender activations, a receiver gradients. */
static inline strait_direction strait_codec_sends(const struct strait_codec *c) {
    return c->side == STRAIT_SENDER ? STRAIT_FORWARD : STRAIT_BACKWARD;
}

static inline strait_direction strait_codec_receives(const struct strait_codec *c) {
    return c->side == STRAIT_SENDER ? STRAIT_BACKWARD : STRAIT_FORWARD;
}

/* Where a kernel adds its measurements of so many rows; `which` is STRAIT_METER_PACK or
 * STRAIT_METER_UNPACK. An absent tensor when packing in an evaluation, which is not measured. */
strait_tensor strait_codec_stats(const struct strait_codec *c, const strait_crossing *at,
                                 int64_t rows, int which);

/* The columns of a code in a padded codec: rows then start at multiples of 16 bytes in bf16. */
static inline int64_t strait_codec_pad(int64_t keep) {
    return (keep + 7) / 8 * 8;
}

/* Plan that strait_codec_refresh copies `value` to the rows of `to` from `row` on, its columns
 * placed by `layout`. Both pointers must stay valid as long as the codec. */
strait_err strait_codec_add_copy(struct strait_codec *c, const strait_tensor *value,
                                 const strait_tensor *to, int64_t row,
                                 strait_regroup_params layout);

/* Layouts of a copy: all columns in their place; each of n groups of `keep` columns padded. */
static inline strait_regroup_params strait_codec_whole(int64_t cols) {
    return (strait_regroup_params){.n_groups = 1, .to_cols = cols, .from_cols = cols, .alpha = 1};
}

static inline strait_regroup_params strait_codec_padded(int64_t n, int64_t keep) {
    return (strait_regroup_params){
        .n_groups = n, .to_cols = strait_codec_pad(keep), .from_cols = keep, .alpha = 1};
}

/* The gradient that a receiver packs, until param_grads: borrowed from the caller, or saved in
 * gradient slots where gradients may be deferred (spec.can_defer), for which a padded codec plans
 * `saved`. */
typedef struct strait_codec_saved_grad {
    strait_tensor saved, borrowed;
} strait_codec_saved_grad;

strait_err strait_codec_save_grad(struct strait_codec *c, const strait_crossing *at,
                                  strait_codec_saved_grad *grad, strait_tensor d);
strait_tensor strait_codec_saved_grad_at(const struct strait_codec *c, const strait_crossing *at,
                                         const strait_codec_saved_grad *grad);

/* Adds to `grad` its part of `product`, the gradient of a matrix that holds several copies: the
 * first rows, and the columns where a copy of this layout lies. */
strait_err strait_codec_gather(struct strait_codec *c, const strait_crossing *at,
                               strait_tensor grad, strait_tensor product,
                               strait_regroup_params layout);

/* Adds a^T b to `grad`. Where the shapes differ because of padding, the product goes to `scratch`
 * first, which is f32 and large enough, and its part is gathered from there. */
strait_err strait_codec_add_gradient(struct strait_codec *c, const strait_crossing *at,
                                     strait_tensor grad, strait_tensor a, strait_tensor b,
                                     strait_tensor scratch, strait_regroup_params layout);

/* ops->join of codecs whose two sides on one stage read each other's code: both must be present
 * except on the first and last stage, and agree on the table, on keep and on padding. */
strait_err strait_codec_join_codes(struct strait_codec *c);

int strait_codec_is_variant(const strait_codec_spec *spec, const char *variant);

/* For ops->check: a `value` of 0 becomes `otherwise`; STRAIT_ECONFIG unless 1 <= value <= most. */
strait_err strait_codec_need(const strait_codec_spec *spec, const char *key, int64_t *value,
                             int64_t otherwise, int64_t most);
/* For ops->check of codecs that look up token ids: STRAIT_ECONFIG without a vocabulary. */
strait_err strait_codec_need_vocab(const strait_codec_spec *spec);
/* For ops->check of codecs that are part of the model: STRAIT_ECONFIG with feedback. */
strait_err strait_codec_refuse_feedback(const strait_codec_spec *spec);
