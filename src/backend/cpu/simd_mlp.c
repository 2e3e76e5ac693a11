/* simd_mlp.c - gated silu (swiglu), row by row (equations in ref_mlp.c). */
#include "backend/cpu/simd.h"

/* gate and up are the two halves of one row, as one product computes them. */
struct gated {
    float *y, *d_gate_up;
    const float *d_y, *gate_up;
    int64_t n_rows, width, rows; // rows of a task
};

/* For large negative x the exponential is infinite and the result 0, without a branch. */
static inline vec sigmoid(vec x) {
    return 1.0f / (1.0f + vec_exp(-x));
}

/* Up to LANES values of y = silu(gate) up. */
static inline void gate_some(float *restrict y, const float *restrict gate,
                             const float *restrict up, int64_t left) {
    const vec x = load_some(gate, left);
    store_some(y, x * sigmoid(x) * load_some(up, left), left);
}

/* The tail of a row has its own call, so that the loop works on full vectors. */
static void swiglu_task(void *arg, int task) {
    const struct gated *g = arg;
    const int64_t end = smaller(g->n_rows, (task + 1) * g->rows);
    for (int64_t n = task * g->rows; n < end; n++) {
        const float *gate = g->gate_up + n * 2 * g->width, *up = gate + g->width;
        float *y = g->y + n * g->width;
        int64_t f = 0;
        for (; f + LANES <= g->width; f += LANES)
            gate_some(y + f, gate + f, up + f, LANES);
        if (f < g->width) gate_some(y + f, gate + f, up + f, g->width - f);
    }
}

static strait_err swiglu(struct strait_stream *s, strait_tensor y, strait_tensor gate_up) {
    assert(gate_up.cols == 2 * y.cols && gate_up.rows == y.rows);
    struct gated g = {.y = strait_cpu_f32(y),
                      .gate_up = strait_cpu_f32(gate_up),
                      .n_rows = y.rows,
                      .width = y.cols,
                      .rows = task_rows(y.cols)};
    strait_pool_run(strait_cpu_pool(s), (int)pieces(g.n_rows, g.rows), swiglu_task, &g);
    return STRAIT_OK;
}

/* Reads everything before it writes: d_gate_up may be gate_up, and y may be d_y. */
static inline void gate_some_back(float *d_gate, float *y, const float *d_y, const float *gate,
                                  int64_t width, int64_t left) {
    const vec x = load_some(gate, left), d = load_some(d_y, left), sig = sigmoid(x);
    const vec up = load_some(gate + width, left);
    store_some(d_gate, d * up * sig * (1.0f + x * (1.0f - sig)), left);
    store_some(d_gate + width, d * x * sig, left);
    if (y != NULL) store_some(y, x * sig * up, left);
}

/* y is recomputed on request, which saves keeping it from the forward pass. */
static void swiglu_back_task(void *arg, int task) {
    const struct gated *g = arg;
    const int64_t end = smaller(g->n_rows, (task + 1) * g->rows);
    for (int64_t n = task * g->rows; n < end; n++) {
        const float *gate = g->gate_up + n * 2 * g->width, *d_y = g->d_y + n * g->width;
        float *d_gate = g->d_gate_up + n * 2 * g->width;
        float *y = g->y != NULL ? g->y + n * g->width : NULL;
        for (int64_t f = 0; f < g->width; f += LANES)
            gate_some_back(d_gate + f, y != NULL ? y + f : NULL, d_y + f, gate + f, g->width,
                           smaller(LANES, g->width - f));
    }
}

static strait_err swiglu_back(struct strait_stream *s, strait_tensor d_gate_up, strait_tensor y,
                              strait_tensor d_y, strait_tensor gate_up) {
    assert(strait_cpu_same_shape(d_gate_up, gate_up) && gate_up.cols == 2 * d_y.cols);
    assert(y.data == NULL || strait_cpu_same_shape(y, d_y));
    struct gated g = {.y = strait_cpu_f32(y),
                      .d_gate_up = strait_cpu_f32(d_gate_up),
                      .d_y = strait_cpu_f32(d_y),
                      .gate_up = strait_cpu_f32(gate_up),
                      .n_rows = d_y.rows,
                      .width = d_y.cols,
                      .rows = task_rows(d_y.cols)};
    strait_pool_run(strait_cpu_pool(s), (int)pieces(g.n_rows, g.rows), swiglu_back_task, &g);
    return STRAIT_OK;
}

void SIMD(mlp)(struct strait_kernel_set *set) {
    set->base.swiglu = swiglu;
    set->base.swiglu_back = swiglu_back;
}
