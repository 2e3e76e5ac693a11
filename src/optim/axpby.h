/* axpby.h - y = beta y + alpha factor x, the one elementwise update that optimizers compose. */
#pragma once

#include "backend/backend.h"
#include "tensor/tensor.h"

/* y = beta y + alpha factor[0] x, for f32 tensors of one shape. `factor` is on the device, such as
 * the clipping scale of a step, so that nothing waits for a download. */
typedef struct strait_axpby_params {
    float alpha, beta;
} strait_axpby_params;

strait_err strait_axpby(struct strait_stream *s, strait_tensor y, strait_tensor x,
                        strait_tensor factor, strait_axpby_params params);
