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

/* The most pieces that `rows` positions can need: one per token that occurs, and one per whole
 * piece. */
static size_t most_pieces(size_t rows, size_t tokens) {
    return (rows < tokens ? rows : tokens) + rows / STRAIT_CUDA_PIECE;
}

/* Lays out scratch for the positions of `rows` tokens. There are fewer tokens with several pieces
 * than whole pieces, and each has at most one piece that is not whole. */
static strait_err lay_out_positions(struct strait_stream *s, strait_tensor d_table, size_t rows,
                                    strait_cuda_positions *out) {
    const size_t tokens = (size_t)d_table.rows, whole = rows / STRAIT_CUDA_PIECE;
    const size_t partials = 2 * whole * (size_t)d_table.cols * sizeof(float);
    const size_t pieces = most_pieces(rows, tokens) * sizeof(strait_cuda_piece);
    const size_t commons = whole * sizeof(strait_cuda_common);
    const size_t ints = (2 * tokens + 3 * rows) * sizeof(int32_t);
    void *scratch = NULL;
    STRAIT_TRY(strait_cuda_scratch(s, sizeof(strait_cuda_used) + pieces + partials + commons + ints,
                                   &scratch));
    char *at = scratch; // what is read 16 bytes at a time comes first, for its alignment
    out->used = (strait_cuda_used *)at;
    out->pieces = (strait_cuda_piece *)(at += sizeof *out->used);
    out->partials = (float *)(at += pieces);
    out->commons = (strait_cuda_common *)(at += partials);
    out->count = (int32_t *)(at + commons);
    out->first = out->count + tokens;
    out->rank = out->first + tokens;
    out->found = out->rank + rows;
    out->list = out->found + rows;
    return STRAIT_OK;
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
static strait_err embed_back(struct strait_stream *s, strait_tensor d_table, strait_tensor d_y,
                             strait_tensor tokens) {
    assert(d_y.cols == d_table.cols && d_y.rows == tokens.rows);
    assert(d_table.dtype == STRAIT_F32 && tokens.dtype == STRAIT_I32);
    const size_t rows = (size_t)d_y.rows;
    strait_cuda_positions positions = {0};
    STRAIT_TRY(lay_out_positions(s, d_table, rows, &positions));
    STRAIT_TRY(list_positions(s, positions, tokens));
    const strait_cuda_grid by_piece = {.x = (int64_t)most_pieces(rows, (size_t)d_table.rows),
                                       .threads = SUM_THREADS};
    const strait_cuda_args sums = STRAIT_CUDA_ARGS(d_table.data, d_y.data, positions, d_y.cols);
    STRAIT_TRY(strait_cuda_launch(s, STRAIT_CUDA_OF(d_y.dtype, "embed_back"), by_piece, sums));
    const strait_cuda_grid by_token = {
        .x = d_y.rows / STRAIT_CUDA_PIECE,
        .y = strait_cuda_pieces(d_y.cols, SUM_THREADS * strait_cuda_wide(STRAIT_F32)),
        .threads = SUM_THREADS};
    const strait_cuda_args joins = STRAIT_CUDA_ARGS(d_table.data, positions, d_y.cols);
    return strait_cuda_launch(s, "embed_join", by_token, joins);
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
    set->token_gates.apply = gate_rows;
    set->token_gates.apply_back = gate_rows_back;
}
