/* cudnn_attention.c - causal attention as a graph that cuDNN fuses into one kernel.
 *
 * It is written out as products, a mask and a softmax. Matrices of seq_len x seq_len are virtual:
 * they are never stored. */
#include "backend/cuda/cudnn_attention.h"

/* Heads next to each other in rows that are `pitch` values apart. */
static strait_cudnn_shape rows(const int64_t *at, int64_t n_heads, int64_t pitch) {
    const int64_t width = at[STRAIT_CUDNN_HEAD_DIM], length = at[STRAIT_CUDNN_TOKENS];
    return (strait_cudnn_shape){{at[STRAIT_CUDNN_SEQUENCES], n_heads, length, width},
                                {length * pitch, width, pitch, 1}};
}

static strait_cudnn_shape transposed(strait_cudnn_shape s) {
    return (strait_cudnn_shape){{s.n[0], s.n[1], s.n[3], s.n[2]},
                                {s.stride[0], s.stride[1], s.stride[3], s.stride[2]}};
}

/* A virtual tensor y = mode(x) or mode(x, b). */
static void *apply(struct strait_cudnn_graph *g, strait_cudnn_pointwise mode,
                   strait_cudnn_shape shape, void *x, void *b) {
    void *y = strait_cudnn_virtual(g, STRAIT_CUDNN_F32, shape);
    strait_cudnn_pointwise_op(g, mode, y, x, b, NULL);
    return y;
}

/* Causal mask: scores of keys later than their query become -inf. */
static void *masked(struct strait_cudnn_graph *g, strait_cudnn_shape square, void *scores) {
    void *query = strait_cudnn_virtual(g, STRAIT_CUDNN_I32, square);
    void *key = strait_cudnn_virtual(g, STRAIT_CUDNN_I32, square);
    void *is_seen = strait_cudnn_virtual(g, STRAIT_CUDNN_BOOL, square);
    void *y = strait_cudnn_virtual(g, STRAIT_CUDNN_F32, square);
    strait_cudnn_index_op(g, 2, query, scores);
    strait_cudnn_index_op(g, 3, key, scores);
    strait_cudnn_pointwise_op(g, STRAIT_CUDNN_GREATER_EQUAL, is_seen, query, key, NULL);
    strait_cudnn_pointwise_op(g, STRAIT_CUDNN_SELECT, y, scores,
                              strait_cudnn_number(g, STRAIT_CUDNN_LOWEST), is_seen);
    return y;
}

/* The softmax of each query's scores; lse is the logarithm of its denominator. */
static void *softmax(struct strait_cudnn_graph *g, strait_cudnn_shape square, void *lse,
                     void *scores) {
    const strait_cudnn_shape column = {{square.n[0], square.n[1], square.n[2], 1}, {0}};
    void *max = strait_cudnn_virtual(g, STRAIT_CUDNN_F32, column);
    void *sum = strait_cudnn_virtual(g, STRAIT_CUDNN_F32, column);
    void *shares = strait_cudnn_virtual(g, STRAIT_CUDNN_BF16, square);
    strait_cudnn_reduce_op(g, STRAIT_CUDNN_MAX, max, scores);
    void *powers = apply(g, STRAIT_CUDNN_EXP, square,
                         apply(g, STRAIT_CUDNN_SUB, square, scores, max), NULL);
    strait_cudnn_reduce_op(g, STRAIT_CUDNN_SUM, sum, powers);
    strait_cudnn_pointwise_op(g, STRAIT_CUDNN_ADD, lse, max,
                              apply(g, STRAIT_CUDNN_LOG, column, sum, NULL), NULL);
    strait_cudnn_pointwise_op(g, STRAIT_CUDNN_DIV, shares, powers, sum, NULL);
    return shares;
}

void strait_cudnn_attention_graph(struct strait_cudnn_graph *g, const strait_cudnn_key *key) {
    const int64_t *at = key->at, length = at[STRAIT_CUDNN_TOKENS];
    const int64_t n_query = at[STRAIT_CUDNN_QUERY_HEADS], n_key = at[STRAIT_CUDNN_KEY_HEADS];
    const int64_t y_pitch = n_query * at[STRAIT_CUDNN_HEAD_DIM];
    const int64_t pitch = y_pitch + 2 * n_key * at[STRAIT_CUDNN_HEAD_DIM];
    const strait_cudnn_shape square = {{at[STRAIT_CUDNN_SEQUENCES], n_query, length, length}, {0}};
    const strait_cudnn_shape column = {{at[STRAIT_CUDNN_SEQUENCES], n_query, length, 1}, {0}};
    const strait_cudnn_type bf16 = STRAIT_CUDNN_BF16, f32 = STRAIT_CUDNN_F32;
    void *q = strait_cudnn_real(g, STRAIT_CUDNN_Q, bf16, rows(at, n_query, pitch));
    void *k = strait_cudnn_real(g, STRAIT_CUDNN_K, bf16, transposed(rows(at, n_key, pitch)));
    void *v = strait_cudnn_real(g, STRAIT_CUDNN_V, bf16, rows(at, n_key, pitch));
    void *y = strait_cudnn_real(g, STRAIT_CUDNN_Y, bf16, rows(at, n_query, y_pitch));
    void *lse = at[STRAIT_CUDNN_HAS_LSE] ? strait_cudnn_real(g, STRAIT_CUDNN_LSE, f32, column)
                                         : strait_cudnn_virtual(g, f32, column);
    void *products = strait_cudnn_virtual(g, f32, square);
    strait_cudnn_matmul_op(g, products, q, k);
    void *scores = apply(g, STRAIT_CUDNN_MUL, square, products,
                         strait_cudnn_number(g, STRAIT_CUDNN_SCALE));
    strait_cudnn_matmul_op(g, y, softmax(g, square, lse, masked(g, square, scores)), v);
}
