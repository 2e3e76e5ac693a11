#include "model/block.h"

strait_err strait_block_plan_acts(const strait_shape *shape, int64_t n, struct strait_slab *slab,
                                  strait_block_acts *out) {
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->mid));
    STRAIT_TRY(strait_attention_plan_acts(shape, n, slab, &out->attention));
    return strait_mlp_plan_acts(shape, n, slab, &out->mlp);
}

strait_err strait_block_plan_grads(const strait_shape *shape, int64_t n, int can_defer,
                                   struct strait_slab *slab, strait_block_grads *out) {
    STRAIT_TRY(
        strait_layer_plan_acts(shape, slab, n, strait_shape_qkv(shape), &out->attention.d_qkv));
    STRAIT_TRY(
        strait_layer_plan_acts(shape, slab, n, strait_shape_hidden(shape), &out->mlp.d_wide));
    if (!can_defer) return STRAIT_OK;
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->attention.d_branch));
    return strait_layer_plan_acts(shape, slab, n, shape->width, &out->mlp.d_branch);
}

strait_err strait_block_plan_scratch(const strait_shape *shape, int64_t n, int is_training,
                                     struct strait_slab *slab, strait_block_scratch *out) {
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->branch));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->delta));
    if (!is_training) return STRAIT_OK;
    STRAIT_TRY(
        strait_layer_plan_acts(shape, slab, n, strait_shape_mixed(shape), &out->attention.d_mixed));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->attention.d_normed));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->ffn, &out->mlp.d_hidden));
    return strait_layer_plan_acts(shape, slab, n, shape->width, &out->mlp.d_normed);
}

strait_err strait_block_forward(const strait_work *work, const strait_block *block,
                                strait_block_acts *acts, const strait_block_scratch *scratch,
                                strait_tensor x, strait_tensor delta) {
    const int is_sum = delta.data != NULL;
    STRAIT_TRY(strait_attention_forward(work, &block->attention, &acts->attention, scratch->branch,
                                        is_sum ? acts->x : (strait_tensor){0}, is_sum ? x : acts->x,
                                        delta));
    return strait_mlp_forward(work, &block->mlp, &acts->mlp, scratch->delta, acts->mid, acts->x,
                              scratch->branch);
}

strait_err strait_block_back(const strait_work *work, const strait_block *block,
                             const strait_block_acts *acts, const strait_block_grads *grads,
                             const strait_block_scratch *scratch, strait_tensor d, int defers) {
    STRAIT_TRY(strait_mlp_back(work, &block->mlp, &acts->mlp, &grads->mlp, &scratch->mlp, acts->mid,
                               d, defers));
    return strait_attention_back(work, &block->attention, &acts->attention, &grads->attention,
                                 &scratch->attention, acts->x, d, defers);
}

strait_err strait_block_weights(const strait_work *work, const strait_block *block,
                                const strait_block_acts *acts, const strait_block_grads *grads) {
    STRAIT_TRY(
        strait_mlp_weights(work, &block->mlp, &acts->mlp, grads->mlp.d_branch, grads->mlp.d_wide));
    return strait_attention_weights(work, &block->attention, &acts->attention,
                                    grads->attention.d_branch, grads->attention.d_qkv);
}
