/* stage_pass.c - forward and backward passes of a microbatch through a stage. */
#include "model/stage_state.h"

#include <assert.h>

static const strait_block *last_block(const struct strait_stage *stage) {
    return &stage->weights.blocks[stage->n_blocks - 1];
}

strait_tensor strait_stage_input(struct strait_stage *stage, int slot) {
    return strait_block_input(&stage->weights.blocks[0], &stage->slots[slot].acts[0]);
}

strait_tensor strait_stage_first_block_input(struct strait_stage *stage, int slot) {
    const strait_block_acts *acts = &stage->slots[slot].acts[0];
    /* A decoder reads the code itself; otherwise the input may have been convolved into x. */
    return stage->weights.blocks[0].bottleneck.dec != NULL ? acts->bottleneck.code : acts->x;
}

strait_tensor strait_stage_output_gradient(struct strait_stage *stage) {
    return last_block(stage)->bottleneck.enc != NULL ? stage->d_code : stage->d;
}

strait_tensor strait_stage_input_gradient(struct strait_stage *stage) {
    return stage->weights.blocks[0].bottleneck.dec != NULL ? stage->d_code : stage->d;
}

void strait_stage_set_documents(struct strait_stage *stage, int slot, strait_documents documents) {
    assert(documents.n == 0 || stage->spec.shape.conv == 0);
    stage->slots[slot].documents = documents;
}

/* The tokens' rows of tables in a slot, for the next pass. */
static void use_rows(struct strait_stage *stage, const struct slot *at) {
    stage->work.table_ids = at->table_ids;
    stage->work.lists = at->lists;
}

/* Tables with fewer rows than there are token ids: finds the row of each token. Once for all tables
 * and passes of the microbatch, as the lists are. */
static strait_err find_rows(struct strait_stage *stage, struct slot *at, strait_tensor tokens) {
    const strait_shape *shape = &stage->spec.shape;
    const struct strait_kernels *k = stage->work.kernels;
    at->table_ids = at->own_ids.data != NULL ? at->own_ids : tokens;
    use_rows(stage, at);
    if (at->own_ids.data != NULL)
        STRAIT_TRY(k->table_ids(&stage->stream, at->own_ids, tokens, shape->table_rows));
    if (at->lists.data == NULL) return STRAIT_OK;
    return k->token_tables->list(&stage->stream, at->lists, at->table_ids,
                                 strait_shape_table_rows(shape));
}

strait_tensor strait_stage_token_lists(struct strait_stage *stage, int slot) {
    return stage->slots[slot].lists;
}

strait_err strait_stage_forward(struct strait_stage *stage, int slot, strait_tensor tokens) {
    assert(slot >= 0 && slot < stage->spec.n_slots);
    strait_block_acts *acts = stage->slots[slot].acts;
    STRAIT_TRY(find_rows(stage, &stage->slots[slot], tokens));
    stage->work.documents = stage->slots[slot].documents;
    if (stage->spec.layers.first == 0)
        STRAIT_TRY(strait_embedding_forward(&stage->work, &stage->weights.embedding,
                                            strait_stage_input(stage, slot), tokens));
    /* The residual stream travels between blocks as the pair x + delta (block.h); the first block
     * finds its input in place. */
    strait_tensor x = {0};
    strait_tensor delta = {0};
    for (int i = 0; i < stage->n_blocks; i++) {
        const strait_block *block = &stage->weights.blocks[i];
        if (strait_block_needs_prepare(block)) {
            STRAIT_TRY(strait_block_prepare(&stage->work, block, &acts[i], x, delta));
            x = delta = (strait_tensor){0}; // prepare has added them into acts[i].x
        }
        STRAIT_TRY(strait_block_forward(&stage->work, block, &acts[i], &stage->scratch, x, delta));
        x = acts[i].mid;
        delta = stage->scratch.delta;
    }
    stage->last_slot = slot;
    return STRAIT_OK;
}

/* Activations of the last block in the last forward pass. */
static strait_block_acts *last_acts(struct strait_stage *stage) {
    assert(stage->last_slot >= 0);
    return &stage->slots[stage->last_slot].acts[stage->n_blocks - 1];
}

strait_err strait_stage_output(struct strait_stage *stage, strait_tensor *out) {
    *out = stage->output;
    return strait_block_output(&stage->work, last_block(stage), last_acts(stage), &stage->scratch,
                               stage->output);
}

strait_err strait_stage_loss(struct strait_stage *stage, strait_tensor targets, float scale,
                             strait_tensor *losses) {
    assert(strait_stage_has_head(stage));
    stage->work.overwrites_grads = stage->overwrites_head_grads;
    const strait_head_pass pass = {.x = last_acts(stage)->mid,
                                   .delta = stage->scratch.delta,
                                   .targets = targets,
                                   .scale = scale,
                                   .d = stage->d};
    STRAIT_TRY(strait_head_loss(&stage->work, &stage->weights.head, &stage->head, &pass));
    if (scale != 0.0f) stage->overwrites_head_grads = 0;
    *losses = stage->head.losses;
    return STRAIT_OK;
}

strait_err strait_stage_backward(struct strait_stage *stage, int slot, int defers) {
    const struct slot *at = &stage->slots[slot];
    assert(!defers || stage->spec.can_defer);
    use_rows(stage, at);
    stage->work.documents = at->documents;
    stage->work.overwrites_grads = stage->overwrites_block_grads;
    for (int i = stage->n_blocks - 1; i >= 0; i--) {
        const strait_block *block = &stage->weights.blocks[i];
        /* prepare ran once in the forward pass, and its result is kept: it is not repeated. */
        if (stage->spec.recomputes)
            STRAIT_TRY(strait_block_forward(&stage->work, block, &at->acts[i], &stage->scratch,
                                            (strait_tensor){0}, (strait_tensor){0}));
        STRAIT_TRY(strait_block_backward(&stage->work, block, &at->acts[i], &stage->scratch,
                                         (strait_block_grads){stage->d, stage->d_code}, defers));
        /* The first block is left to backward_input: a codec may add to this gradient first. */
        if (i > 0)
            STRAIT_TRY(strait_block_prepare_backward(&stage->work, block, &at->acts[i],
                                                     &stage->scratch, stage->d));
    }
    if (!defers) stage->overwrites_block_grads = 0; // deferred products are still to come
    return STRAIT_OK;
}

strait_err strait_stage_backward_input(struct strait_stage *stage, int slot) {
    const struct slot *at = &stage->slots[slot];
    use_rows(stage, at);
    return strait_block_prepare_backward(&stage->work, &stage->weights.blocks[0], &at->acts[0],
                                         &stage->scratch, stage->d);
}

strait_err strait_stage_backward_embedding(struct strait_stage *stage, strait_tensor tokens) {
    assert(stage->spec.layers.first == 0);
    return strait_embedding_weight_grads(&stage->work, &stage->weights.embedding, stage->d, tokens);
}

strait_err strait_stage_backward_weights(struct strait_stage *stage, int slot) {
    const struct slot *at = &stage->slots[slot];
    use_rows(stage, at);
    stage->work.overwrites_grads = stage->overwrites_block_grads;
    for (int i = stage->n_blocks - 1; i >= 0; i--)
        STRAIT_TRY(strait_block_weight_grads(&stage->work, &stage->weights.blocks[i], &at->acts[i],
                                             &stage->scratch));
    stage->overwrites_block_grads = 0;
    return STRAIT_OK;
}

/* Products that are overwritten lie in a slab of their own. */
static int is_overwritten(const struct strait_stage *stage, const strait_param *param) {
    const struct strait_slab *products = &stage->weights.grads;
    const char *at = param->grad.data, *first = products->memory;
    return first != NULL && at >= first && at < first + products->bytes;
}

strait_err strait_stage_restart_gradients(struct strait_stage *stage, int is_deferred) {
    for (int i = 0; i < stage->weights.n_params; i++) {
        const strait_param *param = &stage->weights.params[i];
        if (param->is_deferred != is_deferred || is_overwritten(stage, param)) continue;
        STRAIT_TRY(stage->work.kernels->fill(&stage->stream, param->grad, 0.0f));
    }
    if (is_deferred)
        stage->overwrites_block_grads = 1;
    else
        stage->overwrites_head_grads = !stage->spec.shape.is_tied;
    return STRAIT_OK;
}

strait_err strait_stage_zero_gradients(struct strait_stage *stage) {
    const struct strait_slab *sums = &stage->weights
                                          .sums; // one fill covers all of them and the gaps between
    const strait_tensor all = {.data = sums->memory,
                               .dtype = STRAIT_F32,
                               .rows = 1,
                               .cols = (int64_t)(sums->bytes / sizeof(float))};
    stage->overwrites_block_grads = 1;
    stage->overwrites_head_grads = !stage->spec.shape
                                        .is_tied; // the embedding adds to a tied table too
    return all.data != NULL ? stage->work.kernels->fill(&stage->stream, all, 0.0f) : STRAIT_OK;
}
