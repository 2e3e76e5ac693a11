/* embed.c - rows of a table by token id, the gradient of the table, and token gates. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/grid.h"
#include "backend/cuda/k_embed.h"

enum {
    POSITION_THREADS = 256, // THREADS of k_embed_back.cu
    SUM_THREADS = 128       // as there
};

/* Tables are f32 and activations may be bf16, so the kernel converts on the way. */
static const char *embed_name(strait_dtype to, strait_dtype from) {
    if (to == from) return STRAIT_CUDA_OF(to, "embed");
    return to == STRAIT_BF16 ? "embed_f32_to_bf16" : "embed_bf16_to_f32";
}

static strait_err table_ids(struct strait_stream *s, strait_tensor ids, strait_tensor tokens,
                            int64_t n_rows) {
    assert(ids.rows == tokens.rows && n_rows > 0);
    assert(ids.dtype == STRAIT_I32 && tokens.dtype == STRAIT_I32);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(ids.data, tokens.data, tokens.rows, n_rows);
    return strait_cuda_launch(s, "table_ids", strait_cuda_each(s, tokens.rows), args);
}

static strait_err embed(struct strait_stream *s, strait_tensor y, strait_tensor table,
                        strait_tensor tokens) {
    assert(y.cols == table.cols && y.rows == tokens.rows && tokens.dtype == STRAIT_I32);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(y.data, table.data, tokens.data, y.rows, y.cols);
    return strait_cuda_launch(s, embed_name(y.dtype, table.dtype),
                              strait_cuda_over_rows(y.rows, y.cols, strait_cuda_wide(y.dtype)),
                              args);
}

static strait_err embed_minus(struct strait_stream *s, strait_tensor y, strait_tensor table,
                              strait_tensor tokens, strait_tensor x) {
    assert(y.cols == table.cols && y.rows == tokens.rows && strait_cuda_same_shape(x, y));
    assert(table.dtype == STRAIT_F32 && x.dtype == y.dtype && tokens.dtype == STRAIT_I32);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(y.data, table.data, tokens.data, x.data, y.rows,
                                                   y.cols);
    return strait_cuda_launch(s, STRAIT_CUDA_OF(y.dtype, "embed_minus"),
                              strait_cuda_by_rows(y.rows, y.cols, strait_cuda_wide(y.dtype)), args);
}

/* Lays out `memory` of strait_token_list_cols values for the positions of `rows` ids. What is read
 * 16 bytes at a time comes first, for its alignment. */
static strait_cuda_positions lay_out_positions(void *memory, int64_t rows, int64_t n_rows) {
    strait_cuda_positions at = {.used = memory};
    at.pieces = (strait_cuda_piece *)(at.used + 1);
    at.commons = (strait_cuda_common *)(at.pieces + strait_token_pieces(rows, n_rows));
    at.count = (int32_t *)(at.commons + rows / STRAIT_TOKEN_PIECE);
    at.first = at.count + n_rows;
    at.rank = at.first + n_rows;
    at.found = at.rank + rows;
    at.list = at.found + rows;
    return at;
}

/* Bytes of the partial sums of tokens with several pieces. There are fewer such tokens than whole
 * pieces, and each has at most one piece that is not whole. */
static size_t partial_bytes(int64_t rows, int64_t cols) {
    return 2 * (size_t)(rows / STRAIT_TOKEN_PIECE) * (size_t)cols * sizeof(float);
}

/* Lists the positions of every token: five kernels, each with one or more threads per position. */
static strait_err list_positions(struct strait_stream *s, strait_cuda_positions positions,
                                 strait_tensor tokens) {
    static const struct {
        const char *kernel;
        int lanes;
    } passes[] = {{"embed_clear", 1},
                  {"embed_count", 1},
                  {"embed_allocate", 1},
                  {"embed_list", 1},
                  {"embed_sort", STRAIT_CUDA_ORDER_LANES}};
    const strait_cuda_args args = STRAIT_CUDA_ARGS(positions, tokens.data, tokens.rows);
    for (size_t i = 0; i < sizeof passes / sizeof passes[0]; i++) {
        const int64_t blocks = strait_cuda_pieces(tokens.rows * passes[i].lanes, POSITION_THREADS);
        STRAIT_TRY(strait_cuda_launch(s, passes[i].kernel,
                                      (strait_cuda_grid){.x = blocks, .threads = POSITION_THREADS},
                                      args));
    }
    return STRAIT_OK;
}

/* Sums are in the order of tokens, without atomics, so that the bits do not vary between runs. */
static strait_err add_listed(struct strait_stream *s, strait_tensor d_table, strait_tensor d_y,
                             int64_t first, strait_cuda_positions at) {
    assert(first >= 0 && first + d_table.cols <= d_y.cols && d_table.dtype == STRAIT_F32);
    const void *from = (const char *)d_y.data + (size_t)first * strait_dtype_bytes(d_y.dtype);
    const strait_cuda_grid by_piece = {.x = strait_token_pieces(d_y.rows, d_table.rows),
                                       .threads = SUM_THREADS};
    const strait_cuda_args sums = STRAIT_CUDA_ARGS(d_table.data, from, at, d_table.cols, d_y.cols);
    STRAIT_TRY(strait_cuda_launch(s, STRAIT_CUDA_OF(d_y.dtype, "embed_back"), by_piece, sums));
    const strait_cuda_grid by_token = {
        .x = d_y.rows / STRAIT_TOKEN_PIECE,
        .y = strait_cuda_pieces(d_table.cols, SUM_THREADS * strait_cuda_wide(STRAIT_F32)),
        .threads = SUM_THREADS};
    const strait_cuda_args joins = STRAIT_CUDA_ARGS(d_table.data, at, d_table.cols);
    return strait_cuda_launch(s, "embed_join", by_token, joins);
}

static strait_err embed_back(struct strait_stream *s, strait_tensor d_table, strait_tensor d_y,
                             strait_tensor tokens) {
    assert(d_y.cols == d_table.cols && d_y.rows == tokens.rows && tokens.dtype == STRAIT_I32);
    const size_t lists = (size_t)strait_token_list_cols(d_y.rows, d_table.rows) * sizeof(int32_t);
    const size_t partials = partial_bytes(d_y.rows, d_y.cols);
    void *scratch = NULL;
    STRAIT_TRY(strait_cuda_scratch(s, partials + lists, &scratch));
    strait_cuda_positions at = lay_out_positions((char *)scratch + partials, d_y.rows,
                                                 d_table.rows);
    at.partials = scratch;
    STRAIT_TRY(list_positions(s, at, tokens));
    return add_listed(s, d_table, d_y, 0, at);
}

static strait_err table_add(struct strait_stream *s, strait_tensor y, strait_tensor x,
                            strait_tensor delta, strait_tensor table, strait_tensor ids,
                            int64_t first) {
    assert(strait_cuda_same_shape(y, x) &&
           (delta.data == NULL || strait_cuda_same_shape(delta, x)));
    assert(first >= 0 && first + table.cols <= y.cols && ids.rows == y.rows);
    assert(x.dtype == y.dtype && table.dtype == y.dtype && ids.dtype == STRAIT_I32);
    const size_t offset = (size_t)first * strait_dtype_bytes(y.dtype);
    void *to = (char *)y.data + offset;
    const void *from = (const char *)x.data + offset;
    const void *also = delta.data != NULL ? (const char *)delta.data + offset : NULL;
    const strait_cuda_args args = STRAIT_CUDA_ARGS(to, from, also, table.data, ids.data, y.rows,
                                                   table.cols, y.cols);
    return strait_cuda_launch(s, STRAIT_CUDA_OF(y.dtype, "table_add"),
                              strait_cuda_by_rows(y.rows, table.cols, strait_cuda_wide(y.dtype)),
                              args);
}

static strait_err table_list(struct strait_stream *s, strait_tensor lists, strait_tensor ids,
                             int64_t n_rows) {
    assert(lists.cols == strait_token_list_cols(ids.rows, n_rows) && ids.dtype == STRAIT_I32);
    return list_positions(s, lay_out_positions(lists.data, ids.rows, n_rows), ids);
}

static strait_err table_back(struct strait_stream *s, strait_tensor d_table, strait_tensor d_y,
                             int64_t first, strait_tensor ids, strait_tensor lists) {
    assert(lists.cols == strait_token_list_cols(ids.rows, d_table.rows) && ids.rows == d_y.rows);
    strait_cuda_positions at = lay_out_positions(lists.data, ids.rows, d_table.rows);
    void *scratch = NULL;
    STRAIT_TRY(strait_cuda_scratch(s, partial_bytes(d_y.rows, d_table.cols), &scratch));
    at.partials = scratch;
    return add_listed(s, d_table, d_y, first, at);
}

static strait_err gate_rows(struct strait_stream *s, strait_tensor y, strait_tensor x,
                            strait_tensor table, strait_tensor tokens) {
    assert(y.rows == x.rows && (tokens.data == NULL ? table : tokens).rows == x.rows);
    assert(y.dtype == x.dtype);
    assert(y.cols >= table.cols && x.cols >= table.cols && table.dtype == STRAIT_F32);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(y.data, x.data, table.data, tokens.data, x.rows,
                                                   y.cols, x.cols, table.cols);
    return strait_cuda_launch(s, STRAIT_CUDA_OF(y.dtype, "gate_rows"),
                              strait_cuda_by_rows(x.rows, table.cols, strait_cuda_wide(x.dtype)),
                              args);
}

static strait_err gate_rows_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_rows,
                                 strait_tensor d_y, strait_tensor x, strait_tensor table,
                                 strait_tensor tokens) {
    assert(strait_cuda_same_shape(d_x, d_y) && strait_cuda_same_shape(d_rows, x));
    assert(strait_cuda_same_shape(d_y, x) && x.cols == table.cols);
    assert((tokens.data == NULL ? table : tokens).rows == x.rows);
    assert(d_x.dtype == x.dtype && d_rows.dtype == x.dtype && d_y.dtype == x.dtype);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(d_x.data, d_rows.data, d_y.data, x.data,
                                                   table.data, tokens.data, x.rows, x.cols);
    return strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "gate_rows_back"),
                              strait_cuda_by_rows(x.rows, x.cols, strait_cuda_wide(x.dtype)), args);
}

void strait_cuda_embed(struct strait_kernel_set *set) {
    set->base.table_ids = table_ids;
    set->base.embed = embed;
    set->subspace.embed_minus = embed_minus;
    set->base.embed_back = embed_back;
    set->token_tables.add = table_add;
    set->token_tables.list = table_list;
    set->token_tables.back = table_back;
    set->token_gates.apply = gate_rows;
    set->token_gates.apply_back = gate_rows_back;
}
