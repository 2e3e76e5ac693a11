/* bench_layers.c - the kernels of a transformer and of the optimizer for strait bench kernels.
 * X(id, name, tensors, flops, call): t are the tensors, k the kernels, s the stream. */
#include "bench.h"

static const strait_tensor none = {0};
static const strait_matmul_params abt = {.alpha = 1, .transpose_b = 1};
static const strait_matmul_params ab = {.alpha = 1};
static const strait_matmul_params add_atb = {.alpha = 1, .beta = 1, .transpose_a = 1};

/* The scale of scores does not affect the time. */
static strait_heads heads_of(const struct strait_lab *lab) {
    const strait_shape *s = &lab->plan.shape;
    return (strait_heads){.n_query = s->heads,
                          .n_key = s->kv_heads,
                          .head_dim = s->head_dim,
                          .seq_len = s->context,
                          .scale = 0.1f};
}

/* A norm with and without a gain are different code paths. */
static strait_norm_params norm_of(strait_tensor gain) {
    return (strait_norm_params){.gain = gain, .epsilon = 1e-5f};
}

/* angles: cosines and sines. */
static strait_rotate_params rotation_of(const struct strait_lab *lab, const strait_tensor *angles) {
    return (strait_rotate_params){.heads = heads_of(lab), .cos = angles[0], .sin = angles[1]};
}

/* t[0] = t[1] times t[2], or t[1]' times t[2]. */
static double product(const struct strait_lab *lab) {
    return 2.0 * (double)lab->t[0].rows * (double)lab->t[0].cols * (double)lab->t[1].cols;
}

/* The gradient of a weight sums over rows, so the inner dimension is another one. */
static double product_back(const struct strait_lab *lab) {
    return 2.0 * (double)lab->t[0].rows * (double)lab->t[0].cols * (double)lab->t[1].rows;
}

/* Two products of each token with half the context, because attention is causal. */
static double attention(const struct strait_lab *lab) {
    const strait_shape *s = &lab->plan.shape;
    return 2.0 * (double)lab->rows * (double)s->context * (double)strait_shape_attention_cols(s);
}

static double attention_back(const struct strait_lab *lab) {
    return 2.5 * attention(lab);
}

static strait_err update(struct strait_lab *lab, int n) {
    strait_adamw_item items[2];
    const strait_tensor *t = lab->t;
    const strait_adamw_params params = {1e-4f, 0.9f, 0.999f, 1e-8f, 0.01f, 10, {0}};
    for (int i = 0; i < n; i++)
        items[i] = (strait_adamw_item){t[4 * i + 1], t[4 * i + 2], t[4 * i + 3], t[4 * i + 4],
                                       params};
    if (n > 1) return lab->k->adamw_each(&lab->stream, items, n, t[0]);
    return lab->k->adamw(&lab->stream, t[1], t[2], t[3], t[4], t[0], params);
}

/* The last position of sequence 0. The numbers are written once per set of tensors: a copy would be
 * timed, too. */
static strait_err attend_last(struct strait_lab *lab) {
    static const void *written;
    const strait_tensor *t = lab->t;
    const int32_t sequence = 0, position = (int32_t)lab->plan.shape.context - 1;
    const struct strait_backend_ops *ops = lab->stream.backend->ops;
    if (written != t[4].data) {
        STRAIT_TRY(ops->upload(&lab->stream, t[4].data, &sequence, sizeof sequence));
        STRAIT_TRY(ops->upload(&lab->stream, t[5].data, &position, sizeof position));
        written = t[4].data;
    }
    return lab->k->attention_cached(&lab->stream, t[0], t[1], t[2], t[3],
                                    (strait_cached_rows){t[4], t[5]}, heads_of(lab));
}

#define KERNELS(X)                                                                                 \
    X(fill, "fill", "1and", NULL, k->fill(s, t[0], 0.5f))                                          \
    X(narrow, "cast f32 to stream", "1and 1fnd", NULL, k->cast(s, t[0], t[1]))                     \
    X(widen, "cast stream to f32", "1fnd 1and", NULL, k->cast(s, t[0], t[1]))                      \
    X(add, "add", "1and 1and 1and", NULL, k->add(s, t[0], t[1], t[2]))                             \
    X(axpy, "axpy", "2and 1and", NULL, k->axpy(s, t[0], 1e-6f, t[1]))                              \
    X(lerp, "lerp", "2and 1and", NULL, k->lerp(s, t[0], t[1], 0.1f))                               \
    X(qkv, "matmul qkv", "1anq 1and 1aqd", product, k->matmul(s, t[0], t[1], t[2], abt))           \
    X(qkv_x, "matmul qkv back x", "1and 1anq 1aqd", product, k->matmul(s, t[0], t[1], t[2], ab))   \
    X(qkv_w, "matmul qkv back w", "2fqd 1anq 1and", product_back,                                  \
      k->matmul(s, t[0], t[1], t[2], add_atb))                                                     \
    X(out, "matmul out", "1and 1anx 1adx", product, k->matmul(s, t[0], t[1], t[2], abt))           \
    X(up, "matmul up", "1anh 1and 1ahd", product, k->matmul(s, t[0], t[1], t[2], abt))             \
    X(up_x, "matmul up back x", "1and 1anh 1ahd", product, k->matmul(s, t[0], t[1], t[2], ab))     \
    X(up_w, "matmul up back w", "2fhd 1anh 1and", product_back,                                    \
      k->matmul(s, t[0], t[1], t[2], add_atb))                                                     \
    X(down, "matmul down", "1and 1anf 1adf", product, k->matmul(s, t[0], t[1], t[2], abt))         \
    X(down_x, "matmul down back x", "1anf 1and 1adf", product, k->matmul(s, t[0], t[1], t[2], ab)) \
    X(down_w, "matmul down back w", "2fdf 1and 1anf", product_back,                                \
      k->matmul(s, t[0], t[1], t[2], add_atb))                                                     \
    X(lm_head, "matmul head", "1alv 1ald 1avd", product, k->matmul(s, t[0], t[1], t[2], abt))      \
    X(squares, "sum_squares", "1f11 1fhd", NULL, k->sum_squares(s, t[0], t[1]))                    \
    X(each, "sum_squares_each", "1f21 1fhd 1fhd", NULL, k->sum_squares_each(s, t[0], t + 1, 2))    \
    X(normalise, "normalise", "1fhd 1fhd 1f11", NULL, k->normalise(s, t[0], t[1], t[2], 1.0f))     \
    X(embed, "embed", "1and 0avd 1in1", NULL, k->embed(s, t[0], t[1], t[2]))                       \
    X(embed_back, "embed_back", "0fvd 1and 1in1", NULL, k->embed_back(s, t[0], t[1], t[2]))        \
    X(norm, "rmsnorm", "1and 1and 1fn1 1and 1and 1f1d", NULL,                                      \
      k->rmsnorm(s, t[0], t[1], t[2], t[3], t[4], norm_of(t[5])))                                  \
    X(norm_back, "rmsnorm_back", "2and 1f1d 1and 1and 1f1d 1fn1", NULL,                            \
      k->rmsnorm_back(s, t[0], t[1], t[2], t[3], t[4], t[5]))                                      \
    X(rotate, "rotate", "2anq 1fsp 1fsp", NULL,                                                    \
      k->rotate(s, t[0], none, t[0], rotation_of(lab, t + 1)))                                     \
    X(rotate_back, "rotate_back", "2anq 1fsp 1fsp", NULL,                                          \
      k->rotate_back(s, t[0], none, t[0], none, none, rotation_of(lab, t + 1)))                    \
    X(attention, "attention", "1anx 1fng 1anq", attention,                                         \
      k->attention(s, t[0], t[1], t[2], heads_of(lab)))                                            \
    X(attention_back, "attention_back", "1anq 1anx 1anx 1anq 1fng", attention_back,                \
      k->attention_back(s, t[0], t[1], t[2], t[3], t[4], heads_of(lab)))                           \
    X(cached, "attention_cached", "1a1x 2asc 2asc 1a1q 1i11 1i11", NULL, attend_last(lab))         \
    X(swiglu, "swiglu", "1anf 1anj", NULL, k->swiglu(s, t[0], t[1]))                               \
    X(swiglu_back, "swiglu_back", "1anj 1anf 1anf 1anj", NULL,                                     \
      k->swiglu_back(s, t[0], t[1], t[2], t[3]))                                                   \
    X(relu2, "relu2", "1anf 1anf", NULL, k->relu2(s, t[0], t[1]))                                  \
    X(relu2_back, "relu2_back", "1anf 1anf 1anf 1anf", NULL,                                       \
      k->relu2_back(s, t[0], t[1], t[2], t[3]))                                                    \
    X(relu, "relu", "1and 1and", NULL, k->relu(s, t[0], t[1]))                                     \
    X(relu_back, "relu_back", "1and 1and 1and", NULL, k->relu_back(s, t[0], t[1], t[2]))           \
    X(conv, "conv", "1and 1and 1ftd", NULL,                                                        \
      k->conv->forward(s, t[0], t[1], t[2], lab->plan.shape.context))                              \
    X(conv_back, "conv_back", "1and 2ftd 1and 1and 1ftd", NULL,                                    \
      k->conv->back(s, t[0], t[1], t[2], t[3], t[4], lab->plan.shape.context))                     \
    X(add_cols, "add_cols", "0anq 2anx", NULL, k->add_cols(s, t[0], t[1], 0))                      \
    X(cut_cols, "cut_cols", "1anx 0anq 1anx", NULL, k->cut_cols(s, t[0], t[1], 0))                 \
    X(loss, "cross_entropy", "1fl1 2alv 1il1", NULL,                                               \
      k->cross_entropy(s, t[0], t[1], t[2], (strait_loss_params){.scale = 1e-4f}))                 \
    X(clip, "clip", "1f21 1fe1", NULL, k->clip(s, t[0], t[1], 1.0f))                               \
    X(adamw, "adamw", "1f11 2fhd 2fhd 2fhd 1fhd", NULL, update(lab, 1))                            \
    X(adamw_each, "adamw_each", "1f11 2fhd 2fhd 2fhd 1fhd 2fdf 2fdf 2fdf 1fdf", NULL,              \
      update(lab, 2))

STRAIT_LAB_FAMILY(KERNELS, strait_lab_layers)
