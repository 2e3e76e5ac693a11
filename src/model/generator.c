#include "model/generator.h"

#include "base/alloc.h"

#include <math.h>

struct layer_cache {
    strait_tensor keys, values; // [context x kv_heads head_dim]
};

struct strait_generator {
    struct strait_stage *stage;
    struct strait_backend *backend;
    struct strait_stream *stream;
    const struct strait_weights *weights;
    strait_work work; // the stage's, for sequences of one token
    struct strait_slab room;
    struct layer_cache *caches;
    strait_block_acts acts;
    strait_block_scratch scratch;
    strait_head_room head;
    strait_tensor token, output;
    strait_tensor input, inner; // what enters the first block, and the others
    float *host_logits;         // NULL where there is no head
    int n_blocks;
    int64_t position;
};

static strait_err plan(struct strait_generator *d, const strait_shape *shape) {
    const int64_t keys = (int64_t)shape->kv_heads * shape->head_dim;
    struct strait_slab *room = &d->room;
    for (int i = 0; i < d->n_blocks; i++) {
        STRAIT_TRY(strait_layer_plan(room, shape->context, keys, &d->caches[i].keys));
        STRAIT_TRY(strait_layer_plan(room, shape->context, keys, &d->caches[i].values));
    }
    STRAIT_TRY(strait_layer_plan(room, 1, shape->width, &d->input));
    STRAIT_TRY(strait_layer_plan(room, 1, shape->width, &d->inner));
    STRAIT_TRY(strait_block_plan_acts(shape, 1, room, &d->acts));
    STRAIT_TRY(strait_block_plan_scratch(shape, 1, 0, room, &d->scratch));
    if (d->host_logits != NULL) STRAIT_TRY(strait_head_plan(shape, 1, 0, room, &d->head));
    STRAIT_TRY(strait_layer_plan(room, 1, shape->width, &d->output));
    return strait_slab_add(room, STRAIT_I32, 1, 1, &d->token);
}

static strait_err open_into(struct strait_generator *d, const strait_stage_spec *spec) {
    const strait_shape *shape = &spec->shape;
    d->n_blocks = spec->part.last - spec->part.first;
    STRAIT_TRY(strait_alloc((size_t)d->n_blocks, sizeof *d->caches, "key and value caches",
                            (void **)&d->caches));
    if (spec->part.last == shape->layers)
        STRAIT_TRY(strait_alloc((size_t)shape->vocab, sizeof *d->host_logits, "logits",
                                (void **)&d->host_logits));
    STRAIT_TRY(plan(d, shape));
    return strait_slab_commit(&d->room, d->backend);
}

strait_err strait_generator_open(struct strait_stage *stage, struct strait_generator **out) {
    struct strait_generator *d = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *d, "generator", (void **)&d));
    d->stage = stage;
    d->stream = strait_stage_stream(stage);
    d->backend = d->stream->backend;
    d->weights = strait_stage_weights(stage);
    d->work = *strait_stage_work(stage);
    d->work.seq_len = 1;
    const strait_err err = open_into(d, strait_stage_get_spec(stage));
    if (err != STRAIT_OK) {
        strait_generator_close(&d);
        return err;
    }
    *out = d;
    return STRAIT_OK;
}

void strait_generator_close(struct strait_generator **generator) {
    struct strait_generator *d = *generator;
    if (d == NULL) return;
    strait_slab_fini(&d->room);
    strait_alloc_free(d->caches);
    strait_alloc_free(d->host_logits);
    strait_alloc_free(d);
    *generator = NULL;
}

void strait_generator_reset(struct strait_generator *generator) {
    generator->position = 0;
}

int64_t strait_generator_position(const struct strait_generator *generator) {
    return generator->position;
}

/* The attention of block.c with a cache in place of the sequence. */
static strait_err attend(struct strait_generator *d, const strait_attention *layer,
                         const struct layer_cache *cache) {
    const strait_shape *shape = d->work.shape;
    const strait_attention_acts *acts = &d->acts.attention;
    strait_heads heads = strait_shape_heads(shape, 1);
    strait_work work = d->work;
    work.cos = strait_tensor_rows(d->work.cos, d->position, 1);
    work.sin = strait_tensor_rows(d->work.sin, d->position, 1);
    STRAIT_TRY(strait_attention_project(&work, layer, acts, (strait_tensor){0}, d->acts.x,
                                        (strait_tensor){0}));
    heads.seq_len = shape->context;
    STRAIT_TRY(work.kernels->attention_cached(d->stream, acts->mixed, cache->keys, cache->values,
                                              acts->qkv, d->position, heads));
    return strait_layer_write(&work, d->scratch.branch, acts->mixed, layer->out->value);
}

strait_err strait_generator_embed(struct strait_generator *d, int32_t token) {
    const strait_shape *shape = d->work.shape;
    if (token < 0 || token >= shape->vocab)
        return STRAIT_FAIL(STRAIT_EDATA, "token %d is outside the model's vocabulary of %lld",
                           (int)token, (long long)shape->vocab);
    STRAIT_TRY(d->backend->ops->upload(d->stream, d->token.data, &token, sizeof token));
    if (strait_stage_get_spec(d->stage)->part.first > 0) return STRAIT_OK;
    return strait_layer_embed(&d->work, d->input, d->weights->table->value, d->token);
}

strait_tensor strait_generator_input(struct strait_generator *generator) {
    return generator->input;
}

strait_tensor strait_generator_token(struct strait_generator *generator) {
    return generator->token;
}

strait_err strait_generator_run(struct strait_generator *d) {
    const struct strait_kernels *k = d->work.kernels;
    if (d->position >= d->work.shape->context)
        return STRAIT_FAIL(STRAIT_EINVAL, "the context of %lld tokens is full",
                           (long long)d->work.shape->context);
    for (int i = 0; i < d->n_blocks; i++) {
        const strait_block *block = &d->weights->blocks[i];
        if (i > 0) STRAIT_TRY(k->add(d->stream, d->inner, d->acts.mid, d->scratch.delta));
        d->acts.x = i == 0 ? d->input : d->inner;
        STRAIT_TRY(attend(d, &block->attention, &d->caches[i]));
        STRAIT_TRY(strait_mlp_forward(&d->work, &block->mlp, &d->acts.mlp, d->scratch.delta,
                                      d->acts.mid, d->acts.x, d->scratch.branch));
    }
    d->position++;
    return STRAIT_OK;
}

strait_err strait_generator_output(struct strait_generator *d, strait_tensor *out) {
    *out = d->output;
    return d->work.kernels->add(d->stream, d->output, d->acts.mid, d->scratch.delta);
}

static void soft_cap(float *logits, int64_t n, float cap) {
    for (int64_t i = 0; cap > 0.0f && i < n; i++)
        logits[i] /= sqrtf(1.0f + (logits[i] / cap) * (logits[i] / cap));
}

strait_err strait_generator_logits(struct strait_generator *d, const float **logits) {
    const strait_shape *shape = d->work.shape;
    const struct strait_backend_ops *ops = d->backend->ops;
    if (d->host_logits == NULL)
        return STRAIT_FAIL(STRAIT_EINVAL, "only the part with the head makes logits");
    STRAIT_TRY(strait_head_logits(&d->work, &d->weights->head, &d->head, d->head.logits,
                                  d->acts.mid, d->scratch.delta));
    STRAIT_TRY(ops->download(d->stream, d->host_logits, d->head.logits.data,
                             (size_t)shape->vocab * sizeof *d->host_logits));
    STRAIT_TRY(ops->wait(d->stream));
    soft_cap(d->host_logits, shape->vocab, shape->softcap);
    *logits = d->host_logits;
    return STRAIT_OK;
}

strait_err strait_generator_feed(struct strait_generator *d, int32_t token, const float **logits) {
    STRAIT_TRY(strait_generator_embed(d, token));
    STRAIT_TRY(strait_generator_run(d));
    return strait_generator_logits(d, logits);
}
