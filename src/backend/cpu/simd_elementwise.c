/* simd_elementwise.c - loops over all values of a tensor, which the compiler vectorises, split over
 * threads in equal runs. */
#include "backend/cpu/simd.h"

/* One call over n values; each kernel uses some of the fields. */
struct flat {
    void *y, *also; // also: the second output of kernels that have two
    const void *a, *b;
    float factor;
    int64_t n;
};

typedef struct span {
    int64_t first, end;
} span;

/* The values of one task. The split depends on the length alone. */
static span span_of(const struct flat *f, int task) {
    const int64_t first = (int64_t)task * TASK_VALUES;
    return (span){first, smaller(first + TASK_VALUES, f->n)};
}

static strait_err run_flat(const struct strait_stream *s, strait_pool_task task, struct flat f) {
    strait_pool_run(strait_cpu_pool(s), (int)pieces(f.n, TASK_VALUES), task, &f);
    return STRAIT_OK;
}

/* The loop is left to the compiler, which turns it into vector stores. */
static void fill_task(void *arg, int task) {
    const struct flat *f = arg;
    const span run = span_of(f, task);
    act *y = f->y;
    for (int64_t i = run.first; i < run.end; i++)
        put(&y[i], f->factor);
}

static strait_err fill(struct strait_stream *s, strait_tensor y, float value) {
    return run_flat(s, fill_task,
                    (struct flat){.y = act_of(y), .factor = value, .n = strait_cpu_count(y)});
}

/* y may be a or b, since every value is read before it is written. */
static void add_task(void *arg, int task) {
    const struct flat *f = arg;
    const span run = span_of(f, task);
    const act *a = f->a, *b = f->b;
    act *y = f->y;
    for (int64_t i = run.first; i < run.end; i++)
        put(&y[i], get(a[i]) + get(b[i]));
}

static strait_err add(struct strait_stream *s, strait_tensor y, strait_tensor a, strait_tensor b) {
    assert(strait_cpu_same_shape(y, a) && strait_cpu_same_shape(y, b));
    return run_flat(
        s, add_task,
        (struct flat){.y = act_of(y), .a = act_of(a), .b = act_of(b), .n = strait_cpu_count(y)});
}

static void axpy_task(void *arg, int task) {
    const struct flat *f = arg;
    const span run = span_of(f, task);
    const act *x = f->a;
    act *y = f->y;
    for (int64_t i = run.first; i < run.end; i++)
        put(&y[i], get(y[i]) + f->factor * get(x[i]));
}

/* Written as in the reference loop, so that the bits agree. */
static void lerp_task(void *arg, int task) {
    const struct flat *f = arg;
    const span run = span_of(f, task);
    const act *x = f->a;
    act *y = f->y;
    for (int64_t i = run.first; i < run.end; i++)
        put(&y[i], get(y[i]) + f->factor * (get(x[i]) - get(y[i])));
}

static void scale_task(void *arg, int task) {
    const struct flat *f = arg;
    const span run = span_of(f, task);
    const act *x = f->a;
    act *y = f->y;
    for (int64_t i = run.first; i < run.end; i++)
        put(&y[i], f->factor * get(x[i]));
}

/* For kernels y = f(x, factor). */
static strait_err run_scaled(const struct strait_stream *s, strait_pool_task task, strait_tensor y,
                             strait_tensor x, float factor) {
    assert(strait_cpu_same_shape(y, x));
    return run_flat(
        s, task,
        (struct flat){.y = act_of(y), .a = act_of(x), .factor = factor, .n = strait_cpu_count(y)});
}

static strait_err axpy(struct strait_stream *s, strait_tensor y, float alpha, strait_tensor x) {
    return run_scaled(s, axpy_task, y, x, alpha);
}

static strait_err lerp(struct strait_stream *s, strait_tensor y, strait_tensor x, float t) {
    return run_scaled(s, lerp_task, y, x, t);
}

/* The sum stays on the device in other backends, so it is passed as a tensor here, too. */
static strait_err normalise(struct strait_stream *s, strait_tensor y, strait_tensor x,
                            strait_tensor total, float epsilon) {
    const float factor = 1.0f / (sqrtf(strait_cpu_f32(total)[0]) + epsilon);
    return run_scaled(s, scale_task, y, x, factor);
}

/* x < 0 is false for NaN, which therefore passes through. */
static void relu2_task(void *arg, int task) {
    const struct flat *f = arg;
    const span run = span_of(f, task);
    const act *x = f->a;
    act *y = f->y;
    for (int64_t i = run.first; i < run.end; i++)
        put(&y[i], get(x[i]) < 0 ? 0 : get(x[i]) * get(x[i]));
}

static strait_err relu2(struct strait_stream *s, strait_tensor y, strait_tensor x) {
    return run_scaled(s, relu2_task, y, x, 0);
}

static void relu2_back_task(void *arg, int task) {
    const struct flat *f = arg;
    const span run = span_of(f, task);
    const act *x = f->a, *d_y = f->b;
    act *d_x = f->y, *y = f->also;
    if (y == NULL) {
        SIMD_EACH_ITS_OWN
        for (int64_t i = run.first; i < run.end; i++)
            put(&d_x[i], get(x[i]) < 0 ? 0 : 2 * get(x[i]) * get(d_y[i]));
        return;
    }
    SIMD_EACH_ITS_OWN // outputs may replace inputs: read both first
    for (int64_t i = run.first; i < run.end; i++) {
        const float v = get(x[i]), d = get(d_y[i]);
        put(&d_x[i], v < 0 ? 0 : 2 * v * d);
        put(&y[i], v < 0 ? 0 : v * v);
    }
}

/* For kernels d_x = f(d_y, x). */
static strait_err run_back(const struct strait_stream *s, strait_pool_task task, strait_tensor d_x,
                           strait_tensor d_y, strait_tensor x) {
    assert(strait_cpu_same_shape(d_x, x) && strait_cpu_same_shape(d_y, x));
    return run_flat(
        s, task,
        (struct flat){
            .y = act_of(d_x), .a = act_of(x), .b = act_of(d_y), .n = strait_cpu_count(x)});
}

static strait_err relu2_back(struct strait_stream *s, strait_tensor d_x, strait_tensor y,
                             strait_tensor d_y, strait_tensor x) {
    assert(strait_cpu_same_shape(d_x, x) && strait_cpu_same_shape(d_y, x));
    assert(y.data == NULL || strait_cpu_same_shape(y, x));
    return run_flat(s, relu2_back_task,
                    (struct flat){.y = act_of(d_x),
                                  .also = act_of(y),
                                  .a = act_of(x),
                                  .b = act_of(d_y),
                                  .n = strait_cpu_count(x)});
}

/* x < 0 is false for NaN, which therefore passes through. */
static void relu_task(void *arg, int task) {
    const struct flat *f = arg;
    const span run = span_of(f, task);
    const act *x = f->a;
    act *y = f->y;
    for (int64_t i = run.first; i < run.end; i++)
        put(&y[i], get(x[i]) < 0 ? 0 : get(x[i]));
}

static strait_err relu(struct strait_stream *s, strait_tensor y, strait_tensor x) {
    return run_scaled(s, relu_task, y, x, 0);
}

/* x may be relu's output: it is positive exactly where the input was. */
static void relu_back_task(void *arg, int task) {
    const struct flat *f = arg;
    const span run = span_of(f, task);
    const act *x = f->a, *d_y = f->b;
    act *d_x = f->y;
    for (int64_t i = run.first; i < run.end; i++)
        put(&d_x[i], get(x[i]) <= 0 ? 0 : get(d_y[i]));
}

static strait_err relu_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                            strait_tensor x) {
    return run_back(s, relu_back_task, d_x, d_y, x);
}

/* Sum of squares: partial sums over runs whose number follows from the length alone, added in
 * order. In double precision, because f32 would lose small values next to large ones. */

enum {
    SUMS_MAX = 256,
    SUM_LANES = 8
};

struct squares {
    const act *x;
    int64_t n, run;
    double sums[SUMS_MAX];
};

/* Eight accumulators, added pairwise at the end: the order is the same for every instruction set.
 */
static void squares_task(void *arg, int task) {
    struct squares *q = arg;
    const int64_t first = task * q->run, end = smaller(first + q->run, q->n);
    double sum[SUM_LANES] = {0};
    int64_t i = first;
    for (; i + SUM_LANES <= end; i += SUM_LANES)
        for (int lane = 0; lane < SUM_LANES; lane++)
            sum[lane] += (double)get(q->x[i + lane]) * (double)get(q->x[i + lane]);
    for (; i < end; i++)
        sum[0] += (double)get(q->x[i]) * (double)get(q->x[i]);
    q->sums[task] = ((sum[0] + sum[1]) + (sum[2] + sum[3])) +
                    ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

/* At most SUMS_MAX partial sums, however long the tensor is. */
static strait_err sum_squares(struct strait_stream *s, strait_tensor total, strait_tensor x) {
    struct squares q = {.x = act_of(x), .n = strait_cpu_count(x)};
    q.run = pieces(q.n, SUMS_MAX) > TASK_VALUES ? pieces(q.n, SUMS_MAX) : TASK_VALUES;
    const int n_runs = (int)pieces(q.n, q.run);
    strait_pool_run(strait_cpu_pool(s), n_runs, squares_task, &q);
    double sum = 0;
    for (int i = 0; i < n_runs; i++)
        sum += q.sums[i];
    strait_cpu_f32(total)[0] = (float)sum;
    return STRAIT_OK;
}

void SIMD(elementwise)(struct strait_kernel_set *set) {
    set->base.fill = fill;
    set->base.add = add;
    set->base.axpy = axpy;
    set->base.lerp = lerp;
    set->base.sum_squares = sum_squares;
    set->base.normalise = normalise;
    set->base.relu2 = relu2;
    set->base.relu2_back = relu2_back;
    set->base.relu = relu;
    set->base.relu_back = relu_back;
}
