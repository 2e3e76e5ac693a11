/* simd_cast.c - conversion between f32 and bf16, and copies; same bits as ref_elementwise.c. */
#include "backend/cpu/simd.h"

struct cast {
    void *y;
    const void *x;
    int64_t n; // values, or bytes where types are equal
};

static void round_task(void *arg, int task) {
    const struct cast *c = arg;
    const int64_t first = (int64_t)task * TASK_VALUES, end = smaller(first + TASK_VALUES, c->n);
    const float *x = c->x;
    uint16_t *y = c->y;
    for (int64_t i = first; i < end; i++)
        y[i] = strait_cpu_round(x[i]);
}

/* Exact: bf16 is the upper half of an f32. */
static void widen_task(void *arg, int task) {
    const struct cast *c = arg;
    const int64_t first = (int64_t)task * TASK_VALUES, end = smaller(first + TASK_VALUES, c->n);
    const uint16_t *x = c->x;
    float *y = c->y;
    for (int64_t i = first; i < end; i++)
        y[i] = strait_cpu_widen(x[i]);
}

/* Counts bytes, so that every type is copied by one function. */
static void copy_task(void *arg, int task) {
    const struct cast *c = arg;
    const int64_t first = (int64_t)task * TASK_VALUES * 4;
    memcpy((char *)c->y + first, (const char *)c->x + first,
           (size_t)smaller(TASK_VALUES * 4, c->n - first));
}

static strait_err cast(struct strait_stream *s, strait_tensor y, strait_tensor x) {
    assert(strait_cpu_same_shape(y, x));
    struct cast c = {.y = y.data, .x = x.data, .n = strait_cpu_count(x)};
    strait_pool_task task = NULL;
    if (y.dtype == STRAIT_BF16 && x.dtype == STRAIT_F32) task = round_task;
    if (y.dtype == STRAIT_F32 && x.dtype == STRAIT_BF16) task = widen_task;
    int64_t n_tasks = pieces(c.n, TASK_VALUES);
    if (y.dtype == x.dtype) {
        task = copy_task;
        c.n = (int64_t)strait_tensor_bytes(x);
        n_tasks = pieces(c.n, TASK_VALUES * 4);
    }
    if (task == NULL)
        return STRAIT_FAIL(STRAIT_ENOTSUP,
                           "cast on cpu: only f32 and bf16 convert into each other");
    strait_pool_run(strait_cpu_pool(s), (int)n_tasks, task, &c);
    return STRAIT_OK;
}

void SIMD(cast)(struct strait_kernel_set *set) {
    set->base.cast = cast;
}
