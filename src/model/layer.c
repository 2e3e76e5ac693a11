#include "model/layer.h"

#include <assert.h>

strait_err strait_layer_linear(const strait_work *work, strait_tensor y, strait_tensor x,
                               strait_tensor weight) {
    return work->kernels->matmul(work->stream, y, x, weight,
                                 (strait_matmul_how){.transpose_b = 1, .alpha = 1.0f});
}

strait_err strait_layer_linear_back(const strait_work *work, strait_tensor d_x, strait_tensor d_y,
                                    strait_tensor weight) {
    return work->kernels->matmul(work->stream, d_x, d_y, weight,
                                 (strait_matmul_how){.alpha = 1.0f});
}

strait_err strait_layer_linear_weight(const strait_work *work, strait_tensor d_weight,
                                      strait_tensor d_y, strait_tensor x) {
    return work->kernels->matmul(
        work->stream, d_weight, d_y, x,
        (strait_matmul_how){.transpose_a = 1, .alpha = 1.0f, .beta = 1.0f});
}

strait_tensor strait_layer_join(const strait_tensor *parts, int n) {
    strait_tensor joined = parts[0];
    for (int i = 1; i < n; i++) {
        assert(parts[i].cols == joined.cols);
        assert(joined.data == NULL ||
               (char *)parts[i].data == (char *)joined.data + strait_tensor_bytes(joined));
        joined.rows += parts[i].rows;
    }
    return joined;
}

strait_err strait_layer_plan(struct strait_slab *slab, int64_t rows, int64_t cols,
                             strait_tensor *where) {
    return strait_slab_add(slab, STRAIT_F32, rows, cols, where);
}
