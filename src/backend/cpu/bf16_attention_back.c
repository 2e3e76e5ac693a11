/* bf16_attention_back.c - the gradient of causal attention with bf16 units (equations in
 * ref_attention.c).
 *
 * An item is one key head of one sequence, as in simd_attention_back.c. For each chunk of queries
 * and chunk of keys, blocks of keys come first: one block's shares and gradients of scores, of all
 * queries, are written as right panels, and d_k and d_v are summed transposed, [columns][keys]. The
 * same gradients, written as lines, give d_q at the end of the chunk. */
#include "backend/cpu/bf16_flash.h"

/* Where an item keeps its operands. "by_dim": the lines of a panel are columns of the head. */
struct backward {
    uint16_t *queries, *d_ys;               // left panels by query
    uint16_t *queries_by_dim, *d_ys_by_dim; // left panels
    uint16_t *keys, *values, *keys_by_dim;  // right panels
    uint16_t *shares, *d_scores;            // right panels of one block of keys, by key
    uint16_t *d_score_lines;                // by query: [blocks of queries][blocks of keys]
    float *block[2];                        // scores and gradients of shares
    float *d_queries;                       // blocks of 32 columns for each block of queries
    float *lse, *whole;                     // per query; whole = d_y . y
    float *d_keys, *d_values;               // [blocks of keys][blocks of columns], transposed
    int64_t dim_blocks;
    strait_bf16_tile multiply;
};

enum {
    HEAD_BLOCKS = STRAIT_CPU_HEAD_MAX / BF16_PANEL,
    BACKWARD_FLOATS = (7 * CHUNK_BLOCKS * HEAD_BLOCKS + 2 * CHUNK_BLOCKS +
                       CHUNK_BLOCKS * CHUNK_BLOCKS) *
                          FLASH_BLOCK / 2 +
                      (2 + CHUNK_BLOCKS * HEAD_BLOCKS) * FLASH_BLOCK + 2 * STRAIT_BF16_CHUNK
};
_Static_assert((int)BACKWARD_FLOATS <= (int)STRAIT_CPU_SCRATCH + (int)STRAIT_CPU_HALF_MORE,
               "an item fits its scratch");

static struct backward lay_out(float *scratch, int64_t dim, strait_bf16_tile multiply) {
    struct backward b = {.dim_blocks = blocks_of(dim), .multiply = multiply};
    const int64_t chunk = CHUNK_BLOCKS * b.dim_blocks * FLASH_BLOCK;
    uint16_t **const operands[] = {&b.queries, &b.d_ys,   &b.queries_by_dim, &b.d_ys_by_dim,
                                   &b.keys,    &b.values, &b.keys_by_dim};
    uint16_t *half = (uint16_t *)scratch;
    for (int i = 0; i < 7; i++, half += chunk)
        *operands[i] = half;
    b.shares = half;
    b.d_scores = b.shares + CHUNK_BLOCKS * FLASH_BLOCK;
    b.d_score_lines = b.d_scores + CHUNK_BLOCKS * FLASH_BLOCK;
    b.block[0] = (float *)(b.d_score_lines + CHUNK_BLOCKS * CHUNK_BLOCKS * FLASH_BLOCK);
    b.block[1] = b.block[0] + FLASH_BLOCK;
    b.d_queries = b.block[1] + FLASH_BLOCK;
    b.lse = b.d_queries + chunk;
    b.whole = b.lse + STRAIT_BF16_CHUNK;
    b.d_keys = scratch + STRAIT_CPU_SCRATCH + STRAIT_CPU_HALF_MORE;
    b.d_values = b.d_keys + STRAIT_CPU_HALF_RUN;
    return b;
}

/* A chunk of queries from position q0 and a chunk of keys from position k0, of head h of the
 * sequence whose first row is `first`. */
struct chunk {
    int64_t first, q0, n_queries, k0, n_keys;
    int64_t run; // first key of the run that is being summed
    int h;
};

static void pack_queries(const struct flash_job *job, const struct backward *b, struct chunk at) {
    const int64_t dim = job->heads.head_dim, row = at.first + at.q0, n = at.n_queries;
    const act *q = job->qkv + row * job->cols + at.h * dim;
    const act *y = job->y + row * job->y_cols + at.h * dim;
    const act *d_y = job->d_y + row * job->y_cols + at.h * dim;
    const strait_bf16_side sides[] = {
        rows_side(q, job->cols, n, dim, 0, 0), rows_side(d_y, job->y_cols, n, dim, 0, 0),
        rows_side(q, job->cols, n, dim, 1, 0), rows_side(d_y, job->y_cols, n, dim, 1, 0)};
    uint16_t *const to[] = {b->queries, b->d_ys, b->queries_by_dim, b->d_ys_by_dim};
    for (int i = 0; i < 4; i++)
        pack_side(to[i], &sides[i]);
    for (int64_t i = 0; i < STRAIT_BF16_CHUNK; i++) {
        const int is_inside = i < n;
        /* exp(score - inf) = 0: padding beyond the sequence adds nothing. */
        b->lse[i] = is_inside ? job->lse[(row + i) * job->heads.n_query + at.h] : INFINITY;
        b->whole[i] = is_inside ? dot(d_y + i * job->y_cols, y + i * job->y_cols, dim) : 0;
    }
}

static void pack_keys(const struct flash_job *job, const struct backward *b, struct chunk at,
                      int64_t kv) {
    const int64_t dim = job->heads.head_dim;
    const act *row = job->qkv + (at.first + at.k0) * job->cols;
    const strait_bf16_side sides[] = {
        rows_side(row + key_column(job, kv), job->cols, at.n_keys, dim, 0, 1),
        rows_side(row + value_column(job, kv), job->cols, at.n_keys, dim, 0, 1),
        rows_side(row + key_column(job, kv), job->cols, at.n_keys, dim, 1, 1)};
    pack_side(b->keys, &sides[0]);
    pack_side(b->values, &sides[1]);
    pack_side(b->keys_by_dim, &sides[2]);
}

/* LANES keys of one query: the share exp(score - lse) and the gradient of the score, share (d_share
 * - whole) scale. */
struct pair {
    vec share, d_score;
};

/* The first n_seen of the keys are seen. */
static inline struct pair softmax_back(const struct backward *b, int64_t query, int64_t at,
                                       int64_t n_seen, float scale) {
    const vec score = load(b->block[0] + at) * scale - b->lse[query];
    const vec share = seen_or(exp_down(score), n_seen, 0);
    const vec d_share = (load(b->block[1] + at) - b->whole[query]) * scale;
    return (struct pair){share, seen_or(share * d_share, n_seen, 0)};
}

/* Where block_back writes a block. */
struct back_blocks {
    uint16_t *shares, *d_scores, *lines;
};

/* FLASH_DEPTHS queries from row r of a block on, FLASH_SPAN keys from k on, of which the first
 * query sees n_seen. */
static inline void span_back(const struct backward *b, struct back_blocks to, int64_t query,
                             int64_t r, int64_t k, int64_t n_seen, float scale) {
    vec share[2][FLASH_DEPTHS], d_score[2][FLASH_DEPTHS]; // [half of the keys][query]
#pragma GCC unroll 4
    for (int64_t i = 0; i < FLASH_DEPTHS; i++) {
#pragma GCC unroll 2
        for (int64_t half = 0; half < 2; half++) {
            const struct pair p = softmax_back(b, query + r + i,
                                               (r + i) * BF16_PANEL + k + half * LANES,
                                               n_seen + i - half * LANES, scale);
            share[half][i] = p.share;
            d_score[half][i] = p.d_score;
        }
        store_line(to.lines, r + i, k, d_score[0][i], d_score[1][i]);
    }
#pragma GCC unroll 2
    for (int64_t half = 0; half < 2; half++) {
        store_across(to.shares, k + half * LANES, r, share[half]);
        store_across(to.d_scores, k + half * LANES, r, d_score[half]);
    }
}

/* Turns the scores and gradients of shares of a block into shares and gradients of scores.
 * `ahead`: position of the block's first query minus that of its first key. */
static void block_back(const struct backward *b, struct back_blocks to, int64_t query,
                       int64_t ahead, float scale) {
    for (int64_t r = 0; r < BF16_PANEL; r += FLASH_DEPTHS)
        for (int64_t k = 0; k < BF16_PANEL; k += FLASH_SPAN)
            span_back(b, to, query, r, k, ahead + r + 1 - k, scale);
}

/* The first block of queries of which one may see the key at k0 + k. */
static int64_t first_block(struct chunk at, int64_t k) {
    const int64_t q = at.k0 + k - at.q0;
    return q > 0 ? q / BF16_PANEL : 0;
}

/* One block of keys, from k on: all queries of the chunk that see it. */
static void keys_back(const struct flash_job *job, const struct backward *b, struct chunk at,
                      int64_t k) {
    const int64_t panel = b->dim_blocks * FLASH_BLOCK, n_queries = blocks_of(at.n_queries);
    const int64_t first = first_block(at, k), block = k / BF16_PANEL;
    const int64_t to = (at.k0 - at.run + k) / BF16_PANEL * panel;
    for (int64_t q = first; q < n_queries; q++) {
        const int64_t query = q * BF16_PANEL, ahead = at.q0 + query - at.k0 - k;
        b->multiply(b->block[0], packed_lines(b->queries + q * panel), b->keys + block * panel,
                    b->dim_blocks, 0);
        b->multiply(b->block[1], packed_lines(b->d_ys + q * panel), b->values + block * panel,
                    b->dim_blocks, 0);
        const struct back_blocks blocks = {
            b->shares + q * FLASH_BLOCK, b->d_scores + q * FLASH_BLOCK,
            b->d_score_lines + (q * CHUNK_BLOCKS + block) * FLASH_BLOCK};
        block_back(b, blocks, query, ahead, job->heads.scale);
    }
    for (int64_t d = 0; d < b->dim_blocks; d++) {
        const int64_t from = (d * n_queries + first) * FLASH_BLOCK;
        b->multiply(b->d_values + to + d * FLASH_BLOCK, packed_lines(b->d_ys_by_dim + from),
                    b->shares + first * FLASH_BLOCK, n_queries - first, 1);
        b->multiply(b->d_keys + to + d * FLASH_BLOCK, packed_lines(b->queries_by_dim + from),
                    b->d_scores + first * FLASH_BLOCK, n_queries - first, 1);
    }
}

/* Adds the gradients of scores of a chunk of keys to d_q. */
static void add_to_queries(const struct backward *b, struct chunk at) {
    const int64_t n_keys = blocks_of(at.n_keys);
    for (int64_t q = 0; q < blocks_of(at.n_queries); q++) {
        const int64_t n_seen = smaller(n_keys, (at.q0 - at.k0) / BF16_PANEL + q + 1);
        for (int64_t d = 0; d < b->dim_blocks; d++)
            b->multiply(b->d_queries + (q * b->dim_blocks + d) * FLASH_BLOCK,
                        packed_lines(b->d_score_lines + q * CHUNK_BLOCKS * FLASH_BLOCK),
                        b->keys_by_dim + d * n_keys * FLASH_BLOCK, n_seen, 1);
    }
}

/* Rounds d_q of a chunk to d_qkv. After the first run of keys it is added there. */
static void store_queries(const struct flash_job *job, const struct backward *b, struct chunk at) {
    const int64_t dim = job->heads.head_dim;
    for (int64_t q = 0; q < at.n_queries; q++) {
        act *to = job->d_qkv + (at.first + at.q0 + q) * job->cols + at.h * dim;
        const float *from = b->d_queries + q / BF16_PANEL * b->dim_blocks * FLASH_BLOCK +
                            q % BF16_PANEL * BF16_PANEL;
        for (int64_t d = 0; d < dim; d += FLASH_SPAN) {
            const float *sums = from + d / BF16_PANEL * FLASH_BLOCK + d % BF16_PANEL;
            vec low = load(sums), high = load(sums + LANES);
            if (at.run > 0) {
                low += load_some(to + d, smaller(LANES, dim - d));
                if (dim - d > LANES) high += load_some(to + d + LANES, dim - d - LANES);
            }
            store_rounded(to + d, low, high, dim - d);
        }
    }
}

/* One chunk of queries against the keys [at.run, end). */
static void query_chunk_back(const struct flash_job *job, const struct backward *b, struct chunk at,
                             int64_t end, int64_t kv) {
    const int64_t n_seen = smaller(end, at.q0 + at.n_queries);
    pack_queries(job, b, at);
    memset(b->d_queries, 0,
           (size_t)(CHUNK_BLOCKS * b->dim_blocks * FLASH_BLOCK) * sizeof *b->d_queries);
    for (at.k0 = at.run; at.k0 < n_seen; at.k0 += STRAIT_BF16_CHUNK) {
        at.n_keys = smaller(STRAIT_BF16_CHUNK, n_seen - at.k0);
        pack_keys(job, b, at, kv);
        for (int64_t k = 0; k < at.n_keys; k += BF16_PANEL)
            keys_back(job, b, at, k);
        add_to_queries(b, at);
    }
    store_queries(job, b, at);
}

/* Rounds the sums of n keys to columns of d_qkv that start at `to`. */
static void store_keys(const struct flash_job *job, const struct backward *b, act *to,
                       const float *sums, int64_t n) {
    const int64_t dim = job->heads.head_dim;
    for (int64_t k = 0; k < n; k += LANES)
        for (int64_t d = 0; d < dim; d += LANES) {
            const int64_t block = k / BF16_PANEL * b->dim_blocks + d / BF16_PANEL;
            store_transposed(to + k * job->cols + d, job->cols,
                             sums + block * FLASH_BLOCK + d % BF16_PANEL * BF16_PANEL +
                                 k % BF16_PANEL,
                             n - k, dim - d);
        }
}

/* The keys [at.run, end): their sums fit the scratch. */
static void run_back(const struct flash_job *job, const struct backward *b, struct chunk at,
                     int64_t end, int64_t kv) {
    const strait_heads heads = job->heads;
    const int n_group = heads.n_query / heads.n_key;
    const size_t bytes = (size_t)(blocks_of(end - at.run) * b->dim_blocks * FLASH_BLOCK) *
                         sizeof(float);
    memset(b->d_keys, 0, bytes);
    memset(b->d_values, 0, bytes);
    for (int g = 0; g < n_group; g++)
        for (at.q0 = at.run; at.q0 < heads.seq_len; at.q0 += STRAIT_BF16_CHUNK) {
            at.n_queries = smaller(STRAIT_BF16_CHUNK, heads.seq_len - at.q0);
            at.h = (int)kv * n_group + g;
            query_chunk_back(job, b, at, end, kv);
        }
    act *to = job->d_qkv + (at.first + at.run) * job->cols;
    store_keys(job, b, to + key_column(job, kv), b->d_keys, end - at.run);
    store_keys(job, b, to + value_column(job, kv), b->d_values, end - at.run);
}

void strait_bf16_attend_back_with(strait_bf16_tile multiply, const struct flash_job *job, int item,
                                  float *scratch) {
    const strait_heads heads = job->heads;
    const struct backward b = lay_out(scratch, heads.head_dim, multiply);
    const int64_t kv = item % heads.n_key, first = item / heads.n_key * heads.seq_len;
    const int64_t keys = STRAIT_CPU_HALF_RUN / (b.dim_blocks * BF16_PANEL);
    const int64_t n_run = keys / STRAIT_BF16_CHUNK * STRAIT_BF16_CHUNK;
    for (int64_t run = 0; run < heads.seq_len; run += n_run)
        run_back(job, &b, (struct chunk){.first = first, .run = run},
                 smaller(heads.seq_len, run + n_run), kv);
}
