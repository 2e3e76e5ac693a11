#include "optim/axpby.h"

strait_err strait_axpby(struct strait_stream *s, strait_tensor y, strait_tensor x,
                        strait_tensor factor, strait_axpby_params params) {
    /* A product with a matrix of one value: the only kernel that scales by a number on the device.
     */
    const int64_t n = y.rows * y.cols;
    return s->backend->kernels->matmul(
        s, strait_tensor_reshape(y, 1, n), strait_tensor_rows(factor, 0, 1),
        strait_tensor_reshape(x, 1, n),
        (strait_matmul_params){.alpha = params.alpha, .beta = params.beta});
}
