/* tensor.h - a borrowed view of contiguous, row-major memory on one device. All functions are pure
 * and may be called from any thread. */
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
    STRAIT_F16, // only in files: no kernel reads it
} strait_dtype;

/* Two dimensions are enough for a transformer: calls that need heads take strait_heads. Pass it by
 * value; a view owns nothing. data == NULL means that an optional tensor is absent. */
typedef struct strait_tensor {
    void *data;
    strait_dtype dtype;
    int64_t rows; // tokens, usually
    int64_t cols; // features, usually
} strait_tensor;

/* Bytes of one value; and of all values of a tensor. */
size_t strait_dtype_bytes(strait_dtype dtype);
size_t strait_tensor_bytes(strait_tensor t);

/* A view of rows [first, first + rows) of t; absent where t is. */
strait_tensor strait_tensor_rows(strait_tensor t, int64_t first, int64_t rows);

/* The same memory with another shape; the number of values must be equal. */
strait_tensor strait_tensor_reshape(strait_tensor t, int64_t rows, int64_t cols);

#ifdef __cplusplus
}
#endif
