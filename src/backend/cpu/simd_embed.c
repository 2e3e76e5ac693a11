/* simd_embed.c - rows of a table; its gradient is cut by columns, so that no two tasks meet and
 * every row adds up in the order of the tokens. */
#include "backend/cpu/simd.h"

enum {
    EMBED_COLS = 64 // of a task of the gradient
};

struct embed {
    float *table, *y;
    const int32_t *ids;
    int64_t n_ids, n_table, cols, rows; // rows of a forward task
};

static struct embed embed_of(strait_tensor table, strait_tensor y, strait_tensor tokens) {
    assert(y.cols == table.cols && y.rows == tokens.rows);
    return (struct embed){.table = strait_cpu_f32(table),
                          .y = strait_cpu_f32(y),
                          .ids = strait_cpu_i32(tokens),
                          .n_ids = tokens.rows,
                          .n_table = table.rows,
                          .cols = table.cols,
                          .rows = task_rows(table.cols)};
}

static void embed_task(void *arg, int task) {
    const struct embed *e = arg;
    const int64_t end = smaller(e->n_ids, (task + 1) * e->rows);
    for (int64_t n = task * e->rows; n < end; n++) {
        assert(e->ids[n] >= 0 && e->ids[n] < e->n_table);
        memcpy(e->y + n * e->cols, e->table + e->ids[n] * e->cols, (size_t)e->cols * sizeof(float));
    }
}

static strait_err embed(struct strait_stream *s, strait_tensor y, strait_tensor table,
                        strait_tensor tokens) {
    struct embed e = embed_of(table, y, tokens);
    strait_pool_run(strait_cpu_pool(s), (int)pieces(e.n_ids, e.rows), embed_task, &e);
    return STRAIT_OK;
}

static void embed_back_task(void *arg, int task) {
    const struct embed *e = arg;
    const int64_t c0 = (int64_t)task * EMBED_COLS, n_cols = smaller(EMBED_COLS, e->cols - c0);
    for (int64_t n = 0; n < e->n_ids; n++) {
        assert(e->ids[n] >= 0 && e->ids[n] < e->n_table);
        float *to = e->table + e->ids[n] * e->cols + c0;
        const float *from = e->y + n * e->cols + c0;
        for (int64_t c = 0; c < n_cols; c++)
            to[c] += from[c];
    }
}

static strait_err embed_back(struct strait_stream *s, strait_tensor d_table, strait_tensor d_y,
                             strait_tensor tokens) {
    struct embed e = embed_of(d_table, d_y, tokens);
    strait_pool_run(strait_cpu_pool(s), (int)pieces(e.cols, EMBED_COLS), embed_back_task, &e);
    return STRAIT_OK;
}

void SIMD(embed)(struct strait_kernels *k) {
    k->embed = embed;
    k->embed_back = embed_back;
}
