/* strait_padded.c - the strait codec's variants tied and free for a bf16 stream: the function of
 * strait.c, computed in the stream's type on padded copies of the parameters, with codes and sums
 * in f32.
 *
 *   receiver   a = rms(z) V^T;  x = [z, silu(a), T[t]] [D, W, P]^T
 *   sender     u = z + (y - x) E^T
 *   sender     dy = du E;  dx -= du E
 *   receiver   [dz, dh, dt] = dx [D, W, P];  da = dh silu'(a);  dz += du + rms_back(da V) */
#include "codec/payload.h"
#include "codec/strait/strait.h"

/* K is k padded; tensors not marked f32 have the stream's type. The matrices whose outputs sum to x
 * are one: [D, W, P]. */
typedef struct padded {
    /* sender */
    strait_tensor delta;    // slots [d]: y - x
    strait_tensor d_u;      // gradient slots f32 [K]
    strait_tensor half_d_u; // gradient slots [K]
    strait_tensor u;        // [N x K] f32
    strait_tensor e;        // copy [K x d]
    /* receiver */
    strait_tensor z, rstd;              // slots f32 [K], [1]
    strait_tensor all;                  // slots [K + m + r]: z, silu(a), T[t]
    strait_tensor normed, a;            // slots [K], [m]
    strait_tensor d_all, d_normed;      // [N x (K + m + r)], [N x K]
    strait_tensor d_a, d_table_rows;    // gradient slots [m], [r]
    strait_tensor table_rows;           // [N x r]: T[t]
    strait_codec_saved_grad saved_grad; // the gradient of x
    strait_tensor d_z;                  // [N x K] f32
    strait_tensor dwp, v;               // copies [d x (K + m + r)], [m x K]
    /* both sides */
    strait_tensor scratch; // f32: products that gradients are gathered from
} padded;

static padded *padded_of(const struct strait_codec *c) {
    return c->padded_state;
}

static strait_err plan_sender(struct strait_codec *c) {
    padded *st = padded_of(c);
    const int64_t d = c->spec.cols, kp = strait_codec_pad(c->spec.keep);
    const int64_t grads = strait_codec_grad_slot_rows(c);
    const strait_codec_tensor typed[] = {
        {&st->delta, strait_codec_slot_rows(c), d}, {&st->half_d_u, grads, kp}, {&st->e, kp, d}};
    const strait_codec_tensor wide[] = {
        {&st->d_u, grads, kp}, {&st->u, c->spec.rows, kp}, {&st->scratch, kp, d}};
    STRAIT_TRY(strait_codec_add_typed(c, c->spec.precision, typed, STRAIT_COUNT(typed)));
    STRAIT_TRY(strait_codec_add(c, wide, STRAIT_COUNT(wide)));
    return strait_codec_add_copy(c, &c->params[E].value, &st->e, 0, strait_codec_whole(d));
}

/* The columns of W and P in [D, W, P]. */
static strait_regroup_params place_of(const strait_codec_spec *spec, int which) {
    strait_regroup_params place = strait_codec_whole(which == W ? spec->hidden : spec->table_width);
    place.to = strait_codec_pad(spec->keep) + (which == W ? 0 : spec->hidden);
    return place;
}

static strait_err plan_receiver(struct strait_codec *c) {
    padded *st = padded_of(c);
    const strait_codec_spec *spec = &c->spec;
    const int64_t n = spec->rows, d = spec->cols, m = spec->hidden, r = spec->table_width;
    const int64_t kp = strait_codec_pad(spec->keep), all = kp + m + r;
    const int64_t slots = strait_codec_slot_rows(c), grads = strait_codec_grad_slot_rows(c);
    const strait_codec_tensor typed[] = {
        {&st->all, slots, all},  {&st->normed, slots, kp},         {&st->a, slots, m},
        {&st->d_all, n, all},    {&st->d_normed, n, kp},           {&st->d_a, grads, m},
        {&st->table_rows, n, r}, {&st->d_table_rows, grads, r},    {&st->dwp, d, all},
        {&st->v, m, kp},         {&st->saved_grad.saved, grads, d}};
    const strait_codec_tensor wide[] = {{&st->z, slots, kp},
                                        {&st->rstd, slots, 1},
                                        {&st->d_z, n, kp},
                                        {&st->scratch, d > m ? d : m, all}};
    STRAIT_TRY(
        strait_codec_add_typed(c, spec->precision, typed, STRAIT_COUNT(typed) - !spec->can_defer));
    STRAIT_TRY(strait_codec_add(c, wide, STRAIT_COUNT(wide)));
    const strait_param *p = c->params;
    const strait_regroup_params code = strait_codec_padded(1, spec->keep);
    STRAIT_TRY(strait_codec_add_copy(c, &p[D].value, &st->dwp, 0, code));
    STRAIT_TRY(strait_codec_add_copy(c, &p[W].value, &st->dwp, 0, place_of(spec, W)));
    STRAIT_TRY(strait_codec_add_copy(c, &p[P].value, &st->dwp, 0, place_of(spec, P)));
    return strait_codec_add_copy(c, &p[V].value, &st->v, 0, code);
}

static strait_err plan(struct strait_codec *c) {
    return c->side == STRAIT_SENDER ? plan_sender(c) : plan_receiver(c);
}

static strait_err act_pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                           strait_tensor y) {
    const struct strait_kernels *k = c->backend->kernels;
    const padded *st = padded_of(c);
    const strait_tensor delta = strait_codec_slot(c, st->delta, at->slot), absent = {0};
    STRAIT_TRY(k->autoencoder->subtract_norm(at->stream, delta, absent, absent, y, at->input, 0));
    STRAIT_TRY(k->matmul(at->stream, st->u, delta, st->e, strait_abt));
    if (c->peer != NULL)
        STRAIT_TRY(k->axpy(at->stream, st->u, 1.0f,
                           strait_codec_slot(c->peer, padded_of(c->peer)->z, at->slot)));
    return strait_payload_pack(c, at, wire, st->u);
}

/* A window of one token: each code on its own. */
static strait_window_params itself(const strait_codec_spec *spec) {
    return (strait_window_params){spec->keep, 1, 1, STRAIT_STRAIT_EPSILON};
}

static strait_err act_unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor x,
                             strait_tensor wire) {
    const struct strait_kernels *k = c->backend->kernels;
    const padded *st = padded_of(c);
    const strait_tensor z = strait_codec_slot(c, st->z, at->slot);
    const strait_tensor all = strait_codec_slot(c, st->all, at->slot);
    const strait_tensor normed = strait_codec_slot(c, st->normed, at->slot);
    const strait_tensor a = strait_codec_slot(c, st->a, at->slot);
    STRAIT_TRY(strait_payload_unpack(c, at, z, wire));
    STRAIT_TRY(k->autoencoder->window_norm(
        at->stream, all, normed, strait_codec_slot(c, st->rstd, at->slot), z, itself(&c->spec)));
    STRAIT_TRY(k->matmul(at->stream, a, normed, st->v, strait_abt));
    STRAIT_TRY(k->embed(at->stream, st->table_rows, c->params[T].value, at->tokens));
    STRAIT_TRY(k->autoencoder->silu_cols(at->stream, all, a, normed.cols, st->table_rows));
    return k->matmul(at->stream, x, all, st->dwp, strait_abt);
}

static strait_err grad_unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor d_y,
                              strait_tensor wire) {
    const struct strait_kernels *k = c->backend->kernels;
    const padded *st = padded_of(c);
    const strait_tensor d_u = strait_codec_grad_slot(c, st->d_u, at->slot);
    const strait_tensor half = strait_codec_grad_slot(c, st->half_d_u, at->slot);
    STRAIT_TRY(strait_payload_unpack(c, at, d_u, wire));
    STRAIT_TRY(k->cast(at->stream, half, d_u));
    return k->matmul(at->stream, d_y, half, st->e, strait_ab);
}

static strait_err input_grad(struct strait_codec *c, const strait_crossing *at, strait_tensor d_x) {
    return c->backend->kernels->matmul(
        at->stream, d_x, strait_codec_grad_slot(c, padded_of(c)->half_d_u, at->slot),
        padded_of(c)->e, (strait_matmul_params){.alpha = -1, .beta = 1});
}

/* Computes d_z, d_a and d_table_rows from d_x. */
static strait_err code_grad(struct strait_codec *c, const strait_crossing *at, strait_tensor d_x) {
    const struct strait_kernels *k = c->backend->kernels;
    const padded *st = padded_of(c);
    const strait_tensor d_a = strait_codec_grad_slot(c, st->d_a, at->slot);
    const strait_tensor d_table_rows = strait_codec_grad_slot(c, st->d_table_rows, at->slot);
    STRAIT_TRY(k->matmul(at->stream, st->d_all, d_x, st->dwp, strait_ab));
    STRAIT_TRY(k->cut_cols(at->stream, d_table_rows, st->d_all, place_of(&c->spec, P).to));
    STRAIT_TRY(k->autoencoder->silu_cols_back(
        at->stream, d_a, st->d_all, strait_codec_slot(c, st->a, at->slot), st->normed.cols));
    STRAIT_TRY(k->matmul(at->stream, st->d_normed, d_a, st->v, strait_ab));
    return k->autoencoder->window_norm_back(
        at->stream, st->d_z, st->d_all, st->d_normed, strait_codec_slot(c, st->z, at->slot),
        strait_codec_slot(c, st->rstd, at->slot), itself(&c->spec));
}

static strait_err grad_pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                            strait_tensor d_x) {
    const struct strait_kernels *k = c->backend->kernels;
    padded *st = padded_of(c);
    STRAIT_TRY(strait_codec_save_grad(c, at, &st->saved_grad, d_x));
    STRAIT_TRY(code_grad(c, at, d_x));
    if (c->peer != NULL)
        STRAIT_TRY(k->axpy(at->stream, st->d_z, 1.0f,
                           strait_codec_grad_slot(c->peer, padded_of(c->peer)->d_u, at->slot)));
    return strait_payload_pack(c, at, wire, st->d_z);
}

static strait_err receiver_grads(struct strait_codec *c, const strait_crossing *at) {
    const padded *st = padded_of(c);
    const strait_codec_spec *spec = &c->spec;
    const strait_param *p = c->params;
    const strait_regroup_params code = strait_codec_padded(1, spec->keep);
    const strait_tensor d_x = strait_codec_saved_grad_at(c, at, &st->saved_grad);
    const strait_tensor product = {st->scratch.data, STRAIT_F32, spec->cols, st->all.cols};
    STRAIT_TRY(c->backend->kernels->matmul(at->stream, product, d_x,
                                           strait_codec_slot(c, st->all, at->slot), strait_atb));
    STRAIT_TRY(strait_codec_gather(c, at, p[D].grad, product, code));
    STRAIT_TRY(strait_codec_gather(c, at, p[W].grad, product, place_of(spec, W)));
    STRAIT_TRY(strait_codec_gather(c, at, p[P].grad, product, place_of(spec, P)));
    STRAIT_TRY(
        strait_codec_add_gradient(c, at, p[V].grad, strait_codec_grad_slot(c, st->d_a, at->slot),
                                  strait_codec_slot(c, st->normed, at->slot), st->scratch, code));
    return c->backend->kernels->embed_back(
        at->stream, p[T].grad, strait_codec_grad_slot(c, st->d_table_rows, at->slot), at->tokens);
}

static strait_err param_grads(struct strait_codec *c, const strait_crossing *at) {
    const padded *st = padded_of(c);
    if (c->side == STRAIT_RECEIVER) return receiver_grads(c, at);
    return strait_codec_add_gradient(
        c, at, c->params[E].grad, strait_codec_grad_slot(c, st->half_d_u, at->slot),
        strait_codec_slot(c, st->delta, at->slot), st->scratch, strait_codec_whole(c->spec.cols));
}

const struct strait_codec_ops strait_padded_ops = {
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
