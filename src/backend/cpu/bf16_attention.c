/* bf16_attention.c - causal attention with bf16 units: the online softmax of simd_attention.c
 * over chunks of keys.
 *
 * An item is one chunk of queries of one head of one sequence. It packs a chunk of keys and values
 * once for all its blocks of queries. */
#include "backend/cpu/bf16_flash.h"

/* Where an item keeps its operands and running softmax. */
struct forward {
    uint16_t *keys, *values;    // right panels by key, right panels by column of the head
    uint16_t *queries, *shares; // of one block of queries: lines of the head's columns, of keys
    float *scores;              // the same for all keys of the chunk, block by block
    float *sums;                // blocks of 32 columns for each block of queries
    float *max, *total;         // per query
    int64_t dim_blocks;
    strait_bf16_tile multiply;
};

enum {
    HEAD_BLOCKS = STRAIT_CPU_HEAD_MAX / BF16_PANEL,
    FORWARD_FLOATS = (2 * CHUNK_BLOCKS * HEAD_BLOCKS + HEAD_BLOCKS + CHUNK_BLOCKS) * FLASH_BLOCK /
                         2 +
                     (CHUNK_BLOCKS + CHUNK_BLOCKS * HEAD_BLOCKS) * FLASH_BLOCK +
                     2 * STRAIT_BF16_CHUNK
};
_Static_assert((int)FORWARD_FLOATS <= (int)STRAIT_CPU_SCRATCH, "an item fits its scratch");

static struct forward lay_out(float *scratch, int64_t dim, strait_bf16_tile multiply) {
    struct forward f = {.dim_blocks = blocks_of(dim), .multiply = multiply};
    const int64_t chunk = CHUNK_BLOCKS * f.dim_blocks * FLASH_BLOCK;
    f.keys = (uint16_t *)scratch;
    f.values = f.keys + chunk;
    f.queries = f.values + chunk;
    f.shares = f.queries + f.dim_blocks * FLASH_BLOCK;
    f.scores = (float *)(f.shares + CHUNK_BLOCKS * FLASH_BLOCK);
    f.sums = f.scores + CHUNK_BLOCKS * FLASH_BLOCK;
    f.max = f.sums + chunk;
    f.total = f.max + STRAIT_BF16_CHUNK;
    return f;
}

/* The scores of FLASH_SPAN keys of one query, from `key` of the chunk on, scaled; those of keys it
 * does not see are -infinity. */
static inline void load_scores(vec v[2], const float *scores, int64_t n_valid, int64_t key,
                               float scale) {
    for (int64_t i = 0; i < 2; i++)
        v[i] = seen_or(load(scores + i * LANES) * scale, n_valid - key - i * LANES, -INFINITY);
}

/* Where the scores of a query that start at a key of the chunk are. */
static inline const float *scores_at(const struct forward *f, int64_t query, int64_t key) {
    return f->scores + key / BF16_PANEL * FLASH_BLOCK + query % BF16_PANEL * BF16_PANEL +
           key % BF16_PANEL;
}

/* One step of the online softmax for row r of a block of queries, which sees n_valid keys of the
 * chunk. Returns the factor that earlier sums are multiplied by. */
static float softmax_row(const struct forward *f, int64_t query, int64_t n_blocks, int64_t n_valid,
                         float scale) {
    const int64_t n_keys = n_blocks * BF16_PANEL;
    const float old = f->max[query];
    vec v[2], max[2] = {splat(old), splat(old)}, total[2] = {0};
    for (int64_t k = 0; k < n_keys; k += FLASH_SPAN) {
        load_scores(v, scores_at(f, query, k), n_valid, k, scale);
        max[0] = larger(v[0], max[0]);
        max[1] = larger(v[1], max[1]);
    }
    const float limit = largest_lane(larger(max[1], max[0]));
    for (int64_t k = 0; k < n_keys; k += FLASH_SPAN) {
        load_scores(v, scores_at(f, query, k), n_valid, k, scale);
        const vec low = exp_down(v[0] - limit), high = exp_down(v[1] - limit);
        total[0] += low;
        total[1] += high;
        store_line(f->shares + k / BF16_PANEL * FLASH_BLOCK, query % BF16_PANEL, k % BF16_PANEL,
                   low, high);
    }
    const float shrink = exp_down(splat(old - limit))[0];
    f->max[query] = limit;
    f->total[query] = f->total[query] * shrink + sum_lanes(total[0] + total[1]);
    return shrink;
}

static void shrink_block(float *sums, const float *shrink) {
    for (int64_t r = 0; r < BF16_PANEL; r++)
        for (int64_t c = r * BF16_PANEL; c < (r + 1) * BF16_PANEL; c += LANES)
            store(sums + c, load(sums + c) * shrink[r]);
}

/* A chunk of keys, which starts at position k0, and one block of queries from position q0 on, the
 * first of which is number `query` of its chunk. */
static void attend(const struct flash_job *job, const struct forward *f, int64_t q0, int64_t query,
                   int64_t k0, int64_t n_keys) {
    const int64_t n_blocks = smaller(blocks_of(n_keys), (q0 - k0) / BF16_PANEL + 1);
    const int64_t panel = f->dim_blocks * FLASH_BLOCK;
    float shrink[BF16_PANEL];
    for (int64_t b = 0; b < n_blocks; b++)
        f->multiply(f->scores + b * FLASH_BLOCK, packed_lines(f->queries), f->keys + b * panel,
                    f->dim_blocks, 0);
    for (int64_t r = 0; r < BF16_PANEL; r++)
        shrink[r] = softmax_row(f, query + r, n_blocks, q0 + r - k0 + 1, job->heads.scale);
    for (int64_t d = 0; d < f->dim_blocks; d++) {
        float *sums = f->sums + query * f->dim_blocks * BF16_PANEL + d * FLASH_BLOCK;
        if (k0 > 0) shrink_block(sums, shrink);
        f->multiply(sums, packed_lines(f->shares), f->values + d * blocks_of(n_keys) * FLASH_BLOCK,
                    n_blocks, k0 > 0);
    }
}

/* y = sums / total, and lse = max + log(total). */
static void finish_query(const struct flash_job *job, const struct forward *f, int64_t row, int h,
                         int64_t q) {
    const int64_t dim = job->heads.head_dim, block = q / BF16_PANEL, r = q % BF16_PANEL;
    const float *sums = f->sums + block * f->dim_blocks * FLASH_BLOCK + r * BF16_PANEL;
    const float whole = 1.0f / f->total[q];
    act *out = job->out + row * job->y_cols + h * dim;
    for (int64_t d = 0; d < dim; d += FLASH_SPAN) {
        const float *from = sums + d / BF16_PANEL * FLASH_BLOCK + d % BF16_PANEL;
        store_rounded(out + d, load(from) * whole, load(from + LANES) * whole, dim - d);
    }
    if (job->out_lse != NULL)
        job->out_lse[row * job->heads.n_query + h] = f->max[q] + logf(f->total[q]);
}

/* All blocks of queries of a chunk against one chunk of keys. */
static void attend_chunk(const struct flash_job *job, const struct forward *f, const act *queries,
                         int64_t q0, int64_t n_queries, int64_t k0, int64_t n_keys) {
    const int64_t dim = job->heads.head_dim;
    for (int64_t q = 0; q < n_queries; q += BF16_PANEL) {
        const strait_bf16_side side = rows_side(queries + q * job->cols, job->cols, n_queries - q,
                                                dim, 0, 0);
        strait_bf16_pack(f->queries, &side, 0);
        attend(job, f, q0 + q, q, k0, n_keys);
    }
}

void strait_bf16_attend_with(strait_bf16_tile multiply, const struct flash_job *job, int item,
                             float *scratch) {
    const strait_heads heads = job->heads;
    const int64_t dim = heads.head_dim, n_chunks = pieces(heads.seq_len, STRAIT_BF16_CHUNK);
    const int h = (int)(item / n_chunks % heads.n_query);
    const int64_t first = item / n_chunks / heads.n_query * heads.seq_len;
    /* The last chunks, which see the most keys, come first. */
    const int64_t q0 = (n_chunks - 1 - item % n_chunks) * STRAIT_BF16_CHUNK;
    const int64_t n_queries = smaller(STRAIT_BF16_CHUNK, heads.seq_len - q0);
    const int64_t kv = h / (heads.n_query / heads.n_key);
    const struct forward f = lay_out(scratch, dim, multiply);
    for (int64_t q = 0; q < STRAIT_BF16_CHUNK; q++) {
        f.max[q] = -INFINITY;
        f.total[q] = 0;
    }
    for (int64_t k0 = 0; k0 < q0 + n_queries; k0 += STRAIT_BF16_CHUNK) {
        const act *row = job->qkv + (first + k0) * job->cols;
        const int64_t n = smaller(STRAIT_BF16_CHUNK, q0 + n_queries - k0);
        const strait_bf16_side keys = rows_side(row + key_column(job, kv), job->cols, n, dim, 0, 1);
        const strait_bf16_side values = rows_side(row + value_column(job, kv), job->cols, n, dim, 1,
                                                  1);
        pack_side(f.keys, &keys);
        pack_side(f.values, &values);
        attend_chunk(job, &f, job->qkv + (first + q0) * job->cols + h * dim, q0, n_queries, k0, n);
    }
    for (int64_t q = 0; q < n_queries; q++)
        finish_query(job, &f, first + q0 + q, h, q);
}
