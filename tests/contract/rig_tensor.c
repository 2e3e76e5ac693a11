#include "base/rng/rng.h"
#include "rig.h"

float *rig_floats(int64_t n) {
    float *values = malloc((size_t)n * sizeof *values + 1);
    assert_non_null(values);
    return values;
}

static uint16_t half_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (isnan(value)) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static float float_of(uint16_t side) {
    const uint32_t bits = (uint32_t)side << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float round_to_bf16(float value) {
    return float_of(half_of(value));
}

static strait_tensor make(struct rig *rig, strait_dtype dtype, int64_t rows, int64_t cols,
                          const void *values) {
    strait_tensor t = {.dtype = dtype, .rows = rows, .cols = cols};
    const size_t bytes = strait_tensor_bytes(t);
    CHECK(rig->n_memory < RIG_TENSORS);
    CHECK_OK(rig->be->ops->alloc(rig->be, bytes, &t.data));
    rig->memory[rig->n_memory++] = t.data;
    rig_call(rig, t);
    rig_write(rig, t, values);
    return t;
}

strait_tensor rig_values(struct rig *rig, int64_t rows, int64_t cols, const float *values) {
    return make(rig, STRAIT_F32, rows, cols, values);
}

strait_tensor rig_zeros(struct rig *rig, int64_t rows, int64_t cols) {
    const strait_tensor t = rig_output(rig, rows, cols);
    CHECK_OK(rig->k->fill(&rig->stream, t, 0.0f));
    return t;
}

strait_tensor rig_act_values(struct rig *rig, int64_t rows, int64_t cols, const float *values) {
    float *rounded = rig_floats(rows * cols);
    for (int64_t i = 0; i < rows * cols; i++)
        rounded[i] = rig->is_rounding ? round_to_bf16(values[i]) : values[i];
    const strait_tensor t = make(rig, rig->be->precision, rows, cols, rounded);
    free(rounded);
    rig->n_acts++;
    return t;
}

/* Normal random numbers times `by`; the caller frees them. */
static float *draw(int64_t n, int seed, float by) {
    float *values = rig_floats(n);
    const strait_rng rng = {.seed = (uint64_t)seed, .stream = strait_rng_stream("contract")};
    strait_rng_normals(rng, 0, values, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        values[i] *= by;
    return values;
}

strait_tensor rig_input(struct rig *rig, int64_t rows, int64_t cols, int seed) {
    float *values = draw(rows * cols, seed, 1);
    const strait_tensor t = rig_values(rig, rows, cols, values);
    free(values);
    return t;
}

strait_tensor rig_act_large(struct rig *rig, int64_t rows, int64_t cols, int seed, float by) {
    float *values = draw(rows * cols, seed, by);
    const strait_tensor t = rig_act_values(rig, rows, cols, values);
    free(values);
    return t;
}

strait_tensor rig_act(struct rig *rig, int64_t rows, int64_t cols, int seed) {
    return rig_act_large(rig, rows, cols, seed, 1);
}

/* Fills a tensor with NaN, or its bytes where the type has none, so that a value that a kernel does
 * not write fails the comparison. */
static strait_tensor make_nan(struct rig *rig, strait_dtype dtype, int64_t rows, int64_t cols) {
    float *values = rig_floats(rows * cols);
    for (int64_t i = 0; i < rows * cols; i++)
        values[i] = NAN;
    const strait_tensor t = make(rig, dtype, rows, cols, values);
    free(values);
    return t;
}

strait_tensor rig_output(struct rig *rig, int64_t rows, int64_t cols) {
    return make_nan(rig, STRAIT_F32, rows, cols);
}

strait_tensor rig_act_output(struct rig *rig, int64_t rows, int64_t cols) {
    rig->n_acts++;
    return make_nan(rig, rig->be->precision, rows, cols);
}

strait_tensor rig_ints(struct rig *rig, int64_t rows, const int32_t *values) {
    return make(rig, STRAIT_I32, rows, 1, values);
}

strait_tensor rig_tokens(struct rig *rig, int64_t rows, int64_t below, int seed) {
    int32_t *values = malloc((size_t)rows * sizeof *values);
    assert_non_null(values);
    const strait_rng rng = {.seed = (uint64_t)seed, .stream = strait_rng_stream("tokens")};
    for (int64_t i = 0; i < rows; i++)
        values[i] = (int32_t)(strait_rng_u64(rng, (uint64_t)i) % (uint64_t)below);
    const strait_tensor t = rig_ints(rig, rows, values);
    free(values);
    return t;
}

void rig_angles(struct rig *rig, strait_heads heads, strait_tensor *cos_out,
                strait_tensor *sin_out) {
    const int side = heads.head_dim / 2;
    float *c = rig_floats(heads.seq_len * side), *s = rig_floats(heads.seq_len * side);
    for (int64_t i = 0; i < heads.seq_len * side; i++) {
        const int64_t place = i / side;
        const double angle = (double)place * pow(100, -(double)(i % side) / side);
        c[i] = (float)cos(angle);
        s[i] = (float)sin(angle);
    }
    *cos_out = rig_values(rig, heads.seq_len, side, c);
    *sin_out = rig_values(rig, heads.seq_len, side, s);
    free(c);
    free(s);
}

void rig_read(struct rig *rig, strait_tensor t, float *out) {
    CHECK_OK(rig->be->ops->download(&rig->stream, out, t.data, strait_tensor_bytes(t)));
    CHECK_OK(rig->be->ops->wait(&rig->stream));
    if (t.dtype != STRAIT_BF16) return;
    for (int64_t i = t.rows * t.cols - 1; i >= 0;
         i--) { // from the end: both views share the memory
        uint16_t side;
        memcpy(&side, (const char *)out + i * 2, sizeof side);
        out[i] = float_of(side);
    }
}

void rig_write(struct rig *rig, strait_tensor t, const float *values) {
    const size_t n = (size_t)(t.rows * t.cols);
    uint16_t *sides = malloc(n * sizeof *sides + 1);
    assert_non_null(sides);
    for (size_t i = 0; t.dtype == STRAIT_BF16 && i < n; i++)
        sides[i] = half_of(values[i]);
    const void *from = t.dtype == STRAIT_BF16 ? (const void *)sides : values;
    CHECK_OK(rig->be->ops->upload(&rig->stream, t.data, from, strait_tensor_bytes(t)));
    CHECK_OK(rig->be->ops->wait(&rig->stream));
    free(sides);
}

void rig_keep(struct rig *rig, strait_tensor t) {
    const size_t n = (size_t)(t.rows * t.cols);
    if (rig->n_kept + n > rig->capacity) {
        rig->capacity = 2 * (rig->n_kept + n);
        rig->kept = realloc(rig->kept, rig->capacity * sizeof(float));
        assert_non_null(rig->kept);
    }
    rig_read(rig, t, rig->kept + rig->n_kept);
    rig->n_kept += n;
    CHECK(rig->n_ends < RIG_TENSORS);
    rig->ends[rig->n_ends++] = rig->n_kept;
}

strait_tensor rig_bytes(struct rig *rig, int64_t bytes) {
    return make_nan(rig, STRAIT_I8, 1, bytes);
}

void rig_keep_bytes(struct rig *rig, strait_tensor packed) {
    unsigned char *bytes = malloc((size_t)packed.cols + 4);
    float *values = rig_floats(packed.cols);
    assert_non_null(bytes);
    rig_read(rig, packed, (float *)(void *)bytes);
    for (int64_t i = 0; i < packed.cols; i++)
        values[i] = (float)bytes[i];
    rig_keep(rig, rig_values(rig, 1, packed.cols, values));
    free(bytes);
    free(values);
}
