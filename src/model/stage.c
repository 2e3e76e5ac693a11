/* stage.c - plans, allocates and releases the memory of a stage; stage_pass.c runs the passes. */
#include "base/alloc.h"
#include "model/parts/rope.h"
#include "model/stage_state.h"

int strait_stage_has_head(const struct strait_stage *stage) {
    return stage->spec.layers.last == stage->spec.shape.layers;
}

/* Activations of one microbatch. Blocks differ in their optional parts. */
static strait_err plan_slot(struct strait_stage *stage, struct slot *slot) {
    const strait_stage_spec *spec = &stage->spec;
    const strait_shape *shape = &spec->shape;
    const int64_t n = spec->n_sequences * spec->seq_len;
    struct strait_slab *slab = &stage->slab;
    if (shape->table_rows > 0 && strait_shape_reads_tokens(shape))
        STRAIT_TRY(strait_slab_add(slab, STRAIT_I32, n, 1, &slot->own_ids));
    if (shape->lists_tokens && spec->is_training)
        STRAIT_TRY(strait_slab_add(slab, STRAIT_I32, 1,
                                   strait_token_list_cols(n, strait_shape_table_rows(shape)),
                                   &slot->lists));
    for (int i = 0; i < stage->n_blocks; i++) {
        const strait_block_spec block = strait_block_spec_at(shape, spec->layers,
                                                             spec->layers.first + i);
        STRAIT_TRY(strait_block_plan_input(shape, &block, n, slab, &slot->acts[i]));
        if (!spec->recomputes)
            STRAIT_TRY(
                strait_block_plan_acts(shape, &block, n, spec->can_defer, slab, &slot->acts[i]));
    }
    return STRAIT_OK;
}

/* Host memory of the slots; the slab keeps pointers into it until commit. */
static strait_err alloc_slots(struct strait_stage *stage) {
    const size_t n_slots = (size_t)stage->spec.n_slots;
    const size_t n_blocks = (size_t)stage->n_blocks;
    STRAIT_TRY(strait_alloc(n_slots, sizeof *stage->slots, "slots", (void **)&stage->slots));
    for (size_t i = 0; i < n_slots; i++) {
        struct slot *slot = &stage->slots[i];
        STRAIT_TRY(strait_alloc(n_blocks, sizeof *slot->acts, "activations", (void **)&slot->acts));
    }
    return STRAIT_OK;
}

/* Scratch that all blocks use in turn. The head runs between forward and backward, when the second
 * group of the blocks' scratch is free: it shares that memory. */
static strait_err plan_scratch(struct strait_stage *stage, const strait_block_spec *block) {
    const strait_stage_spec *spec = &stage->spec;
    const strait_shape *shape = &spec->shape;
    const strait_passes passes = {.is_training = spec->is_training, .can_defer = spec->can_defer};
    const int64_t n = spec->n_sequences * spec->seq_len;
    struct strait_slab *slab = &stage->slab;
    STRAIT_TRY(strait_block_plan_retained(shape, block, n, &passes, slab, &stage->scratch));
    const size_t mark = slab->next;
    STRAIT_TRY(strait_block_plan_scratch(shape, n, &passes, slab, &stage->scratch));
    if (!strait_stage_has_head(stage)) return STRAIT_OK;
    strait_slab_overlay(slab, mark);
    STRAIT_TRY(strait_head_plan_scratch(shape, n, spec->logit_bytes, spec->is_training, slab,
                                        &stage->head));
    strait_slab_close_overlay(slab);
    return strait_layer_plan_f32(slab, n, 1, &stage->head.losses);
}

/* The output of the stage and the gradients at its two ends. */
static strait_err plan_boundaries(struct strait_stage *stage, const strait_block_spec *block) {
    const strait_stage_spec *spec = &stage->spec;
    const strait_shape *shape = &spec->shape;
    const int64_t n = spec->n_sequences * spec->seq_len;
    struct strait_slab *slab = &stage->slab;
    if (!strait_stage_has_head(stage))
        STRAIT_TRY(strait_layer_plan_acts(
            shape, slab, n, block->bottleneck.encodes_output ? shape->bottleneck : shape->width,
            &stage->output));
    if (!spec->is_training) return STRAIT_OK;
    if (block->bottleneck.decodes_input || block->bottleneck.encodes_output)
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->bottleneck, &stage->d_code));
    return strait_layer_plan_acts(shape, slab, n, shape->width, &stage->d);
}

/* Scratch for rows looked up in token and value tables. */
static strait_err plan_table_rows(struct strait_stage *stage, int64_t n) {
    const strait_shape *shape = &stage->spec.shape;
    const int keys = shape->has_value_tables ? shape->kv_heads * shape->head_dim : 0;
    const int width = strait_parts_read_tokens(shape) ? shape->width : 0;
    if (keys == 0 && width == 0) return STRAIT_OK;
    return strait_layer_plan_acts(shape, &stage->slab, n, keys > width ? keys : width,
                                  &stage->work.table_rows);
}

/* Scratch for the factors of the largest product of a block, rounded to 8 bits. A matrix is a
 * factor of two products, and its gradient is a third one of the same sizes in another order. */
static strait_err plan_fp8(struct strait_stage *stage, int64_t n) {
    const strait_shape *shape = &stage->spec.shape;
    const int64_t residual = strait_shape_residual_out_rows(shape, strait_stage_has_head(stage));
    const int64_t matrices[][2] = {{shape->width, strait_shape_qkv_cols(shape)},
                                   {strait_shape_attention_cols(shape), residual},
                                   {shape->width, strait_shape_mlp_cols(shape)},
                                   {shape->ffn, residual}};
    int64_t bytes = 0;
    if (!shape->has_fp8) return STRAIT_OK;
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        const int64_t in = matrices[i][0], out = matrices[i][1];
        const int64_t each[] = {strait_fp8_space(n, out, in), strait_fp8_space(n, in, out),
                                strait_fp8_space(out, in, n)};
        for (size_t p = 0; p < sizeof each / sizeof *each; p++)
            if (each[p] > bytes) bytes = each[p];
    }
    return strait_slab_add(&stage->slab, STRAIT_I8, 1, bytes, &stage->work.fp8_space);
}

/* Activations, scratch and tables. Scratch is planned for any block of the range. */
static strait_err plan_slab(struct strait_stage *stage) {
    const strait_stage_spec *spec = &stage->spec;
    const strait_shape *shape = &spec->shape;
    const strait_block_spec block = strait_block_spec_of_range(shape, spec->layers);
    const int64_t n = spec->n_sequences * spec->seq_len;
    struct strait_slab *slab = &stage->slab;
    for (int i = 0; i < spec->n_slots; i++)
        STRAIT_TRY(plan_slot(stage, &stage->slots[i]));
    /* One set of activations, for the block being recomputed, instead of one per block and slot. */
    if (spec->recomputes)
        STRAIT_TRY(strait_block_plan_acts(shape, &block, n, 0, slab, &stage->shared));
    STRAIT_TRY(plan_scratch(stage, &block));
    if (shape->subspace > 0 && !strait_stage_has_head(stage))
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->subspace, &stage->work.code));
    if (shape->subspace > 0 && !strait_stage_has_head(stage) && shape->precision != STRAIT_F32)
        STRAIT_TRY(
            strait_layer_plan_acts(shape, slab, shape->width, shape->subspace, &stage->work.basis));
    STRAIT_TRY(plan_table_rows(stage, n));
    STRAIT_TRY(plan_fp8(stage, n));
    STRAIT_TRY(strait_layer_plan_f32(slab, shape->context, shape->head_dim / 2, &stage->work.cos));
    STRAIT_TRY(strait_layer_plan_f32(slab, shape->context, shape->head_dim / 2, &stage->work.sin));
    return plan_boundaries(stage, &block);
}

/* Plans everything; nothing is allocated on the device yet. */
static strait_err plan(struct strait_stage *stage) {
    const strait_stage_spec *spec = &stage->spec;
    STRAIT_TRY(strait_shape_check(&spec->shape));
    if (spec->recomputes && spec->can_defer)
        return STRAIT_FAIL(
            STRAIT_EINVAL,
            "stage: recomputing activations and deferring weight gradients exclude each other");
    stage->n_blocks = spec->layers.last - spec->layers.first;
    stage->last_slot = -1; // no forward pass yet
    STRAIT_TRY(alloc_slots(stage));
    STRAIT_TRY(strait_weights_plan(&spec->shape, spec->layers, spec->is_training, &stage->weights));
    return plan_slab(stage);
}

/* After the commit, when tensors have addresses that can be copied. */
static void share_activations(struct strait_stage *stage) {
    for (int i = 0; i < stage->spec.n_slots; i++) {
        for (int b = 0; b < stage->n_blocks; b++) {
            strait_block_acts *acts = &stage->slots[i].acts[b];
            if (stage->spec.recomputes) strait_block_share_acts(acts, &stage->shared);
            strait_block_use_scratch(acts, &stage->scratch);
        }
    }
}

static strait_err upload_rope(struct strait_stage *stage) {
    const struct strait_backend_ops *ops = stage->backend->ops;
    const size_t bytes = strait_tensor_bytes(stage->work.cos);
    float *tables = NULL;
    /* Computed on the host, so that every backend rotates by the same bits. */
    STRAIT_TRY(strait_alloc(2, bytes, "rotation tables", (void **)&tables));
    float *const sines = tables + bytes / sizeof *tables;
    strait_rope_tables(&stage->spec.shape, tables, sines);
    strait_err err = ops->upload(&stage->stream, stage->work.cos.data, tables, bytes);
    if (err == STRAIT_OK) err = ops->upload(&stage->stream, stage->work.sin.data, sines, bytes);
    if (err == STRAIT_OK) err = ops->wait(&stage->stream);
    strait_alloc_free(tables);
    return err;
}

/* Allocates what plan listed and completes the context of passes. */
static strait_err commit(struct strait_stage *stage) {
    STRAIT_TRY(strait_parts_require(&stage->spec.shape, stage->backend));
    if (stage->spec.shape.has_fp8)
        STRAIT_TRY(
            strait_backend_require(stage->backend, STRAIT_NEEDS_FP8, "device.precision fp8"));
    STRAIT_TRY(stage->backend->ops->stream_open(stage->backend, &stage->stream));
    STRAIT_TRY(strait_weights_commit(&stage->weights, stage->backend));
    STRAIT_TRY(strait_slab_commit(&stage->slab, stage->backend));
    share_activations(stage);
    stage->work.shape = &stage->spec.shape;
    stage->work.kernels = stage->backend->kernels;
    stage->work.stream = &stage->stream;
    stage->work.seq_len = stage->spec.seq_len;
    return upload_rope(stage);
}

strait_err strait_stage_open(const strait_stage_spec *spec, struct strait_backend *backend,
                             struct strait_stage **out) {
    struct strait_stage *stage = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *stage, "stage", (void **)&stage));
    stage->spec = *spec;
    stage->backend = backend;
    strait_err err;
    STRAIT_TRY_GOTO(err, fail, plan(stage));
    STRAIT_TRY_GOTO(err, fail, commit(stage));
    *out = stage;
    return STRAIT_OK;
fail:
    strait_stage_close(&stage);
    return err;
}

void strait_stage_close(struct strait_stage **stage) {
    struct strait_stage *s = *stage;
    if (s == NULL) return;
    if (s->stream.backend != NULL)
        s->backend->ops->stream_close(&s->stream); // waits for queued work
    strait_slab_fini(&s->slab);
    strait_weights_fini(&s->weights);
    for (int i = 0; s->slots != NULL && i < s->spec.n_slots; i++) {
        strait_alloc_free(s->slots[i].acts);
    }
    strait_alloc_free(s->slots);
    strait_alloc_free(s);
    *stage = NULL;
}

strait_err strait_stage_plan(const strait_stage_spec *spec, strait_stage_memory *out) {
    struct strait_stage *stage = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *stage, "stage", (void **)&stage));
    stage->spec = *spec;
    const strait_err err = plan(stage);
    if (err == STRAIT_OK)
        *out = (strait_stage_memory){
            .weights = stage->weights.values.bytes + stage->weights.copies.bytes,
            .gradients = stage->weights.grads.bytes + stage->weights.sums.bytes,
            .activations = stage->slab.bytes};
    strait_stage_close(&stage);
    return err;
}

strait_err strait_stage_init(struct strait_stage *stage, uint64_t seed) {
    return strait_weights_init(&stage->weights, &stage->spec.shape, seed, &stage->stream);
}

const strait_stage_spec *strait_stage_get_spec(const struct strait_stage *stage) {
    return &stage->spec;
}

strait_param *strait_stage_params(struct strait_stage *stage, int *n) {
    *n = stage->weights.n_params;
    return stage->weights.params;
}

strait_tensor strait_stage_token_table(const struct strait_stage *stage) {
    const strait_role role = stage->spec.layers.first == 0 ? STRAIT_ROLE_EMBEDDING
                                                           : STRAIT_ROLE_TOKEN_TABLE;
    for (int i = 0; i < stage->weights.n_params; i++)
        if (stage->weights.params[i].role == role) return stage->weights.params[i].compute;
    return (strait_tensor){0};
}

struct strait_stream *strait_stage_stream(struct strait_stage *stage) {
    return &stage->stream;
}

const struct strait_weights *strait_stage_weights(const struct strait_stage *stage) {
    return &stage->weights;
}

const strait_work *strait_stage_work(const struct strait_stage *stage) {
    return &stage->work;
}

strait_err strait_stage_set_basis(struct strait_stage *stage, strait_tensor basis,
                                  strait_tensor fixed_embedding) {
    stage->basis_f32 = basis;
    stage->work.fixed_embedding = fixed_embedding;
    /* Layers read the basis in the precision of activations: the borrowed tensor itself, or a copy
     * in the slab, which refresh fills. */
    if (stage->spec.shape.precision == basis.dtype) stage->work.basis = basis;
    return strait_stage_refresh(stage);
}

strait_err strait_stage_refresh(struct strait_stage *stage) {
    const strait_tensor basis = stage->work.basis;
    if (stage->basis_f32.data != NULL && basis.data != stage->basis_f32.data)
        STRAIT_TRY(stage->work.kernels->cast(&stage->stream, basis, stage->basis_f32));
    return strait_weights_refresh(&stage->weights, &stage->spec.shape, &stage->stream);
}

strait_err strait_stage_apply_adapters(struct strait_stage *stage) {
    return strait_weights_apply_adapters(&stage->weights, &stage->spec.shape, &stage->stream);
}

strait_err strait_stage_adapter_gradients(struct strait_stage *stage) {
    return strait_lora_gradients(&stage->spec.shape, stage->weights.adapters,
                                 stage->weights.n_adapters, &stage->stream);
}
