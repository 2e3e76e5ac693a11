#include "base/alloc.h"
#include "model/generator_state.h"

#include <math.h>
#include <string.h>

strait_err strait_generator_open(struct strait_stage *stage, strait_generator_spec spec,
                                 struct strait_generator **out) {
    const strait_stage_spec *of = strait_stage_get_spec(stage);
    struct strait_generator *g = NULL;
    if (spec.n_positions == 0 || spec.n_positions > of->shape.context)
        spec.n_positions = of->shape.context;
    if (spec.n_rows < 1 || spec.n_sequences < 1 || spec.n_rows > of->n_sequences * of->seq_len ||
        spec.n_rows > STRAIT_CONV_RING - STRAIT_CONV_TAPS)
        return STRAIT_FAIL(STRAIT_EINVAL, "generator: steps of %lld rows for %lld sequences",
                           (long long)spec.n_rows, (long long)spec.n_sequences);
    STRAIT_TRY(strait_alloc(1, sizeof *g, "generator", (void **)&g));
    g->stage = stage;
    g->spec = spec;
    g->stream = strait_stage_stream(stage);
    g->backend = g->stream->backend;
    g->weights = strait_stage_weights(stage);
    g->work = *strait_stage_work(stage);
    g->work.is_rowwise = 1;
    const strait_err err = strait_generator_plan(g);
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
    (void)g->backend->ops->wait(g->stream); // queued copies use the staging memory
    g->backend->ops->release_host(g->backend, g->host.ids);
    g->backend->ops->release_host(g->backend, g->host.how);
    g->backend->ops->release_host(g->backend, g->host.drawn);
    strait_slab_fini(&g->slab);
    strait_alloc_free(g->caches);
    strait_alloc_free(g->host_logits);
    strait_alloc_free(g);
    *generator = NULL;
}

static strait_err check_rows(const struct strait_generator *g, const strait_token_row *rows,
                             int64_t n) {
    const int64_t vocab = g->work.shape->vocab;
    if (n < 1 || n > g->spec.n_rows)
        return STRAIT_FAIL(STRAIT_EINVAL, "generator: a step of %lld rows, at most %lld fit",
                           (long long)n, (long long)g->spec.n_rows);
    for (int64_t i = 0; i < n; i++) {
        if (rows[i].token < 0 || rows[i].token >= vocab)
            return STRAIT_FAIL(STRAIT_EDATA, "token %d is outside the model's vocabulary of %lld",
                               (int)rows[i].token, (long long)vocab);
        if (rows[i].position < 0 || rows[i].position >= g->spec.n_positions)
            return STRAIT_FAIL(STRAIT_EINVAL,
                               "generator: the context of %lld tokens is full; start it again",
                               (long long)g->spec.n_positions);
        if (rows[i].sequence < 0 || rows[i].sequence >= g->spec.n_sequences)
            return STRAIT_FAIL(STRAIT_EINVAL, "generator: there is no sequence %d",
                               (int)rows[i].sequence);
    }
    return STRAIT_OK;
}

/* Waits for work that reads the staging memory; mostly it is done. */
static strait_err settle(struct strait_generator *g) {
    if (!g->is_pending) return STRAIT_OK;
    STRAIT_TRY(g->backend->ops->wait(g->stream));
    g->is_pending = 0;
    return STRAIT_OK;
}

/* A device computes as many rows in every step: the algorithm of a product, and with it the bits of
 * a row, depends on their number. Rows without a sequence fill it up. */
static strait_err upload_rows(struct strait_generator *g, const strait_token_row *rows, int64_t n) {
    const int64_t capacity = g->spec.n_rows;
    const int64_t computed = g->backend->ops->is_host ? n : capacity;
    int32_t *ids = g->host.ids;
    for (int64_t i = 0; i < capacity; i++) {
        const strait_token_row row = i < n ? rows[i] : (strait_token_row){.sequence = -1};
        ids[i] = row.token;
        ids[capacity + i] = row.sequence;
        ids[2 * capacity + i] = row.position;
    }
    g->n = n;
    strait_generator_set_rows(g, computed);
    return g->backend->ops->upload(g->stream, g->ids.data, ids, strait_tensor_bytes(g->ids));
}

strait_err strait_generator_begin(struct strait_generator *g, const strait_token_row *rows,
                                  int64_t n) {
    const strait_work *stage = strait_stage_work(g->stage);
    const struct strait_kernels *k = g->work.kernels;
    STRAIT_TRY(check_rows(g, rows, n));
    STRAIT_TRY(settle(g));
    STRAIT_TRY(upload_rows(g, rows, n));
    g->is_pending = 1;
    if (g->table_ids.data != NULL)
        STRAIT_TRY(
            k->table_ids(g->stream, g->work.table_ids, g->tokens, g->work.shape->table_rows));
    /* The angles of each row's position, as rows of the tables. */
    STRAIT_TRY(k->embed(g->stream, g->cos, stage->cos, g->positions));
    STRAIT_TRY(k->embed(g->stream, g->sin, stage->sin, g->positions));
    if (strait_stage_get_spec(g->stage)->layers.first > 0) return STRAIT_OK;
    return strait_embedding_forward(&g->work, &g->weights->embedding, g->input, g->tokens);
}

strait_tensor strait_generator_input(struct strait_generator *g) {
    return g->input;
}

strait_tensor strait_generator_first_block_input(struct strait_generator *g) {
    const strait_part *parts = g->weights->blocks[0].parts;
    return strait_parts_kept_input(STRAIT_PART_STREAM, parts, g->acts.parts) != NULL ? g->changed
                                                                                     : g->input;
}

strait_tensor strait_generator_tokens(struct strait_generator *g) {
    return g->tokens;
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
    g->acts.attention.past = pasts[STRAIT_ATTENTION_PAST];
    g->acts.attention.qkv_past = pasts[STRAIT_QKV_PAST];
    g->acts.mlp.past = pasts[STRAIT_MLP_PAST];
}

/* Computes the input of block i: from strait_generator_input for the first, else from the output of
 * the previous block. Where nothing else reads the sum, attention's norm adds it up itself: then
 * *mid and *delta are set. */
static strait_err start_block(struct strait_generator *g, int i, strait_tensor *mid,
                              strait_tensor *delta) {
    const strait_block *block = &g->weights->blocks[i];
    const strait_tensor prev_mid = g->acts.mid; // before bind_block: acts are shared by all blocks
    bind_block(g, i);
    *mid = *delta = (strait_tensor){0};
    if (i > 0) *mid = prev_mid, *delta = g->scratch.delta;
    if (!strait_block_needs_prepare(block)) return STRAIT_OK;
    const strait_err err = strait_block_prepare(&g->work, block, &g->acts, *mid, *delta);
    *mid = *delta = (strait_tensor){0};
    return err;
}

/* strait_attention_forward with keys and values of earlier tokens from the cache, to which the
 * kernel adds those of this step. */
static strait_err attend(struct strait_generator *g, const strait_block *block,
                         const strait_block_cache *cache, strait_tensor mid, strait_tensor delta) {
    const strait_attention *layer = &block->attention;
    const strait_attention_acts *acts = &g->acts.attention;
    const int is_sum = delta.data != NULL;
    STRAIT_TRY(strait_attention_project(&g->work, layer, acts,
                                        is_sum ? g->acts.x : (strait_tensor){0},
                                        is_sum ? mid : g->acts.x, delta));
    STRAIT_TRY(g->work.kernels->attention_cached(
        g->stream, acts->attended, cache->keys, cache->values, acts->qkv, g->work.at,
        strait_shape_heads(g->work.shape, g->spec.n_positions)));
    return strait_layer_residual_out(&g->work,
                                     strait_block_attention_out(block, &g->acts, &g->scratch),
                                     acts->attended, layer->out->compute);
}

strait_err strait_generator_run(struct strait_generator *g) {
    for (int i = 0; i < g->n_blocks; i++) {
        const strait_block *block = &g->weights->blocks[i];
        strait_tensor mid, delta;
        STRAIT_TRY(start_block(g, i, &mid, &delta));
        STRAIT_TRY(strait_block_decode_input(&g->work, block, &g->acts, &g->scratch));
        STRAIT_TRY(attend(g, block, &g->caches[i], mid, delta));
        STRAIT_TRY(strait_block_after_attention(&g->work, block, &g->acts, &g->scratch));
    }
    return STRAIT_OK;
}

strait_err strait_generator_output(struct strait_generator *g, strait_tensor *out) {
    *out = g->output;
    return strait_block_output(&g->work, &g->weights->blocks[g->n_blocks - 1], &g->acts,
                               &g->scratch, g->output);
}

/* The logits of the first n rows, or of all where the number of rows must not change. */
static strait_err compute_logits(struct strait_generator *g, int64_t n, strait_tensor *out) {
    if (g->host_logits == NULL)
        return STRAIT_FAIL(STRAIT_EINVAL, "generator: this stage has no head and so no logits");
    if (n < 1 || n > g->n)
        return STRAIT_FAIL(STRAIT_EINVAL, "generator: logits of %lld rows of %lld", (long long)n,
                           (long long)g->n);
    if (!g->backend->ops->is_host) n = g->n_computed;
    *out = strait_tensor_rows(g->logits, 0, n);
    return strait_head_logits(&g->work, &g->weights->head, &g->head, *out,
                              strait_tensor_rows(g->acts.mid, 0, n),
                              strait_tensor_rows(g->scratch.delta, 0, n));
}

strait_err strait_generator_sample(struct strait_generator *g, const strait_sample_row *how,
                                   int64_t n, int32_t *tokens) {
    const struct strait_backend_ops *ops = g->backend->ops;
    strait_tensor logits;
    STRAIT_TRY(compute_logits(g, n, &logits));
    for (int64_t i = 0; i < logits.rows; i++) {
        g->host.how[i] = i < n ? how[i] : (strait_sample_row){.sequence = -1};
        g->host.how[i].softcap = g->work.shape->softcap;
    }
    const strait_tensor rows = strait_tensor_rows(g->how, 0, logits.rows);
    const strait_tensor drawn = strait_tensor_rows(g->drawn, 0, logits.rows);
    STRAIT_TRY(ops->upload(g->stream, rows.data, g->host.how, strait_tensor_bytes(rows)));
    STRAIT_TRY(g->work.kernels->sample(g->stream, drawn, g->seen, logits, rows));
    STRAIT_TRY(ops->download(g->stream, g->host.drawn, drawn.data, strait_tensor_bytes(drawn)));
    STRAIT_TRY(ops->wait(g->stream));
    g->is_pending = 0;
    memcpy(tokens, g->host.drawn, (size_t)n * sizeof *tokens);
    return STRAIT_OK;
}

strait_err strait_generator_set_seen(struct strait_generator *g, int64_t sequence,
                                     const unsigned char *seen) {
    if (g->seen.data == NULL || sequence < 0 || sequence >= g->spec.n_sequences)
        return STRAIT_FAIL(STRAIT_EINVAL, "generator: no tokens of sequence %lld are counted",
                           (long long)sequence);
    const strait_tensor row = strait_tensor_rows(g->seen, sequence, 1);
    return g->backend->ops->upload(g->stream, row.data, seen, strait_tensor_bytes(row));
}

/* In training the loss kernel caps the logits; here they come raw from the product. */
static void soft_cap(float *logits, int64_t n, float cap) {
    for (int64_t i = 0; cap > 0.0f && i < n; i++)
        logits[i] /= sqrtf(1.0f + (logits[i] / cap) * (logits[i] / cap));
}

strait_err strait_generator_logits(struct strait_generator *g, int64_t n, const float **logits) {
    const strait_shape *shape = g->work.shape;
    const struct strait_backend_ops *ops = g->backend->ops;
    strait_tensor all;
    STRAIT_TRY(compute_logits(g, n, &all));
    STRAIT_TRY(ops->download(g->stream, g->host_logits, all.data,
                             (size_t)(n * shape->vocab) * sizeof *g->host_logits));
    STRAIT_TRY(ops->wait(g->stream));
    g->is_pending = 0;
    soft_cap(g->host_logits, n * shape->vocab, shape->softcap);
    *logits = g->host_logits;
    return STRAIT_OK;
}

strait_err strait_generator_feed(struct strait_generator *g, int32_t token, const float **logits) {
    const strait_token_row row = {.token = token, .position = (int32_t)g->fed};
    STRAIT_TRY(strait_generator_begin(g, &row, 1));
    STRAIT_TRY(strait_generator_run(g));
    g->fed++;
    return strait_generator_logits(g, 1, logits);
}

void strait_generator_reset(struct strait_generator *g) {
    g->fed = 0;
}

int64_t strait_generator_position(const struct strait_generator *g) {
    return g->fed;
}
