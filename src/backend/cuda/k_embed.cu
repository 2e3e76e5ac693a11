/* k_embed.cu - rows of a table by token id, and token gates. */
#include "backend/cuda/vector.cuh"
#include "backend/table_row.h"

/* The rows of token ids in a table with fewer rows than there are ids; ids may be tokens. */
extern "C" __global__ void __launch_bounds__(256)
    table_ids(int32_t *ids, const int32_t *tokens, int64_t n, int64_t n_rows) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        ids[i] = strait_table_row(tokens[i], n_rows);
}

/* Copies W values of a row of the table, converting their type. */
template <typename T, typename F, int W>
__device__ __forceinline__ void embed_piece(T *y, const F *from) {
    float v[W];
    if constexpr (sizeof(F) == 4)
        take_floats<W>(v, from);
    else
        take<F, W>(v, from);
    if constexpr (sizeof(T) == 4)
        put_floats<W>(y, v);
    else
        put<T, W>(y, v);
}

template <typename T, typename F, int W>
__device__ __forceinline__ void embed(T *y, const F *table, const int32_t *tokens, int64_t rows,
                                      int64_t cols) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x * W;
    for (int64_t n = blockIdx.y; n < rows; n += gridDim.y)
        for (int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * W; c < cols; c += step)
            embed_piece<T, F, W>(y + n * cols + c, table + tokens[n] * cols + c);
}

#define EMBED(T, F, suffix)                                                                       \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        embed_##suffix(T *y, const F *table, const int32_t *tokens, int64_t rows, int64_t cols) { \
        constexpr int W = sizeof(T) + sizeof(F) == 8 ? 4 : 8;                                     \
        if (cols % W == 0 && at16(y, table))                                                      \
            embed<T, F, W>(y, table, tokens, rows, cols);                                         \
        else                                                                                      \
            embed<T, F, 1>(y, table, tokens, rows, cols);                                         \
    }

EMBED(float, float, f32)
EMBED(bf16, bf16, bf16)
EMBED(bf16, float, f32_to_bf16)
EMBED(float, bf16, bf16_to_f32)

/* y = x + delta + table[id] in columns [first, first + cols) of rows of `width`. The sum of x and
 * delta is rounded as if it were stored. */
template <typename T, int W>
__device__ __forceinline__ void table_add(T *y, const T *x, const T *delta, const T *table,
                                          const int32_t *ids, int64_t rows, int64_t cols,
                                          int64_t width) {
    over_rows<W>(rows, cols, [=](int64_t row, int64_t c) {
        float sum[W], more[W];
        take<T, W>(sum, x + row * width + c);
        if (delta != nullptr) {
            take<T, W>(more, delta + row * width + c);
#pragma unroll
            for (int i = 0; i < W; i++)
                sum[i] += more[i];
            widen(sum, narrow<T, W>(sum));
        }
        take<T, W>(more, table + ids[row] * cols + c);
#pragma unroll
        for (int i = 0; i < W; i++)
            sum[i] += more[i];
        put<T, W>(y + row * width + c, sum);
    });
}

#define TABLE_ADD(T, suffix)                                                                     \
    extern "C" __global__ void __launch_bounds__(256)                                            \
        table_add_##suffix(T *y, const T *x, const T *delta, const T *table, const int32_t *ids, \
                           int64_t rows, int64_t cols, int64_t width) {                          \
        if ((cols | width) % wide<T> == 0 && at16(y, x, delta, table))                           \
            table_add<T, wide<T>>(y, x, delta, table, ids, rows, cols, width);                   \
        else                                                                                     \
            table_add<T, 1>(y, x, delta, table, ids, rows, cols, width);                         \
    }

TABLE_ADD(float, f32)
TABLE_ADD(bf16, bf16)

/* y = table[token] - x */
template <typename T, int W>
__device__ __forceinline__ void embed_minus(T *y, const float *table, const int32_t *tokens,
                                            const T *x, int64_t rows, int64_t cols) {
    over_rows<W>(rows, cols, [=](int64_t row, int64_t c) {
        float v[W], less[W];
        take_floats<W>(v, table + tokens[row] * cols + c);
        take<T, W>(less, x + row * cols + c);
#pragma unroll
        for (int i = 0; i < W; i++)
            v[i] -= less[i];
        put<T, W>(y + row * cols + c, v);
    });
}

#define EMBED_MINUS(T, suffix)                                                                     \
    extern "C" __global__ void __launch_bounds__(256) embed_minus_##suffix(                        \
        T *y, const float *table, const int32_t *tokens, const T *x, int64_t rows, int64_t cols) { \
        if (cols % wide<T> == 0 && at16(y, table, x))                                              \
            embed_minus<T, wide<T>>(y, table, tokens, x, rows, cols);                              \
        else                                                                                       \
            embed_minus<T, 1>(y, table, tokens, x, rows, cols);                                    \
    }

EMBED_MINUS(float, f32)
EMBED_MINUS(bf16, bf16)

/* Token gates: y = x (1 + table[token]) in the first `cols` columns. */
template <typename T> struct gate_args {
    T *y;
    const T *x;
    const float *table;
    const int32_t *tokens;
    int64_t rows, y_cols, x_cols, cols;
};

/* The row of the table that gates a row: that of its token, or its own. */
__device__ __forceinline__ int64_t gate_of(const int32_t *tokens, int64_t row) {
    return tokens == nullptr ? row : tokens[row];
}

/* Columns beyond `cols` are padding and are left as they are. */
template <typename T, int W> __device__ __forceinline__ void gate(const gate_args<T> &a) {
    over_rows<W>(a.rows, a.cols, [=](int64_t row, int64_t c) {
        float table_value[W], v[W];
        take_floats<W>(table_value, a.table + gate_of(a.tokens, row) * a.cols + c);
        take<T, W>(v, a.x + row * a.x_cols + c);
#pragma unroll
        for (int i = 0; i < W; i++)
            v[i] *= 1.0f + table_value[i];
        put<T, W>(a.y + row * a.y_cols + c, v);
    });
}

/* d_x = d_y (1 + table[token]), d_rows = d_y x. A thread reads its values before it writes, because
 * outputs may replace inputs. */
template <typename T, int W>
__device__ __forceinline__ void gate_back(T *d_x, T *d_rows, const T *d_y, const T *x,
                                          const float *table, const int32_t *tokens, int64_t rows,
                                          int64_t cols) {
    over_rows<W>(rows, cols, [=](int64_t row, int64_t c) {
        float table_value[W], d[W], v[W];
        take_floats<W>(table_value, table + gate_of(tokens, row) * cols + c);
        take<T, W>(d, d_y + row * cols + c);
        take<T, W>(v, x + row * cols + c);
#pragma unroll
        for (int i = 0; i < W; i++) {
            v[i] *= d[i];
            d[i] *= 1.0f + table_value[i];
        }
        put<T, W>(d_x + row * cols + c, d);
        put<T, W>(d_rows + row * cols + c, v);
    });
}

#define GATE_ROWS(T, suffix)                                                                     \
    extern "C" __global__ void __launch_bounds__(256)                                            \
        gate_rows_##suffix(T *y, const T *x, const float *table, const int32_t *tokens,          \
                           int64_t rows, int64_t y_cols, int64_t x_cols, int64_t cols) {         \
        const gate_args<T> args = {y, x, table, tokens, rows, y_cols, x_cols, cols};             \
        if ((cols | y_cols | x_cols) % wide<T> == 0 && at16(y, x, table))                        \
            gate<T, wide<T>>(args);                                                              \
        else                                                                                     \
            gate<T, 1>(args);                                                                    \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256)                                            \
        gate_rows_back_##suffix(T *d_x, T *d_rows, const T *d_y, const T *x, const float *table, \
                                const int32_t *tokens, int64_t rows, int64_t cols) {             \
        if (cols % wide<T> == 0 && at16(d_x, d_rows, d_y, x, table))                             \
            gate_back<T, wide<T>>(d_x, d_rows, d_y, x, table, tokens, rows, cols);               \
        else                                                                                     \
            gate_back<T, 1>(d_x, d_rows, d_y, x, table, tokens, rows, cols);                     \
    }

GATE_ROWS(float, f32)
GATE_ROWS(bf16, bf16)
