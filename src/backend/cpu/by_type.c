/* by_type.c - the kernels of a device opened for bf16: each call goes to the f32 or the bf16
 * version of its kernel, by the type of one of its tensors. Kernels that are not listed here take
 * both types (cast, columns, payloads of log scales, autoencoders) or f32 only. */
#include "backend/cpu/cpu.h"

static const struct strait_kernel_set *set_for(const struct strait_stream *s, strait_tensor t) {
    const struct strait_cpu *cpu = s->backend->state;
    return t.dtype == STRAIT_BF16 ? &cpu->half : &cpu->f32;
}

/* `of` is the tensor that decides. */
#define SELECT(table, name, of, params, args)   \
    static strait_err name params {             \
        return set_for(s, of)->table.name args; \
    }

typedef struct strait_stream *stream;
typedef strait_tensor tensor;

SELECT(base, fill, y, (stream s, tensor y, float value), (s, y, value))
SELECT(base, add, y, (stream s, tensor y, tensor a, tensor b), (s, y, a, b))
SELECT(base, axpy, y, (stream s, tensor y, float alpha, tensor x), (s, y, alpha, x))
SELECT(base, lerp, y, (stream s, tensor y, tensor x, float t), (s, y, x, t))
SELECT(base, matmul, a, (stream s, tensor y, tensor a, tensor b, strait_matmul_params params),
       (s, y, a, b, params))
SELECT(base, sum_squares, x, (stream s, tensor total, tensor x), (s, total, x))
SELECT(base, normalise, y, (stream s, tensor y, tensor x, tensor total, float epsilon),
       (s, y, x, total, epsilon))
SELECT(base, embed, y, (stream s, tensor y, tensor table, tensor tokens), (s, y, table, tokens))
SELECT(base, embed_back, d_y, (stream s, tensor d_table, tensor d_y, tensor tokens),
       (s, d_table, d_y, tokens))
SELECT(base, rmsnorm, x,
       (stream s, tensor y, tensor sum, tensor rstd, tensor x, tensor delta,
        strait_norm_params params),
       (s, y, sum, rstd, x, delta, params))
SELECT(base, rmsnorm_back, x,
       (stream s, tensor d_x, tensor d_gain, tensor d_y, tensor x, tensor gain, tensor rstd),
       (s, d_x, d_gain, d_y, x, gain, rstd))
SELECT(base, rotate, x, (stream s, tensor y, tensor rstd, tensor x, strait_rotate_params params),
       (s, y, rstd, x, params))
SELECT(base, rotate_back, d_y,
       (stream s, tensor d_x, tensor d_gain, tensor d_y, tensor x, tensor rstd,
        strait_rotate_params params),
       (s, d_x, d_gain, d_y, x, rstd, params))
SELECT(base, attention, qkv, (stream s, tensor y, tensor lse, tensor qkv, strait_heads heads),
       (s, y, lse, qkv, heads))
SELECT(base, attention_back, qkv,
       (stream s, tensor d_qkv, tensor d_y, tensor y, tensor qkv, tensor lse, strait_heads heads),
       (s, d_qkv, d_y, y, qkv, lse, heads))
SELECT(base, attention_cached, qkv,
       (stream s, tensor y, tensor keys, tensor values, tensor qkv, strait_cached_rows at,
        strait_heads heads),
       (s, y, keys, values, qkv, at, heads))
SELECT(base, swiglu, y, (stream s, tensor y, tensor gate_up), (s, y, gate_up))
SELECT(base, swiglu_back, d_y, (stream s, tensor d_gate_up, tensor y, tensor d_y, tensor gate_up),
       (s, d_gate_up, y, d_y, gate_up))
SELECT(base, relu2, x, (stream s, tensor y, tensor x), (s, y, x))
SELECT(base, relu2_back, x, (stream s, tensor d_x, tensor y, tensor d_y, tensor x),
       (s, d_x, y, d_y, x))
SELECT(base, relu, x, (stream s, tensor y, tensor x), (s, y, x))
SELECT(base, relu_back, x, (stream s, tensor d_x, tensor d_y, tensor x), (s, d_x, d_y, x))
SELECT(base, silu, x, (stream s, tensor y, tensor x), (s, y, x))
SELECT(base, silu_back, x, (stream s, tensor d_x, tensor d_y, tensor x), (s, d_x, d_y, x))
SELECT(base, resize_cols, x, (stream s, tensor y, tensor x), (s, y, x))
SELECT(base, cross_entropy, logits,
       (stream s, tensor loss, tensor logits, tensor targets, strait_loss_params params),
       (s, loss, logits, targets, params))
SELECT(base, restore_rows, x,
       (stream s, tensor x, tensor stats, tensor packed, strait_pack_params params),
       (s, x, stats, packed, params))
SELECT(base, measure_rows, x, (stream s, tensor stats, tensor x, tensor error),
       (s, stats, x, error))
SELECT(conv, forward, x, (stream s, tensor y, tensor x, tensor w, int64_t seq_len),
       (s, y, x, w, seq_len))
SELECT(conv, back, x,
       (stream s, tensor d_x, tensor d_w, tensor d_y, tensor x, tensor w, int64_t seq_len),
       (s, d_x, d_w, d_y, x, w, seq_len))
SELECT(conv, cached, x,
       (stream s, tensor y, tensor ring, tensor x, tensor w, strait_cached_rows at),
       (s, y, ring, x, w, at))
SELECT(token_gates, apply, x, (stream s, tensor y, tensor x, tensor table, tensor tokens),
       (s, y, x, table, tokens))
SELECT(token_gates, apply_back, x,
       (stream s, tensor d_x, tensor d_rows, tensor d_y, tensor x, tensor table, tensor tokens),
       (s, d_x, d_rows, d_y, x, table, tokens))

/* One assignment per line above. */
void strait_cpu_by_type(struct strait_kernel_set *set) {
    struct strait_kernels *k = &set->base;
    k->fill = fill, k->add = add, k->axpy = axpy, k->lerp = lerp;
    k->matmul = matmul, k->sum_squares = sum_squares, k->normalise = normalise;
    k->embed = embed, k->embed_back = embed_back;
    k->rmsnorm = rmsnorm, k->rmsnorm_back = rmsnorm_back;
    k->rotate = rotate, k->rotate_back = rotate_back;
    k->attention = attention, k->attention_back = attention_back;
    k->attention_cached = attention_cached;
    k->swiglu = swiglu, k->swiglu_back = swiglu_back;
    k->relu2 = relu2, k->relu2_back = relu2_back;
    k->relu = relu, k->relu_back = relu_back;
    k->silu = silu, k->silu_back = silu_back;
    k->resize_cols = resize_cols, k->cross_entropy = cross_entropy;
    k->restore_rows = restore_rows, k->measure_rows = measure_rows;
    set->conv.forward = forward, set->conv.back = back, set->conv.cached = cached;
    set->token_gates.apply = apply, set->token_gates.apply_back = apply_back;
}
