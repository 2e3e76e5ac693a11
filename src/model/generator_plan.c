/* generator_plan.c - plans the memory of a generator. */
#include "base/alloc.h"
#include "model/generator_state.h"

/* Without convolutions nothing is planned, and absent pasts mean so. */
static strait_err plan_pasts(struct strait_generator *g, const strait_shape *shape) {
    if (shape->conv == 0) return STRAIT_OK;
    const int n_pasts = shape->has_qkv_conv ? STRAIT_PASTS : STRAIT_QKV_PAST;
    for (int i = 0; i < g->n_blocks; i++)
        for (int p = 0; p < n_pasts; p++)
            STRAIT_TRY(strait_layer_plan_acts(
                shape, &g->slab, g->spec.n_sequences * STRAIT_CONV_RING,
                p == STRAIT_QKV_PAST ? strait_shape_qkv_cols(shape) : shape->width,
                &g->caches[i].pasts[p]));
    return STRAIT_OK;
}

/* Keys, values and what parts keep of earlier tokens, for every block and sequence. */
static strait_err plan_caches(struct strait_generator *g, const strait_stage_spec *spec) {
    const strait_shape *shape = &spec->shape;
    const int64_t keys = (int64_t)shape->kv_heads * shape->head_dim;
    const int64_t n = g->spec.n_sequences * g->spec.n_positions;
    for (int i = 0; i < g->n_blocks; i++) {
        const strait_part_set set = strait_parts_of_block(shape, spec->layers.first + i);
        STRAIT_TRY(strait_layer_plan_acts(shape, &g->slab, n, keys, &g->caches[i].keys));
        STRAIT_TRY(strait_layer_plan_acts(shape, &g->slab, n, keys, &g->caches[i].values));
        STRAIT_TRY(strait_parts_plan_pasts(shape, &set, g->spec.n_sequences, &g->slab,
                                           g->caches[i].part_pasts));
    }
    return plan_pasts(g, shape);
}

/* The last norm, the logits, and the tokens drawn from them. */
static strait_err plan_head(struct strait_generator *g, const strait_shape *shape, int64_t n) {
    struct strait_slab *slab = &g->slab;
    if (g->host_logits == NULL) return STRAIT_OK;
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &g->head.x));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &g->head.normed));
    STRAIT_TRY(strait_layer_plan_f32(slab, n, 1, &g->head.rstd));
    STRAIT_TRY(strait_layer_plan_f32(slab, n, shape->vocab, &g->logits));
    STRAIT_TRY(strait_slab_add(slab, STRAIT_I32, n, 1, &g->drawn));
    return strait_slab_add(slab, STRAIT_I8, n, (int64_t)sizeof(strait_sample_row), &g->how);
}

/* Activations and scratch of a step, which all blocks share. */
static strait_err plan_step(struct strait_generator *g, const strait_shape *shape,
                            const strait_block_spec *block) {
    struct strait_slab *slab = &g->slab;
    const int64_t n = g->spec.n_rows;
    const strait_passes forward = {0};
    g->first_row = slab->n_tensors;
    STRAIT_TRY(strait_layer_plan_acts(
        shape, slab, n, block->bottleneck.decodes_input ? shape->bottleneck : shape->width,
        &g->input));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &g->inner));
    STRAIT_TRY(strait_block_plan_acts(shape, block, n, 0, slab, &g->acts));
    STRAIT_TRY(strait_block_plan_retained(shape, block, n, &forward, slab, &g->scratch));
    STRAIT_TRY(strait_block_plan_scratch(shape, n, &forward, slab, &g->scratch));
    STRAIT_TRY(plan_head(g, shape, n));
    STRAIT_TRY(strait_layer_plan_acts(
        shape, slab, n, block->bottleneck.encodes_output ? shape->bottleneck : shape->width,
        &g->output));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &g->changed));
    STRAIT_TRY(
        strait_parts_plan_acts(shape, STRAIT_PART_STREAM, &block->parts, n, slab, g->acts.parts));
    STRAIT_TRY(strait_layer_plan_f32(slab, n, shape->head_dim / 2, &g->cos));
    STRAIT_TRY(strait_layer_plan_f32(slab, n, shape->head_dim / 2, &g->sin));
    g->end_row = slab->n_tensors;
    return STRAIT_OK;
}

static strait_err stage_memory(struct strait_generator *g) {
    const struct strait_backend_ops *ops = g->backend->ops;
    const size_t n = (size_t)g->spec.n_rows;
    STRAIT_TRY(ops->alloc_host(g->backend, 3 * n * sizeof *g->host.ids, (void **)&g->host.ids));
    STRAIT_TRY(ops->alloc_host(g->backend, n * sizeof *g->host.how, (void **)&g->host.how));
    return ops->alloc_host(g->backend, n * sizeof *g->host.drawn, (void **)&g->host.drawn);
}

static strait_err plan_logits(struct strait_generator *g, const strait_shape *shape) {
    STRAIT_TRY(strait_alloc((size_t)(g->spec.n_rows * shape->vocab), sizeof *g->host_logits,
                            "logits", (void **)&g->host_logits));
    return strait_slab_add(&g->slab, STRAIT_I8, g->spec.n_sequences, shape->vocab, &g->seen);
}

strait_err strait_generator_plan(struct strait_generator *g) {
    const strait_stage_spec *spec = strait_stage_get_spec(g->stage);
    const strait_shape *shape = &spec->shape;
    const strait_block_spec block = strait_block_spec_of_range(shape, spec->layers);
    g->n_blocks = spec->layers.last - spec->layers.first;
    STRAIT_TRY(strait_alloc((size_t)g->n_blocks, sizeof *g->caches, "key and value caches",
                            (void **)&g->caches));
    if (spec->layers.last == shape->layers) STRAIT_TRY(plan_logits(g, shape));
    STRAIT_TRY(plan_caches(g, spec));
    STRAIT_TRY(plan_step(g, shape, &block));
    STRAIT_TRY(strait_slab_add(&g->slab, STRAIT_I32, 3 * g->spec.n_rows, 1, &g->ids));
    if (shape->table_rows > 0 && strait_shape_reads_tokens(shape))
        STRAIT_TRY(strait_slab_add(&g->slab, STRAIT_I32, g->spec.n_rows, 1, &g->table_ids));
    STRAIT_TRY(strait_slab_commit(&g->slab, g->backend));
    for (int p = 0; p < STRAIT_PARTS; p++)
        g->part_inputs[p] = g->acts.parts[p].input; // which binding a block replaces
    return stage_memory(g);
}

void strait_generator_set_rows(struct strait_generator *g, int64_t n) {
    const int64_t capacity = g->spec.n_rows;
    strait_slab_set_rows(&g->slab, g->first_row, g->end_row, n);
    g->acts.mlp.hidden = g->scratch.mlp.hidden;
    for (int p = 0; p < STRAIT_PARTS; p++)
        if (g->part_inputs[p].data != NULL) g->part_inputs[p].rows = n;
    g->tokens = strait_tensor_rows(g->ids, 0, n);
    g->sequences = strait_tensor_rows(g->ids, capacity, n);
    g->positions = strait_tensor_rows(g->ids, 2 * capacity, n);
    g->work.table_ids = g->table_ids.data != NULL ? strait_tensor_rows(g->table_ids, 0, n)
                                                  : g->tokens;
    g->work.at = (strait_cached_rows){g->sequences, g->positions};
    g->work.cos = g->cos;
    g->work.sin = g->sin;
    g->work.seq_len = n; // the angles have a row per row
    g->n_computed = n;
}
