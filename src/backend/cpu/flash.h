/* flash.h - shared by the forward and backward of tiled (flash) attention.
 *
 * Scores are computed transposed, [keys][queries], in panels of TILE_COLS queries: a lane of a
 * vector is a query, so the softmax never crosses lanes, and a panel of scores is already packed
 * for the next product. */
#pragma once

#include "backend/cpu/matmul_tile.h"

#include <stdatomic.h>

#define QUERY_BLOCK (128 / TILE_COLS * TILE_COLS)
#define KEY_BLOCK   (64 / TILE_ROWS * TILE_ROWS)
#define HEAD_PAD    (STRAIT_CPU_HEAD_MAX + TILE_COLS + TILE_ROWS) // a head padded to whole panels

/* One call, split into items that threads take from a counter. Which thread takes an item does not
 * matter: an item writes only its own outputs and its thread's own scratch. */
struct flash_job {
    const act *qkv, *y, *d_y; // y, lse and d_y in the backward pass only
    const float *lse;
    act *out, *d_qkv;
    float *out_lse;
    int64_t cols, y_cols;
    strait_heads heads;
    int n_items;
    atomic_int next;
    float *scratch;
    int64_t thread_floats; // of scratch, per thread
    void (*work)(const struct flash_job *job, int item, float *scratch);
};

static inline int64_t key_column(const struct flash_job *job, int64_t kv) {
    return (job->heads.n_query + kv) * job->heads.head_dim;
}

static inline int64_t value_column(const struct flash_job *job, int64_t kv) {
    return (job->heads.n_query + job->heads.n_key + kv) * job->heads.head_dim;
}

/* n rounded up to whole panels of rows. */
static inline int64_t padded_rows(int64_t n) {
    return pieces(n, TILE_ROWS) * TILE_ROWS;
}

/* Packs n lines of `depth` values, value (line, k) at from[line * line_step + k * depth_step], into
 * consecutive panels. */
static inline void pack_lefts(float *to, const act *from, int64_t line_step, int64_t depth_step,
                              int64_t n, int64_t depth) {
    for (int64_t i = 0; i < n; i += TILE_ROWS)
        pack_left(to + i * depth, from + i * line_step, line_step, depth_step,
                  smaller(TILE_ROWS, n - i), depth);
}

static inline void pack_rights(float *to, const act *from, int64_t line_step, int64_t depth_step,
                               int64_t n, int64_t depth) {
    for (int64_t j = 0; j < n; j += TILE_COLS)
        pack_right(to + j * depth, from + j * line_step, line_step, depth_step,
                   smaller(TILE_COLS, n - j), depth);
}

/* A [rows x TILE_COLS] panel of alpha * left right + beta * panel; rows is a multiple of TILE_ROWS.
 */
static inline void multiply_panel(float *panel, int64_t rows, const float *lefts,
                                  const float *right, int64_t depth, float alpha, float beta) {
    for (int64_t i = 0; i < rows; i += TILE_ROWS)
        multiply_tile((tile_params){panel + i * TILE_COLS, TILE_COLS, alpha, beta},
                      lefts + i * depth, right, depth);
}

/* Causal mask: scores of keys later than their query become -infinity. `ahead` is the position of
 * the first query minus that of the first key. */
static inline void mask_panel(float *panel, int64_t n_keys, int64_t ahead) {
    for (int64_t k = ahead < 0 ? 0 : ahead + 1; k < n_keys; k++)
        for (int64_t q = 0; q < smaller(k - ahead, TILE_COLS); q++)
            panel[k * TILE_COLS + q] = -INFINITY;
}

static inline void flash_thread(void *arg, int thread) {
    struct flash_job *job = arg;
    int item;
    while ((item = atomic_fetch_add(&job->next, 1)) < job->n_items)
        job->work(job, item, job->scratch + (int64_t)thread * job->thread_floats);
}

static inline void run_flash(const struct strait_stream *s, struct flash_job *job) {
    const struct strait_cpu *cpu = s->backend->state;
    job->scratch = cpu->scratch;
    job->thread_floats = cpu->thread_floats;
    strait_pool_run(cpu->pool, strait_pool_threads(cpu->pool), flash_thread, job);
}
