/* block.c - the order of operations in one block: the received code or stream, optional parts of
 * the stream, attention, MLP, and the bottleneck ends where the block is the first or last of a
 * stage.
 *
 * Sums are not stored where the next reader can form them: a block leaves `mid` and `delta`, and
 * the next norm, or strait_block_output, adds them. */
#include "model/block.h"

strait_block_spec strait_block_spec_of_range(const strait_shape *s, strait_layer_range range) {
    const int has_bottleneck = s->bottleneck > 0;
    strait_block_spec spec = {
        .bottleneck = {.decodes_input = has_bottleneck && range.first > 0,
                       .encodes_output = has_bottleneck && range.last < s->layers}};
    for (int i = range.first; i < range.last; i++) {
        const strait_part_set set = strait_parts_of_block(s, i);
        for (int p = 0; p < STRAIT_PARTS; p++)
            spec.parts.has[p] |= set.has[p];
    }
    return spec;
}

strait_block_spec strait_block_spec_at(const strait_shape *s, strait_layer_range range, int i) {
    const strait_block_spec all = strait_block_spec_of_range(s, range);
    return (strait_block_spec){
        .bottleneck = {.decodes_input = all.bottleneck.decodes_input && i == range.first,
                       .encodes_output = all.bottleneck.encodes_output && i == range.last - 1},
        .parts = strait_parts_of_block(s, i)};
}

strait_err strait_block_add_params(struct strait_param_list *list, const strait_block_spec *spec,
                                   strait_block *out) {
    if (spec->bottleneck.decodes_input)
        STRAIT_TRY(strait_bottleneck_add_decoder(list, &out->bottleneck));
    STRAIT_TRY(strait_parts_add_params(list, STRAIT_PART_STREAM, out->parts));
    STRAIT_TRY(strait_attention_add_params(list, &out->attention));
    STRAIT_TRY(strait_parts_add_params(list, STRAIT_PART_ATTENTION_OUT, out->parts));
    STRAIT_TRY(strait_mlp_add_params(list, &out->mlp));
    STRAIT_TRY(strait_parts_add_params(list, STRAIT_PART_MLP_OUT, out->parts));
    if (!spec->bottleneck.encodes_output) return STRAIT_OK;
    return strait_bottleneck_add_encoder(list, &out->bottleneck);
}

strait_err strait_block_plan_input(const strait_shape *shape, const strait_block_spec *spec,
                                   int64_t n, struct strait_slab *slab, strait_block_acts *out) {
    if (spec->bottleneck.decodes_input)
        STRAIT_TRY(
            strait_layer_plan_acts(shape, slab, n, shape->bottleneck, &out->bottleneck.code));
    STRAIT_TRY(
        strait_parts_plan_acts(shape, STRAIT_PART_STREAM, &spec->parts, n, slab, out->parts));
    return strait_layer_plan_acts(shape, slab, n, shape->width, &out->x);
}

strait_err strait_block_plan_acts(const strait_shape *shape, const strait_block_spec *spec,
                                  int64_t n, int can_defer, struct strait_slab *slab,
                                  strait_block_acts *out) {
    if (spec->bottleneck.encodes_output)
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->bottleneck.mlp_out));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->mid));
    STRAIT_TRY(strait_attention_plan_acts(shape, n, slab, &out->attention));
    STRAIT_TRY(strait_parts_plan_acts(shape, STRAIT_PART_ATTENTION_OUT, &spec->parts, n, slab,
                                      out->parts));
    STRAIT_TRY(strait_mlp_plan_acts(shape, n, can_defer, slab, &out->mlp));
    STRAIT_TRY(
        strait_parts_plan_acts(shape, STRAIT_PART_MLP_OUT, &spec->parts, n, slab, out->parts));
    return can_defer ? strait_bottleneck_plan_deferred(shape, n, &spec->bottleneck, slab,
                                                       &out->bottleneck)
                     : STRAIT_OK;
}

/* A scratch tensor that shares its memory with others: no two of them are in use at once. */
struct overlay {
    strait_tensor *where;
    int64_t cols;
};

/* Plans the tensors at one address; the group is as large as its largest. n_tensors may be 0. */
static strait_err plan_overlay(const strait_shape *shape, int64_t n, struct strait_slab *slab,
                               const struct overlay *tensors, int n_tensors) {
    const size_t mark = slab->next;
    for (int i = 0; i < n_tensors; i++) {
        strait_slab_overlay(slab, mark);
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, tensors[i].cols, tensors[i].where));
    }
    strait_slab_close_overlay(slab);
    return STRAIT_OK;
}

strait_err strait_block_plan_retained(const strait_shape *shape, const strait_block_spec *spec,
                                      int64_t n, const strait_passes *passes,
                                      struct strait_slab *slab, strait_block_scratch *out) {
    /* d_normed lives within a backward pass only, delta from a forward pass to its reader. */
    const struct overlay outputs[] = {{&out->delta, shape->width},
                                      {&out->attention.d_normed, shape->width},
                                      {&out->mlp.d_normed, shape->width}};
    /* Retained because pad(z) is the residual stream until the mlp has read it. */
    if (spec->bottleneck.decodes_input || spec->bottleneck.encodes_output)
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->bottleneck));
    STRAIT_TRY(plan_overlay(shape, n, slab, outputs, passes->is_training ? 3 : 1));
    if (!passes->can_defer) return STRAIT_OK;
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->spare));
    return strait_layer_plan_acts(shape, slab, n, strait_shape_qkv_cols(shape),
                                  &out->attention.d_qkv);
}

strait_err strait_block_plan_scratch(const strait_shape *shape, int64_t n,
                                     const strait_passes *passes, struct strait_slab *slab,
                                     strait_block_scratch *out) {
    /* With can_defer, d_qkv outlives the pass and is planned by plan_retained. */
    const struct overlay hidden[] = {{&out->mlp.hidden, shape->ffn},
                                     {&out->attention.d_qkv, strait_shape_qkv_cols(shape)}};
    const struct overlay attended[] = {
        {&out->branch, shape->width},
        {&out->attention.d_attended, strait_shape_attention_cols(shape)}};
    /* Gradients before convolutions, and scratch of optional parts. */
    const struct overlay changed[] = {{&out->part, shape->width},
                                      {&out->attention.d_before_conv, shape->width},
                                      {&out->mlp.d_before_conv, shape->width}};
    const int is_training = passes->is_training;
    const int has_changed = shape->conv > 0 || strait_parts_need_scratch(shape);
    const int has_changed_branch = strait_parts_are_at(shape, STRAIT_PART_ATTENTION_OUT) ||
                                   strait_parts_are_at(shape, STRAIT_PART_MLP_OUT);
    if (is_training && has_changed_branch)
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->d_branch));
    STRAIT_TRY(plan_overlay(shape, n, slab, hidden, is_training && !passes->can_defer ? 2 : 1));
    STRAIT_TRY(plan_overlay(shape, n, slab, attended, is_training ? 2 : 1));
    return plan_overlay(shape, n, slab, changed, is_training && has_changed ? 3 : 0);
}

/* Blocks that are recomputed in the backward pass share their activations; each keeps its own
 * input, from which it is recomputed. */
void strait_block_share_acts(strait_block_acts *acts, const strait_block_acts *shared) {
    const strait_block_acts own = *acts;
    *acts = *shared;
    acts->x = own.x;
    acts->bottleneck.code = own.bottleneck.code;
    strait_parts_copy_acts(STRAIT_PART_STREAM, acts->parts, own.parts);
}

void strait_block_use_scratch(strait_block_acts *acts, const strait_block_scratch *scratch) {
    if (acts->mlp.hidden.data == NULL) acts->mlp.hidden = scratch->mlp.hidden;
}

int strait_block_needs_prepare(const strait_block *block) {
    return strait_parts_are_present(STRAIT_PART_STREAM, block->parts);
}

strait_tensor strait_block_input(const strait_block *block, const strait_block_acts *acts) {
    if (block->bottleneck.dec != NULL) return acts->bottleneck.code;
    return strait_parts_input(STRAIT_PART_STREAM, block->parts, acts->parts, acts->x);
}

void strait_block_set_input(const strait_block *block, strait_block_acts *acts,
                            strait_tensor input) {
    strait_tensor *const kept = strait_parts_kept_input(STRAIT_PART_STREAM, block->parts,
                                                        acts->parts);
    if (block->bottleneck.dec != NULL)
        acts->bottleneck.code = input;
    else if (kept != NULL)
        *kept = input;
    else
        acts->x = input;
}

strait_err strait_block_prepare(const strait_work *work, const strait_block *block,
                                const strait_block_acts *acts, strait_tensor x,
                                strait_tensor delta) {
    if (delta.data != NULL)
        return strait_parts_forward_sum(work, STRAIT_PART_STREAM, block->parts, acts->parts,
                                        acts->x, x, delta);
    return strait_parts_forward(work, STRAIT_PART_STREAM, block->parts, acts->parts, acts->x);
}

strait_err strait_block_prepare_backward(const strait_work *work, const strait_block *block,
                                         const strait_block_acts *acts,
                                         const strait_block_scratch *scratch, strait_tensor d) {
    return strait_parts_backward(work, STRAIT_PART_STREAM, block->parts, acts->parts, d,
                                 scratch->part);
}

strait_err strait_block_decode_input(const strait_work *work, const strait_block *block,
                                     const strait_block_acts *acts,
                                     const strait_block_scratch *scratch) {
    if (block->bottleneck.dec == NULL) return STRAIT_OK;
    return strait_bottleneck_decode(work, &block->bottleneck, &acts->bottleneck, acts->x,
                                    scratch->bottleneck);
}

strait_tensor strait_block_attention_out(const strait_block *block, const strait_block_acts *acts,
                                         const strait_block_scratch *scratch) {
    return strait_parts_input(STRAIT_PART_ATTENTION_OUT, block->parts, acts->parts,
                              scratch->branch);
}

strait_err strait_block_after_attention(const strait_work *work, const strait_block *block,
                                        strait_block_acts *acts,
                                        const strait_block_scratch *scratch) {
    const strait_tensor stream = block->bottleneck.dec != NULL ? scratch->bottleneck : acts->x;
    const strait_tensor out = block->bottleneck.enc != NULL ? acts->bottleneck.mlp_out
                                                            : scratch->delta;
    const strait_tensor mlp_out = strait_parts_input(STRAIT_PART_MLP_OUT, block->parts, acts->parts,
                                                     out);
    STRAIT_TRY(strait_parts_forward(work, STRAIT_PART_ATTENTION_OUT, block->parts, acts->parts,
                                    scratch->branch));
    STRAIT_TRY(strait_mlp_forward(work, &block->mlp, &acts->mlp, mlp_out, acts->mid, stream,
                                  scratch->branch));
    return strait_parts_forward(work, STRAIT_PART_MLP_OUT, block->parts, acts->parts, out);
}

strait_err strait_block_forward(const strait_work *work, const strait_block *block,
                                strait_block_acts *acts, const strait_block_scratch *scratch,
                                strait_tensor x, strait_tensor delta) {
    /* With delta, attention's norm writes the sum to acts->x, where backward reads it. */
    const int is_sum = delta.data != NULL;
    STRAIT_TRY(strait_block_decode_input(work, block, acts, scratch));
    STRAIT_TRY(strait_attention_forward(
        work, &block->attention, &acts->attention, strait_block_attention_out(block, acts, scratch),
        is_sum ? acts->x : (strait_tensor){0}, is_sum ? x : acts->x, delta));
    return strait_block_after_attention(work, block, acts, scratch);
}

strait_err strait_block_output(const strait_work *work, const strait_block *block,
                               const strait_block_acts *acts, const strait_block_scratch *scratch,
                               strait_tensor out) {
    if (block->bottleneck.enc != NULL)
        return strait_bottleneck_encode(work, &block->bottleneck, &acts->bottleneck, out, acts->mid,
                                        scratch->bottleneck);
    return work->kernels->add(work->stream, out, acts->mid, scratch->delta);
}

static strait_err encode_backward(const strait_work *work, const strait_block *block,
                                  const strait_block_acts *acts,
                                  const strait_block_scratch *scratch, strait_block_grads d,
                                  int defers) {
    /* d.code is overwritten by the gradient of the input: a deferred pass needs a copy. */
    if (defers)
        STRAIT_TRY(work->kernels->cast(work->stream, acts->bottleneck.d_code, d.code));
    else
        STRAIT_TRY(strait_bottleneck_encode_weight_grads(
            work, &block->bottleneck, &acts->bottleneck, d.code, scratch->bottleneck));
    return strait_bottleneck_encode_backward(work, &block->bottleneck, &acts->bottleneck, d.stream,
                                             scratch->bottleneck, d.code);
}

/* From the gradients of the stream and of attention's norm output to that of the code received. */
static strait_err decode_backward(const strait_work *work, const strait_block *block,
                                  const strait_block_acts *acts,
                                  const strait_block_scratch *scratch, strait_block_grads d,
                                  int defers) {
    /* Zeroed because norm_backward adds: only attention reads u. */
    const strait_tensor d_u = defers ? acts->bottleneck.d_u : scratch->bottleneck;
    STRAIT_TRY(work->kernels->fill(work->stream, d_u, 0.0f));
    STRAIT_TRY(strait_attention_norm_backward(work, &block->attention, &acts->attention,
                                              &scratch->attention, acts->x, d_u));
    STRAIT_TRY(strait_bottleneck_decode_backward(work, &block->bottleneck, d.code, d.stream, d_u,
                                                 acts->x));
    if (defers) return STRAIT_OK;
    return strait_bottleneck_decode_weight_grads(work, &block->bottleneck, &acts->bottleneck, d_u);
}

/* A deferred pass keeps gradients where activations were: swapping the tensors of acts and scratch
 * costs no copy. */
static void swap(strait_tensor *a, strait_tensor *b) {
    const strait_tensor kept = *a;
    *a = *b;
    *b = kept;
}

/* From d_out, the gradient of what a branch adds to the stream, to that of the branch before its
 * optional parts. In a copy: d_out is also the gradient of the stream itself. */
static strait_err branch_parts_backward(const strait_work *work, const strait_block *block,
                                        const strait_block_acts *acts,
                                        const strait_block_scratch *scratch,
                                        strait_part_place place, strait_tensor *d_out) {
    if (!strait_parts_are_present(place, block->parts)) return STRAIT_OK;
    STRAIT_TRY(work->kernels->cast(work->stream, scratch->d_branch, *d_out));
    *d_out = scratch->d_branch;
    return strait_parts_backward(work, place, block->parts, acts->parts, scratch->d_branch,
                                 scratch->part);
}

/* From d.stream, the gradient of the output, to the gradient of mid. */
static strait_err mlp_backward(const strait_work *work, const strait_block *block,
                               strait_block_acts *acts, strait_block_scratch *scratch,
                               strait_block_grads d, int defers) {
    strait_tensor d_out = block->bottleneck.enc != NULL ? scratch->bottleneck : d.stream;
    STRAIT_TRY(branch_parts_backward(work, block, acts, scratch, STRAIT_PART_MLP_OUT, &d_out));
    STRAIT_TRY(strait_mlp_backward(work, &block->mlp, &acts->mlp, &scratch->mlp, d_out, defers));
    if (defers) STRAIT_TRY(work->kernels->cast(work->stream, scratch->spare, d_out));
    STRAIT_TRY(strait_mlp_norm_backward(work, &block->mlp, &acts->mlp, &scratch->mlp, acts->mid,
                                        d.stream));
    if (defers) swap(&acts->mid, &scratch->spare);
    return STRAIT_OK;
}

/* From d.stream, the gradient of mid, to the gradient of the input. */
static strait_err attention_backward(const strait_work *work, const strait_block *block,
                                     strait_block_acts *acts, strait_block_scratch *scratch,
                                     strait_block_grads d, int defers) {
    strait_tensor d_out = d.stream;
    STRAIT_TRY(
        branch_parts_backward(work, block, acts, scratch, STRAIT_PART_ATTENTION_OUT, &d_out));
    STRAIT_TRY(strait_attention_backward(work, &block->attention, &acts->attention,
                                         &scratch->attention, d_out, defers));
    if (defers) STRAIT_TRY(work->kernels->cast(work->stream, scratch->spare, d_out));
    if (block->bottleneck.dec != NULL)
        STRAIT_TRY(decode_backward(work, block, acts, scratch, d, defers));
    else
        STRAIT_TRY(strait_attention_norm_backward(work, &block->attention, &acts->attention,
                                                  &scratch->attention, acts->x, d.stream));
    if (!defers) return STRAIT_OK;
    swap(&acts->attention.qkv, &scratch->attention.d_qkv);
    swap(&acts->x, &scratch->spare);
    return STRAIT_OK;
}

strait_err strait_block_backward(const strait_work *work, const strait_block *block,
                                 strait_block_acts *acts, strait_block_scratch *scratch,
                                 strait_block_grads d, int defers) {
    /* Without an encoder, d.stream is the gradient of both mid and the mlp's output: the residual
     * addition passes it to both. */
    if (block->bottleneck.enc != NULL)
        STRAIT_TRY(encode_backward(work, block, acts, scratch, d, defers));
    STRAIT_TRY(mlp_backward(work, block, acts, scratch, d, defers));
    return attention_backward(work, block, acts, scratch, d, defers);
}

strait_err strait_block_weight_grads(const strait_work *work, const strait_block *block,
                                     const strait_block_acts *acts,
                                     const strait_block_scratch *scratch) {
    if (block->bottleneck.enc != NULL)
        STRAIT_TRY(strait_bottleneck_encode_weight_grads(work, &block->bottleneck,
                                                         &acts->bottleneck, acts->bottleneck.d_code,
                                                         scratch->bottleneck));
    STRAIT_TRY(strait_mlp_weight_grads(work, &block->mlp, &acts->mlp, acts->mid));
    STRAIT_TRY(strait_attention_weight_grads(work, &block->attention, &acts->attention, acts->x,
                                             acts->attention.qkv));
    if (block->bottleneck.dec == NULL) return STRAIT_OK;
    return strait_bottleneck_decode_weight_grads(work, &block->bottleneck, &acts->bottleneck,
                                                 acts->bottleneck.d_u);
}
