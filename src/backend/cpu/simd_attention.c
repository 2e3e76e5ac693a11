/* simd_attention.c - tiled causal attention with an online softmax, and attention of one new token
 * to a cache.
 *
 * For each query the loop keeps the largest score so far (max), the sum of exp(score - max) (total)
 * and the sum of exp(score - max) v (sums). When a block of keys raises max, total and sums are
 * multiplied by exp(old max - new max). Blocks of keys come in order, so the bits are fixed. */
#include "backend/cpu/bf16_product.h"
#include "backend/cpu/flash.h"

/* Where an item keeps its packed operands and running softmax. */
struct forward {
    float *queries, *keys, *values; // right panels, left panels by key, left panels by value
    float *scores;                  // one panel
    float *sums;                    // [padded head][TILE_COLS] per panel of queries
    float *max, *total;             // per query
};

enum {
    FORWARD_FLOATS = QUERY_BLOCK * HEAD_PAD * 2 + KEY_BLOCK * HEAD_PAD * 2 + KEY_BLOCK * TILE_COLS +
                     2 * QUERY_BLOCK
};
_Static_assert((int)FORWARD_FLOATS <= (int)STRAIT_CPU_SCRATCH, "an item fits its scratch");

static struct forward lay_out(float *scratch) {
    struct forward f;
    f.queries = scratch;
    f.sums = f.queries + QUERY_BLOCK * HEAD_PAD;
    f.keys = f.sums + QUERY_BLOCK * HEAD_PAD;
    f.values = f.keys + KEY_BLOCK * HEAD_PAD;
    f.scores = f.values + KEY_BLOCK * HEAD_PAD;
    f.max = f.scores + KEY_BLOCK * TILE_COLS;
    f.total = f.max + QUERY_BLOCK;
    return f;
}

/* Replaces scores by exp(score - max) and returns their sums in total. A function of its own, so
 * that the constants of exp stay in registers. */
static __attribute__((noinline)) void exp_scores(float *scores, int64_t n_keys, const vec *max,
                                                 vec *total) {
    vec limit[TILE_VECTORS], sum[TILE_VECTORS] = {0};
    memcpy(limit, max, sizeof limit);
    for (int64_t k = 0; k < n_keys; k++, scores += TILE_COLS)
        for (int v = 0; v < TILE_VECTORS; v++) {
            const vec share = exp_down(load(scores + v * LANES) - limit[v]);
            store(scores + v * LANES, share);
            sum[v] += share;
        }
    memcpy(total, sum, sizeof sum);
}

/* One step of the online softmax for a panel of queries: updates max, replaces the panel's scores
 * by exp(score - max), and rescales total and sums. */
static void softmax_step(const struct forward *f, int64_t panel, int64_t n_keys, int64_t n_sums) {
    float *const scores = f->scores;
    vec old[TILE_VECTORS], max[TILE_VECTORS], total[TILE_VECTORS], shrink[TILE_VECTORS];
    memcpy(old, f->max + panel * TILE_COLS, sizeof old);
    memcpy(max, old, sizeof max);
    for (int64_t k = 0; k < n_keys; k++)
        for (int v = 0; v < TILE_VECTORS; v++)
            max[v] = larger(load(scores + k * TILE_COLS + v * LANES), max[v]);
    exp_scores(scores, n_keys, max, total);
    for (int v = 0; v < TILE_VECTORS; v++) {
        float *const whole = f->total + panel * TILE_COLS + v * LANES;
        shrink[v] = exp_down(old[v] - max[v]);
        store(f->max + panel * TILE_COLS + v * LANES, max[v]);
        store(whole, load(whole) * shrink[v] + total[v]);
    }
    float *sums = f->sums + panel * TILE_COLS * n_sums;
    for (int64_t p = 0; p < n_sums; p++, sums += TILE_COLS)
        for (int v = 0; v < TILE_VECTORS; v++)
            store(sums + v * LANES, load(sums + v * LANES) * shrink[v]);
}

/* All panels of queries from position q0 against the keys from position k0. */
static void attend_block(const struct flash_job *job, const struct forward *f, int64_t q0,
                         int64_t n_queries, int64_t k0, int64_t n_keys) {
    const int64_t dim = job->heads.head_dim, n_sums = padded_rows(dim);
    for (int64_t q = 0; q < n_queries; q += TILE_COLS) {
        const int64_t ahead = q0 + q - k0;
        const int64_t n_seen = smaller(n_keys, ahead + TILE_COLS); // keys that some query may see
        if (n_seen <= 0) continue;
        multiply_panel(f->scores, padded_rows(n_seen), f->keys, f->queries + q * dim, dim,
                       job->heads.scale, 0);
        mask_panel(f->scores, n_seen, ahead);
        softmax_step(f, q / TILE_COLS, n_seen, n_sums);
        for (int64_t p = 0; p < n_sums; p += TILE_ROWS)
            multiply_tile((tile_params){f->sums + q * n_sums + p * TILE_COLS, TILE_COLS, 1, 1},
                          f->values + p * n_keys, f->scores, n_seen);
    }
}

/* y = sums / total, and lse = max + log(total). */
static void finish_query(const struct flash_job *job, const struct forward *f, int64_t row, int h,
                         int64_t q) {
    const int64_t dim = job->heads.head_dim, n_sums = padded_rows(dim);
    const float *sums = f->sums + q / TILE_COLS * TILE_COLS * n_sums + q % TILE_COLS;
    const float whole = 1.0f / f->total[q];
    act *out = job->out + row * job->y_cols + h * dim;
    for (int64_t p = 0; p < dim; p++)
        put(&out[p], sums[p * TILE_COLS] * whole);
    if (job->out_lse != NULL)
        job->out_lse[row * job->heads.n_query + h] = f->max[q] + logf(f->total[q]);
}

/* An item is one block of queries of one head of one sequence. The last blocks, which see the most
 * keys, come first, so that threads finish at about the same time. */
static void forward_item(const struct flash_job *job, int item, float *scratch) {
    const strait_heads heads = job->heads;
    const int64_t dim = heads.head_dim, n_blocks = pieces(heads.seq_len, QUERY_BLOCK);
    const int h = (int)(item / n_blocks % heads.n_query);
    const int64_t first = item / n_blocks / heads.n_query * heads.seq_len;
    const int64_t q0 = (n_blocks - 1 - item % n_blocks) * QUERY_BLOCK;
    const int64_t n_queries = smaller(QUERY_BLOCK, heads.seq_len - q0);
    const int64_t kv = h / (heads.n_query / heads.n_key);
    const struct forward f = lay_out(scratch);
    pack_rights(f.queries, job->qkv + (first + q0) * job->cols + h * dim, job->cols, 1, n_queries,
                dim);
    memset(f.sums, 0, (size_t)(QUERY_BLOCK * padded_rows(dim)) * sizeof(float));
    for (int64_t q = 0; q < QUERY_BLOCK; q++) {
        f.max[q] = -INFINITY;
        f.total[q] = 0;
    }
    for (int64_t k0 = 0; k0 < q0 + n_queries; k0 += KEY_BLOCK) {
        const act *row = job->qkv + (first + k0) * job->cols;
        const int64_t n_keys = smaller(KEY_BLOCK, q0 + n_queries - k0);
        pack_lefts(f.keys, row + key_column(job, kv), job->cols, 1, n_keys, dim);
        pack_lefts(f.values, row + value_column(job, kv), 1, job->cols, dim, n_keys);
        attend_block(job, &f, q0, n_queries, k0, n_keys);
    }
    for (int64_t q = 0; q < n_queries; q++)
        finish_query(job, &f, first + q0 + q, h, q);
}

static strait_err attention(struct strait_stream *s, strait_tensor y, strait_tensor lse,
                            strait_tensor qkv, strait_heads heads) {
    assert(qkv.cols == strait_cpu_qkv_cols(heads) && qkv.rows % heads.seq_len == 0);
    assert(y.cols == (int64_t)heads.n_query * heads.head_dim && heads.n_query % heads.n_key == 0);
    STRAIT_TRY(strait_cpu_refuse_wide(heads));
    struct flash_job job = {.qkv = act_of(qkv),
                            .out = act_of(y),
                            .out_lse = strait_cpu_f32(lse),
                            .cols = qkv.cols,
                            .y_cols = y.cols,
                            .heads = heads,
                            .work = forward_item};
    int64_t n_queries = QUERY_BLOCK; // of an item
#if ACT_IS_HALF
    const struct strait_bf16_units *units = ((const struct strait_cpu *)s->backend->state)->units;
    if (units != NULL && units->attend != NULL) {
        job.work = units->attend;
        n_queries = STRAIT_BF16_CHUNK;
    }
#endif
    job.n_items = (int)(qkv.rows / heads.seq_len * heads.n_query *
                        pieces(heads.seq_len, n_queries));
    run_flash(s, &job);
    return STRAIT_OK;
}

/* One new token against a cache: every key is read once, so packing would not pay. */

struct cached {
    const act *qkv, *keys, *values;
    act *y;
    int64_t cols, y_cols, width;
    strait_cached_rows at;
    strait_heads heads;
};

enum {
    CACHED_KEYS = 64 // keys per step of the online softmax
};
_Static_assert((int)CACHED_KEYS % (int)LANES == 0, "scores fill whole vectors");

/* A running softmax, as above. */
struct softmax {
    float max, total;
    float sums[STRAIT_CPU_HEAD_MAX + LANES];
};

static void attend_cached(struct softmax *soft, const act *query, const act *keys,
                          const act *values, int64_t width, int64_t n, strait_heads heads) {
    float scores[CACHED_KEYS], max = soft->max;
    for (int64_t k = 0; k < CACHED_KEYS; k++) {
        scores[k] = k < n ? heads.scale * dot(query, keys + k * width, heads.head_dim) : -INFINITY;
        max = scores[k] > max ? scores[k] : max;
    }
    vec total = {0};
    for (int64_t k = 0; k < CACHED_KEYS; k += LANES) {
        const vec share = exp_down(load(scores + k) - max);
        store(scores + k, share);
        total += share;
    }
    const float shrink = expf(soft->max - max);
    soft->max = max;
    soft->total = soft->total * shrink + sum_lanes(total);
    for (int p = 0; p < heads.head_dim; p++)
        soft->sums[p] *= shrink;
    for (int64_t k = 0; k < n; k++)
        for (int p = 0; p < heads.head_dim; p++)
            soft->sums[p] += scores[k] * get(values[k * width + p]);
}

static void cached_task(void *arg, int task) {
    const struct cached *c = arg;
    const int64_t dim = c->heads.head_dim, i = task / c->heads.n_query;
    const int64_t h = task % c->heads.n_query, kv = h / (c->heads.n_query / c->heads.n_key);
    const int64_t sequence = strait_cpu_sequence(c->at, i);
    const int64_t first = sequence * c->heads.seq_len * c->width + kv * dim;
    const int64_t n_keys = strait_cpu_position(c->at, i) + 1;
    struct softmax soft = {.max = -INFINITY};
    if (sequence < 0) return;
    for (int64_t k = 0; k < n_keys; k += CACHED_KEYS)
        attend_cached(&soft, c->qkv + i * c->cols + h * dim, c->keys + first + k * c->width,
                      c->values + first + k * c->width, c->width, smaller(CACHED_KEYS, n_keys - k),
                      c->heads);
    for (int64_t p = 0; p < dim; p++)
        put(&c->y[i * c->y_cols + h * dim + p], soft.sums[p] / soft.total);
}

static strait_err attention_cached(struct strait_stream *s, strait_tensor y, strait_tensor keys,
                                   strait_tensor values, strait_tensor qkv, strait_cached_rows at,
                                   strait_heads heads) {
    assert(qkv.cols == strait_cpu_qkv_cols(heads) && strait_cpu_same_shape(keys, values));
    STRAIT_TRY(strait_cpu_refuse_wide(heads));
    strait_cpu_cache(keys, values, qkv, at, heads);
    struct cached c = {.qkv = act_of(qkv),
                       .keys = act_of(keys),
                       .values = act_of(values),
                       .y = act_of(y),
                       .cols = qkv.cols,
                       .y_cols = y.cols,
                       .width = keys.cols,
                       .at = at,
                       .heads = heads};
    strait_pool_run(strait_cpu_pool(s), (int)(qkv.rows * heads.n_query), cached_task, &c);
    return STRAIT_OK;
}

void SIMD(attention)(struct strait_kernel_set *set) {
    set->base.attention = attention;
    set->base.attention_cached = attention_cached;
}
