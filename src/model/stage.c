/* stage.c - what a stage holds: its plan, its memory, its life. stage_pass.c computes with it. */
#include "base/alloc.h"
#include "model/rope.h"
#include "model/stage_state.h"

int strait_stage_has_head(const struct strait_stage *stage) {
    return stage->spec.part.last == stage->spec.shape.layers;
}

static strait_err plan_slot(struct strait_stage *stage, struct slot *slot) {
    const strait_stage_spec *spec = &stage->spec;
    const strait_shape *shape = &spec->shape;
    const int64_t n = spec->n_sequences * spec->seq_len;
    struct strait_slab *capacity = &stage->capacity;
    for (int i = 0; i < stage->n_blocks; i++) {
        const strait_ends ends = strait_part_block_ends(shape, spec->part, spec->part.first + i);
        STRAIT_TRY(strait_block_plan_input(shape, ends, n, capacity, &slot->acts[i]));
        if (!spec->recomputes)
            STRAIT_TRY(
                strait_block_plan_acts(shape, ends, n, spec->can_defer, capacity, &slot->acts[i]));
    }
    return STRAIT_OK;
}

static strait_err make_slots(struct strait_stage *stage) {
    const size_t n_slots = (size_t)stage->spec.n_slots;
    const size_t n_blocks = (size_t)stage->n_blocks;
    STRAIT_TRY(strait_alloc(n_slots, sizeof *stage->slots, "slots", (void **)&stage->slots));
    for (size_t i = 0; i < n_slots; i++) {
        struct slot *slot = &stage->slots[i];
        STRAIT_TRY(strait_alloc(n_blocks, sizeof *slot->acts, "activations", (void **)&slot->acts));
    }
    return STRAIT_OK;
}

/* What every block uses in turn, and the head over it, which has its turn in between. */
static strait_err plan_scratch(struct strait_stage *stage, strait_ends ends) {
    const strait_stage_spec *spec = &stage->spec;
    const strait_shape *shape = &spec->shape;
    const strait_passes passes = {.is_training = spec->is_training, .can_defer = spec->can_defer};
    const int64_t n = spec->n_sequences * spec->seq_len;
    struct strait_slab *capacity = &stage->capacity;
    STRAIT_TRY(strait_block_plan_held(shape, ends, n, &passes, capacity, &stage->scratch));
    const size_t mark = capacity->next;
    STRAIT_TRY(strait_block_plan_scratch(shape, n, &passes, capacity, &stage->scratch));
    if (!strait_stage_has_head(stage)) return STRAIT_OK;
    strait_slab_overlay(capacity, mark);
    STRAIT_TRY(
        strait_head_plan(shape, n, spec->logit_bytes, spec->is_training, capacity, &stage->head));
    strait_slab_close_overlay(capacity);
    return strait_layer_plan(capacity, n, 1, &stage->head.losses);
}

/* What leaves the stage, and the gradients that come and go. */
static strait_err plan_ends(struct strait_stage *stage, strait_ends ends) {
    const strait_stage_spec *spec = &stage->spec;
    const strait_shape *shape = &spec->shape;
    const int64_t n = spec->n_sequences * spec->seq_len;
    struct strait_slab *capacity = &stage->capacity;
    if (!strait_stage_has_head(stage))
        STRAIT_TRY(strait_layer_plan_acts(
            shape, capacity, n, ends.leaves ? shape->bottleneck : shape->width, &stage->output));
    if (!spec->is_training) return STRAIT_OK;
    if (ends.enters || ends.leaves)
        STRAIT_TRY(strait_layer_plan_acts(shape, capacity, n, shape->bottleneck, &stage->d_code));
    return strait_layer_plan_acts(shape, capacity, n, shape->width, &stage->d);
}

/* Scratch for rows of tables of ids. */
static strait_err plan_looked(struct strait_stage *stage, int64_t n) {
    const strait_shape *shape = &stage->spec.shape;
    const int keys = shape->has_value_tables ? shape->kv_heads * shape->head_dim : 0;
    const int width = shape->has_anchors ? shape->width : 0;
    if (keys == 0 && width == 0) return STRAIT_OK;
    return strait_layer_plan_acts(shape, &stage->capacity, n, keys > width ? keys : width,
                                  &stage->work.looked);
}

static strait_err plan_room(struct strait_stage *stage) {
    const strait_stage_spec *spec = &stage->spec;
    const strait_shape *shape = &spec->shape;
    const strait_ends ends = strait_part_ends(shape, spec->part);
    const int64_t n = spec->n_sequences * spec->seq_len;
    struct strait_slab *capacity = &stage->capacity;
    for (int i = 0; i < spec->n_slots; i++)
        STRAIT_TRY(plan_slot(stage, &stage->slots[i]));
    if (spec->recomputes)
        STRAIT_TRY(strait_block_plan_acts(shape, ends, n, 0, capacity, &stage->shared));
    STRAIT_TRY(plan_scratch(stage, ends));
    if (shape->subspace > 0 && !strait_stage_has_head(stage))
        STRAIT_TRY(strait_layer_plan_acts(shape, capacity, n, shape->subspace, &stage->work.code));
    if (shape->subspace > 0 && !strait_stage_has_head(stage) && shape->precision != STRAIT_F32)
        STRAIT_TRY(strait_layer_plan_acts(shape, capacity, shape->width, shape->subspace,
                                          &stage->work.basis));
    STRAIT_TRY(plan_looked(stage, n));
    STRAIT_TRY(strait_layer_plan(capacity, shape->context, shape->head_dim / 2, &stage->work.cos));
    STRAIT_TRY(strait_layer_plan(capacity, shape->context, shape->head_dim / 2, &stage->work.sin));
    return plan_ends(stage, ends);
}

/* Everything but the memory itself. */
static strait_err plan(struct strait_stage *stage) {
    const strait_stage_spec *spec = &stage->spec;
    STRAIT_TRY(strait_shape_check(&spec->shape));
    if (spec->recomputes && spec->can_defer)
        return STRAIT_FAIL(STRAIT_EINVAL, "a stage that recomputes cannot defer weight gradients");
    stage->n_blocks = spec->part.last - spec->part.first;
    stage->last_slot = -1;
    STRAIT_TRY(make_slots(stage));
    STRAIT_TRY(strait_weights_plan(&spec->shape, spec->part, spec->is_training, &stage->weights));
    return plan_room(stage);
}

/* With recomputation every block of every slot uses the same activations, but for its input. */
static void share_recomputed(const struct strait_stage *stage, strait_block_acts *acts) {
    const strait_tensor x = acts->x, z = acts->neck.z, before = acts->local.before;
    *acts = stage->shared;
    acts->x = x;
    acts->local.before = before;
    acts->neck.z = z;
}

static void share_activations(struct strait_stage *stage) {
    for (int i = 0; i < stage->spec.n_slots; i++) {
        for (int b = 0; b < stage->n_blocks; b++) {
            strait_block_acts *acts = &stage->slots[i].acts[b];
            if (stage->spec.recomputes) share_recomputed(stage, acts);
            strait_block_share(acts, &stage->scratch);
        }
    }
}

static strait_err upload_rope(struct strait_stage *stage) {
    const struct strait_backend_ops *ops = stage->backend->ops;
    const size_t bytes = strait_tensor_bytes(stage->work.cos);
    float *tables = NULL;
    STRAIT_TRY(strait_alloc(2, bytes, "rotation tables", (void **)&tables));
    float *const sines = tables + bytes / sizeof *tables;
    strait_rope_tables(&stage->spec.shape, tables, sines);
    strait_err err = ops->upload(&stage->stream, stage->work.cos.data, tables, bytes);
    if (err == STRAIT_OK) err = ops->upload(&stage->stream, stage->work.sin.data, sines, bytes);
    if (err == STRAIT_OK) err = ops->wait(&stage->stream);
    strait_alloc_free(tables);
    return err;
}

static strait_err commit(struct strait_stage *stage) {
    if (stage->spec.shape.conv > 0)
        STRAIT_TRY(strait_backend_require(stage->backend, STRAIT_NEEDS_CONV, "model.conv"));
    STRAIT_TRY(stage->backend->ops->stream_open(stage->backend, &stage->stream));
    STRAIT_TRY(strait_weights_commit(&stage->weights, stage->backend));
    STRAIT_TRY(strait_slab_commit(&stage->capacity, stage->backend));
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
    if (s->stream.backend != NULL) s->backend->ops->stream_close(&s->stream); // its work is done
    strait_slab_fini(&s->capacity);
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
            .activations = stage->capacity.bytes};
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

struct strait_stream *strait_stage_stream(struct strait_stage *stage) {
    return &stage->stream;
}

const struct strait_weights *strait_stage_weights(const struct strait_stage *stage) {
    return &stage->weights;
}

const strait_work *strait_stage_work(const struct strait_stage *stage) {
    return &stage->work;
}

strait_err strait_stage_view(struct strait_stage *stage, strait_tensor basis, strait_tensor fixed) {
    stage->lent = basis;
    stage->work.fixed = fixed;
    if (stage->spec.shape.precision == basis.dtype) stage->work.basis = basis;
    return strait_stage_refresh(stage);
}

strait_err strait_stage_refresh(struct strait_stage *stage) {
    const strait_tensor basis = stage->work.basis;
    if (stage->lent.data != NULL && basis.data != stage->lent.data)
        STRAIT_TRY(stage->work.kernels->cast(&stage->stream, basis, stage->lent));
    return strait_weights_refresh(&stage->weights, &stage->stream);
}
