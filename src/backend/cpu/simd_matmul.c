/* simd_matmul.c - matrix products from packed panels (matmul_tile.h).
 *
 * All threads pack both sides, then all threads take blocks of the result. A chunk of each side
 * fits the memory allocated when the device was opened; larger products go chunk by chunk. How a
 * product is split follows from its shape, so bits do not depend on the number of threads.
 *
 * Factors are of type `act`; bf16 becomes f32 where panels are packed, unless the processor has
 * units for bf16 products (bf16_product.h). A bf16 result is summed in f32 and rounded once. */
#include "backend/cpu/bf16_product.h"
#include "backend/cpu/matmul_tile.h"

enum {
    BLOCK_PANELS = 8,   // panels per side of a task
    DEPTH_CHUNK = 2048, // most depth packed at once; a multiple of TILE_DEPTH
    ALONG_DEPTHS = 32,  // depths packed at a time where lines are contiguous
    THIN = 4            // with fewer rows of y packing costs more than it saves
};

/* A product, or one chunk of it. Strides replace transposes: value (i, k) of the left side is
 * a[i * a_row + k * a_depth], value (k, j) of the right side b[j * b_col + k * b_depth]. */
struct product {
    const act *a, *b;
    int64_t a_row, a_depth, b_col, b_depth;
    float *y;
    uint16_t *y_half;          // instead of y, where the result is bf16
    int64_t rows, cols, depth; // of the product, or of the chunk
    int64_t ld;                // from one row of y to the next
    float alpha, beta;
    float *left, *right;                 // packed panels
    int is_left_packed, is_right_packed; // by the previous chunk
};

/* The offset of a panel: packed sides are stored pass by pass, and within a pass panel by panel, so
 * that a task reads nearby memory. `at` is the first row or column of the panel, `n` all of them.
 */
static int64_t panel_at(const struct product *p, int64_t at, int64_t k0, int64_t n, int64_t width) {
    return k0 * pieces(n, width) * width + at * smaller(TILE_DEPTH, p->depth - k0);
}

static float *left_panel(const struct product *p, int64_t i, int64_t k0) {
    return p->left + panel_at(p, i, k0, p->rows, TILE_ROWS);
}

static float *right_panel(const struct product *p, int64_t j, int64_t k0) {
    return p->right + panel_at(p, j, k0, p->cols, TILE_COLS);
}

/* Whether a panel of the left side is read where it is: its depths are contiguous f32, and it needs
 * no padding. Rows that are a multiple of a page apart would evict each other from the cache. */
static int is_in_place(const struct product *p, int64_t i) {
#if defined(__aarch64__) || ACT_IS_HALF
    (void)p, (void)i;
    return 0;
#else
    return p->a_depth == 1 && p->a_row % 1024 != 0 && i + TILE_ROWS <= p->rows;
#endif
}

/* Packs n_panels whole panels of one pass, `width` contiguous lines each, a few depths at a time:
 * values of one depth lie side by side in memory, and panels a multiple of a page apart. */
static inline __attribute__((always_inline)) void pack_along(float *to, const act *from,
                                                             int64_t depth_step, int64_t n_panels,
                                                             int64_t depth, int64_t width) {
    for (int64_t k0 = 0; k0 < depth; k0 += ALONG_DEPTHS)
        for (int64_t i = 0; i < n_panels; i++)
            for (int64_t k = k0; k < smaller(depth, k0 + ALONG_DEPTHS); k++) {
                float *panel = to + (i * depth + k) * width;
                const act *lines = from + k * depth_step + i * width;
#if ACT_IS_HALF
                for (int64_t line = 0; line < width; line++)
                    panel[line] = get(lines[line]);
#else
                memcpy(panel, lines, (size_t)width * sizeof *panel);
#endif
            }
}

/* The whole panels of a task whose lines are contiguous; returns the first line that is left. */
static int64_t pack_left_along(const struct product *p, int64_t first, int64_t end) {
    const int64_t n = p->a_row == 1 ? (end - first) / TILE_ROWS : 0;
    for (int64_t k0 = 0; n > 0 && k0 < p->depth; k0 += TILE_DEPTH)
        pack_along(left_panel(p, first, k0), p->a + first + k0 * p->a_depth, p->a_depth, n,
                   smaller(TILE_DEPTH, p->depth - k0), TILE_ROWS);
    return first + n * TILE_ROWS;
}

static int64_t pack_right_along(const struct product *p, int64_t first, int64_t end) {
    const int64_t n = p->b_col == 1 ? (end - first) / TILE_COLS : 0;
    for (int64_t k0 = 0; n > 0 && k0 < p->depth; k0 += TILE_DEPTH)
        pack_along(right_panel(p, first, k0), p->b + first + k0 * p->b_depth, p->b_depth, n,
                   smaller(TILE_DEPTH, p->depth - k0), TILE_COLS);
    return first + n * TILE_COLS;
}

static void pack_left_task(const struct product *p, int64_t task) {
    const int64_t first = task * TILE_ROWS * BLOCK_PANELS;
    const int64_t end = smaller(p->rows, first + TILE_ROWS * BLOCK_PANELS);
    for (int64_t i = pack_left_along(p, first, end); i < end; i += TILE_ROWS) {
        if (is_in_place(p, i)) continue;
        for (int64_t k0 = 0; k0 < p->depth; k0 += TILE_DEPTH)
            pack_left(left_panel(p, i, k0), p->a + i * p->a_row + k0 * p->a_depth, p->a_row,
                      p->a_depth, smaller(TILE_ROWS, p->rows - i),
                      smaller(TILE_DEPTH, p->depth - k0));
    }
}

static void pack_right_task(const struct product *p, int64_t task) {
    const int64_t first = task * TILE_COLS * BLOCK_PANELS;
    const int64_t end = smaller(p->cols, first + TILE_COLS * BLOCK_PANELS);
    for (int64_t j = pack_right_along(p, first, end); j < end; j += TILE_COLS)
        for (int64_t k0 = 0; k0 < p->depth; k0 += TILE_DEPTH)
            pack_right(right_panel(p, j, k0), p->b + j * p->b_col + k0 * p->b_depth, p->b_col,
                       p->b_depth, smaller(TILE_COLS, p->cols - j),
                       smaller(TILE_DEPTH, p->depth - k0));
}

static void pack_task(void *arg, int task) {
    const struct product *p = arg;
    const int64_t n_left = p->is_left_packed ? 0 : pieces(p->rows, TILE_ROWS * BLOCK_PANELS);
    if (task < n_left)
        pack_left_task(p, task);
    else
        pack_right_task(p, task - n_left);
}

/* Pass k0 of the panels that start at row i and column j. Later passes add to y (beta 1). */
static void multiply_panels(const struct product *p, int64_t i, int64_t j, int64_t k0) {
    const float *left = left_panel(p, i, k0), *right = right_panel(p, j, k0);
    const int64_t depth = smaller(TILE_DEPTH, p->depth - k0);
    const tile_params params = {p->y + i * p->ld + j, p->ld, p->alpha, k0 == 0 ? p->beta : 1.0f};
    const int64_t n_rows = p->rows - i, n_cols = p->cols - j;
    const int is_whole = n_rows >= TILE_ROWS && n_cols >= TILE_COLS;
#if !ACT_IS_HALF
    if (is_in_place(p, i)) {
        const float *lines = p->a + i * p->a_row + k0;
        if (is_whole)
            multiply_in_place(params, lines, p->a_row, right, depth);
        else
            multiply_edge(params, lines, p->a_row, right, depth, TILE_ROWS, n_cols);
        return;
    }
#endif
    if (is_whole)
        multiply_tile(params, left, right, depth);
    else
        multiply_edge(params, left, 1, right, depth, smaller(n_rows, TILE_ROWS),
                      smaller(n_cols, TILE_COLS));
}

/* One block of y. Depth is the outer loop: a panel of the right side stays in L1 while the left
 * panels pass by. */
static void block_task(void *arg, int task) {
    const struct product *p = arg;
    const int64_t n_across = pieces(p->cols, TILE_COLS * BLOCK_PANELS);
    const int64_t i0 = task / n_across * TILE_ROWS * BLOCK_PANELS;
    const int64_t j0 = task % n_across * TILE_COLS * BLOCK_PANELS;
    const int64_t i1 = smaller(p->rows, i0 + TILE_ROWS * BLOCK_PANELS);
    const int64_t j1 = smaller(p->cols, j0 + TILE_COLS * BLOCK_PANELS);
    for (int64_t k0 = 0; k0 < p->depth; k0 += TILE_DEPTH)
        for (int64_t j = j0; j < j1; j += TILE_COLS)
            for (int64_t i = i0; i < i1; i += TILE_ROWS)
                multiply_panels(p, i, j, k0);
}

static void multiply_chunk(struct strait_pool *pool, struct product *p) {
    const int64_t n_down = pieces(p->rows, TILE_ROWS * BLOCK_PANELS);
    const int64_t n_across = pieces(p->cols, TILE_COLS * BLOCK_PANELS);
    strait_pool_run(pool,
                    (int)((p->is_left_packed ? 0 : n_down) + (p->is_right_packed ? 0 : n_across)),
                    pack_task, p);
    strait_pool_run(pool, (int)(n_down * n_across), block_task, p);
}

/* The part of p that starts at (i, j, k). Chunks of later depth add to y. */
static struct product chunk_at(const struct product *p, int64_t i, int64_t j, int64_t k) {
    struct product c = *p;
    c.a += i * p->a_row + k * p->a_depth;
    c.b += j * p->b_col + k * p->b_depth;
    c.y += i * p->ld + j;
    if (k > 0) c.beta = 1.0f;
    return c;
}

/* Chunk by chunk. The right chunk is packed once for all row chunks; the left one is kept where one
 * chunk holds all of it. */
static void multiply(const struct strait_cpu *cpu, const struct product *p) {
    const int64_t depth = smaller(p->depth, DEPTH_CHUNK);
    const int64_t rows = STRAIT_CPU_LEFT / depth / TILE_ROWS * TILE_ROWS;
    const int64_t cols = STRAIT_CPU_RIGHT / depth / TILE_COLS * TILE_COLS;
    for (int64_t j = 0; j < p->cols; j += cols) {
        for (int64_t k = 0; k < p->depth; k += depth) {
            for (int64_t i = 0; i < p->rows; i += rows) {
                struct product c = chunk_at(p, i, j, k);
                c.rows = smaller(rows, p->rows - i);
                c.cols = smaller(cols, p->cols - j);
                c.depth = smaller(depth, p->depth - k);
                c.left = cpu->left;
                c.right = cpu->right;
                c.is_right_packed = i > 0;
                c.is_left_packed = j > 0 && rows >= p->rows && depth >= p->depth;
                multiply_chunk(cpu->pool, &c);
            }
        }
    }
}

/* One block of a bf16 result, whose product is in cpu->sums. */
struct rounding {
    const struct product *p;
    const float *sums;
    int64_t i, j, rows, cols; // the block of y
};

static void round_task(void *arg, int task) {
    const struct rounding *r = arg;
    uint16_t *y = r->p->y_half + (r->i + task) * r->p->ld + r->j;
    const float *sums = r->sums + task * r->cols;
    const float alpha = r->p->alpha, beta = r->p->beta;
    for (int64_t c = 0; c < r->cols; c += LANES) {
        const int64_t left = r->cols - c;
        const vec product = load_some(sums + c, left) * alpha;
        store_some(y + c, beta == 0.0f ? product : product + load_some(y + c, left) * beta, left);
    }
}

/* A bf16 result, block by block: the sums of a block stay in f32 until they are complete. */
static void multiply_rounded(const struct strait_cpu *cpu, const struct product *p) {
    const int64_t cols = smaller(p->cols, 1024 / TILE_COLS * TILE_COLS);
    const int64_t rows = STRAIT_CPU_SUMS / cols / TILE_ROWS * TILE_ROWS;
    for (int64_t i = 0; i < p->rows; i += rows)
        for (int64_t j = 0; j < p->cols; j += cols) {
            struct product block = *p;
            block.a += i * p->a_row;
            block.b += j * p->b_col;
            block.y = cpu->sums;
            block.rows = smaller(rows, p->rows - i);
            block.ld = block.cols = smaller(cols, p->cols - j);
            block.alpha = 1;
            block.beta = 0;
            multiply(cpu, &block);
            struct rounding r = {
                .p = p, .sums = cpu->sums, .i = i, .j = j, .rows = block.rows, .cols = block.cols};
            strait_pool_run(cpu->pool, (int)block.rows, round_task, &r);
        }
}

#if ACT_IS_HALF
/* The same product for the units of the processor. */
static strait_bf16_product units_product(const struct product *p) {
    return (strait_bf16_product){.a = p->a,
                                 .b = p->b,
                                 .a_row = p->a_row,
                                 .a_depth = p->a_depth,
                                 .b_col = p->b_col,
                                 .b_depth = p->b_depth,
                                 .y = p->y,
                                 .y_half = p->y_half,
                                 .rows = p->rows,
                                 .cols = p->cols,
                                 .depth = p->depth,
                                 .alpha = p->alpha,
                                 .beta = p->beta};
}
#endif

/* Products with more than a few rows of y. */
static void multiply_thick(const struct strait_cpu *cpu, const struct product *p) {
#if ACT_IS_HALF
    const strait_bf16_product product = units_product(p);
    if (cpu->units != NULL && cpu->units->takes(&product)) {
        cpu->units->multiply(cpu, &product);
        return;
    }
#endif
    if (p->y_half != NULL)
        multiply_rounded(cpu, p);
    else
        multiply(cpu, p);
}

/* Thin products (few rows of y) read the right side once, without packing. */

static void mix(float *y, float product, const struct product *p) {
    *y = p->beta == 0.0f ? p->alpha * product : p->alpha * product + p->beta * *y;
}

/* Value `at` of y from its product. */
static void put_mixed(const struct product *p, int64_t at, float product) {
    if (p->y_half == NULL) {
        mix(p->y + at, product, p);
        return;
    }
    float value = p->beta == 0.0f ? 0.0f : get(p->y_half[at]);
    mix(&value, product, p);
    put(&p->y_half[at], value);
}

enum {
    DOT_COLS = 64,   // columns per task where the right side is contiguous along the depth
    SWEEP_COLS = 512 // and where it is contiguous along the columns
};

static void dot_task(void *arg, int task) {
    const struct product *p = arg;
    const int64_t end = smaller(p->cols, (int64_t)(task + 1) * DOT_COLS);
    for (int64_t j = (int64_t)task * DOT_COLS; j < end; j++)
        for (int64_t i = 0; i < p->rows; i++)
            put_mixed(p, i * p->ld + j, dot(p->a + i * p->a_row, p->b + j * p->b_col, p->depth));
}

static void sweep_task(void *arg, int task) {
    const struct product *p = arg;
    const int64_t j0 = (int64_t)task * SWEEP_COLS, n = smaller(SWEEP_COLS, p->cols - j0);
    for (int64_t i = 0; i < p->rows; i++) {
        float sum[SWEEP_COLS] = {0};
        for (int64_t k = 0; k < p->depth; k++) {
            const float a = get(p->a[i * p->a_row + k * p->a_depth]);
            const act *b = p->b + k * p->b_depth + j0;
            for (int64_t j = 0; j < n; j++)
                sum[j] += a * get(b[j]);
        }
        for (int64_t j = 0; j < n; j++)
            put_mixed(p, i * p->ld + j0 + j, sum[j]);
    }
}

static strait_err matmul(struct strait_stream *s, strait_tensor y, strait_tensor a, strait_tensor b,
                         strait_matmul_params params) {
    const struct strait_cpu *cpu = s->backend->state;
    const struct product p = {.a = act_of(a),
                              .b = act_of(b),
                              .a_row = params.transpose_a ? 1 : a.cols,
                              .a_depth = params.transpose_a ? a.cols : 1,
                              .b_col = params.transpose_b ? b.cols : 1,
                              .b_depth = params.transpose_b ? 1 : b.cols,
                              .y = y.dtype == STRAIT_F32 ? y.data : NULL,
                              .y_half = y.dtype == STRAIT_BF16 ? y.data : NULL,
                              .rows = y.rows,
                              .cols = y.cols,
                              .depth = params.transpose_a ? a.rows : a.cols,
                              .ld = y.cols,
                              .alpha = params.alpha,
                              .beta = params.beta};
    assert(p.depth > 0 && p.depth == (params.transpose_b ? b.cols : b.rows));
    assert(y.rows == (params.transpose_a ? a.cols : a.rows));
    assert(y.cols == (params.transpose_b ? b.rows : b.cols));
    /* Thin products compute each row by itself. */
    const int is_thin = y.rows < THIN || params.is_rowwise;
    if (is_thin && !params.transpose_b)
        strait_pool_run(cpu->pool, (int)pieces(y.cols, SWEEP_COLS), sweep_task, (void *)&p);
    else if (is_thin && (!params.transpose_a || y.rows == 1))
        strait_pool_run(cpu->pool, (int)pieces(y.cols, DOT_COLS), dot_task, (void *)&p);
    else
        multiply_thick(cpu, &p);
    return STRAIT_OK;
}

void SIMD(matmul)(struct strait_kernel_set *set) {
    set->base.matmul = matmul;
}
