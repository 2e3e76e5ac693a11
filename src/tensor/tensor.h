/* tensor.h - a borrowed view of contiguous, row-major memory on one device. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strait_dtype {
    STRAIT_F32,
    STRAIT_BF16,
    STRAIT_I8,
    STRAIT_I32,
} strait_dtype;

/* Two dimensions are enough for a transformer if heads are named in the call that needs them.
 * Pass it by value: a view owns nothing. data == NULL means "absent". */
typedef struct strait_tensor {
    void *data;
    strait_dtype dtype;
    int64_t rows; // tokens, usually
    int64_t cols; // features, usually
} strait_tensor;

size_t strait_dtype_bytes(strait_dtype dtype);
size_t strait_tensor_bytes(strait_tensor t);

/* Rows [first, first + rows) of t. */
strait_tensor strait_tensor_rows(strait_tensor t, int64_t first, int64_t rows);

/* The same memory under another shape with as many values. */
strait_tensor strait_tensor_reshape(strait_tensor t, int64_t rows, int64_t cols);

#ifdef __cplusplus
}
#endif
