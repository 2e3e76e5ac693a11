/* simd_codec.c - top-k payloads and the Hadamard transform, split over threads by rows. Rows are
 * independent, so the split changes no bit. */
#include "backend/cpu/simd.h"
#include "backend/cpu/topk_row.h"

/* One call; each kernel uses some of the fields. */
struct job {
    float *y;
    strait_tensor stats;
    const float *x;
    int64_t n_rows, cols, rows; // rows of a task
    int64_t tile;
    strait_topk_row top;
};

static strait_err run_rows(const struct strait_stream *s, strait_pool_task task, struct job j) {
    j.rows = task_rows(j.cols);
    strait_pool_run(strait_cpu_pool(s), (int)pieces(j.n_rows, j.rows), task, &j);
    return STRAIT_OK;
}

static int64_t first_row(const struct job *j, int task) {
    return task * j->rows;
}

static int64_t end_row(const struct job *j, int task) {
    return smaller(j->n_rows, (task + 1) * j->rows);
}

/* One round of the fast Walsh-Hadamard transform: sums and differences of values `step` apart. */
static void butterflies(float *v, int64_t tile, int64_t step) {
    for (int64_t first = 0; first < tile; first += 2 * step) {
        float *restrict low = v + first, *restrict high = low + step;
        for (int64_t i = 0; i < step; i++) {
            const float a = low[i], b = high[i];
            low[i] = a + b;
            high[i] = a - b;
        }
    }
}

/* Transforms in place: log2(tile) rounds over values that stay in the cache. */
static void hadamard_task(void *arg, int task) {
    const struct job *j = arg;
    const float norm = 1.0f / sqrtf((float)j->tile);
    const int64_t first = first_row(j, task) * j->cols, end = end_row(j, task) * j->cols;
    if (j->y != j->x) memcpy(j->y + first, j->x + first, (size_t)(end - first) * sizeof(float));
    for (int64_t t = first; t < end; t += j->tile) {
        for (int64_t step = 1; step < j->tile; step *= 2)
            butterflies(j->y + t, j->tile, step);
        for (int64_t i = t; i < t + j->tile; i++)
            j->y[i] *= norm;
    }
}

/* The transform exists for powers of two only, which the codec has checked. */
static strait_err hadamard(struct strait_stream *s, strait_tensor y, strait_tensor x,
                           int64_t tile) {
    assert(strait_cpu_same_shape(y, x) && x.cols % tile == 0 && (tile & (tile - 1)) == 0);
    return run_rows(s, hadamard_task,
                    (struct job){.y = strait_cpu_f32(y),
                                 .x = strait_cpu_f32(x),
                                 .n_rows = x.rows,
                                 .cols = x.cols,
                                 .tile = tile});
}

/* Rows are packed independently, so that tasks write to separate bytes. */
static void topk_pack_task(void *arg, int task) {
    const struct job *j = arg;
    for (int64_t n = first_row(j, task); n < end_row(j, task); n++)
        strait_topk_pack(&j->top, j->x + n * j->cols, j->cols, n);
}

/* Statistics are per row, too, and need no synchronisation. */
static void topk_restore_task(void *arg, int task) {
    const struct job *j = arg;
    for (int64_t n = first_row(j, task); n < end_row(j, task); n++) {
        double sums[3];
        strait_topk_restore(&j->top, j->y + n * j->cols, j->cols, n, sums);
        strait_payload_add_stats(j->stats, n, sums);
    }
}

/* Values come first in the packed bytes, then column indices. */
static strait_topk_row top_of(strait_tensor packed, int64_t rows, int64_t keep,
                              strait_pack_params params) {
    unsigned char *bytes = packed.data;
    return (strait_topk_row){bytes, bytes + rows * keep * 2, keep, params};
}

static strait_err topk_pack(struct strait_stream *s, strait_tensor packed, strait_tensor x,
                            int64_t keep, strait_pack_params params) {
    assert(keep > 0 && keep <= x.cols);
    return run_rows(s, topk_pack_task,
                    (struct job){.x = strait_cpu_f32(x),
                                 .n_rows = x.rows,
                                 .cols = x.cols,
                                 .top = top_of(packed, x.rows, keep, params)});
}

static strait_err topk_restore(struct strait_stream *s, strait_tensor x, strait_tensor stats,
                               strait_tensor packed, int64_t keep) {
    return run_rows(s, topk_restore_task,
                    (struct job){.y = strait_cpu_f32(x),
                                 .stats = stats,
                                 .n_rows = x.rows,
                                 .cols = x.cols,
                                 .top = top_of(packed, x.rows, keep, (strait_pack_params){0})});
}

void SIMD(codec)(struct strait_kernel_set *set) {
    set->hadamard.transform = hadamard;
    set->topk.pack = topk_pack;
    set->topk.restore = topk_restore;
}
