/* embed.c - rows of the embedding table by token. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/rows.h"

enum {
    BACK_THREADS = 256 // k_embed.cu
};

static const char *embed_name(strait_dtype to, strait_dtype from) {
    if (to == from) return STRAIT_CUDA_OF(to, "embed");
    return to == STRAIT_BF16 ? "embed_f32_to_bf16" : "embed_bf16_to_f32";
}

static strait_err embed(struct strait_stream *s, strait_tensor y, strait_tensor table,
                        strait_tensor tokens) {
    assert(y.cols == table.cols && y.rows == tokens.rows && tokens.dtype == STRAIT_I32);
    void *args[] = {&y.data, &table.data, &tokens.data, &y.rows, &y.cols};
    return strait_cuda_launch(s, embed_name(y.dtype, table.dtype),
                              strait_cuda_over_rows(y.rows, y.cols, strait_cuda_wide(y.dtype)),
                              args);
}

static strait_err embed_minus(struct strait_stream *s, strait_tensor y, strait_tensor table,
                              strait_tensor tokens, strait_tensor x) {
    assert(y.cols == table.cols && y.rows == tokens.rows && strait_cuda_same_shape(x, y));
    assert(table.dtype == STRAIT_F32 && x.dtype == y.dtype && tokens.dtype == STRAIT_I32);
    void *args[] = {&y.data, &table.data, &tokens.data, &x.data, &y.rows, &y.cols};
    return strait_cuda_launch(s, STRAIT_CUDA_OF(y.dtype, "embed_minus"),
                              strait_cuda_by_rows(y.rows, y.cols, strait_cuda_wide(y.dtype)), args);
}

static strait_err embed_back(struct strait_stream *s, strait_tensor d_table, strait_tensor d_y,
                             strait_tensor tokens) {
    assert(d_y.cols == d_table.cols && d_y.rows == tokens.rows);
    assert(d_table.dtype == STRAIT_F32 && tokens.dtype == STRAIT_I32);
    const strait_cuda_grid by_place = {.x = strait_cuda_pieces(d_y.rows, BACK_THREADS),
                                       .threads = BACK_THREADS};
    void *scratch = NULL;
    STRAIT_TRY(strait_cuda_scratch(s, 2 * (size_t)d_table.rows * sizeof(int32_t), &scratch));
    int32_t *first = scratch, *last = first + d_table.rows;
    void *notes[] = {&first, &last, &tokens.data, &d_y.rows};
    STRAIT_TRY(strait_cuda_launch(s, "embed_forget", by_place, notes));
    STRAIT_TRY(strait_cuda_launch(s, "embed_note", by_place, notes));
    void *args[] = {&d_table.data, &d_y.data, &tokens.data, &first, &last, &d_y.cols};
    return strait_cuda_launch(s, STRAIT_CUDA_OF(d_y.dtype, "embed_back"),
                              (strait_cuda_grid){.x = d_y.rows, .threads = BACK_THREADS}, args);
}

static strait_err gain_rows(struct strait_stream *s, strait_tensor y, strait_tensor x,
                            strait_tensor table, strait_tensor tokens) {
    assert(y.rows == tokens.rows && x.rows == tokens.rows && y.dtype == x.dtype);
    assert(y.cols >= table.cols && x.cols >= table.cols && table.dtype == STRAIT_F32);
    void *args[] = {&y.data, &x.data, &table.data, &tokens.data,
                    &x.rows, &y.cols, &x.cols,     &table.cols};
    return strait_cuda_launch(s, STRAIT_CUDA_OF(y.dtype, "gain_rows"),
                              strait_cuda_by_rows(x.rows, table.cols, strait_cuda_wide(x.dtype)),
                              args);
}

static strait_err gain_rows_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_rows,
                                 strait_tensor d_y, strait_tensor x, strait_tensor table,
                                 strait_tensor tokens) {
    assert(strait_cuda_same_shape(d_x, d_y) && strait_cuda_same_shape(d_rows, x));
    assert(strait_cuda_same_shape(d_y, x) && x.cols == table.cols && x.rows == tokens.rows);
    assert(d_x.dtype == x.dtype && d_rows.dtype == x.dtype && d_y.dtype == x.dtype);
    void *args[] = {&d_x.data,   &d_rows.data, &d_y.data, &x.data,
                    &table.data, &tokens.data, &x.rows,   &x.cols};
    return strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "gain_rows_back"),
                              strait_cuda_by_rows(x.rows, x.cols, strait_cuda_wide(x.dtype)), args);
}

void strait_cuda_embed(struct strait_kernels *k) {
    k->embed = embed;
    k->embed_minus = embed_minus;
    k->embed_back = embed_back;
    k->gain_rows = gain_rows;
    k->gain_rows_back = gain_rows_back;
}
