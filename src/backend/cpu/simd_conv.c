/* simd_conv.c - causal convolutions (equations in ref_conv.c). The gradient of the taps is summed
 * by blocks of rows, whose number follows from the shape. */
#include "backend/cpu/simd.h"

struct conv {
    act *y;
    float *sums; // gradients of the taps, [taps x cols] per task
    const act *x, *d_y;
    const float *w;
    int64_t n_rows, cols, taps, seq_len, rows; // rows of a task
};

/* Taps that reach before the sequence are left out instead of reading zeros. */
static void conv_row(const struct conv *p, int64_t n) {
    const int64_t cols = p->cols, position = n % p->seq_len;
    for (int64_t c = 0; c < cols; c += LANES) {
        const act *x = p->x + n * cols + c;
        vec sum = load_some(x, cols - c);
        for (int64_t j = 0; j < p->taps && j <= position; j++)
            sum += load_some(p->w + j * cols + c, cols - c) * load_some(x - j * cols, cols - c);
        store_some(p->y + n * cols + c, sum, cols - c);
    }
}

static void conv_task(void *arg, int task) {
    const struct conv *p = arg;
    const int64_t end = smaller(p->n_rows, (task + 1) * p->rows);
    for (int64_t n = task * p->rows; n < end; n++)
        conv_row(p, n);
}

static strait_err conv(struct strait_stream *s, strait_tensor y, strait_tensor x, strait_tensor w,
                       int64_t seq_len) {
    assert(strait_cpu_same_shape(y, x) && w.cols == x.cols && x.rows % seq_len == 0);
    struct conv p = {.y = act_of(y),
                     .x = act_of(x),
                     .w = strait_cpu_f32(w),
                     .n_rows = x.rows,
                     .cols = x.cols,
                     .taps = w.rows,
                     .seq_len = seq_len,
                     .rows = task_rows(x.cols)};
    strait_pool_run(strait_cpu_pool(s), (int)pieces(p.n_rows, p.rows), conv_task, &p);
    return STRAIT_OK;
}

/* The gradient of row n of x, and its part of the taps' gradient in `sums`: tap j pairs x_n with
 * d_y_{n+j}, so one pass over d_y serves both. */
static void conv_row_back(const struct conv *p, int64_t n, float *sums) {
    const int64_t cols = p->cols, left = p->seq_len - n % p->seq_len;
    for (int64_t c = 0; c < cols; c += LANES) {
        const act *d = p->d_y + n * cols + c;
        const vec x = load_some(p->x + n * cols + c, cols - c);
        vec sum = load_some(d, cols - c);
        for (int64_t j = 0; j < p->taps && j < left; j++) {
            const vec later = load_some(d + j * cols, cols - c);
            float *tap = sums + j * cols + c;
            sum += load_some(p->w + j * cols + c, cols - c) * later;
            store_some(tap, load_some(tap, cols - c) + x * later, cols - c);
        }
        store_some(p->y + n * cols + c, sum, cols - c);
    }
}

/* Each task has its own partial sums, which are added in order afterwards. */
static void conv_back_task(void *arg, int task) {
    const struct conv *p = arg;
    const int64_t end = smaller(p->n_rows, (task + 1) * p->rows), n_sums = p->taps * p->cols;
    float *sums = p->sums + task * n_sums;
    memset(sums, 0, (size_t)n_sums * sizeof *sums);
    for (int64_t n = task * p->rows; n < end; n++)
        conv_row_back(p, n, sums);
}

static strait_err conv_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_w,
                            strait_tensor d_y, strait_tensor x, strait_tensor w, int64_t seq_len) {
    assert(strait_cpu_same_shape(d_x, x) && strait_cpu_same_shape(d_y, x));
    assert(strait_cpu_same_shape(d_w, w) && w.cols == x.cols && x.rows % seq_len == 0);
    const struct strait_cpu *cpu = s->backend->state;
    struct conv p = {.y = act_of(d_x),
                     .sums = cpu->left,
                     .x = act_of(x),
                     .w = strait_cpu_f32(w),
                     .d_y = act_of(d_y),
                     .n_rows = x.rows,
                     .cols = x.cols,
                     .taps = w.rows,
                     .seq_len = seq_len,
                     .rows = block_rows(x.rows, w.rows * x.cols)};
    const int64_t n_blocks = pieces(p.n_rows, p.rows);
    strait_pool_run(cpu->pool, (int)n_blocks, conv_back_task, &p);
    add_blocks(strait_cpu_f32(d_w), cpu->left, n_blocks, w.rows * w.cols);
    return STRAIT_OK;
}

/* The same sums as conv_row, with inputs from the ring. */
static strait_err conv_cached(struct strait_stream *s, strait_tensor y, strait_tensor ring,
                              strait_tensor x, strait_tensor w, strait_cached_rows at) {
    (void)s;
    const int64_t cols = x.cols;
    assert(strait_cpu_same_shape(y, x) && w.cols == cols && w.rows <= STRAIT_CONV_TAPS);
    strait_cpu_keep_inputs(ring, x, at);
    for (int64_t n = 0; n < x.rows; n++) {
        const int64_t sequence = strait_cpu_sequence(at, n), position = strait_cpu_position(at, n);
        const act *kept = act_of(ring) + sequence * STRAIT_CONV_RING * cols;
        for (int64_t c = 0; sequence >= 0 && c < cols; c += LANES) {
            vec sum = load_some(act_of(x) + n * cols + c, cols - c);
            for (int64_t j = 0; j < w.rows && j <= position; j++)
                sum += load_some(strait_cpu_f32(w) + j * cols + c, cols - c) *
                       load_some(kept + (position - j) % STRAIT_CONV_RING * cols + c, cols - c);
            store_some(act_of(y) + n * cols + c, sum, cols - c);
        }
    }
    return STRAIT_OK;
}

void SIMD(conv)(struct strait_kernel_set *set) {
    set->conv.forward = conv;
    set->conv.back = conv_back;
    set->conv.cached = conv_cached;
}
