/* ref_fp8.c - products of factors rounded to 8 bits: the definition. No processor of ours has them,
 * so there is no faster version. */
#include "backend/cpu/cpu.h"
#include "backend/fp8.h"

enum {
    N_CODES = 256
};

/* A factor whose codes lie with the inner size contiguous. */
struct factor {
    uint8_t *codes;
    int64_t inner;
    int is_gradient, power;
    float values[N_CODES]; // what each code means, before the scale
};

/* The first non-finite magnitude, or the largest of all. */
static float largest_of(strait_tensor from) {
    float largest = 0.0f;
    for (int64_t i = 0; i < strait_cpu_count(from); i++) {
        const float size = fabsf(strait_cpu_get(from, i));
        if (!isfinite(size)) return size;
        if (size > largest) largest = size;
    }
    return largest;
}

/* Rounds `from`, whose inner size is its rows if is_transposed. */
static void round_factor(struct factor *f, strait_tensor from, int is_transposed) {
    f->power = strait_fp8_exponent(largest_of(from), f->is_gradient);
    f->inner = is_transposed ? from.rows : from.cols;
    for (int i = 0; i < N_CODES; i++)
        f->values[i] = strait_fp8_value((uint8_t)i, f->is_gradient);
    for (int64_t row = 0; row < from.rows; row++)
        for (int64_t col = 0; col < from.cols; col++) {
            const float value = strait_cpu_get(from, row * from.cols + col);
            const int64_t to = is_transposed ? col * f->inner + row : row * f->inner + col;
            f->codes[to] = strait_fp8_code(ldexpf(value, f->power), f->is_gradient);
        }
}

/* The inner product of row i of a and row j of b, without their scales. */
static double sum_of(const struct factor *a, int64_t i, const struct factor *b, int64_t j) {
    const uint8_t *left = a->codes + i * a->inner, *right = b->codes + j * b->inner;
    double sum = 0;
    for (int64_t k = 0; k < a->inner; k++)
        sum += (double)a->values[left[k]] * (double)b->values[right[k]];
    return sum;
}

static strait_err matmul(struct strait_stream *s, strait_tensor y, strait_tensor a, strait_tensor b,
                         strait_matmul_params params, strait_fp8_params fp8) {
    (void)s;
    const int64_t inner = params.transpose_a ? a.rows : a.cols;
    assert(inner == (params.transpose_b ? b.cols : b.rows));
    assert((y.rows | y.cols | inner) % STRAIT_FP8_MULTIPLE == 0);
    assert(strait_tensor_bytes(fp8.space) >= (size_t)strait_fp8_space(y.rows, y.cols, inner));
    uint8_t *codes = (uint8_t *)fp8.space.data + STRAIT_FP8_HEAD;
    struct factor left = {.codes = codes, .is_gradient = fp8.is_gradient};
    struct factor right = {.codes = codes + y.rows * inner};
    round_factor(&left, a, params.transpose_a);
    round_factor(&right, b, !params.transpose_b);
    const double alpha = ldexp((double)params.alpha, -left.power - right.power);
    for (int64_t i = 0; i < y.rows; i++) {
        for (int64_t j = 0; j < y.cols; j++) {
            double sum = alpha * sum_of(&left, i, &right, j);
            if (params.beta != 0.0f)
                sum += (double)params.beta * (double)strait_cpu_get(y, i * y.cols + j);
            strait_cpu_put(y, i * y.cols + j, (float)sum);
        }
    }
    return STRAIT_OK;
}

void strait_ref_fp8(struct strait_kernel_set *set) {
    set->fp8.matmul = matmul;
}
