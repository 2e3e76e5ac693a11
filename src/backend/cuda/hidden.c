/* hidden.c - the hidden layer over codes: in one kernel on tensor cores, or kernel by kernel. */
#include "backend/hidden.h"

#include "backend/cuda/cuda.h"
#include "backend/cuda/k_hidden.h"

static int lies_well(strait_tensor t) {
    return (uintptr_t)t.data % 16 == 0 && t.cols % 8 == 0 && t.cols <= INT32_MAX;
}

/* The kernels want the shared memory that data centers' devices have from sm_90 on. */
static int has_room(const struct strait_stream *s) {
    const int capability = strait_cuda_capability(s);
    return capability >= 90 && capability < 120;
}

/* The kernels' variant, by panels, or 0: kernel by kernel. */
static int panels_of(const struct strait_stream *s, strait_tensor normeds, strait_tensor a) {
    const int64_t n = normeds.cols / STRAIT_CUDA_HIDDEN_PANEL;
    const int is_whole = normeds.cols % STRAIT_CUDA_HIDDEN_PANEL == 0 &&
                         a.cols % STRAIT_CUDA_HIDDEN_CHUNK == 0;
    const int is_there = is_whole && has_room(s) && a.dtype == STRAIT_BF16 && a.rows > 0;
    return is_there && lies_well(normeds) && lies_well(a) && (n == 2 || n == 4) ? (int)n : 0;
}

/* Whether a warp takes whole codes, and a block's find room. */
static int holds_codes(int panels, int64_t cols, strait_recall_how how) {
    const int64_t n = STRAIT_CUDA_HIDDEN_ROWS + how.taps - 1;
    const int is_even = cols % 8 == 0 && cols <= 256 && (cols & (cols - 1)) == 0;
    return is_even && how.taps <= STRAIT_CUDA_HIDDEN_TAPS && how.seq_len <= INT32_MAX &&
           n * cols * (int64_t)sizeof(float) <= strait_cuda_hidden_tile(panels);
}

static strait_cuda_grid by_blocks(int64_t rows, unsigned shared) {
    return (strait_cuda_grid){.x = strait_cuda_pieces(rows, STRAIT_CUDA_HIDDEN_ROWS),
                              .threads = STRAIT_CUDA_HIDDEN_THREADS,
                              .shared = shared};
}

static strait_err hidden(struct strait_stream *s, const strait_hidden *at, strait_recall_how how) {
    const int64_t cols = at->z.cols;
    const int panels = panels_of(s, at->normeds, at->a);
    assert(at->both.cols == at->normeds.cols + at->a.cols && at->z.dtype == STRAIT_F32);
    if (panels == 0 || !holds_codes(panels, cols, how) || !lies_well(at->both) ||
        !lies_well(at->z) || !lies_well(at->v))
        return strait_hidden_by_parts(s, at, how);
    strait_cuda_hidden_args args = {.both = at->both.data,
                                    .normeds = at->normeds.data,
                                    .a = at->a.data,
                                    .rstd = at->rstd.data,
                                    .z = at->z.data,
                                    .stats = at->stats.data,
                                    .packed = at->packed.data,
                                    .v = at->v.data,
                                    .rows = at->z.rows,
                                    .cols = (int)cols,
                                    .keep = (int)how.keep,
                                    .taps = (int)how.taps,
                                    .both_cols = (int)at->both.cols,
                                    .hidden = (int)at->a.cols,
                                    .seq_len = (int)how.seq_len,
                                    .is_stochastic = at->is_stochastic,
                                    .epsilon = how.epsilon};
    return strait_cuda_launch(s, panels == 4 ? "hidden_4" : "hidden_2",
                              by_blocks(args.rows, strait_cuda_hidden_shared(panels)),
                              (void *[]){&args});
}

/* Whether a block's warps take whole codes, and it makes the rows behind that took them. */
static int gathers_codes(int64_t cols, strait_recall_how how) {
    const int is_even = cols % 8 == 0 && cols <= 64 && (cols & (cols - 1)) == 0;
    return is_even && how.taps <= STRAIT_CUDA_HIDDEN_AFTER + 1 &&
           (how.beside.data == NULL || lies_well(how.beside));
}

static strait_err hidden_back(struct strait_stream *s, const strait_hidden_back *at,
                              strait_recall_how how) {
    const int panels = panels_of(s, at->d_normeds, at->a);
    assert(at->d_both.cols == at->d_normeds.cols + at->a.cols);
    if (panels == 0 || !gathers_codes(at->z.cols, how) || !lies_well(at->d_both) ||
        !lies_well(at->d_a) || !lies_well(at->v) || !lies_well(at->z) || !lies_well(at->d_z))
        return strait_hidden_back_by_parts(s, at, how);
    strait_cuda_hidden_back_args args = {.d_a = at->d_a.data,
                                         .d_z = at->d_z.data,
                                         .d_both = at->d_both.data,
                                         .a = at->a.data,
                                         .v = at->v.data,
                                         .z = at->z.data,
                                         .rstd = at->rstd.data,
                                         .rows = at->a.rows,
                                         .cols = (int)at->z.cols,
                                         .both_cols = (int)at->d_both.cols,
                                         .hidden = (int)at->a.cols,
                                         .how = how};
    return strait_cuda_launch(s, panels == 4 ? "hidden_back_4" : "hidden_back_2",
                              by_blocks(args.rows, strait_cuda_hidden_back_shared(panels)),
                              (void *[]){&args});
}

static strait_err restore_product(struct strait_stream *s, strait_tensor y, strait_tensor x,
                                  strait_tensor stats, strait_tensor packed, strait_tensor m,
                                  strait_pack_how how) {
    const int64_t panels = y.cols / STRAIT_CUDA_HIDDEN_PANEL;
    const int is_whole = y.cols % STRAIT_CUDA_HIDDEN_PANEL == 0 &&
                         panels <= STRAIT_CUDA_PRODUCT_PANELS && x.rows > 0;
    assert(x.rows == y.rows && m.rows == x.cols && m.cols == y.cols);
    if (!has_room(s) || !is_whole || x.dtype != STRAIT_BF16 || y.dtype != STRAIT_BF16 ||
        x.cols > STRAIT_CUDA_HIDDEN_PANEL || !lies_well(y) || !lies_well(x) || !lies_well(m))
        return strait_restore_product_by_parts(s, y, x, stats, packed, m, how);
    strait_cuda_product_args args = {.y = y.data,
                                     .x = x.data,
                                     .stats = stats.data,
                                     .packed = packed.data,
                                     .m = m.data,
                                     .rows = x.rows,
                                     .cols = (int)x.cols,
                                     .keep = (int)strait_pack_cols(x, how),
                                     .y_cols = (int)y.cols,
                                     .is_stochastic = how.is_stochastic};
    return strait_cuda_launch(s, "restore_product",
                              by_blocks(x.rows, strait_cuda_product_shared((int)panels)),
                              (void *[]){&args});
}

static strait_err encode(struct strait_stream *s, strait_tensor u, strait_tensor seen,
                         strait_tensor b, strait_tensor z, strait_tensor m) {
    const int64_t panel = STRAIT_CUDA_HIDDEN_PANEL, first = seen.cols - b.cols - u.cols;
    assert(first >= 0 && m.rows == u.cols && m.cols == seen.cols && u.dtype == STRAIT_F32);
    if (!has_room(s) || seen.dtype != STRAIT_BF16 || u.cols != panel || b.cols % panel != 0 ||
        first % panel != 0 || u.rows == 0 || z.data == NULL || !lies_well(u) || !lies_well(seen) ||
        !lies_well(b) || !lies_well(z) || !lies_well(m))
        return strait_encode_by_parts(s, u, seen, b, z, m);
    strait_cuda_encode_args args = {.seen = seen.data,
                                    .u = u.data,
                                    .b = b.data,
                                    .m = m.data,
                                    .z = z.data,
                                    .rows = u.rows,
                                    .cols = (int)seen.cols,
                                    .first = (int)first,
                                    .hidden = (int)b.cols};
    return strait_cuda_launch(s, "encode", by_blocks(u.rows, strait_cuda_encode_shared()),
                              (void *[]){&args});
}

void strait_cuda_hidden(struct strait_kernels *k) {
    k->hidden = hidden;
    k->hidden_back = hidden_back;
    k->restore_product = restore_product;
    k->encode = encode;
}
