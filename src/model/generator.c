#include "model/generator.h"

#include "base/alloc.h"

#include <math.h>

/* The convolutions of attention and mlp; each keeps its last inputs. */
enum {
    ATTENTION_PAST,
    MLP_PAST,
    QKV_PAST,
    N_PASTS
};

/* What a block keeps of earlier tokens. */
struct block_cache {
    strait_tensor keys, values;   // [context x kv_heads head_dim]
    strait_tensor pasts[N_PASTS]; // [2 taps x columns], see strait_layer_conv
    strait_tensor part_pasts[STRAIT_PARTS];
};

struct strait_generator {
    struct strait_stage *stage;
    struct strait_backend *backend;
    struct strait_stream *stream;
    const struct strait_weights *weights;
    strait_work work; // copy of the stage's, for sequences of one token
    struct strait_slab slab;
    struct block_cache *caches;
    strait_block_acts acts;
    strait_block_scratch scratch;
    strait_head_scratch head;
    strait_tensor token, output;
    strait_tensor logits;                    // f32
    strait_tensor input, inner;              // inputs of the first block and of the others
    strait_tensor part_inputs[STRAIT_PARTS]; // of blocks but the first
    strait_tensor changed; // of the first block: what optional parts made of the input they keep
    float *host_logits;    // NULL without the head
    int n_blocks;
    int64_t position;
};

/* Without convolutions nothing is planned, and absent pasts mean so. */
static strait_err plan_pasts(struct strait_generator *g, const strait_shape *shape) {
    if (shape->conv == 0) return STRAIT_OK;
    const int n_pasts = shape->has_qkv_conv ? N_PASTS : QKV_PAST;
    for (int i = 0; i < g->n_blocks; i++)
        for (int p = 0; p < n_pasts; p++)
            STRAIT_TRY(
                strait_layer_plan_acts(shape, &g->slab, (int64_t)2 * shape->conv,
                                       p == QKV_PAST ? strait_shape_qkv_cols(shape) : shape->width,
                                       &g->caches[i].pasts[p]));
    return STRAIT_OK;
}

/* What optional parts keep: of earlier tokens per block, of the current one for all blocks. */
static strait_err plan_parts(struct strait_generator *g, const strait_stage_spec *spec,
                             const strait_block_spec *block) {
    const strait_shape *shape = &spec->shape;
    for (int i = 0; i < g->n_blocks; i++) {
        const strait_part_set set = strait_parts_of_block(shape, spec->layers.first + i);
        STRAIT_TRY(strait_parts_plan_pasts(shape, &set, &g->slab, g->caches[i].part_pasts));
    }
    STRAIT_TRY(strait_layer_plan_acts(shape, &g->slab, 1, shape->width, &g->changed));
    return strait_parts_plan_acts(shape, STRAIT_PART_STREAM, &block->parts, 1, &g->slab,
                                  g->acts.parts);
}

/* Caches for every block; activations and scratch for one token, which all blocks share. */
static strait_err plan(struct strait_generator *g, const strait_shape *shape,
                       const strait_block_spec *spec) {
    const int64_t keys = (int64_t)shape->kv_heads * shape->head_dim;
    struct strait_slab *slab = &g->slab;
    for (int i = 0; i < g->n_blocks; i++) {
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, shape->context, keys, &g->caches[i].keys));
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, shape->context, keys, &g->caches[i].values));
    }
    STRAIT_TRY(strait_layer_plan_acts(
        shape, slab, 1, spec->bottleneck.decodes_input ? shape->bottleneck : shape->width,
        &g->input));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, 1, shape->width, &g->inner));
    const strait_passes forward = {0};
    STRAIT_TRY(strait_block_plan_acts(shape, spec, 1, 0, slab, &g->acts));
    STRAIT_TRY(strait_block_plan_retained(shape, spec, 1, &forward, slab, &g->scratch));
    STRAIT_TRY(strait_block_plan_scratch(shape, 1, &forward, slab, &g->scratch));
    if (g->host_logits != NULL)
        STRAIT_TRY(strait_head_plan_scratch(shape, 1, 0, 0, slab, &g->head));
    if (g->host_logits != NULL)
        STRAIT_TRY(strait_layer_plan_f32(slab, 1, shape->vocab, &g->logits));
    STRAIT_TRY(strait_layer_plan_acts(
        shape, slab, 1, spec->bottleneck.encodes_output ? shape->bottleneck : shape->width,
        &g->output));
    STRAIT_TRY(plan_pasts(g, shape));
    return strait_slab_add(slab, STRAIT_I32, 1, 1, &g->token);
}

/* Fills a generator that close accepts whatever fails here. */
static strait_err open_into(struct strait_generator *g, const strait_stage_spec *spec) {
    const strait_shape *shape = &spec->shape;
    g->n_blocks = spec->layers.last - spec->layers.first;
    STRAIT_TRY(strait_alloc((size_t)g->n_blocks, sizeof *g->caches, "key and value caches",
                            (void **)&g->caches));
    if (spec->layers.last == shape->layers)
        STRAIT_TRY(strait_alloc((size_t)shape->vocab, sizeof *g->host_logits, "logits",
                                (void **)&g->host_logits));
    const strait_block_spec block = strait_block_spec_of_range(shape, spec->layers);
    STRAIT_TRY(plan(g, shape, &block));
    STRAIT_TRY(plan_parts(g, spec, &block));
    STRAIT_TRY(strait_slab_commit(&g->slab, g->backend));
    for (int p = 0; p < STRAIT_PARTS; p++)
        g->part_inputs[p] = g->acts.parts[p].input; // which bind_block replaces
    strait_block_use_scratch(&g->acts, &g->scratch);
    g->work.tokens = g->token;
    return STRAIT_OK;
}

strait_err strait_generator_open(struct strait_stage *stage, struct strait_generator **out) {
    struct strait_generator *g = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *g, "generator", (void **)&g));
    g->stage = stage;
    g->stream = strait_stage_stream(stage);
    g->backend = g->stream->backend;
    g->weights = strait_stage_weights(stage);
    g->work = *strait_stage_work(stage);
    g->work.seq_len = 1;
    const strait_err err = open_into(g, strait_stage_get_spec(stage));
    if (err != STRAIT_OK) {
        strait_generator_close(&g);
        return err;
    }
    *out = g;
    return STRAIT_OK;
}

void strait_generator_close(struct strait_generator **generator) {
    struct strait_generator *g = *generator;
    if (g == NULL) return;
    strait_slab_fini(&g->slab);
    strait_alloc_free(g->caches);
    strait_alloc_free(g->host_logits);
    strait_alloc_free(g);
    *generator = NULL;
}

void strait_generator_reset(struct strait_generator *g) {
    g->position = 0;
}

int64_t strait_generator_position(const struct strait_generator *g) {
    return g->position;
}

/* strait_attention_forward for one token: keys and values of earlier tokens come from the cache, to
 * which the kernel adds those of this token. */
static strait_err attend(struct strait_generator *g, const strait_block *block,
                         const struct block_cache *cache) {
    const strait_attention *layer = &block->attention;
    const strait_shape *shape = g->work.shape;
    const strait_attention_acts *acts = &g->acts.attention;
    strait_heads heads = strait_shape_heads(shape, 1);
    strait_work work = g->work;
    work.cos = strait_tensor_rows(g->work.cos, g->position, 1);
    work.sin = strait_tensor_rows(g->work.sin, g->position, 1);
    STRAIT_TRY(strait_attention_project(&work, layer, acts, (strait_tensor){0}, g->acts.x,
                                        (strait_tensor){0}));
    heads.seq_len = shape->context;
    STRAIT_TRY(work.kernels->attention_cached(g->stream, acts->attended, cache->keys, cache->values,
                                              acts->qkv, g->position, heads));
    return strait_layer_residual_out(&work,
                                     strait_block_attention_out(block, &g->acts, &g->scratch),
                                     acts->attended, layer->out->compute);
}

strait_err strait_generator_embed(struct strait_generator *g, int32_t token) {
    const strait_shape *shape = g->work.shape;
    if (token < 0 || token >= shape->vocab)
        return STRAIT_FAIL(STRAIT_EDATA, "token %d is outside the model's vocabulary of %lld",
                           (int)token, (long long)shape->vocab);
    STRAIT_TRY(g->backend->ops->upload(g->stream, g->token.data, &token, sizeof token));
    if (strait_stage_get_spec(g->stage)->layers.first > 0) return STRAIT_OK;
    return strait_embedding_forward(&g->work, &g->weights->embedding, g->input, g->token);
}

strait_tensor strait_generator_input(struct strait_generator *g) {
    return g->input;
}

strait_tensor strait_generator_first_block_input(struct strait_generator *g) {
    const strait_part *parts = g->weights->blocks[0].parts;
    return strait_parts_kept_input(STRAIT_PART_STREAM, parts, g->acts.parts) != NULL ? g->changed
                                                                                     : g->input;
}

strait_tensor strait_generator_token(struct strait_generator *g) {
    return g->token;
}

/* Points the shared activations to the inputs and caches of block i. */
static void bind_block(struct strait_generator *g, int i) {
    const strait_block *block = &g->weights->blocks[i];
    const strait_tensor *pasts = g->caches[i].pasts;
    g->acts.x = i > 0 || block->bottleneck.dec != NULL ? g->inner : g->changed;
    for (int p = 0; p < STRAIT_PARTS; p++) {
        g->acts.parts[p].input = g->part_inputs[p];
        g->acts.parts[p].past = g->caches[i].part_pasts[p];
    }
    if (i == 0) strait_block_set_input(block, &g->acts, g->input);
    g->acts.attention.past = pasts[ATTENTION_PAST];
    g->acts.attention.qkv_past = pasts[QKV_PAST];
    g->acts.mlp.past = pasts[MLP_PAST];
}

static strait_err clear(struct strait_generator *g, const strait_tensor *pasts, int n) {
    for (int i = 0; i < n; i++)
        if (pasts[i].data != NULL) STRAIT_TRY(g->work.kernels->fill(g->stream, pasts[i], 0.0f));
    return STRAIT_OK;
}

/* At the start of a sequence the inputs before the first token count as zero. Keys and values need
 * no reset: attention reads only those up to the position. */
static strait_err clear_pasts(struct strait_generator *g) {
    if (g->position > 0) return STRAIT_OK;
    for (int i = 0; i < g->n_blocks; i++) {
        STRAIT_TRY(clear(g, g->caches[i].pasts, N_PASTS));
        STRAIT_TRY(clear(g, g->caches[i].part_pasts, STRAIT_PARTS));
    }
    return STRAIT_OK;
}

/* Computes the input of block i: from strait_generator_input for the first, else from the output of
 * the previous block. */
static strait_err start_block(struct strait_generator *g, int i) {
    const strait_block *block = &g->weights->blocks[i];
    strait_tensor mid = {0}, delta = {0};
    const strait_tensor prev_mid = g->acts.mid; // before bind_block: acts are shared by all blocks
    bind_block(g, i);
    if (i > 0) mid = prev_mid, delta = g->scratch.delta;
    if (strait_block_needs_prepare(block))
        return strait_block_prepare(&g->work, block, &g->acts, mid, delta);
    return i == 0 ? STRAIT_OK : g->work.kernels->add(g->stream, g->acts.x, mid, delta);
}

strait_err strait_generator_run(struct strait_generator *g) {
    if (g->position >= g->work.shape->context)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "generator: the context of %lld tokens is full; reset it to continue",
                           (long long)g->work.shape->context);
    STRAIT_TRY(clear_pasts(g));
    for (int i = 0; i < g->n_blocks; i++) {
        const strait_block *block = &g->weights->blocks[i];
        STRAIT_TRY(start_block(g, i));
        STRAIT_TRY(strait_block_decode_input(&g->work, block, &g->acts, &g->scratch));
        STRAIT_TRY(attend(g, block, &g->caches[i]));
        STRAIT_TRY(strait_block_after_attention(&g->work, block, &g->acts, &g->scratch));
    }
    g->position++;
    return STRAIT_OK;
}

strait_err strait_generator_output(struct strait_generator *g, strait_tensor *out) {
    *out = g->output;
    return strait_block_output(&g->work, &g->weights->blocks[g->n_blocks - 1], &g->acts,
                               &g->scratch, g->output);
}

/* In training the loss kernel caps the logits; here they come raw from the product. */
static void soft_cap(float *logits, int64_t n, float cap) {
    for (int64_t i = 0; cap > 0.0f && i < n; i++)
        logits[i] /= sqrtf(1.0f + (logits[i] / cap) * (logits[i] / cap));
}

strait_err strait_generator_logits(struct strait_generator *g, const float **logits) {
    const strait_shape *shape = g->work.shape;
    const struct strait_backend_ops *ops = g->backend->ops;
    if (g->host_logits == NULL)
        return STRAIT_FAIL(STRAIT_EINVAL, "generator: this stage has no head and so no logits");
    STRAIT_TRY(strait_head_logits(&g->work, &g->weights->head, &g->head, g->head.logits,
                                  g->acts.mid, g->scratch.delta));
    STRAIT_TRY(
        g->work.kernels->cast(g->stream, g->logits, strait_tensor_rows(g->head.logits, 0, 1)));
    STRAIT_TRY(ops->download(g->stream, g->host_logits, g->logits.data,
                             (size_t)shape->vocab * sizeof *g->host_logits));
    STRAIT_TRY(ops->wait(g->stream));
    soft_cap(g->host_logits, shape->vocab, shape->softcap);
    *logits = g->host_logits;
    return STRAIT_OK;
}

strait_err strait_generator_feed(struct strait_generator *g, int32_t token, const float **logits) {
    STRAIT_TRY(strait_generator_embed(g, token));
    STRAIT_TRY(strait_generator_run(g));
    return strait_generator_logits(g, logits);
}
