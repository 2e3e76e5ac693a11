/* ref_attention.c - causal attention, one row of scores at a time, with the largest score
 * subtracted before exponentials so that they cannot overflow.
 *
 *   y_i = sum over j <= i of p_ij v_j,  p_ij = exp(scale q_i . k_j - lse_i)
 *
 * Backward, with the probabilities recomputed from lse:
 *   d_s_ij = p_ij (d_y_i . v_j - d_y_i . y_i)
 *   d_q_i = scale sum_j d_s_ij k_j,  d_k_j = scale sum_i d_s_ij q_i,  d_v_j = sum_i p_ij d_y_i */
#include "backend/cpu/cpu.h"

#include <math.h>
#include <string.h>

static double dot(const float *a, const float *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* One query over keys and values 0 to n - 1, which are `step` floats apart. Returns the logarithm
 * of the softmax denominator. */
static double attend(float *out, const float *query, const float *keys, const float *values,
                     int64_t step, int64_t n, strait_heads heads) {
    const double scale = (double)heads.scale;
    double max = -INFINITY, sum = 0, mean[STRAIT_CPU_HEAD_MAX] = {0};
    for (int64_t j = 0; j < n; j++)
        max = fmax(max, scale * dot(query, keys + j * step, heads.head_dim));
    for (int64_t j = 0; j < n; j++) {
        const double share = exp(scale * dot(query, keys + j * step, heads.head_dim) - max);
        sum += share;
        for (int i = 0; i < heads.head_dim; i++)
            mean[i] += share * (double)values[j * step + i];
    }
    for (int i = 0; i < heads.head_dim; i++)
        out[i] = (float)(mean[i] / sum);
    return max + log(sum);
}

static strait_err attention(struct strait_stream *s, strait_tensor y, strait_tensor lse,
                            strait_tensor qkv, strait_heads heads) {
    (void)s;
    const int64_t cols = strait_cpu_qkv_cols(heads);
    assert(qkv.cols == cols && y.cols == (int64_t)heads.n_query * heads.head_dim);
    assert(qkv.rows % heads.seq_len == 0 && heads.n_query % heads.n_key == 0);
    STRAIT_TRY(strait_cpu_refuse_wide(heads));
    for (int64_t n = 0; n < qkv.rows; n++) {
        const int64_t place = n % heads.seq_len;
        const float *row = strait_cpu_f32(qkv) + n * cols, *first = row - place * cols;
        for (int h = 0; h < heads.n_query; h++) {
            const int kv = heads.n_query + h / (heads.n_query / heads.n_key);
            const float *keys = first + (int64_t)kv * heads.head_dim;
            const double log_sum = attend(
                strait_cpu_f32(y) + n * y.cols + (int64_t)h * heads.head_dim,
                row + (int64_t)h * heads.head_dim, keys,
                keys + (int64_t)heads.n_key * heads.head_dim, cols, place + 1, heads);
            if (lse.data != NULL) strait_cpu_f32(lse)[n * heads.n_query + h] = (float)log_sum;
        }
    }
    return STRAIT_OK;
}

/* Pointers to the first row of one head of one sequence, for the backward pass. */
struct head_back {
    const float *q, *k, *v, *y, *d_y, *lse;
    float *d_q, *d_k, *d_v;
    int64_t cols, y_cols;
    strait_heads heads;
};

/* Queries, keys and values lie side by side in one row, so that one product computes all three. */
static struct head_back head_of(strait_tensor d_qkv, strait_tensor d_y, strait_tensor y,
                                strait_tensor qkv, strait_tensor lse, strait_heads heads) {
    const int64_t to_k = (int64_t)heads.n_query * heads.head_dim;
    const int64_t to_v = to_k + (int64_t)heads.n_key * heads.head_dim;
    struct head_back b = {.q = strait_cpu_f32(qkv), .y = strait_cpu_f32(y)};
    b.k = b.q + to_k;
    b.v = b.q + to_v;
    b.d_y = strait_cpu_f32(d_y);
    b.lse = strait_cpu_f32(lse);
    b.d_q = strait_cpu_f32(d_qkv);
    b.d_k = b.d_q + to_k;
    b.d_v = b.d_q + to_v;
    b.cols = strait_cpu_qkv_cols(heads);
    b.y_cols = to_k;
    b.heads = heads;
    return b;
}

/* The probability p_ij in *share; returns the gradient of the unscaled score, d_s_ij scale. */
static double score_back(const struct head_back *b, int64_t i, int64_t j, double *share) {
    const int dim = b->heads.head_dim;
    const float *d_y = b->d_y + i * b->y_cols;
    const double score = (double)b->heads.scale * dot(b->q + i * b->cols, b->k + j * b->cols, dim);
    *share = exp(score - (double)b->lse[i * b->heads.n_query]);
    const double whole = dot(d_y, b->y + i * b->y_cols, dim);
    return *share * (dot(d_y, b->v + j * b->cols, dim) - whole) * (double)b->heads.scale;
}

static void query_back(const struct head_back *b) {
    const int dim = b->heads.head_dim;
    for (int64_t i = 0; i < b->heads.seq_len; i++) {
        double sum[STRAIT_CPU_HEAD_MAX] = {0}, share;
        for (int64_t j = 0; j <= i; j++) {
            const double d_score = score_back(b, i, j, &share);
            for (int c = 0; c < dim; c++)
                sum[c] += d_score * (double)b->k[j * b->cols + c];
        }
        for (int c = 0; c < dim; c++)
            b->d_q[i * b->cols + c] = (float)sum[c];
    }
}

/* Adds one query head's part to d_k and d_v, which grouped queries share. */
static void key_back(const struct head_back *b) {
    assert(b->d_k != NULL && b->d_v != NULL);
    const int dim = b->heads.head_dim;
    for (int64_t j = 0; j < b->heads.seq_len; j++) {
        double to_key[STRAIT_CPU_HEAD_MAX] = {0}, to_value[STRAIT_CPU_HEAD_MAX] = {0}, share;
        for (int64_t i = j; i < b->heads.seq_len; i++) {
            const double d_score = score_back(b, i, j, &share);
            for (int c = 0; c < dim; c++) {
                to_key[c] += d_score * (double)b->q[i * b->cols + c];
                to_value[c] += share * (double)b->d_y[i * b->y_cols + c];
            }
        }
        for (int c = 0; c < dim; c++) {
            b->d_k[j * b->cols + c] += (float)to_key[c];
            b->d_v[j * b->cols + c] += (float)to_value[c];
        }
    }
}

static strait_err attention_back(struct strait_stream *s, strait_tensor d_qkv, strait_tensor d_y,
                                 strait_tensor y, strait_tensor qkv, strait_tensor lse,
                                 strait_heads heads) {
    (void)s;
    assert(strait_cpu_same_shape(d_qkv, qkv) && qkv.cols == strait_cpu_qkv_cols(heads));
    assert(strait_cpu_same_shape(d_y, y) && lse.data != NULL && d_qkv.data != NULL);
    assert(qkv.rows % heads.seq_len == 0 && heads.n_query % heads.n_key == 0);
    STRAIT_TRY(strait_cpu_refuse_wide(heads));
    memset(d_qkv.data, 0, strait_tensor_bytes(d_qkv));
    const struct head_back all = head_of(d_qkv, d_y, y, qkv, lse, heads);
    for (int64_t first = 0; first < qkv.rows; first += heads.seq_len) {
        for (int h = 0; h < heads.n_query; h++) {
            struct head_back b = all;
            const int64_t at = first * b.cols + (int64_t)h * heads.head_dim;
            const int kv = h / (heads.n_query / heads.n_key);
            const int64_t at_kv = first * b.cols + (int64_t)kv * heads.head_dim;
            const int64_t at_y = first * b.y_cols + (int64_t)h * heads.head_dim;
            b.q += at, b.d_q += at;
            b.k += at_kv, b.v += at_kv, b.d_k += at_kv, b.d_v += at_kv;
            b.y += at_y, b.d_y += at_y;
            b.lse += first * heads.n_query + h;
            query_back(&b); // owns d_q of this head
            key_back(&b);
        }
    }
    return STRAIT_OK;
}

/* One after the other, by whatever kernels the backend has chosen for the type. */
static strait_err attention_rotate_back(struct strait_stream *s, strait_tensor d_qkv,
                                        strait_tensor d_y, strait_tensor y, strait_tensor qkv,
                                        strait_tensor lse, strait_rotate_params rotation) {
    const struct strait_kernels *k = s->backend->kernels;
    const strait_tensor absent = {0};
    STRAIT_TRY(k->attention_back(s, d_qkv, d_y, y, qkv, lse, rotation.heads));
    return k->rotate_back(s, d_qkv, absent, d_qkv, absent, absent, rotation);
}

/* The new key and value are appended first: a token also attends to itself. */
static strait_err attention_cached(struct strait_stream *s, strait_tensor y, strait_tensor keys,
                                   strait_tensor values, strait_tensor qkv, strait_cached_rows at,
                                   strait_heads heads) {
    (void)s;
    const int64_t dim = heads.head_dim, width = heads.n_key * dim,
                  cols = strait_cpu_qkv_cols(heads);
    assert(qkv.cols == cols && keys.cols == width && strait_cpu_same_shape(keys, values));
    STRAIT_TRY(strait_cpu_refuse_wide(heads));
    strait_cpu_cache(keys, values, qkv, at, heads);
    for (int64_t i = 0; i < qkv.rows; i++) {
        const int64_t sequence = strait_cpu_sequence(at, i);
        const float *row = strait_cpu_f32(qkv) + i * cols;
        const float *k = strait_cpu_f32(keys) + sequence * heads.seq_len * width;
        const float *v = strait_cpu_f32(values) + sequence * heads.seq_len * width;
        for (int h = 0; sequence >= 0 && h < heads.n_query; h++) {
            const int64_t kv = h / (heads.n_query / heads.n_key) * dim;
            (void)attend(strait_cpu_f32(y) + i * y.cols + h * dim, row + h * dim, k + kv, v + kv,
                         width, strait_cpu_position(at, i) + 1, heads);
        }
    }
    return STRAIT_OK;
}

void strait_ref_attention(struct strait_kernel_set *set) {
    set->base.attention = attention;
    set->base.attention_back = attention_back;
    set->base.attention_rotate_back = attention_rotate_back;
    set->base.attention_cached = attention_cached;
}
