/* simd_embed.c - rows of a table by token id, and token gates. The gradient of the table is split
 * by columns: tasks never write the same value, and every row is summed in the order of tokens, as
 * in the reference loop. */
#include "backend/cpu/simd.h"

enum {
    EMBED_COLS = 64 // columns per task of the gradient
};

struct embed {
    strait_tensor table; // of either type forward; f32 for the gradient
    act *y;
    const int32_t *ids;
    int64_t n_ids, n_table, cols, rows; // rows of a forward task
};

/* Both directions have the same shapes; the gradient swaps the roles of table and rows. */
static struct embed embed_of(strait_tensor table, strait_tensor y, strait_tensor tokens) {
    assert(y.cols == table.cols && y.rows == tokens.rows);
    return (struct embed){.table = table,
                          .y = act_of(y),
                          .ids = strait_cpu_i32(tokens),
                          .n_ids = tokens.rows,
                          .n_table = table.rows,
                          .cols = table.cols,
                          .rows = task_rows(table.cols)};
}

/* Converts one row of the table where its type is not that of y. */
static void convert_row(act *to, strait_tensor table, int64_t first) {
    if (table.dtype == STRAIT_F32)
        for (int64_t c = 0; c < table.cols; c++)
            put(&to[c], ((const float *)table.data)[first + c]);
    else
        for (int64_t c = 0; c < table.cols; c++)
            put(&to[c], strait_cpu_widen(((const uint16_t *)table.data)[first + c]));
}

/* Rows are copied whole, so the only cost is memory bandwidth. */
static void embed_task(void *arg, int task) {
    const struct embed *e = arg;
    const int64_t end = smaller(e->n_ids, (task + 1) * e->rows);
    for (int64_t n = task * e->rows; n < end; n++) {
        assert(e->ids[n] >= 0 && e->ids[n] < e->n_table);
        act *to = e->y + n * e->cols;
        if ((e->table.dtype == STRAIT_BF16) == ACT_IS_HALF)
            memcpy(to, (const act *)e->table.data + e->ids[n] * e->cols,
                   (size_t)e->cols * sizeof *to);
        else
            convert_row(to, e->table, e->ids[n] * e->cols);
    }
}

static strait_err embed(struct strait_stream *s, strait_tensor y, strait_tensor table,
                        strait_tensor tokens) {
    struct embed e = embed_of(table, y, tokens);
    strait_pool_run(strait_cpu_pool(s), (int)pieces(e.n_ids, e.rows), embed_task, &e);
    return STRAIT_OK;
}

/* Reads all ids for a few columns: rows of frequent tokens stay in the cache. */
static void embed_back_task(void *arg, int task) {
    const struct embed *e = arg;
    const int64_t c0 = (int64_t)task * EMBED_COLS, n_cols = smaller(EMBED_COLS, e->cols - c0);
    for (int64_t n = 0; n < e->n_ids; n++) {
        assert(e->ids[n] >= 0 && e->ids[n] < e->n_table);
        float *to = strait_cpu_f32(e->table) + e->ids[n] * e->cols + c0;
        const act *from = e->y + n * e->cols + c0;
        for (int64_t c = 0; c < n_cols; c++)
            to[c] += get(from[c]);
    }
}

static strait_err embed_back(struct strait_stream *s, strait_tensor d_table, strait_tensor d_y,
                             strait_tensor tokens) {
    struct embed e = embed_of(d_table, d_y, tokens);
    strait_pool_run(strait_cpu_pool(s), (int)pieces(e.cols, EMBED_COLS), embed_back_task, &e);
    return STRAIT_OK;
}

/* Token gates: y = x (1 + gate) and, where d_rows is present (backward), d_rows = x also. */
struct gates {
    const float *table;
    const act *x, *also;
    act *y, *d_rows;
    const int32_t *ids; // NULL: row n has gate n
    int64_t n_ids, cols, x_cols, y_cols, rows;
};

static void gate_row(const struct gates *g, int64_t n) {
    const float *gain = g->table + (g->ids == NULL ? n : g->ids[n]) * g->cols;
    const act *x = g->x + n * g->x_cols;
    act *y = g->y + n * g->y_cols;
    if (g->d_rows == NULL) {
        SIMD_EACH_ITS_OWN
        for (int64_t c = 0; c < g->cols; c++)
            put(&y[c], get(x[c]) * (1 + gain[c]));
        return;
    }
    const act *also = g->also + n * g->cols;
    act *d_rows = g->d_rows + n * g->cols;
    SIMD_EACH_ITS_OWN // outputs may replace inputs: read both first
    for (int64_t c = 0; c < g->cols; c++) {
        const float d = get(x[c]), value = get(also[c]);
        put(&y[c], d * (1 + gain[c]));
        put(&d_rows[c], d * value);
    }
}

static void gate_task(void *arg, int task) {
    const struct gates *g = arg;
    const int64_t end = smaller(g->n_ids, (task + 1) * g->rows);
    for (int64_t n = task * g->rows; n < end; n++)
        gate_row(g, n);
}

/* The forward and the backward pass share tasks and differ in the pointers that are set. */
static strait_err run_gates(const struct strait_stream *s, struct gates g, strait_tensor table,
                            strait_tensor tokens) {
    g.table = strait_cpu_f32(table);
    g.ids = tokens.data == NULL ? NULL : strait_cpu_i32(tokens);
    g.n_ids = tokens.data == NULL ? table.rows : tokens.rows;
    g.cols = table.cols;
    g.rows = task_rows(table.cols);
    strait_pool_run(strait_cpu_pool(s), (int)pieces(g.n_ids, g.rows), gate_task, &g);
    return STRAIT_OK;
}

static strait_err gate_rows(struct strait_stream *s, strait_tensor y, strait_tensor x,
                            strait_tensor table, strait_tensor tokens) {
    assert(y.rows == x.rows && (tokens.data == NULL ? table : tokens).rows == x.rows);
    assert(y.cols >= table.cols && x.cols >= table.cols);
    return run_gates(
        s, (struct gates){.y = act_of(y), .x = act_of(x), .y_cols = y.cols, .x_cols = x.cols},
        table, tokens);
}

static strait_err gate_rows_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_rows,
                                 strait_tensor d_y, strait_tensor x, strait_tensor table,
                                 strait_tensor tokens) {
    assert(strait_cpu_same_shape(d_x, d_y) && strait_cpu_same_shape(d_rows, x));
    assert(strait_cpu_same_shape(d_y, x) && x.cols == table.cols);
    assert((tokens.data == NULL ? table : tokens).rows == x.rows);
    return run_gates(s,
                     (struct gates){.y = act_of(d_x),
                                    .d_rows = act_of(d_rows),
                                    .x = act_of(d_y),
                                    .also = act_of(x),
                                    .y_cols = x.cols,
                                    .x_cols = x.cols},
                     table, tokens);
}

void SIMD(embed)(struct strait_kernel_set *set) {
    set->base.embed = embed;
    set->base.embed_back = embed_back;
    set->token_gates.apply = gate_rows;
    set->token_gates.apply_back = gate_rows_back;
}
