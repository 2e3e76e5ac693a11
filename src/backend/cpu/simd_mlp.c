/* simd_mlp.c - gated silu (swiglu), row by row, silu by itself (equations in ref_mlp.c), and
 * resize_cols. */
#include "backend/cpu/simd.h"

/* gate and up are the two halves of one row, as one product computes them. */
struct gated {
    act *y, *d_gate_up;
    const act *d_y, *gate_up;
    int64_t n_rows, width, rows; // rows of a task
};

/* For large negative x the exponential is infinite and the result 0, without a branch. */
static inline vec sigmoid(vec x) {
    return 1.0f / (1.0f + vec_exp(-x));
}

/* Up to LANES values of y = silu(gate) up. */
static inline void gate_some(act *restrict y, const act *restrict gate, const act *restrict up,
                             int64_t left) {
    const vec x = load_some(gate, left);
    store_some(y, x * sigmoid(x) * load_some(up, left), left);
}

/* The tail of a row has its own call, so that the loop works on full vectors. */
static void swiglu_task(void *arg, int task) {
    const struct gated *g = arg;
    const int64_t end = smaller(g->n_rows, (task + 1) * g->rows);
    for (int64_t n = task * g->rows; n < end; n++) {
        const act *gate = g->gate_up + n * 2 * g->width, *up = gate + g->width;
        act *y = g->y + n * g->width;
        int64_t f = 0;
        for (; f + LANES <= g->width; f += LANES)
            gate_some(y + f, gate + f, up + f, LANES);
        if (f < g->width) gate_some(y + f, gate + f, up + f, g->width - f);
    }
}

static strait_err swiglu(struct strait_stream *s, strait_tensor y, strait_tensor gate_up) {
    assert(gate_up.cols == 2 * y.cols && gate_up.rows == y.rows);
    struct gated g = {.y = act_of(y),
                      .gate_up = act_of(gate_up),
                      .n_rows = y.rows,
                      .width = y.cols,
                      .rows = task_rows(y.cols)};
    strait_pool_run(strait_cpu_pool(s), (int)pieces(g.n_rows, g.rows), swiglu_task, &g);
    return STRAIT_OK;
}

/* Reads everything before it writes: d_gate_up may be gate_up, and y may be d_y. */
static inline void gate_some_back(act *d_gate, act *y, const act *d_y, const act *gate,
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
        const act *gate = g->gate_up + n * 2 * g->width, *d_y = g->d_y + n * g->width;
        act *d_gate = g->d_gate_up + n * 2 * g->width;
        act *y = g->y != NULL ? g->y + n * g->width : NULL;
        int64_t f = 0;
        for (; f + LANES <= g->width; f += LANES)
            gate_some_back(d_gate + f, y != NULL ? y + f : NULL, d_y + f, gate + f, g->width,
                           LANES);
        if (f < g->width)
            gate_some_back(d_gate + f, y != NULL ? y + f : NULL, d_y + f, gate + f, g->width,
                           g->width - f);
    }
}

static strait_err swiglu_back(struct strait_stream *s, strait_tensor d_gate_up, strait_tensor y,
                              strait_tensor d_y, strait_tensor gate_up) {
    assert(strait_cpu_same_shape(d_gate_up, gate_up) && gate_up.cols == 2 * d_y.cols);
    assert(y.data == NULL || strait_cpu_same_shape(y, d_y));
    struct gated g = {.y = act_of(y),
                      .d_gate_up = act_of(d_gate_up),
                      .d_y = act_of(d_y),
                      .gate_up = act_of(gate_up),
                      .n_rows = d_y.rows,
                      .width = d_y.cols,
                      .rows = task_rows(d_y.cols)};
    strait_pool_run(strait_cpu_pool(s), (int)pieces(g.n_rows, g.rows), swiglu_back_task, &g);
    return STRAIT_OK;
}

/* silu by itself, over all values of a tensor. */
struct plain {
    act *y;
    const act *x, *d_y;
    int64_t n;
};

static void silu_task(void *arg, int task) {
    const struct plain *p = arg;
    const int64_t end = smaller(p->n, (int64_t)(task + 1) * TASK_VALUES);
    for (int64_t i = (int64_t)task * TASK_VALUES; i < end; i += LANES) {
        const vec x = load_some(p->x + i, end - i);
        store_some(p->y + i, x * sigmoid(x), end - i);
    }
}

static strait_err silu(struct strait_stream *s, strait_tensor y, strait_tensor x) {
    assert(strait_cpu_same_shape(y, x));
    struct plain p = {.y = act_of(y), .x = act_of(x), .n = strait_cpu_count(x)};
    strait_pool_run(strait_cpu_pool(s), (int)pieces(p.n, TASK_VALUES), silu_task, &p);
    return STRAIT_OK;
}

/* The slope is recomputed from x, so that the forward pass keeps nothing but its input. */
static void silu_back_task(void *arg, int task) {
    const struct plain *p = arg;
    const int64_t end = smaller(p->n, (int64_t)(task + 1) * TASK_VALUES);
    for (int64_t i = (int64_t)task * TASK_VALUES; i < end; i += LANES) {
        const vec x = load_some(p->x + i, end - i), gate = sigmoid(x);
        const vec d_y = load_some(p->d_y + i, end - i);
        store_some(p->y + i, d_y * gate * (1.0f + x * (1.0f - gate)), end - i);
    }
}

static strait_err silu_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                            strait_tensor x) {
    assert(strait_cpu_same_shape(d_x, x) && strait_cpu_same_shape(d_y, x));
    struct plain p = {
        .y = act_of(d_x), .d_y = act_of(d_y), .x = act_of(x), .n = strait_cpu_count(x)};
    strait_pool_run(strait_cpu_pool(s), (int)pieces(p.n, TASK_VALUES), silu_back_task, &p);
    return STRAIT_OK;
}

struct resize {
    act *y;
    const act *x;
    int64_t n_rows, cols, from_cols, rows; // rows of a task
};

/* Copies the columns that both have, and zeros the rest. */
static void resize_task(void *arg, int task) {
    const struct resize *r = arg;
    const int64_t shared = smaller(r->cols, r->from_cols);
    const int64_t end = smaller(r->n_rows, (task + 1) * r->rows);
    for (int64_t n = task * r->rows; n < end; n++) {
        act *to = r->y + n * r->cols;
        memcpy(to, r->x + n * r->from_cols, (size_t)shared * sizeof *to);
        memset(to + shared, 0, (size_t)(r->cols - shared) * sizeof *to);
    }
}

/* The wider of the two tensors decides how many rows make a task. */
static strait_err resize_cols(struct strait_stream *s, strait_tensor y, strait_tensor x) {
    assert(y.rows == x.rows);
    struct resize r = {.y = act_of(y),
                       .x = act_of(x),
                       .n_rows = x.rows,
                       .cols = y.cols,
                       .from_cols = x.cols,
                       .rows = task_rows(y.cols > x.cols ? y.cols : x.cols)};
    strait_pool_run(strait_cpu_pool(s), (int)pieces(r.n_rows, r.rows), resize_task, &r);
    return STRAIT_OK;
}

void SIMD(mlp)(struct strait_kernel_set *set) {
    set->base.swiglu = swiglu;
    set->base.swiglu_back = swiglu_back;
    set->base.silu = silu;
    set->base.silu_back = silu_back;
    set->base.resize_cols = resize_cols;
}
