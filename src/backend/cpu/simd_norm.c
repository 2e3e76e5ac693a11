/* simd_norm.c - root-mean-square norm (equations in ref_norm.c). The gradient of the gain is summed
 * by blocks of rows, whose number follows from the shape. */
#include "backend/cpu/rms.h"

struct norm {
    act *y, *sum, *d_x;
    float *rstd, *d_gain;
    const act *x, *delta, *d_y;
    const float *gain, *scales; // scales: rstd in the backward pass
    int64_t n_rows, cols, rows; // rows per task
    float epsilon;
};

/* The sum with the residual is stored and normed in one pass over the row. */
static void norm_row(const struct norm *r, int64_t n) {
    const act *x = r->x + n * r->cols;
    if (r->delta != NULL) {
        const act *delta = r->delta + n * r->cols;
        act *sum = r->sum + n * r->cols;
        for (int64_t c = 0; c < r->cols; c += LANES)
            store_some(sum + c, load_some(x + c, r->cols - c) + load_some(delta + c, r->cols - c),
                       r->cols - c);
        x = sum;
    }
    r->rstd[n] = rms_norm(r->y + n * r->cols, x, r->gain, r->cols, r->epsilon);
}

static void norm_task(void *arg, int task) {
    const struct norm *r = arg;
    const int64_t end = smaller(r->n_rows, (task + 1) * r->rows);
    for (int64_t n = task * r->rows; n < end; n++)
        norm_row(r, n);
}

static strait_err rmsnorm(struct strait_stream *s, strait_tensor y, strait_tensor sum,
                          strait_tensor rstd, strait_tensor x, strait_tensor delta,
                          strait_norm_params params) {
    assert(strait_cpu_same_shape(y, x) && rstd.rows == x.rows);
    assert((sum.data == NULL) == (delta.data == NULL));
    struct norm r = {.y = act_of(y),
                     .sum = act_of(sum),
                     .rstd = strait_cpu_f32(rstd),
                     .x = act_of(x),
                     .delta = act_of(delta),
                     .gain = strait_cpu_f32(params.gain),
                     .n_rows = x.rows,
                     .cols = x.cols,
                     .rows = task_rows(x.cols),
                     .epsilon = params.epsilon};
    strait_pool_run(strait_cpu_pool(s), (int)pieces(r.n_rows, r.rows), norm_task, &r);
    return STRAIT_OK;
}

/* d_gain: this task's partial sums. */
static void norm_row_back(const struct norm *r, int64_t n, float *d_gain) {
    const act *x = r->x + n * r->cols, *d_y = r->d_y + n * r->cols;
    act *d_x = r->d_x + n * r->cols;
    const float scale = r->scales[n];
    const float shift = rms_shift(d_gain, d_y, x, r->gain, scale, r->cols);
    for (int64_t c = 0; c < r->cols; c += LANES) {
        const int64_t left = r->cols - c;
        const vec d_normed = load_some(d_y + c, left) * gain_at(r->gain, c, left);
        store_some(d_x + c,
                   load_some(d_x + c, left) + (d_normed - load_some(x + c, left) * shift) * scale,
                   left);
    }
}

/* Each task has its own partial sums, which are added in order afterwards. */
static void norm_back_task(void *arg, int task) {
    const struct norm *r = arg;
    const int64_t end = smaller(r->n_rows, (task + 1) * r->rows);
    float *d_gain = r->d_gain + task * r->cols;
    if (r->gain != NULL) memset(d_gain, 0, (size_t)r->cols * sizeof *d_gain);
    for (int64_t n = task * r->rows; n < end; n++)
        norm_row_back(r, n, d_gain);
}

/* Partial sums use memory that was allocated for packed matrices, which no kernel uses meanwhile.
 */
static strait_err rmsnorm_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_gain,
                               strait_tensor d_y, strait_tensor x, strait_tensor gain,
                               strait_tensor rstd) {
    assert(strait_cpu_same_shape(d_x, x) && strait_cpu_same_shape(d_y, x));
    assert(gain.data == NULL || d_gain.data != NULL);
    const struct strait_cpu *cpu = s->backend->state;
    struct norm r = {.d_x = act_of(d_x),
                     .d_gain = cpu->left, // one row of partial sums per task
                     .d_y = act_of(d_y),
                     .x = act_of(x),
                     .gain = strait_cpu_f32(gain),
                     .scales = strait_cpu_f32(rstd),
                     .n_rows = x.rows,
                     .cols = x.cols,
                     .rows = block_rows(x.rows, x.cols)};
    const int64_t n_blocks = pieces(r.n_rows, r.rows);
    strait_pool_run(cpu->pool, (int)n_blocks, norm_back_task, &r);
    if (gain.data != NULL) add_blocks(strait_cpu_f32(d_gain), cpu->left, n_blocks, r.cols);
    return STRAIT_OK;
}

void SIMD(norm)(struct strait_kernel_set *set) {
    set->base.rmsnorm = rmsnorm;
    set->base.rmsnorm_back = rmsnorm_back;
}
