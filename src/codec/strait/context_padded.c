/* context_padded.c - the strait codec's variant context for a bf16 stream: the function of
 * context.c, computed in the stream's type on padded copies of the parameters. What crosses, sums
 * and norms of codes are f32.
 *
 *   receiver   c, r = the last codes of z, of rms(z);  a = r V^T;  x = g ([c, silu(a)] [D, W]^T)
 *   sender     n = rms(y);  b = n A^T;  u = [h (y - x), silu(b), z] [E, B, M]^T
 *   sender     db = (du B) silu'(b);  e = h (du E);  dy = e + (rstd db) A - (rstd (b . db) / d) n;
 *              dx -= e
 *   receiver   [dc, dh] = (g dx) [D, W];  da = dh silu'(a);  dz = du M + back(dc) +
 *              rms_back(back(da V))
 *
 * The line of dy is rms_back(db A) with its dot product computed in b's space, where it is shorter:
 * n . (db A) = b . db. */
#include "codec/payload.h"
#include "codec/strait/context.h"

/* K is k padded, T the type of the stream. Matrices whose outputs sum to the same
 * rows are one: [E, B, M] and [D, W]. */
typedef struct padded {
    /* sender */
    strait_tensor seen;           // slots T [d + w + K]: h (y - x), silu(b), z
    strait_tensor delta;          // slots T [d]: y - x; with gates only
    strait_tensor normed, b;      // slots T [d], [w]: rms(y), rms(y) A'
    strait_tensor y_rstd;         // slots f32 [1]
    strait_tensor d_u, d_b;       // gradient slots T [K], [w]
    strait_tensor d_delta;        // gradient slots T [d]
    strait_tensor u;              // [N x K] f32
    strait_tensor d_h, scaled;    // [N x w] T
    strait_tensor ebm;            // copy, T [K x (d + w + K)]
    strait_tensor half_e, half_a; // copies, T: [K x d], [w x d]
    strait_tensor half_b, half_m; // copies, T: [K x w], [K x K]
    /* receiver */
    strait_tensor z, z_rstd;    // slots f32 [K], [1]
    strait_tensor both;         // slots T [nK + m]: last(z) and silu(a)
    strait_tensor normeds, a;   // slots T [nK], [m]: last(rms z) and its product with V
    strait_tensor d_both;       // [N x (nK + m)] T
    strait_tensor d_normeds;    // [N x nK] T
    strait_tensor d_a;          // gradient slots T [m]
    strait_tensor wide, d_wide; // slots and gradient slots T [d]: x before the gates; with gates
    strait_codec_saved_grad saved_grad; // the gradient of x; without gates
    strait_tensor d_z;                  // [N x K] f32
    strait_tensor dw, half_v;           // copies, T: [d x (nK + m)], [m x nK]
    /* both sides */
    strait_tensor scratch; // f32: products that gradients are gathered from
} padded;

static padded *padded_of(const struct strait_codec *c) {
    return c->padded_state;
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static strait_err plan_types(struct strait_codec *c, const strait_codec_tensor *typed,
                             size_t n_typed, const strait_codec_tensor *wide, size_t n_wide) {
    STRAIT_TRY(strait_codec_add_typed(c, c->spec.precision, typed, n_typed));
    return strait_codec_add(c, wide, n_wide);
}

/* The columns of B and M in [E, B, M]. */
static strait_regroup_params place_in_ebm(const strait_codec_spec *spec, int which) {
    strait_regroup_params place = which == B ? strait_codec_whole(spec->encoder)
                                             : strait_codec_padded(1, spec->keep);
    place.to = spec->cols + (which == B ? 0 : spec->encoder);
    return place;
}

static strait_err copy_params(struct strait_codec *c, padded *st) {
    const strait_codec_spec *spec = &c->spec;
    const strait_regroup_params whole = strait_codec_whole(spec->cols);
    const strait_param *p = c->params;
    STRAIT_TRY(strait_codec_add_copy(c, &p[E].value, &st->half_e, 0, whole));
    STRAIT_TRY(strait_codec_add_copy(c, &p[A].value, &st->half_a, 0, whole));
    STRAIT_TRY(strait_codec_add_copy(c, &p[E].value, &st->ebm, 0, whole));
    STRAIT_TRY(strait_codec_add_copy(c, &p[B].value, &st->ebm, 0, place_in_ebm(spec, B)));
    STRAIT_TRY(
        strait_codec_add_copy(c, &p[B].value, &st->half_b, 0, strait_codec_whole(spec->encoder)));
    if (spec->boundary == 0) return STRAIT_OK;
    STRAIT_TRY(strait_codec_add_copy(c, &p[M].value, &st->ebm, 0, place_in_ebm(spec, M)));
    return strait_codec_add_copy(c, &p[M].value, &st->half_m, 0,
                                 strait_codec_padded(1, spec->keep));
}

static strait_err plan_sender(struct strait_codec *c) {
    padded *st = padded_of(c);
    const int64_t n = c->spec.rows, d = c->spec.cols, w = c->spec.encoder, k = c->spec.keep;
    const int64_t kp = strait_codec_pad(k);
    const int64_t slots = strait_codec_slot_rows(c), grads = strait_codec_grad_slot_rows(c);
    const strait_codec_tensor typed[] = {{&st->seen, slots, d + w + kp},
                                         {&st->normed, slots, d},
                                         {&st->b, slots, w},
                                         {&st->d_b, grads, w},
                                         {&st->d_u, grads, kp},
                                         {&st->d_delta, grads, d},
                                         {&st->d_h, n, w},
                                         {&st->scaled, n, w},
                                         {&st->half_e, kp, d},
                                         {&st->half_a, w, d},
                                         {&st->ebm, kp, d + w + kp},
                                         {&st->half_b, kp, w},
                                         {&st->half_m, kp, kp},
                                         {&st->delta, slots, d}};
    const strait_codec_tensor wide[] = {
        {&st->y_rstd, slots, 1}, {&st->u, n, kp}, {&st->scratch, kp, d + w + kp}};
    STRAIT_TRY(plan_types(c, typed, STRAIT_COUNT(typed) - !strait_context_has_gates(&c->spec), wide,
                          STRAIT_COUNT(wide)));
    return copy_params(c, st);
}

/* The columns of W in [D, W]. */
static strait_regroup_params place_in_dw(const strait_codec_spec *spec) {
    strait_regroup_params place = strait_codec_whole(spec->hidden);
    place.to = spec->context * strait_codec_pad(spec->keep);
    return place;
}

static strait_err plan_receiver(struct strait_codec *c) {
    padded *st = padded_of(c);
    const strait_codec_spec *spec = &c->spec;
    const int64_t n = spec->rows, d = spec->cols, m = spec->hidden, k = spec->keep;
    const int64_t kp = strait_codec_pad(k), nk = spec->context * kp;
    const int64_t slots = strait_codec_slot_rows(c), grads = strait_codec_grad_slot_rows(c);
    const strait_codec_tensor typed[] = {{&st->both, slots, nk + m}, {&st->d_both, n, nk + m},
                                         {&st->normeds, slots, nk},  {&st->d_normeds, n, nk},
                                         {&st->a, slots, m},         {&st->d_a, grads, m},
                                         {&st->dw, d, nk + m},       {&st->half_v, m, nk}};
    const strait_codec_tensor gated[] = {{&st->wide, slots, d}, {&st->d_wide, grads, d}};
    const strait_codec_tensor kept = {&st->saved_grad.saved, grads, d};
    const strait_codec_tensor wide[] = {{&st->z, slots, kp},
                                        {&st->z_rstd, slots, 1},
                                        {&st->d_z, n, kp},
                                        {&st->scratch, larger(d, m), nk + m}};
    STRAIT_TRY(plan_types(c, typed, STRAIT_COUNT(typed), wide, STRAIT_COUNT(wide)));
    if (strait_context_has_gates(spec))
        STRAIT_TRY(strait_codec_add_typed(c, spec->precision, gated, STRAIT_COUNT(gated)));
    else if (spec->can_defer)
        STRAIT_TRY(strait_codec_add_typed(c, spec->precision, &kept, 1));
    const strait_param *p = c->params;
    const strait_regroup_params codes = strait_codec_padded(spec->context, k);
    STRAIT_TRY(strait_codec_add_copy(c, &p[D].value, &st->dw, 0, codes));
    STRAIT_TRY(strait_codec_add_copy(c, &p[W].value, &st->dw, 0, place_in_dw(spec)));
    return strait_codec_add_copy(c, &p[V].value, &st->half_v, 0, codes);
}

static strait_err plan(struct strait_codec *c) {
    return c->side == STRAIT_SENDER ? plan_sender(c) : plan_receiver(c);
}

/* The first columns of delta become y - x, or y; normed and rstd those of y. */
static strait_err subtract_norm(struct strait_codec *c, const strait_crossing *at,
                                strait_tensor delta, strait_tensor y) {
    const struct strait_kernels *k = c->backend->kernels;
    const padded *st = padded_of(c);
    const strait_tensor normed = strait_codec_slot(c, st->normed, at->slot), absent = {0};
    const strait_tensor rstd = strait_codec_slot(c, st->y_rstd, at->slot);
    if (!strait_context_encodes_input(c))
        return k->autoencoder->subtract_norm(at->stream, delta, normed, rstd, y, at->input,
                                             STRAIT_CONTEXT_EPSILON);
    STRAIT_TRY(k->rmsnorm(at->stream, normed, absent, rstd, y, absent,
                          (strait_norm_params){.epsilon = STRAIT_CONTEXT_EPSILON}));
    return k->regroup_cols(at->stream, delta, y, strait_codec_whole(y.cols));
}

static strait_err act_pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                           strait_tensor y) {
    const struct strait_kernels *k = c->backend->kernels;
    const padded *st = padded_of(c);
    const strait_tensor seen = strait_codec_slot(c, st->seen, at->slot);
    const strait_tensor normed = strait_codec_slot(c, st->normed, at->slot);
    const strait_tensor b = strait_codec_slot(c, st->b, at->slot);
    strait_tensor z = {0};
    if (c->peer != NULL) z = strait_codec_slot(c->peer, padded_of(c->peer)->z, at->slot);
    const strait_tensor delta = strait_context_has_gates(&c->spec)
                                    ? strait_codec_slot(c, st->delta, at->slot)
                                    : seen;
    STRAIT_TRY(subtract_norm(c, at, delta, y));
    if (strait_context_has_gates(&c->spec)) STRAIT_TRY(strait_context_gate(c, at, seen, delta));
    STRAIT_TRY(k->matmul(at->stream, b, normed, st->half_a, strait_abt));
    STRAIT_TRY(k->autoencoder->silu_cols(at->stream, seen, b, y.cols, z));
    STRAIT_TRY(k->matmul(at->stream, st->u, seen, st->ebm, strait_abt));
    return strait_context_send(c, at, wire, st->u);
}

static strait_window_params window_of(const strait_codec_spec *spec) {
    return (strait_window_params){spec->keep, spec->context, spec->seq_len, STRAIT_CONTEXT_EPSILON};
}

static strait_err act_unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor x,
                             strait_tensor wire) {
    const struct strait_kernels *k = c->backend->kernels;
    const padded *st = padded_of(c);
    const strait_tensor z = strait_codec_slot(c, st->z, at->slot);
    const strait_tensor both = strait_codec_slot(c, st->both, at->slot);
    const strait_tensor normeds = strait_codec_slot(c, st->normeds, at->slot);
    const strait_tensor a = strait_codec_slot(c, st->a, at->slot);
    STRAIT_TRY(strait_context_receive(c, at, z, wire));
    STRAIT_TRY(k->autoencoder->window_norm(at->stream, both, normeds,
                                           strait_codec_slot(c, st->z_rstd, at->slot), z,
                                           window_of(&c->spec)));
    STRAIT_TRY(k->matmul(at->stream, a, normeds, st->half_v, strait_abt));
    STRAIT_TRY(k->autoencoder->silu_cols(at->stream, both, a, normeds.cols, (strait_tensor){0}));
    if (!strait_context_has_gates(&c->spec))
        return k->matmul(at->stream, x, both, st->dw, strait_abt);
    const strait_tensor wide = strait_codec_slot(c, st->wide, at->slot);
    STRAIT_TRY(k->matmul(at->stream, wide, both, st->dw, strait_abt));
    return strait_context_gate(c, at, x, wide);
}

/* d_delta = h (du E). With gates, delta is replaced by the rows whose sum is the gradient of h. */
static strait_err delta_back(struct strait_codec *c, const strait_crossing *at, strait_tensor d_u,
                             strait_tensor d_delta) {
    const struct strait_kernels *k = c->backend->kernels;
    STRAIT_TRY(k->matmul(at->stream, d_delta, d_u, padded_of(c)->half_e, strait_ab));
    if (!strait_context_has_gates(&c->spec)) return STRAIT_OK;
    const strait_tensor delta = strait_codec_slot(c, padded_of(c)->delta, at->slot);
    return strait_context_gate_back(c, at, d_delta, d_delta, delta);
}

static strait_err grad_unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor d_y,
                              strait_tensor wire) {
    const struct strait_kernels *k = c->backend->kernels;
    const padded *st = padded_of(c);
    const strait_tensor d_delta = strait_codec_grad_slot(c, st->d_delta, at->slot);
    const strait_tensor d_u = strait_codec_grad_slot(c, st->d_u, at->slot);
    const strait_norm_silu_grads back = {.d_a = strait_codec_grad_slot(c, st->d_b, at->slot),
                                         .scaled = st->scaled,
                                         .d_y = d_y,
                                         .d_h = st->d_h,
                                         .a = strait_codec_slot(c, st->b, at->slot),
                                         .rstd = strait_codec_slot(c, st->y_rstd, at->slot),
                                         .n = strait_codec_slot(c, st->normed, at->slot),
                                         .plus = d_delta};
    STRAIT_TRY(strait_context_receive(c, at, d_u, wire));
    STRAIT_TRY(delta_back(c, at, d_u, d_delta));
    STRAIT_TRY(k->matmul(at->stream, st->d_h, d_u, st->half_b, strait_ab));
    STRAIT_TRY(k->autoencoder->norm_silu_back(at->stream, &back));
    return k->matmul(at->stream, d_y, st->scaled, st->half_a, strait_add_ab);
}

static strait_err input_grad(struct strait_codec *c, const strait_crossing *at, strait_tensor d_x) {
    if (strait_context_encodes_input(c)) return STRAIT_OK;
    return c->backend->kernels->axpy(at->stream, d_x, -1.0f,
                                     strait_codec_grad_slot(c, padded_of(c)->d_delta, at->slot));
}

/* *d, the gradient of x, becomes the gradient of x before the gates; it stays valid until
 * param_grads. */
static strait_err wide_back(struct strait_codec *c, const strait_crossing *at, strait_tensor *d) {
    padded *st = padded_of(c);
    if (!strait_context_has_gates(&c->spec))
        return strait_codec_save_grad(c, at, &st->saved_grad, *d);
    const strait_tensor wide = strait_codec_slot(c, st->wide, at->slot), d_x = *d;
    *d = strait_codec_grad_slot(c, st->d_wide, at->slot);
    return strait_context_gate_back(c, at, *d, d_x, wide);
}

static strait_err grad_pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                            strait_tensor d) {
    const struct strait_kernels *k = c->backend->kernels;
    padded *st = padded_of(c);
    const strait_tensor d_a = strait_codec_grad_slot(c, st->d_a, at->slot);
    STRAIT_TRY(wide_back(c, at, &d));
    STRAIT_TRY(k->matmul(at->stream, st->d_both, d, st->dw, strait_ab));
    STRAIT_TRY(k->autoencoder->silu_cols_back(
        at->stream, d_a, st->d_both, strait_codec_slot(c, st->a, at->slot), st->normeds.cols));
    STRAIT_TRY(k->matmul(at->stream, st->d_normeds, d_a, st->half_v, strait_ab));
    STRAIT_TRY(k->autoencoder->window_norm_back(
        at->stream, st->d_z, st->d_both, st->d_normeds, strait_codec_slot(c, st->z, at->slot),
        strait_codec_slot(c, st->z_rstd, at->slot), window_of(&c->spec)));
    if (c->peer != NULL)
        STRAIT_TRY(k->matmul(at->stream, st->d_z,
                             strait_codec_grad_slot(c->peer, padded_of(c->peer)->d_u, at->slot),
                             padded_of(c->peer)->half_m, strait_add_ab));
    return strait_context_send(c, at, wire, st->d_z);
}

static strait_err sender_grads(struct strait_codec *c, const strait_crossing *at) {
    const padded *st = padded_of(c);
    const strait_codec_spec *spec = &c->spec;
    const strait_param *p = c->params;
    const strait_regroup_params whole = strait_codec_whole(spec->cols);
    STRAIT_TRY(c->backend->kernels->matmul(at->stream, st->scratch,
                                           strait_codec_grad_slot(c, st->d_u, at->slot),
                                           strait_codec_slot(c, st->seen, at->slot), strait_atb));
    STRAIT_TRY(strait_context_gate_grads(c, at, st->delta));
    STRAIT_TRY(strait_codec_gather(c, at, p[E].grad, st->scratch, whole));
    STRAIT_TRY(strait_codec_gather(c, at, p[B].grad, st->scratch, place_in_ebm(spec, B)));
    if (c->peer != NULL)
        STRAIT_TRY(strait_codec_gather(c, at, p[M].grad, st->scratch, place_in_ebm(spec, M)));
    return strait_codec_add_gradient(c, at, p[A].grad, strait_codec_grad_slot(c, st->d_b, at->slot),
                                     strait_codec_slot(c, st->normed, at->slot), st->scratch,
                                     whole);
}

static strait_err receiver_grads(struct strait_codec *c, const strait_crossing *at) {
    const padded *st = padded_of(c);
    const strait_param *p = c->params;
    const strait_codec_spec *spec = &c->spec;
    const strait_regroup_params codes = strait_codec_padded(spec->context, spec->keep);
    const strait_tensor d = strait_context_has_gates(spec)
                                ? strait_codec_grad_slot(c, st->d_wide, at->slot)
                                : strait_codec_saved_grad_at(c, at, &st->saved_grad);
    const strait_tensor product = {st->scratch.data, STRAIT_F32, spec->cols, st->both.cols};
    STRAIT_TRY(strait_context_gate_grads(c, at, st->wide));
    STRAIT_TRY(c->backend->kernels->matmul(at->stream, product, d,
                                           strait_codec_slot(c, st->both, at->slot), strait_atb));
    STRAIT_TRY(strait_codec_gather(c, at, p[D].grad, product, codes));
    STRAIT_TRY(strait_codec_gather(c, at, p[W].grad, product, place_in_dw(spec)));
    return strait_codec_add_gradient(c, at, p[V].grad, strait_codec_grad_slot(c, st->d_a, at->slot),
                                     strait_codec_slot(c, st->normeds, at->slot), st->scratch,
                                     codes);
}

static strait_err param_grads(struct strait_codec *c, const strait_crossing *at) {
    return c->side == STRAIT_SENDER ? sender_grads(c, at) : receiver_grads(c, at);
}

const struct strait_codec_ops strait_context_padded_ops = {
    .name = "strait",
    .state_size = sizeof(padded),
    .plan = plan,
    .act_pack = act_pack,
    .act_unpack = act_unpack,
    .grad_pack = grad_pack,
    .grad_unpack = grad_unpack,
    .input_grad = input_grad,
    .param_grads = param_grads,
};
