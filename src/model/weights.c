#include "model/weights.h"

#include "backend/random_fill.h"
#include "base/alloc.h"

#include <math.h>
#include <string.h>

enum {
    /* Of one block: the fixed parts have 17 together; param_list.c asserts it. */
    BLOCK_PARAMS_MAX = 17 + STRAIT_PARTS * STRAIT_PART_PARAMS + 2 * STRAIT_LORA_TARGETS,
    OTHER_PARAMS = 3 // embedding, last norm, head
};

/* Lists all parameters of the range in the order of the model. */
static strait_err add_all(struct strait_param_list *list, struct strait_weights *w,
                          strait_layer_range range) {
    const strait_shape *s = list->shape;
    const int has_head = range.last == s->layers;
    list->block = -1;
    if (range.first == 0 || (has_head && s->is_tied))
        STRAIT_TRY(strait_embedding_add_params(list, &w->embedding));
    for (int i = range.first; i < range.last; i++) {
        const strait_block_spec spec = strait_block_spec_at(s, range, i);
        const int first = list->n;
        list->block = i;
        STRAIT_TRY(strait_block_add_params(list, &spec, &w->blocks[i - range.first]));
        STRAIT_TRY(strait_lora_add_params(list, first, w->adapters, &w->n_adapters));
    }
    list->block = -1;
    if (!has_head) return STRAIT_OK;
    return strait_head_add_params(list, s->is_tied ? w->embedding.table : NULL, &w->head);
}

strait_err strait_weights_plan(const strait_shape *shape, strait_layer_range range, int is_training,
                               struct strait_weights *w) {
    const size_t n_blocks = (size_t)(range.last - range.first);
    const size_t capacity = n_blocks * BLOCK_PARAMS_MAX + OTHER_PARAMS;
    w->n_blocks = range.last - range.first;
    STRAIT_TRY(strait_alloc(capacity, sizeof *w->params, "parameter list", (void **)&w->params));
    STRAIT_TRY(strait_alloc(n_blocks, sizeof *w->blocks, "blocks", (void **)&w->blocks));
    STRAIT_TRY(strait_alloc(n_blocks * STRAIT_LORA_TARGETS, sizeof *w->adapters, "adapters",
                            (void **)&w->adapters));
    struct strait_param_list list = {
        .params = w->params,
        .capacity = (int)capacity,
        .shape = shape,
        .is_training = is_training,
        .residual_out_rows = strait_shape_residual_out_rows(shape, range.last == shape->layers),
        .values = &w->values,
        .grads = &w->grads,
        .sums = &w->sums,
        .copies = &w->copies};
    STRAIT_TRY(add_all(&list, w, range));
    w->n_params = list.n;
    strait_lora_mark_idle(shape, w->params, w->n_params);
    return strait_lora_plan(shape, w->adapters, w->n_adapters, &w->copies, &w->lora_scratch);
}

strait_err strait_weights_commit(struct strait_weights *w, struct strait_backend *backend) {
    STRAIT_TRY(strait_slab_commit(&w->values, backend));
    if (w->grads.n_tensors > 0) STRAIT_TRY(strait_slab_commit(&w->grads, backend));
    if (w->sums.n_tensors > 0) STRAIT_TRY(strait_slab_commit(&w->sums, backend));
    if (w->copies.n_tensors > 0) STRAIT_TRY(strait_slab_commit(&w->copies, backend));
    /* Gains are never rounded, and with f32 nothing is: layers then read the values themselves. */
    for (int i = 0; i < w->n_params; i++)
        if (w->params[i].compute.data == NULL) w->params[i].compute = w->params[i].value;
    return STRAIT_OK;
}

strait_err strait_weights_refresh(struct strait_weights *w, const strait_shape *shape,
                                  struct strait_stream *stream) {
    for (int i = 0; w->copies.n_tensors > 0 && i < w->n_params; i++) {
        const strait_param *param = &w->params[i];
        if (param->compute.data != param->value.data)
            STRAIT_TRY(stream->backend->kernels->cast(stream, param->compute, param->value));
    }
    return strait_weights_apply_adapters(w, shape, stream);
}

strait_err strait_weights_apply_adapters(struct strait_weights *w, const strait_shape *shape,
                                         struct strait_stream *stream) {
    return strait_lora_apply(shape, w->adapters, w->n_adapters, w->lora_scratch, stream);
}

void strait_weights_fini(struct strait_weights *weights) {
    strait_slab_fini(&weights->copies);
    strait_slab_fini(&weights->values);
    strait_slab_fini(&weights->grads);
    strait_slab_fini(&weights->sums);
    strait_alloc_free(weights->params);
    strait_alloc_free(weights->blocks);
    strait_alloc_free(weights->adapters);
    *weights = (struct strait_weights){0};
}

/* Whether it is the decoder of the first block or the encoder of the last. */
static int is_bottleneck(const struct strait_weights *w, const strait_param *param) {
    return param == w->blocks[0].bottleneck.dec ||
           param == w->blocks[w->n_blocks - 1].bottleneck.enc;
}

static int has_suffix(const strait_param *param, const char *suffix) {
    const char *dot = strrchr(param->name, '.');
    return dot != NULL && strcmp(dot + 1, suffix) == 0;
}

/* Standard deviation of a parameter's initial values; 0: all zeros, negative: all ones. */
static double deviation_of(const struct strait_weights *w, const strait_shape *shape,
                           const strait_param *param) {
    if (param->role == STRAIT_ROLE_CONV || param->role == STRAIT_ROLE_VALUES ||
        param->role == STRAIT_ROLE_BIAS)
        return 0.0;
    if (param->role == STRAIT_ROLE_GAIN) return -1.0;
    /* The sum starts as the matrix itself, whatever A is. */
    if (has_suffix(param, "lora_b")) return 0.0;
    if (has_suffix(param, "lora_a")) return 1.0 / sqrt(3.0 * (double)param->value.cols);
    /* Encoder and decoder preserve the scale of their input, whatever the family. */
    if (is_bottleneck(w, param)) return 1.0 / sqrt((double)param->value.cols);
    if (shape->init == STRAIT_INIT_LLAMA) {
        const double base = 0.02; // Llama's; residual branches are scaled down by the depth
        return param->role == STRAIT_ROLE_RESIDUAL_OUT ? base / sqrt(2.0 * shape->layers) : base;
    }
    if (strait_role_is_table(param->role)) return 1.0;
    if (param->role == STRAIT_ROLE_MATRIX) return sqrt(0.33 / (double)param->value.cols);
    return 0.0;
}

/* Each parameter draws from a stream of its own, named after it, so that no value depends on which
 * other parameters the stage has. */
static strait_err init_one(const strait_param *param, double deviation, uint64_t seed,
                           struct strait_random_fill *fill, struct strait_stream *stream) {
    const struct strait_kernels *k = stream->backend->kernels;
    if (deviation <= 0.0) return k->fill(stream, param->value, deviation < 0.0 ? 1.0f : 0.0f);
    /* A token table starts as a copy of the embedding: it draws the same numbers. */
    const char *name = has_suffix(param, "anchor") ? "embed.table" : param->name;
    const strait_rng rng = {seed, strait_rng_stream(name)};
    return strait_random_fill_normals(
        fill, param->value, (strait_random_fill_params){.rng = rng, .deviation = deviation});
}

strait_err strait_weights_init(struct strait_weights *weights, const strait_shape *shape,
                               uint64_t seed, struct strait_stream *stream) {
    struct strait_random_fill *fill = NULL;
    int64_t most = 0; // values of the largest parameter
    for (int i = 0; i < weights->n_params; i++) {
        const strait_tensor value = weights->params[i].value;
        if (value.rows * value.cols > most) most = value.rows * value.cols;
    }
    STRAIT_TRY(strait_random_fill_open(stream, most, &fill));
    strait_err err = STRAIT_OK;
    for (int i = 0; i < weights->n_params && err == STRAIT_OK; i++)
        err = init_one(&weights->params[i], deviation_of(weights, shape, &weights->params[i]), seed,
                       fill, stream);
    strait_random_fill_close(&fill);
    return err == STRAIT_OK ? strait_weights_refresh(weights, shape, stream) : err;
}
