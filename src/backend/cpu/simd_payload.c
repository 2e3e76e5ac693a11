/* simd_payload.c - rows as payload bytes: exactly the bytes of the reference loops.
 *
 * Compiled without fused products: floor(x / scale + u) must round as on every other device. */
#include "backend/cpu/payload_value.h"
#include "backend/cpu/simd.h"
#include "backend/scale.h"

enum {
    CHUNK = 512 // values that pass through all steps at once, in L1
};

struct payload {
    float *x;
    unsigned char *bytes;
    float *stats;
    const float *error;
    int64_t n_rows, cols, rows; // packed columns; rows per task
    int64_t stride;             // columns of x
    strait_pack_params params;
    float base;
    float largest[BLOCKS_MAX]; // largest magnitude per task
};

/* Rows per task: at most BLOCKS_MAX tasks. */
static int64_t rows_of_task(int64_t n_rows, int64_t cols) {
    const int64_t least = pieces(n_rows, BLOCKS_MAX);
    return task_rows(cols) > least ? task_rows(cols) : least;
}

static void run_rows(const struct strait_stream *s, strait_pool_task task, struct payload *p) {
    p->rows = rows_of_task(p->n_rows, p->cols);
    strait_pool_run(strait_cpu_pool(s), (int)pieces(p->n_rows, p->rows), task, p);
}

/* Copies values that may be sent and replaces others by 0; returns how many were replaced. */
static int clean(float *restrict to, const float *restrict from, int n) {
    int bad = 0;
    for (int i = 0; i < n; i++) {
        const int is_valid = fabsf(from[i]) <= STRAIT_WIRE_LIMIT;
        to[i] = is_valid ? from[i] : 0.0f;
        bad += !is_valid;
    }
    return bad;
}

/* Values that may not be sent count as 0, as they are sent. */
static float largest_of(const float *x, int64_t n) {
    const vec limit = splat(STRAIT_WIRE_LIMIT);
    vec largest = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        const vec size = (vec)((ivec)load_some(x + i, n - i) & 0x7fffffff);
        largest = larger((vec)((size <= limit) & (ivec)size), largest);
    }
    return max_lanes(largest);
}

/* One maximum per task; the order of maxima does not matter. */
static void largest_task(void *arg, int task) {
    struct payload *p = arg;
    const int64_t first = task * p->rows, end = smaller(p->n_rows, first + p->rows);
    p->largest[task] = 0;
    for (int64_t n = first; n < end; n++) {
        const float largest = largest_of(p->x + n * p->stride, p->cols);
        p->largest[task] = largest > p->largest[task] ? largest : p->largest[task];
    }
}

/* Uniform random sums in [0, 1) for values [first, first + n) of the tensor. */
static void draw_uniform(float *to, strait_pack_params params, int64_t first, int n) {
    uint32_t words[CHUNK];
    strait_rng_words((strait_rng){params.seed, params.stream}, (uint64_t)first, words, (size_t)n);
    for (int i = 0; i < n; i++)
        to[i] = (float)(words[i] >> 8) * 0x1p-24f;
}

/* bf16 bytes of up to CHUNK values, and in `sent` the values that the receiver restores. */
static void round_halves(unsigned char *bytes, float *restrict sent, const float *restrict value,
                         const float *restrict u, int n) {
    for (int i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &value[i], 4);
        bits += u != NULL ? (uint32_t)(int32_t)(u[i] * 0x1p16f) : 0x7fffu + (bits >> 16 & 1u);
        const uint16_t half = (uint16_t)(bits >> 16);
        memcpy(bytes + (ptrdiff_t)i * 2, &half, 2);
        bits &= 0xffff0000u;
        memcpy(&sent[i], &bits, 4);
    }
}

/* Codes of up to CHUNK values, and in `sent` the values that the receiver restores. Stochastic
 * rounding is floor(value / scale + u). */
static void round_codes(unsigned char *bytes, float *restrict sent, const float *restrict value,
                        const float *restrict u, int n, int bits, float scale) {
    const float magic = 0x1.8p23f; // adding it rounds to nearest, half to even
    const float most = (float)strait_scale_codes(bits);
    const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
    int32_t codes[CHUNK + 1];
    for (int i = 0; i < n; i++) {
        const float scaled = u != NULL ? value[i] * inverse + u[i] : value[i] * inverse;
        float code = (scaled + magic) - magic;
        if (u != NULL) code = code > scaled ? code - 1.0f : code;
        code = code > most ? most : code < -most ? -most : code;
        codes[i] = (int32_t)code;
        sent[i] = code * scale;
    }
    codes[n] = 0;
    if (bits == 8)
        for (int i = 0; i < n; i++)
            bytes[i] = (unsigned char)codes[i];
    else
        for (int i = 0; i < n; i += 2)
            bytes[i / 2] = (unsigned char)((codes[i] & 15) | (codes[i + 1] & 15) << 4);
}

/* The error is measured on what the receiver will restore, not on what was rounded. */
static float distance(const float *a, const float *b, int n) {
    vec sum = {0};
    for (int i = 0; i < n; i += LANES) {
        const vec off = load_some(a + i, n - i) - load_some(b + i, n - i);
        sum += off * off;
    }
    return sum_lanes(sum);
}

/* Values pass through in chunks that stay in the fastest cache. */
static void pack_row(const struct payload *p, int64_t n, unsigned char *to, float scale) {
    float value[CHUNK], sent[CHUNK], random[CHUNK];
    const int bits = p->params.bits;
    double sums[3] = {0};
    for (int64_t c = 0; c < p->cols; c += CHUNK) {
        const int64_t at = n * p->cols + c;
        const int count = (int)smaller(CHUNK, p->cols - c);
        const float *u = p->params.is_stochastic && bits < 32 ? random : NULL;
        if (u != NULL) draw_uniform(random, p->params, at, count);
        sums[2] += clean(value, p->x + n * p->stride + c, count);
        if (bits == 32)
            memcpy(to + c * 4, value, (size_t)count * 4);
        else if (bits == 16)
            round_halves(to + c * 2, sent, value, u, count);
        else
            round_codes(to + c * bits / 8, sent, value, u, count, bits, scale);
        if (p->stats == NULL) continue;
        sums[0] += bits == 32 ? 0.0 : (double)distance(value, sent, count);
        sums[1] += (double)dot(value, value, count);
    }
    for (int i = 0; p->stats != NULL && i < 3; i++)
        p->stats[n * 3 + i] += (float)sums[i];
}

static void pack_task(void *arg, int task) {
    const struct payload *p = arg;
    const int bits = p->params.bits;
    const int64_t end = smaller(p->n_rows, (task + 1) * p->rows);
    for (int64_t n = task * p->rows; n < end; n++) {
        if (bits >= 16) {
            pack_row(p, n, p->bytes + n * p->cols * bits / 8, 0);
            continue;
        }
        const float largest = largest_of(p->x + n * p->stride, p->cols);
        const int code = strait_scale_code(p->base, largest, bits);
        p->bytes[4 + n] = (unsigned char)code;
        pack_row(p, n, p->bytes + strait_payload_codes(p->n_rows, p->cols, bits, n),
                 strait_scale_of(p->base, code));
    }
}

/* The number of bytes follows from the parameters; both sides compute it alike. */
static struct payload payload_of(strait_tensor x, strait_tensor packed, strait_tensor stats,
                                 strait_pack_params params) {
    assert((int64_t)strait_tensor_bytes(packed) == strait_payload_bytes(x, params));
    return (struct payload){.x = strait_cpu_f32(x),
                            .bytes = packed.data,
                            .stats = strait_cpu_f32(stats),
                            .n_rows = x.rows,
                            .cols = strait_pack_cols(x, params),
                            .stride = x.cols,
                            .params = params};
}

static strait_err pack_rows(struct strait_stream *s, strait_tensor packed, strait_tensor stats,
                            strait_tensor x, strait_pack_params params) {
    struct payload p = payload_of(x, packed, stats, params);
    if (params.bits < 16) {
        run_rows(s, largest_task, &p);
        float largest = 0;
        for (int64_t i = 0; i < pieces(p.n_rows, p.rows); i++)
            largest = p.largest[i] > largest ? p.largest[i] : largest;
        p.base = strait_scale_base(largest, params.bits);
        memcpy(p.bytes, &p.base, 4);
    }
    run_rows(s, pack_task, &p);
    return STRAIT_OK;
}

/* The bytes come from a peer, so values that may not be sent are replaced here, too. */
static int restore_wide(float *to, const unsigned char *from, int64_t cols, int bits) {
    int bad = 0;
    for (int64_t c = 0; c < cols; c += CHUNK) {
        const int n = (int)smaller(CHUNK, cols - c);
        float value[CHUNK];
        if (bits == 32) memcpy(value, from + c * 4, (size_t)n * 4);
        for (int i = 0; bits == 16 && i < n; i++) {
            uint16_t half;
            memcpy(&half, from + (c + i) * 2, 2);
            value[i] = strait_payload_f32(half);
        }
        bad += clean(to + c, value, n);
    }
    return bad;
}

static void restore_codes(float *restrict to, const unsigned char *restrict from, int64_t cols,
                          int bits, float scale) {
    if (bits == 8) {
        for (int64_t c = 0; c < cols; c++)
            to[c] = (float)(int8_t)from[c] * scale;
        return;
    }
    for (int64_t c = 0; c + 2 <= cols; c += 2) { // the shifts extend the sign
        to[c] = (float)((int8_t)(unsigned char)(from[c / 2] << 4) >> 4) * scale;
        to[c + 1] = (float)((int8_t)from[c / 2] >> 4) * scale;
    }
    if (cols % 2 != 0) to[cols - 1] = (float)strait_payload_code(from, cols - 1, 4) * scale;
}

/* An invalid base marks all values of the row as rejected. */
static void restore_task(void *arg, int task) {
    const struct payload *p = arg;
    const int bits = p->params.bits;
    const float base = strait_scale_trust(p->base);
    const int64_t end = smaller(p->n_rows, (task + 1) * p->rows);
    for (int64_t n = task * p->rows; n < end; n++) {
        float *to = p->x + n * p->stride;
        int64_t bad = base == p->base ? 0 : p->cols; // NOLINT: the received base was invalid
        if (bits >= 16)
            bad = restore_wide(to, p->bytes + n * p->cols * bits / 8, p->cols, bits);
        else
            restore_codes(to, p->bytes + strait_payload_codes(p->n_rows, p->cols, bits, n), p->cols,
                          bits, strait_scale_of(base, p->bytes[4 + n]));
        if (p->stats == NULL) continue;
        p->stats[n * 3 + 1] += dot(to, to, p->cols);
        p->stats[n * 3 + 2] += (float)bad;
    }
}

static strait_err restore_rows(struct strait_stream *s, strait_tensor x, strait_tensor stats,
                               strait_tensor packed, strait_pack_params params) {
    struct payload p = payload_of(x, packed, stats, params);
    if (params.bits < 16) memcpy(&p.base, p.bytes, 4);
    run_rows(s, restore_task, &p);
    return STRAIT_OK;
}

static void measure_task(void *arg, int task) {
    const struct payload *p = arg;
    const int64_t end = smaller(p->n_rows, (task + 1) * p->rows);
    for (int64_t n = task * p->rows; n < end; n++) {
        const float *error = p->error + n * p->cols;
        double size = 0;
        int bad = 0;
        for (int64_t c = 0; c < p->cols; c += CHUNK) {
            float value[CHUNK];
            const int count = (int)smaller(CHUNK, p->cols - c);
            bad += clean(value, p->x + n * p->cols + c, count);
            size += (double)dot(value, value, count);
        }
        p->stats[n * 3] += dot(error, error, p->cols);
        p->stats[n * 3 + 1] += (float)size;
        p->stats[n * 3 + 2] += (float)bad;
    }
}

static strait_err measure_rows(struct strait_stream *s, strait_tensor stats, strait_tensor x,
                               strait_tensor error) {
    assert(strait_cpu_same_shape(x, error) && stats.rows == x.rows && stats.cols == 3);
    struct payload p = {.x = strait_cpu_f32(x),
                        .stats = strait_cpu_f32(stats),
                        .error = strait_cpu_f32(error),
                        .n_rows = x.rows,
                        .cols = x.cols};
    run_rows(s, measure_task, &p);
    return STRAIT_OK;
}

void SIMD(payload)(struct strait_kernel_set *set) {
    set->base.pack_rows = pack_rows;
    set->base.restore_rows = restore_rows;
    set->base.measure_rows = measure_rows;
}
