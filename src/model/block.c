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
                                  struct strait_slab *slab, strait_block_acts *out) {
    if (ends.leaves) STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->neck.o));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->mid));
    STRAIT_TRY(strait_attention_plan_acts(shape, n, slab, &out->attention));
    return strait_mlp_plan_acts(shape, n, slab, &out->mlp);
}

strait_err strait_block_plan_grads(const strait_shape *shape, strait_ends ends, int64_t n,
                                   int can_defer, struct strait_slab *slab,
                                   strait_block_grads *out) {
    STRAIT_TRY(
        strait_layer_plan_acts(shape, slab, n, strait_shape_qkv(shape), &out->attention.d_qkv));
    STRAIT_TRY(
        strait_layer_plan_acts(shape, slab, n, strait_shape_hidden(shape), &out->mlp.d_wide));
    if (!can_defer) return STRAIT_OK;
    STRAIT_TRY(strait_neck_plan_grads(shape, ends, n, slab, &out->neck));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->attention.d_branch));
    return strait_layer_plan_acts(shape, slab, n, shape->width, &out->mlp.d_branch);
}

static strait_err plan_conv_scratch(const strait_shape *shape, int64_t n, struct strait_slab *slab,
                                    strait_block_scratch *out) {
    strait_tensor *const where[] = {&out->d_x, &out->attention.d_plain, &out->mlp.d_plain};
    for (int i = 0; i < 3; i++)
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, where[i]));
    return STRAIT_OK;
}

strait_err strait_block_plan_scratch(const strait_shape *shape, strait_ends ends, int64_t n,
                                     int is_training, struct strait_slab *slab,
                                     strait_block_scratch *out) {
    if (ends.enters || ends.leaves)
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->wide));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->branch));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->delta));
    if (!is_training) return STRAIT_OK;
    if (shape->conv > 0) STRAIT_TRY(plan_conv_scratch(shape, n, slab, out));
    STRAIT_TRY(
        strait_layer_plan_acts(shape, slab, n, strait_shape_mixed(shape), &out->attention.d_mixed));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->attention.d_normed));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->ffn, &out->mlp.d_hidden));
    return strait_layer_plan_acts(shape, slab, n, shape->width, &out->mlp.d_normed);
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
    return strait_local_forward(work, &block->local, &acts->local, acts->x, stream);
}

strait_err strait_block_arrive_back(const strait_work *work, const strait_block *block,
                                    const strait_block_acts *acts,
                                    const strait_block_scratch *scratch, strait_tensor d) {
    return strait_local_back(work, &block->local, &acts->local, d, scratch->d_x);
}

strait_err strait_block_enter(const strait_work *work, const strait_block *block,
                              const strait_block_acts *acts, const strait_block_scratch *scratch) {
    if (block->neck.dec == NULL) return STRAIT_OK;
    return strait_neck_enter(work, &block->neck, &acts->neck, acts->x, scratch->wide);
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
        return strait_neck_leave(work, &block->neck, &acts->neck, out, acts->mid, scratch->wide);
    return work->kernels->add(work->stream, out, acts->mid, scratch->delta);
}

/* The gradient of a code that left becomes those of mid and, in scratch->wide, of the mlp's output.
 */
static strait_err leave_back(const strait_work *work, const strait_block *block,
                             const strait_block_acts *acts, const strait_block_grads *grads,
                             const strait_block_scratch *scratch, strait_block_d d, int defers) {
    if (defers)
        STRAIT_TRY(work->kernels->cast(work->stream, grads->neck.d_code, d.code));
    else
        STRAIT_TRY(
            strait_neck_leave_weights(work, &block->neck, &acts->neck, d.code, scratch->wide));
    return strait_neck_leave_back(work, &block->neck, &acts->neck, d.stream, scratch->wide, d.code);
}

/* The gradients of the stream and of what attention's norm made become that of the code. */
static strait_err enter_back(const strait_work *work, const strait_block *block,
                             const strait_block_acts *acts, const strait_block_grads *grads,
                             const strait_block_scratch *scratch, strait_block_d d, int defers) {
    const strait_tensor d_u = defers ? grads->neck.d_u : scratch->wide;
    STRAIT_TRY(work->kernels->fill(work->stream, d_u, 0.0f));
    STRAIT_TRY(strait_attention_norm_back(work, &block->attention, &acts->attention,
                                          &scratch->attention, acts->x, d_u));
    STRAIT_TRY(strait_neck_enter_back(work, &block->neck, d.code, d.stream, d_u, acts->x));
    if (defers) return STRAIT_OK;
    return strait_neck_enter_weights(work, &block->neck, &acts->neck, d_u);
}

strait_err strait_block_back(const strait_work *work, const strait_block *block,
                             const strait_block_acts *acts, const strait_block_grads *grads,
                             const strait_block_scratch *scratch, strait_block_d d, int defers) {
    const int leaves = block->neck.enc != NULL;
    if (leaves) STRAIT_TRY(leave_back(work, block, acts, grads, scratch, d, defers));
    STRAIT_TRY(strait_mlp_back(work, &block->mlp, &acts->mlp, &grads->mlp, &scratch->mlp,
                               leaves ? scratch->wide : d.stream, defers));
    STRAIT_TRY(
        strait_mlp_norm_back(work, &block->mlp, &acts->mlp, &scratch->mlp, acts->mid, d.stream));
    STRAIT_TRY(strait_attention_back(work, &block->attention, &acts->attention, &grads->attention,
                                     &scratch->attention, d.stream, defers));
    if (block->neck.dec != NULL) return enter_back(work, block, acts, grads, scratch, d, defers);
    return strait_attention_norm_back(work, &block->attention, &acts->attention,
                                      &scratch->attention, acts->x, d.stream);
}

strait_err strait_block_weights(const strait_work *work, const strait_block *block,
                                const strait_block_acts *acts, const strait_block_grads *grads,
                                const strait_block_scratch *scratch) {
    if (block->neck.enc != NULL)
        STRAIT_TRY(strait_neck_leave_weights(work, &block->neck, &acts->neck, grads->neck.d_code,
                                             scratch->wide));
    STRAIT_TRY(
        strait_mlp_weights(work, &block->mlp, &acts->mlp, grads->mlp.d_branch, grads->mlp.d_wide));
    STRAIT_TRY(strait_attention_weights(work, &block->attention, &acts->attention,
                                        grads->attention.d_branch, grads->attention.d_qkv));
    if (block->neck.dec == NULL) return STRAIT_OK;
    return strait_neck_enter_weights(work, &block->neck, &acts->neck, grads->neck.d_u);
}
