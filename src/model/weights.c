#include "model/weights.h"

#include "backend/random_fill.h"
#include "base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    BLOCK_PARAMS_MAX = 18,
    OTHER_PARAMS = 3
};

/* Whether one product a microbatch is all there is to a parameter's gradient. */
static int is_product(strait_role role) {
    return role == STRAIT_ROLE_MATRIX || role == STRAIT_ROLE_RESIDUAL_OUT ||
           role == STRAIT_ROLE_HEAD;
}

/* Parameters on their way into the list. */
struct listing {
    struct strait_weights *w;
    const strait_shape *shape;
    int is_training; // gradients too
    int block;       // of the model, at hand; -1 outside
};

typedef strait_err (*plan_fn)(struct strait_slab *, strait_dtype, int64_t, int64_t,
                              strait_tensor *);

/* Lists a parameter and plans its value, its gradient and the copy that layers read. */
static strait_err add_by(const struct listing *l, plan_fn plan, strait_param param,
                         strait_param **out) {
    struct strait_weights *w = l->w;
    const strait_tensor shape = param.value;
    strait_param *slot = &w->params[w->n_params++];
    *slot = param;
    STRAIT_TRY(plan(&w->values, STRAIT_F32, shape.rows, shape.cols, &slot->value));
    if (l->is_training)
        STRAIT_TRY(plan(is_product(param.role) ? &w->grads : &w->sums, STRAIT_F32, shape.rows,
                        shape.cols, &slot->grad));
    if (!strait_role_is_gain(param.role) && w->precision != STRAIT_F32)
        STRAIT_TRY(plan(&w->copies, w->precision, shape.rows, shape.cols, &slot->compute));
    *out = slot;
    return STRAIT_OK;
}

/* A parameter [rows x cols]; in a block its name is "blocks.N." and `name`. */
static strait_param described(const struct listing *l, const char *name, strait_role role,
                              int64_t rows, int64_t cols) {
    strait_param param = {.role = role, .value = {.rows = rows, .cols = cols}};
    if (l->block < 0)
        (void)snprintf(param.name, sizeof param.name, "%s", name);
    else
        (void)snprintf(param.name, sizeof param.name, "blocks.%d.%s", l->block, name);
    return param;
}

static strait_err add(const struct listing *l, const char *name, strait_role role, int64_t rows,
                      int64_t cols, strait_param **out) {
    return add_by(l, strait_slab_add, described(l, name, role, rows, cols), out);
}

/* The same, in memory right behind the last: the two can be read as one matrix. */
static strait_err add_behind(const struct listing *l, const char *name, strait_role role,
                             int64_t rows, int64_t cols, strait_param **out) {
    return add_by(l, strait_slab_add_adjacent, described(l, name, role, rows, cols), out);
}

static strait_err add_attention(const struct listing *l, strait_attention *out) {
    const strait_shape *s = l->shape;
    const int64_t d = s->width;
    const int64_t queries = strait_shape_mixed(s);
    const int64_t keys = (int64_t)s->kv_heads * s->head_dim;
    STRAIT_TRY(add(l, "attention.norm", STRAIT_ROLE_GAIN, 1, d, &out->norm));
    STRAIT_TRY(add(l, "attention.q", STRAIT_ROLE_MATRIX, queries, d, &out->q));
    STRAIT_TRY(add_behind(l, "attention.k", STRAIT_ROLE_MATRIX, keys, d, &out->k));
    STRAIT_TRY(add_behind(l, "attention.v", STRAIT_ROLE_MATRIX, keys, d, &out->v));
    if (s->has_qk_gain)
        STRAIT_TRY(add(l, "attention.qk_gain", STRAIT_ROLE_GAIN, 2, s->head_dim, &out->gain));
    if (s->conv > 0) STRAIT_TRY(add(l, "attention.conv", STRAIT_ROLE_CONV, s->conv, d, &out->conv));
    if (s->has_qkv_conv)
        STRAIT_TRY(add(l, "attention.qkv_conv", STRAIT_ROLE_CONV, s->conv, strait_shape_qkv(s),
                       &out->qkv_conv));
    if (s->has_value_tables && strait_shape_is_local(s, l->block))
        STRAIT_TRY(add(l, "attention.values", STRAIT_ROLE_VALUES, s->vocab, keys, &out->values));
    return add(l, "attention.out", STRAIT_ROLE_RESIDUAL_OUT, l->w->n_written, queries, &out->out);
}

static strait_err add_mlp(const struct listing *l, strait_mlp *out) {
    const strait_shape *s = l->shape;
    const int64_t d = s->width;
    STRAIT_TRY(add(l, "mlp.norm", STRAIT_ROLE_GAIN, 1, d, &out->norm));
    if (s->activation == STRAIT_SWIGLU) {
        STRAIT_TRY(add(l, "mlp.gate", STRAIT_ROLE_MATRIX, s->ffn, d, &out->gate));
        STRAIT_TRY(add_behind(l, "mlp.up", STRAIT_ROLE_MATRIX, s->ffn, d, &out->up));
    } else {
        STRAIT_TRY(add(l, "mlp.up", STRAIT_ROLE_MATRIX, s->ffn, d, &out->up));
    }
    if (s->conv > 0) STRAIT_TRY(add(l, "mlp.conv", STRAIT_ROLE_CONV, s->conv, d, &out->conv));
    return add(l, "mlp.down", STRAIT_ROLE_RESIDUAL_OUT, l->w->n_written, s->ffn, &out->down);
}

static strait_err add_local(const struct listing *l, strait_local_mix *out) {
    const strait_shape *s = l->shape;
    if (!strait_shape_is_local(s, l->block)) return STRAIT_OK;
    if (s->has_anchors && l->block > 0)
        STRAIT_TRY(add(l, "anchor", STRAIT_ROLE_TOKEN_TABLE, s->vocab, s->width, &out->anchor));
    if (s->conv == 0) return STRAIT_OK;
    return add(l, "conv", STRAIT_ROLE_CONV, s->conv, s->width, &out->conv);
}

strait_ends strait_part_ends(const strait_shape *s, strait_part part) {
    const int is_narrow = s->bottleneck > 0, is_last = part.last == s->layers;
    return (strait_ends){.enters = is_narrow && part.first > 0,
                         .leaves = is_narrow && !is_last,
                         .is_mixed = s->conv != 0};
}

strait_ends strait_part_block_ends(const strait_shape *s, strait_part part, int i) {
    const strait_ends ends = strait_part_ends(s, part);
    return (strait_ends){.enters = ends.enters && i == part.first,
                         .leaves = ends.leaves && i == part.last - 1,
                         .is_mixed = ends.is_mixed && strait_shape_is_local(s, i)};
}

static strait_err add_block(const struct listing *l, strait_ends ends, strait_block *out) {
    const int64_t d = l->shape->width, k = l->shape->bottleneck;
    if (ends.enters) STRAIT_TRY(add(l, "dec", STRAIT_ROLE_MATRIX, d, k, &out->neck.dec));
    STRAIT_TRY(add_local(l, &out->local));
    STRAIT_TRY(add_attention(l, &out->attention));
    STRAIT_TRY(add_mlp(l, &out->mlp));
    if (!ends.leaves) return STRAIT_OK;
    return add(l, "enc", STRAIT_ROLE_MATRIX, k, d, &out->neck.enc);
}

static strait_err add_all(struct strait_weights *w, const strait_shape *s, strait_part part,
                          int is_training) {
    const int has_head = part.last == s->layers;
    struct listing l = {.w = w, .shape = s, .is_training = is_training, .block = -1};
    w->n_written = strait_shape_written(s, has_head);
    if (part.first == 0 || (has_head && s->is_tied))
        STRAIT_TRY(
            add(&l, "embed.table", STRAIT_ROLE_EMBEDDING, s->vocab, w->n_written, &w->table));
    for (l.block = part.first; l.block < part.last; l.block++)
        STRAIT_TRY(add_block(&l, strait_part_block_ends(s, part, l.block),
                             &w->blocks[l.block - part.first]));
    if (!has_head) return STRAIT_OK;
    l.block = -1;
    STRAIT_TRY(add(&l, "head.norm", STRAIT_ROLE_GAIN, 1, s->width, &w->head.norm));
    w->head.out = w->table;
    if (s->is_tied) return STRAIT_OK;
    return add(&l, "head.out", STRAIT_ROLE_HEAD, s->vocab, s->width, &w->head.out);
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
    if (param->role == STRAIT_ROLE_CONV || param->role == STRAIT_ROLE_VALUES) return 0.0;
    if (param->role == STRAIT_ROLE_GAIN) return -1.0;
    if (is_neck(w, param)) return 1.0 / sqrt((double)param->value.cols);
    if (shape->init == STRAIT_INIT_LLAMA) {
        const double base = 0.02;
        return param->role == STRAIT_ROLE_RESIDUAL_OUT ? base / sqrt(2.0 * shape->layers) : base;
    }
    if (strait_role_is_table(param->role)) return 1.0;
    if (param->role == STRAIT_ROLE_MATRIX) return sqrt(0.33 / (double)param->value.cols);
    return 0.0;
}

static strait_err init_one(const strait_param *param, double deviation, uint64_t seed,
                           struct strait_random_fill *draw, struct strait_stream *stream) {
    const struct strait_kernels *k = stream->backend->kernels;
    if (deviation <= 0.0) return k->fill(stream, param->value, deviation < 0.0 ? 1.0f : 0.0f);
    const char *name = is_called(param, "anchor") ? "embed.table" : param->name;
    const strait_rng rng = {seed, strait_rng_stream(name)};
    return strait_random_fill_normals(draw, param->value,
                               (strait_random_fill_params){.rng = rng, .deviation = deviation});
}

strait_err strait_weights_init(struct strait_weights *weights, const strait_shape *shape,
                               uint64_t seed, struct strait_stream *stream) {
    struct strait_random_fill *draw = NULL;
    int64_t most = 0;
    for (int i = 0; i < weights->n_params; i++) {
        const strait_tensor value = weights->params[i].value;
        if (value.rows * value.cols > most) most = value.rows * value.cols;
    }
    STRAIT_TRY(strait_random_fill_open(stream, most, &draw));
    strait_err err = STRAIT_OK;
    for (int i = 0; i < weights->n_params && err == STRAIT_OK; i++)
        err = init_one(&weights->params[i], spread(weights, shape, &weights->params[i]), seed, draw,
                       stream);
    strait_random_fill_close(&draw);
    return err == STRAIT_OK ? strait_weights_refresh(weights, stream) : err;
}
