/* unfused.h - kernels that other kernels compute one after the other: on a CPU always, on a GPU
 * where the shape does not suit a kernel of their own. */
#pragma once

#include "backend/backend.h"
#include "backend/kernels.h"

static inline strait_err strait_conv_rotate_unfused(struct strait_stream *s, strait_tensor y,
                                                    strait_tensor rstd, strait_tensor between,
                                                    strait_tensor x,
                                                    const strait_conv_rotate_params *p) {
    const struct strait_kernels *k = s->backend->kernels;
    STRAIT_TRY(k->conv->forward(s, between, x, p->taps, p->rotation.heads.seq_len));
    return k->rotate(s, y, rstd, between, p->rotation);
}

/* d_x holds the output of the convolution until the norm has read it. */
static inline strait_err strait_conv_rotate_back_unfused(struct strait_stream *s, strait_tensor d_x,
                                                         strait_tensor d_y, strait_tensor x,
                                                         strait_tensor rstd,
                                                         const strait_conv_rotate_params *p) {
    const struct strait_kernels *k = s->backend->kernels;
    const int64_t seq_len = p->rotation.heads.seq_len;
    const strait_tensor u = rstd.data != NULL ? d_x : (strait_tensor){0};
    if (u.data != NULL) STRAIT_TRY(k->conv->forward(s, u, x, p->taps, seq_len));
    STRAIT_TRY(k->rotate_back(s, d_y, p->d_gain, d_y, u, rstd, p->rotation));
    return k->conv->back(s, d_x, p->d_taps, d_y, x, p->taps, seq_len);
}
