/* ref_token_table.c - tables of rows by token id that share ids: the definition. A cpu needs no
 * lists, because it adds rows in the order of tokens. */
#include "backend/cpu/cpu.h"

static strait_err add(struct strait_stream *s, strait_tensor y, strait_tensor x,
                      strait_tensor delta, strait_tensor table, strait_tensor ids, int64_t first) {
    (void)s;
    assert(strait_cpu_same_shape(y, x) && (delta.data == NULL || strait_cpu_same_shape(delta, x)));
    assert(first >= 0 && first + table.cols <= y.cols && ids.rows == y.rows);
    for (int64_t n = 0; n < y.rows; n++)
        for (int64_t c = 0; c < table.cols; c++) {
            const int64_t at = n * y.cols + first + c;
            const float sum = strait_cpu_get(x, at) +
                              (delta.data != NULL ? strait_cpu_get(delta, at) : 0.0f);
            strait_cpu_put(y, at, sum); // rounds
            strait_cpu_add(y, at, strait_cpu_get(table, strait_cpu_i32(ids)[n] * table.cols + c));
        }
    return STRAIT_OK;
}

static strait_err list(struct strait_stream *s, strait_tensor lists, strait_tensor ids,
                       int64_t n_rows) {
    (void)s, (void)lists, (void)ids, (void)n_rows;
    assert(lists.cols == strait_token_list_cols(ids.rows, n_rows));
    return STRAIT_OK;
}

static strait_err back(struct strait_stream *s, strait_tensor d_table, strait_tensor d_y,
                       int64_t first, strait_tensor ids, strait_tensor lists) {
    (void)s, (void)lists;
    assert(first >= 0 && first + d_table.cols <= d_y.cols && ids.rows == d_y.rows);
    for (int64_t n = 0; n < d_y.rows; n++)
        for (int64_t c = 0; c < d_table.cols; c++)
            strait_cpu_add(d_table, strait_cpu_i32(ids)[n] * d_table.cols + c,
                           strait_cpu_get(d_y, n * d_y.cols + first + c));
    return STRAIT_OK;
}

void strait_ref_token_table(struct strait_kernel_set *set) {
    set->token_tables.add = add;
    set->token_tables.list = list;
    set->token_tables.back = back;
}
