/* bf16_blocks.c - bf16 products from packed panels: all threads pack both sides, then all threads
 * take blocks of the result. Compiled with the flags of the units that multiply the blocks.
 *
 * The whole depth of a bf16 result is packed at once, so that it is rounded once; an f32 result may
 * be summed chunk by chunk. How a product is split follows from its shape alone. */
#include "backend/cpu/bf16_blocks.h"

#include "backend/cpu/simd.h"

#if defined(__AVX512BF16__)
    #include <immintrin.h>
#endif

enum {
    BLOCK_PANELS = 4,   // panels per side of a task
    WIDE_PANELS = 16,   // panels that are packed at once where lines are contiguous
    DEPTH_CHUNK = 4096, // depth of an f32 result that is packed at once
    LEFT_HALVES = 2 * STRAIT_CPU_LEFT,
    RIGHT_HALVES = 2 * STRAIT_CPU_RIGHT,
    DEPTH_MAX = RIGHT_HALVES / BF16_PANEL // of which one panel still fits
};

/* One chunk of a product. */
struct chunk {
    const strait_bf16_product *p;
    strait_bf16_side left, right;
    uint16_t *lefts, *rights; // packed panels
    int64_t i, j;             // where the chunk starts in y
    int64_t n_blocks;         // of depth
    float beta;
    int is_left_packed, is_right_packed; // by the previous chunk
    const strait_bf16_block_ops *ops;
};

int strait_bf16_takes(const strait_bf16_product *p) {
    return p->y_half == NULL || p->depth <= DEPTH_MAX;
}

static int64_t panels(int64_t lines) {
    return pieces(lines, BF16_PANEL);
}

static uint16_t *panel_at(uint16_t *all, const struct chunk *c, int64_t panel) {
    return all + panel * c->n_blocks * 2 * BF16_TILE;
}

/* Whether the tiles of a left panel are read where they are: its depths are contiguous, and it
 * needs no padding. Rows that are a multiple of a page apart would evict each other from the cache.
 */
static int is_in_place(const struct chunk *c, int64_t panel) {
    const strait_bf16_side *s = &c->left;
    return c->ops->reads_lines && s->depth_step == 1 && s->depth % BF16_DEPTH == 0 &&
           s->line_step % 2048 != 0 && (panel + 1) * BF16_PANEL <= s->lines;
}

static strait_bf16_lines left_panel(const struct chunk *c, int64_t panel) {
    const int64_t step = c->left.line_step;
    if (!is_in_place(c, panel))
        return (strait_bf16_lines){panel_at(c->lefts, c, panel), BF16_DEPTH, BF16_TILE,
                                   2 * BF16_TILE};
    return (strait_bf16_lines){c->left.from + panel * BF16_PANEL * step, step,
                               step * BF16_PANEL / 2, BF16_DEPTH};
}

/* A side whose lines are contiguous is packed row by row of its memory, a block of depth and
 * WIDE_PANELS panels per task; others panel by panel. */
static int64_t pack_tasks(const struct chunk *c, const strait_bf16_side *s) {
    if (s->depth_step == 1) return panels(s->lines);
    return c->n_blocks * pieces(panels(s->lines), WIDE_PANELS);
}

static void pack_side_task(const struct chunk *c, const strait_bf16_side *s, uint16_t *to,
                           int64_t task) {
    if (s->depth_step == 1) {
        strait_bf16_pack(panel_at(to, c, task), s, task * BF16_PANEL);
        return;
    }
    const int64_t block = task % c->n_blocks, first = task / c->n_blocks * WIDE_PANELS;
    strait_bf16_side part = *s;
    part.from += block * BF16_DEPTH * s->depth_step;
    part.depth = smaller(BF16_DEPTH, s->depth - block * BF16_DEPTH);
    for (int64_t i = first; i < smaller(panels(s->lines), first + WIDE_PANELS); i++)
        strait_bf16_pack(panel_at(to, c, i) + block * 2 * BF16_TILE, &part, i * BF16_PANEL);
}

/* Tasks of the left side come first. */
static void pack_task(void *arg, int task) {
    const struct chunk *c = arg;
    const int64_t n_left = c->is_left_packed ? 0 : pack_tasks(c, &c->left);
    if (task < n_left && is_in_place(c, task)) return;
    if (task < n_left)
        pack_side_task(c, &c->left, c->lefts, task);
    else
        pack_side_task(c, &c->right, c->rights, task - n_left);
}

/* A whole block of a bf16 result that is neither scaled nor added to: the usual case, rounded by
 * the processor where it can (subnormal numbers become 0). */
static void store_whole(const strait_bf16_product *p, const float *sums, int64_t i, int64_t j) {
    for (int64_t r = 0; r < BF16_PANEL; r++, sums += BF16_PANEL) {
        uint16_t *y = p->y_half + (i + r) * p->cols + j;
#if defined(__AVX512BF16__)
        const __m512 low = (__m512)load(sums), high = (__m512)load(sums + LANES);
        _mm512_storeu_si512(y, (__m512i)_mm512_cvtne2ps_pbh(high, low));
#else
        for (int64_t col = 0; col < BF16_PANEL; col += LANES)
            store(y + col, load(sums + col));
#endif
    }
}

/* Writes the sums of the panels that start at row i and column j of y: alpha sums + beta y. */
static void store_block(const struct chunk *c, const float *sums, int64_t i, int64_t j) {
    const strait_bf16_product *p = c->p;
    const int64_t n_rows = smaller(BF16_PANEL, c->i + c->left.lines - i);
    const int64_t n_cols = smaller(BF16_PANEL, c->j + c->right.lines - j);
    if (p->y_half != NULL && p->alpha == 1.0f && c->beta == 0.0f && n_rows == BF16_PANEL &&
        n_cols == BF16_PANEL) {
        store_whole(p, sums, i, j);
        return;
    }
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t col = 0; col < n_cols; col += LANES) {
            const int64_t at = (i + r) * p->cols + j + col, left = n_cols - col;
            const vec v = load(sums + r * BF16_PANEL + col) * p->alpha;
            if (p->y_half != NULL)
                store_some(p->y_half + at,
                           c->beta == 0.0f ? v : v + load_some(p->y_half + at, left) * c->beta,
                           left);
            else
                store_some(p->y + at,
                           c->beta == 0.0f ? v : v + load_some(p->y + at, left) * c->beta, left);
        }
}

/* One block of y. A right panel stays in the cache while the left panels pass by. */
static void block_task(void *arg, int task) {
    const struct chunk *c = arg;
    const int64_t n_across = pieces(panels(c->right.lines), BLOCK_PANELS);
    const int64_t i0 = task / n_across * BLOCK_PANELS, j0 = task % n_across * BLOCK_PANELS;
    const int64_t i1 = smaller(panels(c->left.lines), i0 + BLOCK_PANELS);
    const int64_t j1 = smaller(panels(c->right.lines), j0 + BLOCK_PANELS);
    float sums[BF16_PANEL * BF16_PANEL] __attribute__((aligned(64)));
    if (c->ops->begin != NULL) c->ops->begin();
    for (int64_t j = j0; j < j1; j++)
        for (int64_t i = i0; i < i1; i++) {
            c->ops->multiply(sums, left_panel(c, i), panel_at(c->rights, c, j), c->n_blocks, 0);
            store_block(c, sums, c->i + i * BF16_PANEL, c->j + j * BF16_PANEL);
        }
    if (c->ops->end != NULL) c->ops->end();
}

static void multiply_chunk(struct strait_pool *pool, struct chunk *c) {
    const int64_t n_left = panels(c->left.lines), n_right = panels(c->right.lines);
    strait_pool_run(pool,
                    (int)((c->is_left_packed ? 0 : pack_tasks(c, &c->left)) +
                          (c->is_right_packed ? 0 : pack_tasks(c, &c->right))),
                    pack_task, c);
    strait_pool_run(pool, (int)(pieces(n_left, BLOCK_PANELS) * pieces(n_right, BLOCK_PANELS)),
                    block_task, c);
}

/* The part of p that starts at (i, j, k). Chunks of later depth add to y. */
static struct chunk chunk_at(const strait_bf16_product *p, int64_t i, int64_t j, int64_t k,
                             int64_t depth) {
    return (struct chunk){.p = p,
                          .left = {.from = p->a + i * p->a_row + k * p->a_depth,
                                   .line_step = p->a_row,
                                   .depth_step = p->a_depth,
                                   .depth = depth},
                          .right = {.from = p->b + j * p->b_col + k * p->b_depth,
                                    .line_step = p->b_col,
                                    .depth_step = p->b_depth,
                                    .depth = depth,
                                    .is_right = 1},
                          .i = i,
                          .j = j,
                          .n_blocks = pieces(depth, BF16_DEPTH),
                          .beta = k == 0 ? p->beta : 1.0f};
}

void strait_bf16_multiply(const struct strait_cpu *cpu, const strait_bf16_product *p,
                          const strait_bf16_block_ops *ops) {
    const int64_t depth = p->y_half != NULL ? p->depth : smaller(p->depth, DEPTH_CHUNK);
    const int64_t padded = pieces(depth, BF16_DEPTH) * BF16_DEPTH;
    const int64_t rows = LEFT_HALVES / padded / BF16_PANEL * BF16_PANEL;
    const int64_t cols = RIGHT_HALVES / padded / BF16_PANEL * BF16_PANEL;
    for (int64_t j = 0; j < p->cols; j += cols)
        for (int64_t k = 0; k < p->depth; k += depth)
            for (int64_t i = 0; i < p->rows; i += rows) {
                struct chunk c = chunk_at(p, i, j, k, smaller(depth, p->depth - k));
                c.left.lines = smaller(rows, p->rows - i);
                c.right.lines = smaller(cols, p->cols - j);
                c.lefts = (uint16_t *)cpu->left;
                c.rights = (uint16_t *)cpu->right;
                c.is_right_packed = i > 0;
                c.is_left_packed = j > 0 && rows >= p->rows && depth >= p->depth;
                c.ops = ops;
                multiply_chunk(cpu->pool, &c);
            }
}
