/* resbm_padded.c - the resbm codec's variant a for a bf16 stream: the function of resbm.c, computed
 * in the stream's type on padded copies of the parameters, with codes and sums in f32.
 *
 *   sender     n = rms(x);  a = n W1^T;  z = x[:k] + silu(a) W2^T
 *   receiver   a = z W1^T;  x' = [silu(a), z] [W2, I]^T
 *   receiver   da = (g W2) silu'(a);  dz = g[:k] + da W1
 *   sender     da = (dz W2) silu'(a);  dx = pad(dz) + (rstd da) W1 - (rstd (a . da) / d) n */
#include "codec/payload.h"
#include "codec/resbm.h"

/* K is k padded, T the type of the stream. */
typedef struct padded {
    strait_tensor a;                    // slots T [m]
    strait_tensor normed, rstd;         // sender: slots T [d], f32 [1]
    strait_tensor z;                    // receiver: slots T [K]
    strait_tensor d_a;                  // gradient slots T [m]
    strait_tensor half_d_z;             // sender: gradient slots T [K]
    strait_codec_saved_grad saved_grad; // receiver: the gradient of x
    strait_tensor h, d_h;               // [N x m] T
    strait_tensor scaled;               // sender: [N x m] T
    strait_tensor both;                 // receiver: [N x (m + K)] T: silu(a) and z
    strait_tensor code;                 // [N x K] f32: what is packed
    strait_tensor w1, w2;    // copies, T: sender [m x d], [K x m]; receiver [m x K], [d x m]
    strait_tensor w2i, unit; // receiver: [W2, I], T [d x (m + K)]; ones for it, f32 [k x k]
    strait_tensor scratch;   // f32 [m x K]: a product that a gradient is gathered from
} padded;

static padded *padded_of(const struct strait_codec *c) {
    return c->padded_state;
}

static strait_err plan_sender(struct strait_codec *c, padded *st) {
    const int64_t n = c->spec.rows, d = c->spec.cols, m = c->spec.hidden;
    const int64_t kp = strait_codec_pad(c->spec.keep), slots = strait_codec_slot_rows(c);
    const strait_codec_tensor typed[] = {{&st->normed, slots, d},
                                         {&st->half_d_z, strait_codec_grad_slot_rows(c), kp},
                                         {&st->scaled, n, m},
                                         {&st->w1, m, d},
                                         {&st->w2, kp, m}};
    const strait_codec_tensor wide[] = {{&st->rstd, slots, 1}};
    STRAIT_TRY(strait_codec_add_typed(c, c->spec.precision, typed, STRAIT_COUNT(typed)));
    STRAIT_TRY(strait_codec_add(c, wide, STRAIT_COUNT(wide)));
    STRAIT_TRY(strait_codec_add_copy(c, &c->params[W1].value, &st->w1, 0, strait_codec_whole(d)));
    return strait_codec_add_copy(c, &c->params[W2].value, &st->w2, 0, strait_codec_whole(m));
}

static strait_err plan_receiver(struct strait_codec *c, padded *st) {
    const int64_t n = c->spec.rows, d = c->spec.cols, m = c->spec.hidden, k = c->spec.keep;
    const int64_t kp = strait_codec_pad(k);
    const strait_codec_tensor typed[] = {
        {&st->z, strait_codec_slot_rows(c), kp},
        {&st->both, n, m + kp},
        {&st->w1, m, kp},
        {&st->w2, d, m},
        {&st->w2i, d, m + kp},
        {&st->saved_grad.saved, strait_codec_grad_slot_rows(c), d}};
    const strait_codec_tensor unit = {&st->unit, k, k};
    STRAIT_TRY(strait_codec_add_typed(c, c->spec.precision, typed,
                                      STRAIT_COUNT(typed) - !c->spec.can_defer));
    STRAIT_TRY(strait_codec_add(c, &unit, 1));
    STRAIT_TRY(
        strait_codec_add_copy(c, &c->params[W1].value, &st->w1, 0, strait_codec_padded(1, k)));
    STRAIT_TRY(strait_codec_add_copy(c, &c->params[W2].value, &st->w2, 0, strait_codec_whole(m)));
    return strait_codec_add_copy(c, &c->params[W2].value, &st->w2i, 0, strait_codec_whole(m));
}

/* Writes the identity part of [W2, I], which no parameter refreshes. */
static strait_err start(struct strait_codec *c, struct strait_stream *s) {
    const padded *st = padded_of(c);
    if (c->side == STRAIT_SENDER || c->spec.drops_identity) return STRAIT_OK;
    strait_regroup_params place = strait_codec_padded(1, c->spec.keep);
    place.to = c->spec.hidden;
    STRAIT_TRY(strait_codec_set_identity(s, st->unit));
    return c->backend->kernels->regroup_cols(s, strait_tensor_rows(st->w2i, 0, st->unit.rows),
                                             st->unit, place);
}

static strait_err plan(struct strait_codec *c) {
    padded *st = padded_of(c);
    const int64_t n = c->spec.rows, m = c->spec.hidden, kp = strait_codec_pad(c->spec.keep);
    const strait_codec_tensor typed[] = {{&st->a, strait_codec_slot_rows(c), m},
                                         {&st->d_a, strait_codec_grad_slot_rows(c), m},
                                         {&st->h, n, m},
                                         {&st->d_h, n, m}};
    const strait_codec_tensor wide[] = {{&st->code, n, kp}, {&st->scratch, m, kp}};
    STRAIT_TRY(strait_codec_add_typed(c, c->spec.precision, typed, STRAIT_COUNT(typed)));
    STRAIT_TRY(strait_codec_add(c, wide, STRAIT_COUNT(wide)));
    return c->side == STRAIT_SENDER ? plan_sender(c, st) : plan_receiver(c, st);
}

/* code = the first k columns of x, with zeros as padding; without the identity path only zeros. */
static strait_err cut(struct strait_codec *c, const strait_crossing *at, strait_tensor x) {
    const strait_tensor code = padded_of(c)->code;
    if (c->spec.drops_identity) return c->backend->kernels->fill(at->stream, code, 0.0f);
    return c->backend->kernels->regroup_cols(at->stream, code, x,
                                             strait_codec_padded(1, c->spec.keep));
}

static strait_err act_pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                           strait_tensor x) {
    const struct strait_kernels *k = c->backend->kernels;
    const padded *st = padded_of(c);
    const strait_tensor normed = strait_codec_slot(c, st->normed, at->slot), absent = {0};
    const strait_tensor a = strait_codec_slot(c, st->a, at->slot);
    STRAIT_TRY(k->rmsnorm(at->stream, normed, absent, strait_codec_slot(c, st->rstd, at->slot), x,
                          absent, (strait_norm_params){.epsilon = STRAIT_RESBM_EPSILON}));
    STRAIT_TRY(k->matmul(at->stream, a, normed, st->w1, strait_abt));
    STRAIT_TRY(k->silu(at->stream, st->h, a));
    STRAIT_TRY(cut(c, at, x));
    STRAIT_TRY(k->matmul(at->stream, st->code, st->h, st->w2, strait_add_abt));
    return strait_payload_pack(c, at, wire, st->code);
}

static strait_err act_unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor x,
                             strait_tensor wire) {
    const struct strait_kernels *k = c->backend->kernels;
    const padded *st = padded_of(c);
    const strait_tensor z = strait_codec_slot(c, st->z, at->slot);
    const strait_tensor a = strait_codec_slot(c, st->a, at->slot);
    STRAIT_TRY(strait_payload_unpack(c, at, z, wire));
    STRAIT_TRY(k->matmul(at->stream, a, z, st->w1, strait_abt));
    STRAIT_TRY(k->autoencoder->silu_cols(at->stream, st->both, a, 0, z));
    return k->matmul(at->stream, x, st->both, st->w2i, strait_abt);
}

static strait_err grad_pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                            strait_tensor g) {
    const struct strait_kernels *k = c->backend->kernels;
    padded *st = padded_of(c);
    const strait_tensor d_a = strait_codec_grad_slot(c, st->d_a, at->slot);
    STRAIT_TRY(strait_codec_save_grad(c, at, &st->saved_grad, g));
    STRAIT_TRY(k->matmul(at->stream, st->d_h, g, st->w2, strait_ab));
    STRAIT_TRY(k->silu_back(at->stream, d_a, st->d_h, strait_codec_slot(c, st->a, at->slot)));
    STRAIT_TRY(cut(c, at, g));
    STRAIT_TRY(k->matmul(at->stream, st->code, d_a, st->w1, strait_add_ab));
    return strait_payload_pack(c, at, wire, st->code);
}

static strait_err grad_unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor d_x,
                              strait_tensor wire) {
    const struct strait_kernels *k = c->backend->kernels;
    const padded *st = padded_of(c);
    const strait_tensor d_z = strait_codec_grad_slot(c, st->half_d_z, at->slot);
    const strait_norm_silu_grads back = {.d_a = strait_codec_grad_slot(c, st->d_a, at->slot),
                                         .scaled = st->scaled,
                                         .d_y = d_x,
                                         .d_h = st->d_h,
                                         .a = strait_codec_slot(c, st->a, at->slot),
                                         .rstd = strait_codec_slot(c, st->rstd, at->slot),
                                         .n = strait_codec_slot(c, st->normed, at->slot)};
    STRAIT_TRY(strait_payload_unpack(c, at, d_z, wire));
    STRAIT_TRY(k->matmul(at->stream, st->d_h, d_z, st->w2, strait_ab));
    STRAIT_TRY(k->autoencoder->norm_silu_back(at->stream, &back));
    STRAIT_TRY(k->matmul(at->stream, d_x, st->scaled, st->w1, strait_add_ab));
    if (c->spec.drops_identity) return STRAIT_OK;
    strait_regroup_params kept = strait_codec_whole(c->spec.keep);
    kept.adds = 1;
    return k->regroup_cols(at->stream, d_x, d_z, kept);
}

static strait_err param_grads(struct strait_codec *c, const strait_crossing *at) {
    const struct strait_kernels *k = c->backend->kernels;
    const padded *st = padded_of(c);
    const int is_sender = c->side == STRAIT_SENDER;
    const int64_t d = c->spec.cols, m = c->spec.hidden, keep = c->spec.keep;
    const strait_tensor d_a = strait_codec_grad_slot(c, st->d_a, at->slot);
    const strait_tensor in = strait_codec_slot(c, is_sender ? st->normed : st->z, at->slot);
    const strait_tensor d_out = is_sender ? strait_codec_grad_slot(c, st->half_d_z, at->slot)
                                          : strait_codec_saved_grad_at(c, at, &st->saved_grad);
    STRAIT_TRY(k->silu(at->stream, st->h, strait_codec_slot(c, st->a, at->slot)));
    STRAIT_TRY(strait_codec_add_gradient(c, at, c->params[W2].grad, d_out, st->h, st->scratch,
                                         strait_codec_whole(m)));
    return strait_codec_add_gradient(c, at, c->params[W1].grad, d_a, in, st->scratch,
                                     is_sender ? strait_codec_whole(d)
                                               : strait_codec_padded(1, keep));
}

const struct strait_codec_ops strait_resbm_padded_ops = {
    .name = "resbm",
    .state_size = sizeof(padded),
    .plan = plan,
    .start = start,
    .act_pack = act_pack,
    .act_unpack = act_unpack,
    .grad_pack = grad_pack,
    .grad_unpack = grad_unpack,
    .param_grads = param_grads,
};
