/* simd_rotate.c - rotary position embedding of queries and keys and the optional norm, head by
 * head. */
#include "backend/cpu/rms.h"

struct rotate {
    act *out;
    float *rstd, *d_gain;
    const act *in, *x;
    const float *gain, *cos, *sin, *scales; // scales: rstd in the backward pass
    int64_t n_rows, cols, rows;             // rows per task
    strait_heads heads;
    float epsilon;
};

/* Rotates pairs (i, i + half); `out` may be `in`. A direction of -1 rotates back. */
static void rotate_pairs(act *out, const act *in, const float *cos, const float *sin, int64_t half,
                         float direction) {
    for (int64_t i = 0; i < half; i += LANES) {
        const int64_t left = half - i;
        const vec c = load_some(cos + i, left), s = load_some(sin + i, left) * direction;
        const vec a = load_some(in + i, left), b = load_some(in + half + i, left);
        store_some(out + i, a * c - b * s, left);
        store_some(out + half + i, b * c + a * s, left);
    }
}

/* The offset, in a [2 x head_dim] tensor, of the gains that head h of queries and keys uses. */
static int64_t gain_offset(const struct rotate *r, int h) {
    return h >= r->heads.n_query ? r->heads.head_dim : 0;
}

/* Values are not rotated: positions concern scores alone. */
static void copy_values(const struct rotate *r, int64_t n) {
    const int64_t n_values = (int64_t)r->heads.n_key * r->heads.head_dim;
    const int64_t at = (n + 1) * r->cols - n_values;
    if (r->out != r->in) memcpy(r->out + at, r->in + at, (size_t)n_values * sizeof(act));
}

/* The norm writes to the output and the rotation works there in place, so no scratch is needed;
 * bf16 is rounded twice. */
static void rotate_task(void *arg, int task) {
    const struct rotate *r = arg;
    const int n_heads = r->heads.n_query + r->heads.n_key;
    const int64_t dim = r->heads.head_dim, half = dim / 2;
    const int64_t end = smaller(r->n_rows, (task + 1) * r->rows);
    for (int64_t n = task * r->rows; n < end; n++) {
        const int64_t angle = n % r->heads.seq_len * half;
        for (int h = 0; h < n_heads; h++) {
            const act *from = r->in + n * r->cols + h * dim;
            act *to = r->out + n * r->cols + h * dim;
            if (r->rstd != NULL) {
                const float *gain = r->gain != NULL ? r->gain + gain_offset(r, h) : NULL;
                r->rstd[n * n_heads + h] = rms_norm(to, from, gain, dim, r->epsilon);
                from = to;
            }
            rotate_pairs(to, from, r->cos + angle, r->sin + angle, half, 1);
        }
        copy_values(r, n);
    }
}

static strait_err rotate(struct strait_stream *s, strait_tensor y, strait_tensor rstd,
                         strait_tensor x, strait_rotate_params params) {
    const strait_heads heads = params.heads;
    assert(heads.head_dim % 2 == 0 && x.cols == strait_cpu_qkv_cols(heads));
    assert(strait_cpu_same_shape(y, x) && params.cos.cols == heads.head_dim / 2);
    assert(params.cos.rows >= heads.seq_len && strait_cpu_same_shape(params.cos, params.sin));
    struct rotate r = {.out = act_of(y),
                       .rstd = strait_cpu_f32(rstd),
                       .in = act_of(x),
                       .gain = strait_cpu_f32(params.gain),
                       .cos = strait_cpu_f32(params.cos),
                       .sin = strait_cpu_f32(params.sin),
                       .n_rows = x.rows,
                       .cols = x.cols,
                       .rows = task_rows(x.cols),
                       .heads = heads,
                       .epsilon = params.epsilon};
    strait_pool_run(strait_cpu_pool(s), (int)pieces(r.n_rows, r.rows), rotate_task, &r);
    return STRAIT_OK;
}

/* The gradient through the norm of one head, in place. */
static void norm_head_back(act *d, float *d_gain, const act *x, const float *gain, float scale,
                           int64_t dim) {
    const float shift = rms_shift(d_gain, d, x, gain, scale, dim);
    for (int64_t i = 0; i < dim; i += LANES) {
        const int64_t left = dim - i;
        const vec d_normed = load_some(d + i, left) * gain_at(gain, i, left);
        store_some(d + i, (d_normed - load_some(x + i, left) * shift) * scale, left);
    }
}

/* Rotating back first undoes the forward order: norm, then rotation. */
static void rotate_back_task(void *arg, int task) {
    const struct rotate *r = arg;
    const int n_heads = r->heads.n_query + r->heads.n_key;
    const int64_t dim = r->heads.head_dim, half = dim / 2;
    const int64_t end = smaller(r->n_rows, (task + 1) * r->rows);
    float *d_gain = r->d_gain + task * (2 * dim);
    if (r->gain != NULL) memset(d_gain, 0, (size_t)(2 * dim) * sizeof *d_gain);
    for (int64_t n = task * r->rows; n < end; n++) {
        const int64_t angle = n % r->heads.seq_len * half;
        for (int h = 0; h < n_heads; h++) {
            const int64_t at = n * r->cols + h * dim, which = gain_offset(r, h);
            rotate_pairs(r->out + at, r->in + at, r->cos + angle, r->sin + angle, half, -1);
            if (r->scales != NULL)
                norm_head_back(r->out + at, d_gain + which, r->x + at,
                               r->gain != NULL ? r->gain + which : NULL, r->scales[n * n_heads + h],
                               dim);
        }
        copy_values(r, n);
    }
}

/* Partial sums use memory that was allocated for packed matrices, which no kernel uses meanwhile.
 */
static strait_err rotate_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_gain,
                              strait_tensor d_y, strait_tensor x, strait_tensor rstd,
                              strait_rotate_params params) {
    assert(d_x.cols == strait_cpu_qkv_cols(params.heads) && strait_cpu_same_shape(d_x, d_y));
    assert((x.data == NULL) == (rstd.data == NULL));
    assert(params.gain.data == NULL || d_gain.data != NULL);
    const struct strait_cpu *cpu = s->backend->state;
    const int64_t gain_values = 2 * (int64_t)params.heads.head_dim;
    struct rotate r = {.out = act_of(d_x),
                       .d_gain = cpu->left, // two rows of partial sums per task
                       .in = act_of(d_y),
                       .x = act_of(x),
                       .gain = strait_cpu_f32(params.gain),
                       .cos = strait_cpu_f32(params.cos),
                       .sin = strait_cpu_f32(params.sin),
                       .scales = strait_cpu_f32(rstd),
                       .n_rows = d_x.rows,
                       .cols = d_x.cols,
                       .rows = block_rows(d_x.rows, gain_values),
                       .heads = params.heads};
    const int64_t n_blocks = pieces(r.n_rows, r.rows);
    strait_pool_run(cpu->pool, (int)n_blocks, rotate_back_task, &r);
    if (params.gain.data != NULL)
        add_blocks(strait_cpu_f32(d_gain), cpu->left, n_blocks, gain_values);
    return STRAIT_OK;
}

void SIMD(rotate)(struct strait_kernel_set *set) {
    set->base.rotate = rotate;
    set->base.rotate_back = rotate_back;
}
