#include "model/local_mix.h"

strait_err strait_local_mix_forward(const strait_work *work, const strait_local_mix *local,
                                    const strait_local_mix_acts *acts, strait_tensor x,
                                    strait_tensor stream) {
    if (local->anchor != NULL) {
        strait_tensor rows;
        STRAIT_TRY(strait_layer_look_up(work, local->anchor->compute, &rows));
        STRAIT_TRY(work->kernels->add(work->stream, stream, stream, rows));
    }
    if (local->conv == NULL) return STRAIT_OK;
    return strait_layer_conv(work, x, stream, local->conv->value, acts->past);
}

strait_err strait_local_mix_back(const strait_work *work, const strait_local_mix *local,
                                 const strait_local_mix_acts *acts, strait_tensor d,
                                 strait_tensor capacity) {
    const struct strait_kernels *k = work->kernels;
    if (local->conv != NULL) {
        STRAIT_TRY(k->conv->back(work->stream, capacity, local->conv->grad, d, acts->before,
                                 local->conv->value, work->seq_len));
        STRAIT_TRY(k->cast(work->stream, d, capacity));
    }
    if (local->anchor == NULL) return STRAIT_OK;
    return k->embed_back(work->stream, local->anchor->grad, d, work->tokens);
}
