/* simd_attention_back.c - the gradient of tiled causal attention (equations in ref_attention.c).
 *
 * An item is one key head of one sequence. Its query heads, and in each the blocks of queries, come
 * in a fixed order, and so do the sums of d_k and d_v. Probabilities ("shares") are recomputed from
 * scores and lse rather than stored.
 *
 * d_k and d_v are summed in f32: in d_qkv itself, or for bf16 beside it, for as many keys at once
 * as fit the scratch. Where a sequence has more, d_q is rounded once per such run of keys. */
#include "backend/cpu/bf16_product.h"
#include "backend/cpu/flash.h"

/* Where an item keeps its packed operands. "by_dim" panels hold the transpose: one line per column
 * of the head. */
struct backward {
    float *queries, *d_ys;                  // right panels by query
    float *queries_by_dim, *d_ys_by_dim;    // right panels by dim
    float *d_queries;                       // [padded head][TILE_COLS] per panel of queries
    float *keys, *values, *keys_by_dim;     // left panels
    float *shares, *d_scores;               // one panel, [keys][TILE_COLS]
    float *shares_by_key, *d_scores_by_key; // left panels, [queries][TILE_ROWS]
    float *lse, *whole;                     // per query; whole = d_y . y
    float *d_keys, *d_values;               // sums of the run of keys, a row every `ld` floats
    int64_t ld;
};

enum {
    BACKWARD_FLOATS = 5 * QUERY_BLOCK * HEAD_PAD + 3 * KEY_BLOCK * HEAD_PAD +
                      2 * KEY_BLOCK * TILE_COLS + 2 * KEY_BLOCK * QUERY_BLOCK + 2 * QUERY_BLOCK
};
_Static_assert((int)BACKWARD_FLOATS <= (int)STRAIT_CPU_SCRATCH, "an item fits its scratch");

static struct backward lay_out(float *scratch) {
    struct backward b;
    float **const by_query[] = {&b.queries, &b.d_ys, &b.queries_by_dim, &b.d_ys_by_dim,
                                &b.d_queries};
    float **const by_key[] = {&b.keys, &b.values, &b.keys_by_dim};
    for (int i = 0; i < 5; i++, scratch += QUERY_BLOCK * HEAD_PAD)
        *by_query[i] = scratch;
    for (int i = 0; i < 3; i++, scratch += KEY_BLOCK * HEAD_PAD)
        *by_key[i] = scratch;
    b.shares = scratch;
    b.d_scores = b.shares + KEY_BLOCK * TILE_COLS;
    b.shares_by_key = b.d_scores + KEY_BLOCK * TILE_COLS;
    b.d_scores_by_key = b.shares_by_key + KEY_BLOCK * QUERY_BLOCK;
    b.lse = b.d_scores_by_key + KEY_BLOCK * QUERY_BLOCK;
    b.whole = b.lse + QUERY_BLOCK;
    return b;
}

/* A block of queries from position q0 and a block of keys from position k0, of head h of the
 * sequence whose first row is `first`. */
struct block {
    int64_t first, q0, n_queries, k0, n_keys;
    int64_t run; // first key of the run that is being summed
    int h;
};

/* The first panel of queries of which one may see the key at k0 + k. */
static int64_t first_panel(struct block at, int64_t k) {
    const int64_t q = at.k0 + k - at.q0;
    return q > 0 ? q / TILE_COLS * TILE_COLS : 0;
}

static void pack_queries(const struct flash_job *job, const struct backward *b, struct block at) {
    const int64_t dim = job->heads.head_dim, row = at.first + at.q0;
    const act *q = job->qkv + row * job->cols + at.h * dim;
    const act *y = job->y + row * job->y_cols + at.h * dim;
    const act *d_y = job->d_y + row * job->y_cols + at.h * dim;
    pack_rights(b->queries, q, job->cols, 1, at.n_queries, dim);
    pack_rights(b->queries_by_dim, q, 1, job->cols, dim, at.n_queries);
    pack_rights(b->d_ys, d_y, job->y_cols, 1, at.n_queries, dim);
    pack_rights(b->d_ys_by_dim, d_y, 1, job->y_cols, dim, at.n_queries);
    memset(b->d_queries, 0, (size_t)(QUERY_BLOCK * padded_rows(dim)) * sizeof(float));
    for (int64_t i = 0; i < QUERY_BLOCK; i++) {
        b->lse[i] = INFINITY; // exp(score - inf) = 0: padding beyond the sequence adds nothing
        b->whole[i] = 0;
        if (i >= at.n_queries) continue;
        b->lse[i] = job->lse[(row + i) * job->heads.n_query + at.h];
        for (int64_t p = 0; p < dim; p++)
            b->whole[i] += get(d_y[i * job->y_cols + p]) * get(y[i * job->y_cols + p]);
    }
}

/* shares = exp(scores - lse), and d_scores = shares (d_shares - whole) scale. A function of its
 * own, so that the constants of exp stay in registers. */
static __attribute__((noinline)) void softmax_back(const struct backward *b, int64_t q,
                                                   int64_t n_keys, float scale) {
    vec lse[TILE_VECTORS], whole[TILE_VECTORS];
    for (int v = 0; v < TILE_VECTORS; v++) {
        lse[v] = load(b->lse + q + v * LANES);
        whole[v] = load(b->whole + q + v * LANES);
    }
    float *shares = b->shares, *d_scores = b->d_scores;
    for (int64_t k = 0; k < n_keys; k++, shares += TILE_COLS, d_scores += TILE_COLS)
        for (int v = 0; v < TILE_VECTORS; v++) {
            const vec share = vec_exp(load(shares + v * LANES) - lse[v]);
            const vec d_share = load(d_scores + v * LANES) - whole[v];
            store(shares + v * LANES, share);
            store(d_scores + v * LANES, share * d_share * scale);
        }
}

/* The panel of queries from q on: computes shares and d_scores, adds to d_queries, and packs both
 * by key for the sums of d_k and d_v. */
static void panel_back(const struct flash_job *job, const struct backward *b, struct block at,
                       int64_t q) {
    const int64_t dim = job->heads.head_dim, ahead = at.q0 + q - at.k0;
    const int64_t n_sums = padded_rows(dim), n_depth = smaller(TILE_COLS, at.n_queries - q);
    const int64_t n_seen = smaller(at.n_keys, ahead + TILE_COLS);
    multiply_panel(b->shares, padded_rows(n_seen), b->keys, b->queries + q * dim, dim,
                   job->heads.scale, 0);
    multiply_panel(b->d_scores, padded_rows(n_seen), b->values, b->d_ys + q * dim, dim, 1, 0);
    mask_panel(b->shares, n_seen, ahead);
    softmax_back(b, q, n_seen, job->heads.scale);
    for (int64_t p = 0; p < n_sums; p += TILE_ROWS)
        multiply_tile((tile_params){b->d_queries + q * n_sums + p * TILE_COLS, TILE_COLS, 1, 1},
                      b->keys_by_dim + p * at.n_keys, b->d_scores, n_seen);
    for (int64_t k = 0; k < n_seen; k += TILE_ROWS) {
        const int64_t n = smaller(TILE_ROWS, n_seen - k);
        const int64_t to = k * at.n_queries + q * TILE_ROWS;
        pack_left(b->shares_by_key + to, b->shares + k * TILE_COLS, TILE_COLS, 1, n, n_depth);
        pack_left(b->d_scores_by_key + to, b->d_scores + k * TILE_COLS, TILE_COLS, 1, n, n_depth);
    }
}

/* Adds left x right to the sums of this block of keys, which start at `to`, a row every `ld`
 * floats. Panels of queries that cannot see a key are skipped. */
// NOLINTNEXTLINE(readability-non-const-parameter): tiles are written through it
static void add_to_keys(float *to, int64_t ld, const float *lefts, const float *rights,
                        struct block at, int64_t dim) {
    for (int64_t p = 0; p < dim; p += TILE_COLS) {
        for (int64_t k = 0; k < at.n_keys; k += TILE_ROWS) {
            const int64_t q = first_panel(at, k), depth = at.n_queries - q;
            const float *left = lefts + k * at.n_queries + q * TILE_ROWS;
            const float *right = rights + p * at.n_queries + q * TILE_COLS;
            const tile_params params = {to + k * ld + p, ld, 1, 1};
            if (at.n_keys - k >= TILE_ROWS && dim - p >= TILE_COLS)
                multiply_tile(params, left, right, depth);
            else
                multiply_edge(params, left, 1, right, depth, smaller(TILE_ROWS, at.n_keys - k),
                              smaller(TILE_COLS, dim - p));
        }
    }
}

static void key_block_back(const struct flash_job *job, const struct backward *b, struct block at,
                           int64_t kv) {
    const int64_t dim = job->heads.head_dim, row = (at.first + at.k0) * job->cols;
    const act *keys = job->qkv + row + key_column(job, kv);
    const act *values = job->qkv + row + value_column(job, kv);
    pack_lefts(b->keys, keys, job->cols, 1, at.n_keys, dim);
    pack_lefts(b->keys_by_dim, keys, 1, job->cols, dim, at.n_keys);
    pack_lefts(b->values, values, job->cols, 1, at.n_keys, dim);
    for (int64_t q = first_panel(at, 0); q < at.n_queries; q += TILE_COLS)
        panel_back(job, b, at, q);
    const int64_t to = (at.k0 - at.run) * b->ld;
    add_to_keys(b->d_values + to, b->ld, b->shares_by_key, b->d_ys_by_dim, at, dim);
    add_to_keys(b->d_keys + to, b->ld, b->d_scores_by_key, b->queries_by_dim, at, dim);
}

/* One block of queries against the keys [at.run, end). */
static void query_block_back(const struct flash_job *job, const struct backward *b, struct block at,
                             int64_t end, int64_t kv) {
    const int64_t dim = job->heads.head_dim, n_sums = padded_rows(dim);
    const int64_t n_seen = smaller(end, at.q0 + at.n_queries);
    pack_queries(job, b, at);
    for (at.k0 = at.run; at.k0 < n_seen; at.k0 += KEY_BLOCK) {
        at.n_keys = smaller(KEY_BLOCK, n_seen - at.k0);
        key_block_back(job, b, at, kv);
    }
    for (int64_t q = 0; q < at.n_queries; q++) {
        act *to = job->d_qkv + (at.first + at.q0 + q) * job->cols + at.h * dim;
        const float *from = b->d_queries + q / TILE_COLS * TILE_COLS * n_sums + q % TILE_COLS;
        for (int64_t p = 0; p < dim; p++)
            put(&to[p], at.run > 0 ? get(to[p]) + from[p * TILE_COLS] : from[p * TILE_COLS]);
    }
}

#if ACT_IS_HALF
/* Keys whose sums fit the scratch beside the packed operands: whole blocks. */
static int64_t keys_of_run(const struct flash_job *job) {
    return STRAIT_CPU_HALF_RUN / job->heads.head_dim / KEY_BLOCK * KEY_BLOCK;
}

static void begin_run(const struct flash_job *job, struct backward *b, float *scratch, int64_t n) {
    b->ld = job->heads.head_dim;
    b->d_keys = scratch + STRAIT_CPU_SCRATCH;
    b->d_values = b->d_keys + STRAIT_CPU_HALF_RUN;
    memset(b->d_keys, 0, (size_t)(n * b->ld) * sizeof(float));
    memset(b->d_values, 0, (size_t)(n * b->ld) * sizeof(float));
}

/* Rounds the sums of n keys to d_qkv, from row `row` on. */
static void end_run(const struct flash_job *job, const struct backward *b, int64_t row, int64_t n,
                    int64_t kv) {
    for (int64_t k = 0; k < n; k++) {
        act *to = job->d_qkv + (row + k) * job->cols;
        for (int64_t p = 0; p < b->ld; p++) {
            put(to + key_column(job, kv) + p, b->d_keys[k * b->ld + p]);
            put(to + value_column(job, kv) + p, b->d_values[k * b->ld + p]);
        }
    }
}
#endif

static void run_back(const struct flash_job *job, const struct backward *b, struct block at,
                     int64_t end, int64_t kv) {
    const strait_heads heads = job->heads;
    const int n_group = heads.n_query / heads.n_key;
    for (int g = 0; g < n_group; g++)
        for (at.q0 = at.run / QUERY_BLOCK * QUERY_BLOCK; at.q0 < heads.seq_len;
             at.q0 += QUERY_BLOCK) {
            at.n_queries = smaller(QUERY_BLOCK, heads.seq_len - at.q0);
            at.h = (int)kv * n_group + g;
            query_block_back(job, b, at, end, kv);
        }
}

static void backward_item(const struct flash_job *job, int item, float *scratch) {
    const strait_heads heads = job->heads;
    const int64_t kv = item % heads.n_key, first = item / heads.n_key * heads.seq_len;
    struct backward b = lay_out(scratch);
#if ACT_IS_HALF
    const int64_t n_run = keys_of_run(job);
    for (int64_t run = 0; run < heads.seq_len; run += n_run) {
        const int64_t end = smaller(heads.seq_len, run + n_run);
        begin_run(job, &b, scratch, end - run);
        run_back(job, &b, (struct block){.first = first, .run = run}, end, kv);
        end_run(job, &b, first + run, end - run, kv);
    }
#else
    b.ld = job->cols;
    b.d_keys = job->d_qkv + first * job->cols + key_column(job, kv);
    b.d_values = job->d_qkv + first * job->cols + value_column(job, kv);
    for (int64_t row = 0; row < heads.seq_len; row++) {
        memset(b.d_keys + row * b.ld, 0, (size_t)heads.head_dim * sizeof *b.d_keys);
        memset(b.d_values + row * b.ld, 0, (size_t)heads.head_dim * sizeof *b.d_values);
    }
    run_back(job, &b, (struct block){.first = first}, heads.seq_len, kv);
#endif
}

static strait_err attention_back(struct strait_stream *s, strait_tensor d_qkv, strait_tensor d_y,
                                 strait_tensor y, strait_tensor qkv, strait_tensor lse,
                                 strait_heads heads) {
    assert(strait_cpu_same_shape(d_qkv, qkv) && qkv.cols == strait_cpu_qkv_cols(heads));
    assert(strait_cpu_same_shape(d_y, y) && lse.data != NULL && d_qkv.data != NULL);
    assert(qkv.rows % heads.seq_len == 0 && heads.n_query % heads.n_key == 0);
    STRAIT_TRY(strait_cpu_refuse_wide(heads));
    struct flash_job job = {.qkv = act_of(qkv),
                            .y = act_of(y),
                            .lse = strait_cpu_f32(lse),
                            .d_y = act_of(d_y),
                            .d_qkv = act_of(d_qkv),
                            .cols = qkv.cols,
                            .y_cols = y.cols,
                            .heads = heads,
                            .n_items = (int)(qkv.rows / heads.seq_len) * heads.n_key,
                            .work = backward_item};
#if ACT_IS_HALF
    const struct strait_bf16_units *units = ((const struct strait_cpu *)s->backend->state)->units;
    if (units != NULL && units->attend_back != NULL) job.work = units->attend_back;
#endif
    run_flash(s, &job);
    return STRAIT_OK;
}

void SIMD(attention_back)(struct strait_kernel_set *set) {
    set->base.attention_back = attention_back;
}
