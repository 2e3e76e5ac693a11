/* optim.c - AdamW: many weights per launch where each value has its own second moment. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/k_optim.h"

#include <math.h>

enum {
    THREADS = 256,
    COLUMN_THREADS = 128,
    COLUMN_PIECES = 64, // most pieces of rows; their sums are added in order
    COLUMN_ROWS = 32    // least rows per piece
};

/* The constants of an update, with bias corrections folded in (k_optim.h). */
static void set_constants(strait_cuda_adamw *a, strait_adamw_params params) {
    const double whole1 = 1 - pow((double)params.beta1, (double)params.step);
    const double whole2 = 1 - pow((double)params.beta2, (double)params.step);
    a->beta1 = params.beta1;
    a->beta2 = params.beta2;
    a->keep = (float)(1 - (double)params.learning_rate * (double)params.weight_decay);
    a->rate = (float)((double)params.learning_rate / whole1);
    a->root = (float)(1 / sqrt(whole2));
    a->epsilon = params.epsilon;
}

/* One block per row, up to a limit; blocks loop over further rows. */
static strait_err update_by_rows(struct strait_stream *s, const char *kernel,
                                 strait_cuda_adamw *a) {
    const int64_t most = (int64_t)strait_cuda_processors(s) * 64;
    const strait_cuda_grid grid = {.x = a->rows < most ? a->rows : most, .threads = THREADS};
    return strait_cuda_launch(s, kernel, grid, STRAIT_CUDA_ARGS(*a));
}

/* v = beta2 v + (1 - beta2) mean of squares, per column: partial sums over pieces of rows, then
 * their sum in order. The pieces follow from the shape alone. */
static strait_err update_column_moments(struct strait_stream *s, strait_cuda_adamw *a) {
    int64_t rows_each = strait_cuda_pieces(a->rows, COLUMN_PIECES);
    if (rows_each < COLUMN_ROWS) rows_each = COLUMN_ROWS;
    int64_t n_pieces = strait_cuda_pieces(a->rows, rows_each);
    void *partials = NULL;
    STRAIT_TRY(strait_cuda_scratch(s, (size_t)(n_pieces * a->cols) * sizeof(double), &partials));
    strait_cuda_grid grid = {
        .x = strait_cuda_pieces(a->cols, COLUMN_THREADS), .y = n_pieces, .threads = COLUMN_THREADS};
    STRAIT_TRY(strait_cuda_launch(s, "adamw_column_squares", grid,
                                  STRAIT_CUDA_ARGS(partials, *a, rows_each)));
    grid.y = 1;
    return strait_cuda_launch(s, "adamw_column_mean", grid,
                              STRAIT_CUDA_ARGS(*a, partials, n_pieces));
}

static strait_cuda_adamw args_of(const strait_adamw_item *item, strait_tensor scale) {
    const strait_tensor weight = item->weight, copy = item->params.copy;
    assert(strait_cuda_same_shape(weight, item->m) && strait_cuda_same_shape(weight, item->grad));
    assert(weight.dtype == STRAIT_F32 && item->v.dtype == STRAIT_F32);
    assert(item->grad.dtype == STRAIT_F32 && item->params.step >= 1);
    assert(copy.data == NULL ||
           (copy.dtype == STRAIT_BF16 && strait_cuda_count(copy) == strait_cuda_count(weight)));
    strait_cuda_adamw a = {.weight = weight.data,
                           .m = item->m.data,
                           .v = item->v.data,
                           .grad = item->grad.data,
                           .scale = scale.data,
                           .norm = strait_cuda_count(scale) > 1 ? (float *)scale.data + 1 : NULL,
                           .copy = copy.data,
                           .rows = weight.rows,
                           .cols = weight.cols};
    set_constants(&a, item->params);
    return a;
}

/* A weight whose second moments are shared by its rows or columns. */
static strait_err update_shared(struct strait_stream *s, const strait_adamw_item *item,
                                strait_tensor scale) {
    strait_cuda_adamw a = args_of(item, scale);
    if (item->v.cols == item->weight.cols) {
        assert(item->v.rows == 1);
        STRAIT_TRY(update_column_moments(s, &a));
        return update_by_rows(s, "adamw_column", &a);
    }
    assert(item->v.cols == 1 && item->v.rows == item->weight.rows);
    return update_by_rows(s, "adamw_row", &a);
}

/* Launches the collected updates; block first[i] is the first block of weight i. */
static strait_err update_own(struct strait_stream *s, strait_cuda_updates *all) {
    int64_t blocks = 0;
    for (int i = 0; i < all->count; i++) {
        all->first[i] = blocks;
        blocks += strait_cuda_pieces(all->of[i].rows * all->of[i].cols, STRAIT_CUDA_UPDATES_SHARE);
    }
    const strait_cuda_grid grid = {.x = blocks, .threads = THREADS};
    STRAIT_TRY(strait_cuda_launch(s, "adamw_own", grid, STRAIT_CUDA_ARGS(*all)));
    all->count = 0;
    return STRAIT_OK;
}

static strait_err adamw_each(struct strait_stream *s, const strait_adamw_item *items, int n,
                             strait_tensor scale) {
    strait_cuda_updates all;
    all.count = 0;
    for (int i = 0; i < n; i++) {
        if (!strait_cuda_same_shape(items[i].v, items[i].weight)) {
            STRAIT_TRY(update_shared(s, &items[i], scale));
            continue;
        }
        all.of[all.count++] = args_of(&items[i], scale);
        if (all.count == STRAIT_CUDA_UPDATES) STRAIT_TRY(update_own(s, &all));
    }
    return update_own(s, &all);
}

static strait_err adamw(struct strait_stream *s, strait_tensor weight, strait_tensor m,
                        strait_tensor v, strait_tensor grad, strait_tensor scale,
                        strait_adamw_params params) {
    const strait_adamw_item item = {weight, m, v, grad, params};
    return adamw_each(s, &item, 1, scale);
}

void strait_cuda_optim(struct strait_kernel_set *set) {
    set->base.adamw = adamw;
    set->base.adamw_each = adamw_each;
}
