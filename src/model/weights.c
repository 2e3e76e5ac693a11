#include "model/weights.h"

#include "backend/draw.h"
#include "base/alloc.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    BLOCK_PARAMS_MAX = 17,
    OTHER_PARAMS = 3
};

/* Whether one product a microbatch is all there is to a parameter's gradient. */
static int is_product(strait_role role) {
    return role == STRAIT_ROLE_MATRIX || role == STRAIT_ROLE_WRITES_RESIDUAL ||
           role == STRAIT_ROLE_HEAD;
}

/* Adds one parameter and plans its value and gradient; adjacent ones lie right behind the last. */
static strait_err add(struct strait_weights *w, const strait_tensor shape, strait_role role,
                      int is_adjacent, int is_training, strait_param **out, const char *format, ...)
    __attribute__((format(printf, 7, 8)));

static strait_err add(struct strait_weights *w, const strait_tensor shape, strait_role role,
                      int is_adjacent, int is_training, strait_param **out, const char *format,
                      ...) {
    strait_param *param = &w->params[w->n_params++];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(param->name, sizeof param->name, format, args);
    va_end(args);
    param->role = role;
    strait_err (*const plan)(struct strait_slab *, strait_dtype, int64_t, int64_t,
                             strait_tensor *) = is_adjacent ? strait_slab_add_adjacent
                                                            : strait_slab_add;
    STRAIT_TRY(plan(&w->values, STRAIT_F32, shape.rows, shape.cols, &param->value));
    if (is_training)
        STRAIT_TRY(plan(is_product(role) ? &w->grads : &w->sums, STRAIT_F32, shape.rows, shape.cols,
                        &param->grad));
    if (role != STRAIT_ROLE_GAIN && w->precision != STRAIT_F32)
        STRAIT_TRY(plan(&w->copies, w->precision, shape.rows, shape.cols, &param->compute));
    *out = param;
    return STRAIT_OK;
}

static strait_tensor matrix(int64_t rows, int64_t cols) {
    return (strait_tensor){NULL, STRAIT_F32, rows, cols};
}

static strait_err add_attention(struct strait_weights *w, const strait_shape *s, int i, int train,
                                strait_attention *out) {
    const int64_t d = s->width;
    const int64_t queries = strait_shape_mixed(s);
    const int64_t keys = (int64_t)s->kv_heads * s->head_dim;
    STRAIT_TRY(add(w, matrix(1, d), STRAIT_ROLE_GAIN, 0, train, &out->norm,
                   "blocks.%d.attention.norm", i));
    STRAIT_TRY(add(w, matrix(queries, d), STRAIT_ROLE_MATRIX, 0, train, &out->q,
                   "blocks.%d.attention.q", i));
    STRAIT_TRY(
        add(w, matrix(keys, d), STRAIT_ROLE_MATRIX, 1, train, &out->k, "blocks.%d.attention.k", i));
    STRAIT_TRY(
        add(w, matrix(keys, d), STRAIT_ROLE_MATRIX, 1, train, &out->v, "blocks.%d.attention.v", i));
    if (s->has_qk_gain)
        STRAIT_TRY(add(w, matrix(2, s->head_dim), STRAIT_ROLE_GAIN, 0, train, &out->gain,
                       "blocks.%d.attention.qk_gain", i));
    if (s->conv > 0)
        STRAIT_TRY(add(w, matrix(s->conv, d), STRAIT_ROLE_GAIN, 0, train, &out->conv,
                       "blocks.%d.attention.conv", i));
    if (s->has_value_tables && strait_shape_is_local(s, i))
        STRAIT_TRY(add(w, matrix(s->vocab, keys), STRAIT_ROLE_VALUES, 0, train, &out->values,
                       "blocks.%d.attention.values", i));
    return add(w, matrix(w->n_written, queries), STRAIT_ROLE_WRITES_RESIDUAL, 0, train, &out->out,
               "blocks.%d.attention.out", i);
}

static strait_err add_mlp(struct strait_weights *w, const strait_shape *s, int i, int train,
                          strait_mlp *out) {
    const int64_t d = s->width;
    const int is_gated = s->activation == STRAIT_SWIGLU;
    STRAIT_TRY(
        add(w, matrix(1, d), STRAIT_ROLE_GAIN, 0, train, &out->norm, "blocks.%d.mlp.norm", i));
    if (is_gated)
        STRAIT_TRY(add(w, matrix(s->ffn, d), STRAIT_ROLE_MATRIX, 0, train, &out->gate,
                       "blocks.%d.mlp.gate", i));
    STRAIT_TRY(add(w, matrix(s->ffn, d), STRAIT_ROLE_MATRIX, is_gated, train, &out->up,
                   "blocks.%d.mlp.up", i));
    if (s->conv > 0)
        STRAIT_TRY(add(w, matrix(s->conv, d), STRAIT_ROLE_GAIN, 0, train, &out->conv,
                       "blocks.%d.mlp.conv", i));
    return add(w, matrix(w->n_written, s->ffn), STRAIT_ROLE_WRITES_RESIDUAL, 0, train, &out->down,
               "blocks.%d.mlp.down", i);
}

static strait_err add_local(struct strait_weights *w, const strait_shape *s, int i, int train,
                            strait_local *out) {
    if (!strait_shape_is_local(s, i)) return STRAIT_OK;
    if (s->has_anchors && i > 0)
        STRAIT_TRY(add(w, matrix(s->vocab, s->width), STRAIT_ROLE_EMBEDDING, 0, train, &out->anchor,
                       "blocks.%d.anchor", i));
    if (s->conv == 0) return STRAIT_OK;
    return add(w, matrix(s->conv, s->width), STRAIT_ROLE_GAIN, 0, train, &out->conv,
               "blocks.%d.conv", i);
}

strait_ends strait_part_ends(const strait_shape *s, strait_part part) {
    return (strait_ends){.enters = s->bottleneck > 0 && part.first > 0,
                         .leaves = s->bottleneck > 0 &&
                                   part.last<s->layers, .is_mixed = s->conv> 0};
}

strait_ends strait_part_block_ends(const strait_shape *s, strait_part part, int i) {
    const strait_ends ends = strait_part_ends(s, part);
    return (strait_ends){.enters = ends.enters && i == part.first,
                         .leaves = ends.leaves && i == part.last - 1,
                         .is_mixed = ends.is_mixed && strait_shape_is_local(s, i)};
}

static strait_err add_block(struct strait_weights *w, const strait_shape *s, strait_ends ends,
                            int i, int train, strait_block *out) {
    const int64_t d = s->width, k = s->bottleneck;
    if (ends.enters)
        STRAIT_TRY(
            add(w, matrix(d, k), STRAIT_ROLE_MATRIX, 0, train, &out->neck.dec, "blocks.%d.dec", i));
    STRAIT_TRY(add_local(w, s, i, train, &out->local));
    STRAIT_TRY(add_attention(w, s, i, train, &out->attention));
    STRAIT_TRY(add_mlp(w, s, i, train, &out->mlp));
    if (!ends.leaves) return STRAIT_OK;
    return add(w, matrix(k, d), STRAIT_ROLE_MATRIX, 0, train, &out->neck.enc, "blocks.%d.enc", i);
}

static strait_err add_all(struct strait_weights *w, const strait_shape *s, strait_part part,
                          int train) {
    const int has_head = part.last == s->layers;
    w->n_written = strait_shape_written(s, has_head);
    if (part.first == 0 || (has_head && s->is_tied))
        STRAIT_TRY(add(w, matrix(s->vocab, w->n_written), STRAIT_ROLE_EMBEDDING, 0, train,
                       &w->table, "embed.table"));
    for (int i = part.first; i < part.last; i++)
        STRAIT_TRY(add_block(w, s, strait_part_block_ends(s, part, i), i, train,
                             &w->blocks[i - part.first]));
    if (!has_head) return STRAIT_OK;
    STRAIT_TRY(add(w, matrix(1, s->width), STRAIT_ROLE_GAIN, 0, train, &w->head.norm, "head.norm"));
    w->head.out = w->table;
    if (s->is_tied) return STRAIT_OK;
    return add(w, matrix(s->vocab, s->width), STRAIT_ROLE_HEAD, 0, train, &w->head.out, "head.out");
}

strait_err strait_weights_plan(const strait_shape *shape, strait_part part, int is_training,
                               struct strait_weights *out) {
    const size_t n_blocks = (size_t)(part.last - part.first);
    struct strait_weights *w = out;
    w->n_blocks = part.last - part.first;
    w->precision = shape->precision;
    STRAIT_TRY(strait_alloc(n_blocks * BLOCK_PARAMS_MAX + OTHER_PARAMS, sizeof *w->params,
                            "parameter list", (void **)&w->params));
    STRAIT_TRY(strait_alloc(n_blocks, sizeof *w->blocks, "blocks", (void **)&w->blocks));
    return add_all(w, shape, part, is_training);
}

strait_err strait_weights_commit(struct strait_weights *w, struct strait_backend *backend) {
    STRAIT_TRY(strait_slab_commit(&w->values, backend));
    if (w->grads.n_parts > 0) STRAIT_TRY(strait_slab_commit(&w->grads, backend));
    if (w->sums.n_parts > 0) STRAIT_TRY(strait_slab_commit(&w->sums, backend));
    if (w->copies.n_parts > 0) STRAIT_TRY(strait_slab_commit(&w->copies, backend));
    for (int i = 0; i < w->n_params; i++)
        if (w->params[i].compute.data == NULL) w->params[i].compute = w->params[i].value;
    return STRAIT_OK;
}

strait_err strait_weights_refresh(struct strait_weights *w, struct strait_stream *stream) {
    for (int i = 0; w->copies.n_parts > 0 && i < w->n_params; i++) {
        const strait_param *param = &w->params[i];
        if (param->compute.data != param->value.data)
            STRAIT_TRY(stream->backend->kernels->cast(stream, param->compute, param->value));
    }
    return STRAIT_OK;
}

void strait_weights_fini(struct strait_weights *weights) {
    strait_slab_fini(&weights->copies);
    strait_slab_fini(&weights->values);
    strait_slab_fini(&weights->grads);
    strait_slab_fini(&weights->sums);
    strait_alloc_free(weights->params);
    strait_alloc_free(weights->blocks);
    *weights = (struct strait_weights){0};
}

static int is_neck(const struct strait_weights *w, const strait_param *param) {
    return param == w->blocks[0].neck.dec || param == w->blocks[w->n_blocks - 1].neck.enc;
}

static int is_called(const strait_param *param, const char *last) {
    const char *dot = strrchr(param->name, '.');
    return dot != NULL && strcmp(dot + 1, last) == 0;
}

/* Spread of a parameter's first values; negative means "all ones". */
static double spread(const struct strait_weights *w, const strait_shape *shape,
                     const strait_param *param) {
    if (is_called(param, "conv") || param->role == STRAIT_ROLE_VALUES) return 0.0;
    if (param->role == STRAIT_ROLE_GAIN) return -1.0;
    if (is_neck(w, param)) return 1.0 / sqrt((double)param->value.cols);
    if (shape->init == STRAIT_INIT_LLAMA) {
        const double base = 0.02;
        return param->role == STRAIT_ROLE_WRITES_RESIDUAL ? base / sqrt(2.0 * shape->layers) : base;
    }
    if (param->role == STRAIT_ROLE_EMBEDDING) return 1.0;
    if (param->role == STRAIT_ROLE_MATRIX) return sqrt(0.33 / (double)param->value.cols);
    return 0.0;
}

static strait_err init_one(const strait_param *param, double deviation, uint64_t seed,
                           struct strait_draw *draw, struct strait_stream *stream) {
    const struct strait_kernels *k = stream->backend->kernels;
    if (deviation <= 0.0) return k->fill(stream, param->value, deviation < 0.0 ? 1.0f : 0.0f);
    const char *name = is_called(param, "anchor") ? "embed.table" : param->name;
    const strait_rng rng = {seed, strait_rng_stream(name)};
    return strait_draw_normals(draw, param->value,
                               (strait_draw_how){.rng = rng, .deviation = deviation});
}

strait_err strait_weights_init(struct strait_weights *weights, const strait_shape *shape,
                               uint64_t seed, struct strait_stream *stream) {
    struct strait_draw *draw = NULL;
    int64_t most = 0;
    for (int i = 0; i < weights->n_params; i++) {
        const strait_tensor value = weights->params[i].value;
        if (value.rows * value.cols > most) most = value.rows * value.cols;
    }
    STRAIT_TRY(strait_draw_open(stream, most, &draw));
    strait_err err = STRAIT_OK;
    for (int i = 0; i < weights->n_params && err == STRAIT_OK; i++)
        err = init_one(&weights->params[i], spread(weights, shape, &weights->params[i]), seed, draw,
                       stream);
    strait_draw_close(&draw);
    return err == STRAIT_OK ? strait_weights_refresh(weights, stream) : err;
}
