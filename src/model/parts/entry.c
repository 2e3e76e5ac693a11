#include "model/parts/entry.h"

static int is_fused(const strait_work *work, strait_entry entry) {
    return entry.conv != NULL && work->shape->fuses_conv;
}

static strait_norm_conv_params fused_params(const strait_work *work, strait_entry entry) {
    return (strait_norm_conv_params){.gain = entry.norm->value,
                                     .taps = entry.conv->value,
                                     .epsilon = work->shape->norm_epsilon,
                                     .seq_len = work->seq_len,
                                     .d_gain = entry.norm->grad,
                                     .d_taps = entry.conv->grad};
}

strait_err strait_entry_forward(const strait_work *work, strait_entry entry, strait_tensor sum,
                                strait_tensor x, strait_tensor delta) {
    if (is_fused(work, entry)) {
        const strait_norm_conv_params both = fused_params(work, entry);
        return work->kernels->norm_conv->forward(work->stream, entry.normed, sum, entry.rstd, x,
                                                 delta, &both);
    }
    STRAIT_TRY(work->kernels->rmsnorm(work->stream,
                                      entry.conv != NULL ? entry.before_conv : entry.normed, sum,
                                      entry.rstd, x, delta, strait_layer_norm(work, entry.norm)));
    if (entry.conv == NULL) return STRAIT_OK;
    return strait_layer_conv(work, entry.normed, entry.before_conv, entry.conv->value, entry.past);
}

strait_err strait_entry_conv_backward(const strait_work *work, strait_entry entry,
                                      strait_tensor d_before_conv, strait_tensor d_normed) {
    if (entry.conv == NULL || is_fused(work, entry)) return STRAIT_OK;
    return work->kernels->conv->back(work->stream, d_before_conv, entry.conv->grad, d_normed,
                                     entry.before_conv, entry.conv->value, work->seq_len);
}

strait_err strait_entry_backward(const strait_work *work, strait_entry entry,
                                 strait_tensor d_before_conv, strait_tensor d_normed,
                                 strait_tensor x, strait_tensor d) {
    if (is_fused(work, entry)) {
        const strait_norm_conv_params both = fused_params(work, entry);
        return work->kernels->norm_conv->back(work->stream, d, d_normed, x, entry.rstd, &both);
    }
    return work->kernels->rmsnorm_back(work->stream, d, entry.norm->grad,
                                       entry.conv != NULL ? d_before_conv : d_normed, x,
                                       entry.norm->value, entry.rstd);
}
