#include "model/bottleneck.h"

strait_err strait_bottleneck_plan_grads(const strait_shape *shape, strait_ends ends, int64_t n,
                                        struct strait_slab *slab, strait_bottleneck_acts *out) {
    if (ends.leaves)
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->bottleneck, &out->d_code));
    if (!ends.enters) return STRAIT_OK;
    return strait_layer_plan_acts(shape, slab, n, shape->width, &out->d_u);
}

strait_err strait_bottleneck_enter(const strait_work *work, const strait_bottleneck *neck,
                                   const strait_bottleneck_acts *acts, strait_tensor u,
                                   strait_tensor stream) {
    const struct strait_kernels *k = work->kernels;
    STRAIT_TRY(strait_layer_linear(work, u, acts->z, neck->dec->compute));
    STRAIT_TRY(k->relu(work->stream, u, u));
    return k->resize_cols(work->stream, stream, acts->z);
}

strait_err strait_bottleneck_leave(const strait_work *work, const strait_bottleneck *neck,
                                   const strait_bottleneck_acts *acts, strait_tensor code,
                                   strait_tensor mid, strait_tensor wide) {
    const struct strait_kernels *k = work->kernels;
    STRAIT_TRY(k->silu(work->stream, wide, acts->o));
    STRAIT_TRY(k->resize_cols(work->stream, code, mid));
    return k->matmul(work->stream, code, wide, neck->enc->compute,
                     (strait_matmul_params){.transpose_b = 1, .alpha = 1.0f, .beta = 1.0f});
}

strait_err strait_bottleneck_leave_back(const strait_work *work, const strait_bottleneck *neck,
                                        const strait_bottleneck_acts *acts, strait_tensor d_mid,
                                        strait_tensor d_o, strait_tensor d_code) {
    const struct strait_kernels *k = work->kernels;
    STRAIT_TRY(k->resize_cols(work->stream, d_mid, d_code));
    STRAIT_TRY(strait_layer_linear_back(work, d_o, d_code, neck->enc->compute));
    return k->silu_back(work->stream, d_o, d_o, acts->o);
}

strait_err strait_bottleneck_enter_back(const strait_work *work, const strait_bottleneck *neck,
                                        strait_tensor d_code, strait_tensor d_stream,
                                        strait_tensor d_u, strait_tensor u) {
    const struct strait_kernels *k = work->kernels;
    STRAIT_TRY(k->relu_back(work->stream, d_u, d_u, u));
    STRAIT_TRY(k->resize_cols(work->stream, d_code, d_stream));
    return k->matmul(work->stream, d_code, d_u, neck->dec->compute,
                     (strait_matmul_params){.alpha = 1.0f, .beta = 1.0f});
}

strait_err strait_bottleneck_leave_weights(const strait_work *work, const strait_bottleneck *neck,
                                           const strait_bottleneck_acts *acts, strait_tensor d_code,
                                           strait_tensor wide) {
    STRAIT_TRY(work->kernels->silu(work->stream, wide, acts->o));
    return strait_layer_linear_weight(work, neck->enc->grad, d_code, wide);
}

strait_err strait_bottleneck_enter_weights(const strait_work *work, const strait_bottleneck *neck,
                                           const strait_bottleneck_acts *acts, strait_tensor d_u) {
    return strait_layer_linear_weight(work, neck->dec->grad, d_u, acts->z);
}
