/* optim.c - AdamW. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/elementwise.h"
#include "backend/cuda/k_optim.h"

#include <math.h>

enum {
    THREADS = 256,
    COLUMN_THREADS = 128,
    COLUMN_PIECES = 64, // of the rows, at most: their sums are added in order
    COLUMN_ROWS = 32    // of a piece, at least
};

static void take_numbers(strait_cuda_adamw *a, strait_adamw_how how) {
    const double whole1 = 1 - pow((double)how.beta1, (double)how.step);
    const double whole2 = 1 - pow((double)how.beta2, (double)how.step);
    a->beta1 = how.beta1;
    a->beta2 = how.beta2;
    a->keep = (float)(1 - (double)how.rate * (double)how.decay);
    a->rate = (float)((double)how.rate / whole1);
    a->root = (float)(1 / sqrt(whole2));
    a->epsilon = how.epsilon;
}

/* A block a row, as far as blocks go. */
static strait_err update_by_rows(struct strait_stream *s, const char *kernel,
                                 strait_cuda_adamw *a) {
    const int64_t most = (int64_t)strait_cuda_processors(s) * 64;
    const strait_cuda_grid grid = {.x = a->rows < most ? a->rows : most, .threads = THREADS};
    return strait_cuda_launch(s, kernel, grid, (void *[]){a});
}

static strait_err move_columns(struct strait_stream *s, strait_cuda_adamw *a) {
    int64_t rows_each = strait_cuda_pieces(a->rows, COLUMN_PIECES);
    if (rows_each < COLUMN_ROWS) rows_each = COLUMN_ROWS;
    int64_t n_pieces = strait_cuda_pieces(a->rows, rows_each);
    void *partials = NULL;
    STRAIT_TRY(strait_cuda_scratch(s, (size_t)(n_pieces * a->cols) * sizeof(double), &partials));
    strait_cuda_grid grid = {
        .x = strait_cuda_pieces(a->cols, COLUMN_THREADS), .y = n_pieces, .threads = COLUMN_THREADS};
    STRAIT_TRY(
        strait_cuda_launch(s, "adamw_column_squares", grid, (void *[]){&partials, a, &rows_each}));
    grid.y = 1;
    return strait_cuda_launch(s, "adamw_column_mean", grid, (void *[]){a, &partials, &n_pieces});
}

static strait_err adamw(struct strait_stream *s, strait_tensor weight, strait_tensor m,
                        strait_tensor v, strait_tensor grad, strait_tensor scale,
                        strait_adamw_how how) {
    assert(strait_cuda_same_shape(weight, m) && strait_cuda_same_shape(weight, grad));
    assert(weight.dtype == STRAIT_F32 && v.dtype == STRAIT_F32 && grad.dtype == STRAIT_F32);
    assert(how.copy.data == NULL || (how.copy.dtype == STRAIT_BF16 &&
                                     strait_cuda_count(how.copy) == strait_cuda_count(weight)));
    assert(how.step >= 1);
    strait_cuda_adamw a = {.weight = weight.data,
                           .m = m.data,
                           .v = v.data,
                           .grad = grad.data,
                           .scale = scale.data,
                           .copy = how.copy.data,
                           .rows = weight.rows,
                           .cols = weight.cols};
    take_numbers(&a, how);
    if (strait_cuda_same_shape(v, weight))
        return strait_cuda_launch(s, "adamw_own", strait_cuda_each(s, a.rows * a.cols),
                                  (void *[]){&a});
    if (v.cols == weight.cols) {
        assert(v.rows == 1);
        STRAIT_TRY(move_columns(s, &a));
        return update_by_rows(s, "adamw_column", &a);
    }
    assert(v.cols == 1 && v.rows == weight.rows);
    return update_by_rows(s, "adamw_row", &a);
}

void strait_cuda_optim(struct strait_kernels *k) {
    k->adamw = adamw;
}
