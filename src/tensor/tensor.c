#include "tensor/tensor.h"

#include <assert.h>

size_t strait_dtype_bytes(strait_dtype dtype) {
    switch (dtype) {
    case STRAIT_F32: return 4;
    case STRAIT_BF16: return 2;
    case STRAIT_I8: return 1;
    case STRAIT_I32: return 4;
    case STRAIT_F16: return 2;
    }
    return 0;
}

/* Rows follow each other without gaps. */
size_t strait_tensor_bytes(strait_tensor t) {
    return (size_t)t.rows * (size_t)t.cols * strait_dtype_bytes(t.dtype);
}

/* Planned tensors have no memory yet, and their views must not point just past NULL. */
strait_tensor strait_tensor_rows(strait_tensor t, int64_t first, int64_t rows) {
    assert(first >= 0 && rows >= 0 && first + rows <= t.rows);
    const size_t skip = (size_t)first * (size_t)t.cols * strait_dtype_bytes(t.dtype);
    return (strait_tensor){t.data == NULL ? NULL : (char *)t.data + skip, t.dtype, rows, t.cols};
}

/* Rows are contiguous, so any shape with the same number of values is a view. */
strait_tensor strait_tensor_reshape(strait_tensor t, int64_t rows, int64_t cols) {
    assert(rows * cols == t.rows * t.cols);
    return (strait_tensor){t.data, t.dtype, rows, cols};
}
