#include "model/parts/bottleneck.h"

strait_err strait_bottleneck_add_decoder(struct strait_param_list *list, strait_bottleneck *out) {
    out->drops_identity = list->shape->drops_identity;
    return strait_param_list_add(list, "dec", STRAIT_ROLE_MATRIX, list->shape->width,
                                 list->shape->bottleneck, &out->dec);
}

strait_err strait_bottleneck_add_encoder(struct strait_param_list *list, strait_bottleneck *out) {
    out->drops_identity = list->shape->drops_identity;
    return strait_param_list_add(list, "enc", STRAIT_ROLE_MATRIX, list->shape->bottleneck,
                                 list->shape->width, &out->enc);
}

strait_err strait_bottleneck_plan_deferred(const strait_shape *shape, int64_t n,
                                           const strait_bottleneck_ends *ends,
                                           struct strait_slab *slab, strait_bottleneck_acts *out) {
    if (ends->encodes_output)
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->bottleneck, &out->d_code));
    if (!ends->decodes_input) return STRAIT_OK;
    return strait_layer_plan_acts(shape, slab, n, shape->width, &out->d_u);
}

/* The identity path: the first channels, cut or padded with zeros; without it, zeros. */
static strait_err cross(const strait_work *work, const strait_bottleneck *part, strait_tensor y,
                        strait_tensor x) {
    if (part->drops_identity) return work->kernels->fill(work->stream, y, 0.0f);
    return work->kernels->resize_cols(work->stream, y, x);
}

strait_err strait_bottleneck_decode(const strait_work *work, const strait_bottleneck *part,
                                    const strait_bottleneck_acts *acts, strait_tensor u,
                                    strait_tensor stream) {
    const struct strait_kernels *k = work->kernels;
    /* resize_cols pads with zeros: the stream of a new stage has only the channels of the code. */
    const strait_work context = strait_layer_without_fp8(work);
    STRAIT_TRY(strait_layer_linear(&context, u, acts->code, part->dec->compute));
    STRAIT_TRY(k->relu(work->stream, u, u));
    return cross(work, part, stream, acts->code);
}

strait_err strait_bottleneck_decode_backward(const strait_work *work, const strait_bottleneck *part,
                                             strait_tensor d_code, strait_tensor d_stream,
                                             strait_tensor d_u, strait_tensor u) {
    const struct strait_kernels *k = work->kernels;
    /* In place: what remains in d_u is the gradient of z dec^T, for the weight gradient. */
    STRAIT_TRY(k->relu_back(work->stream, d_u, d_u, u));
    STRAIT_TRY(cross(work, part, d_code, d_stream));
    return k->matmul(work->stream, d_code, d_u, part->dec->compute,
                     (strait_matmul_params){.alpha = 1.0f, .beta = 1.0f});
}

strait_err strait_bottleneck_decode_weight_grads(const strait_work *work,
                                                 const strait_bottleneck *part,
                                                 const strait_bottleneck_acts *acts,
                                                 strait_tensor d_u) {
    const strait_work context = strait_layer_without_fp8(work);
    return strait_layer_linear_weight_grad(&context, part->dec->grad, d_u, acts->code);
}

strait_err strait_bottleneck_encode(const strait_work *work, const strait_bottleneck *part,
                                    const strait_bottleneck_acts *acts, strait_tensor code,
                                    strait_tensor mid, strait_tensor scratch) {
    const struct strait_kernels *k = work->kernels;
    /* The product adds to what resize_cols wrote: the code is mid[:k] plus the encoded output. */
    STRAIT_TRY(k->silu(work->stream, scratch, acts->mlp_out));
    STRAIT_TRY(cross(work, part, code, mid));
    return k->matmul(
        work->stream, code, scratch, part->enc->compute,
        (strait_matmul_params){
            .transpose_b = 1, .alpha = 1.0f, .beta = 1.0f, .is_rowwise = work->is_rowwise});
}

strait_err strait_bottleneck_encode_backward(const strait_work *work, const strait_bottleneck *part,
                                             const strait_bottleneck_acts *acts,
                                             strait_tensor d_mid, strait_tensor d_mlp_out,
                                             strait_tensor d_code) {
    const struct strait_kernels *k = work->kernels;
    STRAIT_TRY(cross(work, part, d_mid, d_code));
    const strait_work context = strait_layer_without_fp8(work);
    STRAIT_TRY(strait_layer_linear_backward(&context, d_mlp_out, d_code, part->enc->compute));
    return k->silu_back(work->stream, d_mlp_out, d_mlp_out, acts->mlp_out);
}

strait_err strait_bottleneck_encode_weight_grads(const strait_work *work,
                                                 const strait_bottleneck *part,
                                                 const strait_bottleneck_acts *acts,
                                                 strait_tensor d_code, strait_tensor scratch) {
    /* silu(o) is computed again rather than kept: it is cheap, and [N x D] per slot is not. */
    STRAIT_TRY(work->kernels->silu(work->stream, scratch, acts->mlp_out));
    const strait_work context = strait_layer_without_fp8(work);
    return strait_layer_linear_weight_grad(&context, part->enc->grad, d_code, scratch);
}
