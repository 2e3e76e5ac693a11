#include "model/block.h"

strait_err strait_block_plan_input(const strait_shape *shape, strait_ends ends, int64_t n,
                                   struct strait_slab *slab, strait_block_acts *out) {
    if (ends.enters)
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->bottleneck, &out->neck.z));
    if (ends.is_mixed)
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->local.before));
    return strait_layer_plan_acts(shape, slab, n, shape->width, &out->x);
}

strait_err strait_block_plan_acts(const strait_shape *shape, strait_ends ends, int64_t n,
                                  int can_defer, struct strait_slab *slab, strait_block_acts *out) {
    if (ends.leaves) STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->neck.o));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->mid));
    STRAIT_TRY(strait_attention_plan_acts(shape, n, slab, &out->attention));
    STRAIT_TRY(strait_mlp_plan_acts(shape, n, can_defer, slab, &out->mlp));
    return can_defer ? strait_bottleneck_plan_grads(shape, ends, n, slab, &out->neck) : STRAIT_OK;
}

/* A tensor of scratch, or several that share memory: no two of them are in use at once. */
struct share {
    strait_tensor *where;
    int64_t cols;
};

static strait_err plan_shared(const strait_shape *shape, int64_t n, struct strait_slab *slab,
                              const struct share *parts, int n_parts) {
    const size_t mark = slab->next;
    for (int i = 0; i < n_parts; i++) {
        strait_slab_overlay(slab, mark);
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, parts[i].cols, parts[i].where));
    }
    strait_slab_close_overlay(slab);
    return STRAIT_OK;
}

strait_err strait_block_plan_held(const strait_shape *shape, strait_ends ends, int64_t n,
                                  const strait_passes *passes, struct strait_slab *slab,
                                  strait_block_scratch *out) {
    const struct share outputs[] = {{&out->delta, shape->width},
                                    {&out->attention.d_normed, shape->width},
                                    {&out->mlp.d_normed, shape->width}};
    if (ends.enters || ends.leaves)
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->wide));
    STRAIT_TRY(plan_shared(shape, n, slab, outputs, passes->is_training ? 3 : 1));
    if (!passes->can_defer) return STRAIT_OK;
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->spare));
    return strait_layer_plan_acts(shape, slab, n, strait_shape_qkv(shape), &out->attention.d_qkv);
}

strait_err strait_block_plan_scratch(const strait_shape *shape, int64_t n,
                                     const strait_passes *passes, struct strait_slab *slab,
                                     strait_block_scratch *out) {
    const struct share hidden[] = {{&out->mlp.hidden, shape->ffn},
                                   {&out->attention.d_qkv, strait_shape_qkv(shape)}};
    const struct share mixed[] = {{&out->branch, shape->width},
                                  {&out->attention.d_mixed, strait_shape_mixed(shape)}};
    const struct share plain[] = {{&out->d_x, shape->width},
                                  {&out->attention.d_plain, shape->width},
                                  {&out->mlp.d_plain, shape->width}};
    const int is_training = passes->is_training;
    STRAIT_TRY(plan_shared(shape, n, slab, hidden, is_training && !passes->can_defer ? 2 : 1));
    STRAIT_TRY(plan_shared(shape, n, slab, mixed, is_training ? 2 : 1));
    return plan_shared(shape, n, slab, plain, is_training && shape->conv > 0 ? 3 : 0);
}

void strait_block_share(strait_block_acts *acts, const strait_block_scratch *scratch) {
    if (acts->mlp.hidden.data == NULL) acts->mlp.hidden = scratch->mlp.hidden;
}

int strait_block_is_local(const strait_block *block) {
    return block->local.conv != NULL || block->local.anchor != NULL;
}

strait_tensor strait_block_input(const strait_block *block, const strait_block_acts *acts) {
    if (block->neck.dec != NULL) return acts->neck.z;
    return block->local.conv != NULL ? acts->local.before : acts->x;
}

strait_err strait_block_arrive(const strait_work *work, const strait_block *block,
                               const strait_block_acts *acts, strait_tensor x,
                               strait_tensor delta) {
    const strait_tensor stream = strait_block_input(block, acts);
    if (delta.data != NULL) STRAIT_TRY(work->kernels->add(work->stream, stream, x, delta));
    return strait_local_mix_forward(work, &block->local, &acts->local, acts->x, stream);
}

strait_err strait_block_arrive_back(const strait_work *work, const strait_block *block,
                                    const strait_block_acts *acts,
                                    const strait_block_scratch *scratch, strait_tensor d) {
    return strait_local_mix_back(work, &block->local, &acts->local, d, scratch->d_x);
}

strait_err strait_block_enter(const strait_work *work, const strait_block *block,
                              const strait_block_acts *acts, const strait_block_scratch *scratch) {
    if (block->neck.dec == NULL) return STRAIT_OK;
    return strait_bottleneck_enter(work, &block->neck, &acts->neck, acts->x, scratch->wide);
}

strait_err strait_block_finish(const strait_work *work, const strait_block *block,
                               strait_block_acts *acts, const strait_block_scratch *scratch) {
    const strait_tensor stream = block->neck.dec != NULL ? scratch->wide : acts->x;
    const strait_tensor written = block->neck.enc != NULL ? acts->neck.o : scratch->delta;
    return strait_mlp_forward(work, &block->mlp, &acts->mlp, written, acts->mid, stream,
                              scratch->branch);
}

strait_err strait_block_forward(const strait_work *work, const strait_block *block,
                                strait_block_acts *acts, const strait_block_scratch *scratch,
                                strait_tensor x, strait_tensor delta) {
    const int is_sum = delta.data != NULL;
    STRAIT_TRY(strait_block_enter(work, block, acts, scratch));
    STRAIT_TRY(strait_attention_forward(work, &block->attention, &acts->attention, scratch->branch,
                                        is_sum ? acts->x : (strait_tensor){0}, is_sum ? x : acts->x,
                                        delta));
    return strait_block_finish(work, block, acts, scratch);
}

strait_err strait_block_output(const strait_work *work, const strait_block *block,
                               const strait_block_acts *acts, const strait_block_scratch *scratch,
                               strait_tensor out) {
    if (block->neck.enc != NULL)
        return strait_bottleneck_leave(work, &block->neck, &acts->neck, out, acts->mid,
                                       scratch->wide);
    return work->kernels->add(work->stream, out, acts->mid, scratch->delta);
}

/* The gradient of a code that left becomes those of mid and, in scratch->wide, of the mlp's output.
 */
static strait_err leave_back(const strait_work *work, const strait_block *block,
                             const strait_block_acts *acts, const strait_block_scratch *scratch,
                             strait_block_d d, int defers) {
    if (defers)
        STRAIT_TRY(work->kernels->cast(work->stream, acts->neck.d_code, d.code));
    else
        STRAIT_TRY(strait_bottleneck_leave_weights(work, &block->neck, &acts->neck, d.code,
                                                   scratch->wide));
    return strait_bottleneck_leave_back(work, &block->neck, &acts->neck, d.stream, scratch->wide,
                                        d.code);
}

/* The gradients of the stream and of what attention's norm made become that of the code. */
static strait_err enter_back(const strait_work *work, const strait_block *block,
                             const strait_block_acts *acts, const strait_block_scratch *scratch,
                             strait_block_d d, int defers) {
    const strait_tensor d_u = defers ? acts->neck.d_u : scratch->wide;
    STRAIT_TRY(work->kernels->fill(work->stream, d_u, 0.0f));
    STRAIT_TRY(strait_attention_norm_back(work, &block->attention, &acts->attention,
                                          &scratch->attention, acts->x, d_u));
    STRAIT_TRY(strait_bottleneck_enter_back(work, &block->neck, d.code, d.stream, d_u, acts->x));
    if (defers) return STRAIT_OK;
    return strait_bottleneck_enter_weights(work, &block->neck, &acts->neck, d_u);
}

static void trade(strait_tensor *a, strait_tensor *b) {
    const strait_tensor kept = *a;
    *a = *b;
    *b = kept;
}

static strait_err mlp_back(const strait_work *work, const strait_block *block,
                           strait_block_acts *acts, strait_block_scratch *scratch, strait_block_d d,
                           int defers) {
    const strait_tensor d_out = block->neck.enc != NULL ? scratch->wide : d.stream;
    STRAIT_TRY(strait_mlp_back(work, &block->mlp, &acts->mlp, &scratch->mlp, d_out, defers));
    if (defers) STRAIT_TRY(work->kernels->cast(work->stream, scratch->spare, d_out));
    STRAIT_TRY(
        strait_mlp_norm_back(work, &block->mlp, &acts->mlp, &scratch->mlp, acts->mid, d.stream));
    if (defers) trade(&acts->mid, &scratch->spare);
    return STRAIT_OK;
}

static strait_err attention_back(const strait_work *work, const strait_block *block,
                                 strait_block_acts *acts, strait_block_scratch *scratch,
                                 strait_block_d d, int defers) {
    STRAIT_TRY(strait_attention_back(work, &block->attention, &acts->attention, &scratch->attention,
                                     d.stream, defers));
    if (defers) STRAIT_TRY(work->kernels->cast(work->stream, scratch->spare, d.stream));
    if (block->neck.dec != NULL)
        STRAIT_TRY(enter_back(work, block, acts, scratch, d, defers));
    else
        STRAIT_TRY(strait_attention_norm_back(work, &block->attention, &acts->attention,
                                              &scratch->attention, acts->x, d.stream));
    if (!defers) return STRAIT_OK;
    trade(&acts->attention.qkv, &scratch->attention.d_qkv);
    trade(&acts->x, &scratch->spare);
    return STRAIT_OK;
}

strait_err strait_block_back(const strait_work *work, const strait_block *block,
                             strait_block_acts *acts, strait_block_scratch *scratch,
                             strait_block_d d, int defers) {
    if (block->neck.enc != NULL) STRAIT_TRY(leave_back(work, block, acts, scratch, d, defers));
    STRAIT_TRY(mlp_back(work, block, acts, scratch, d, defers));
    return attention_back(work, block, acts, scratch, d, defers);
}

strait_err strait_block_weights(const strait_work *work, const strait_block *block,
                                const strait_block_acts *acts,
                                const strait_block_scratch *scratch) {
    if (block->neck.enc != NULL)
        STRAIT_TRY(strait_bottleneck_leave_weights(work, &block->neck, &acts->neck,
                                                   acts->neck.d_code, scratch->wide));
    STRAIT_TRY(strait_mlp_weights(work, &block->mlp, &acts->mlp, acts->mid));
    STRAIT_TRY(strait_attention_weights(work, &block->attention, &acts->attention, acts->x,
                                        acts->attention.qkv));
    if (block->neck.dec == NULL) return STRAIT_OK;
    return strait_bottleneck_enter_weights(work, &block->neck, &acts->neck, acts->neck.d_u);
}
