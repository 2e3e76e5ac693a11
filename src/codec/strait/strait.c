/* strait.c - the strait codec's variants tied and free: a residual stream in code space. Each
 * boundary carries a k-wide code z; each stage decodes it together with what it knows from the
 * token ids, and adds its own contribution to the code.
 *
 *   receiver   n = rms(z);  a = n V^T;  h = silu(a);  x = z D^T + h W^T + T[t] P^T
 *   sender     u = z + (y - x) E^T                          y is the stage's output for x
 *   sender     g = du E;  the stage's blocks turn g into dx;  dx -= g
 *   receiver   da = (dx W) silu'(a);  dz = du + dx D + rms_back(da V)
 *
 * T is the token table: one trained row per token id, which needs no bytes on the wire. E is the
 * encoder basis: it projects what the stage added to the stream on the code.
 *
 * Matrices are [outputs x inputs]. The two sides on one stage are joined: the sender needs z, the
 * receiver needs du. On the first stage there is no receiver and z is 0; on the last there is no
 * sender and du is 0. Rounding of u and dz on the wire counts as the identity backward. */
#include "codec/strait/strait.h"

#include "codec/payload.h"

#include <math.h>

struct strait_state {
    /* sender */
    strait_tensor delta; // slots [d]: y - x
    strait_tensor d_u;   // gradient slots [k]
    strait_tensor u;     // [N x k]
    /* receiver */
    strait_tensor z;            // slots [k]
    strait_tensor d_x;          // gradient slots [d]
    strait_tensor d_a;          // gradient slots [m]
    strait_tensor normed, rstd; // [N x k], [N x 1]
    strait_tensor a, h;         // [N x m]
    strait_tensor rows, d_rows; // [N x r]: of the token table
    strait_tensor d_z;          // [N x k]
};

static const char *const variants[] = {"tied", "free", NULL};

static strait_err check(strait_codec_spec *spec) {
    STRAIT_TRY(strait_codec_need_vocab(spec));
    STRAIT_TRY(strait_codec_need(spec, "keep", &spec->keep, 32, spec->cols));
    STRAIT_TRY(strait_codec_need(spec, "hidden", &spec->hidden, 8 * spec->keep, INT32_MAX));
    STRAIT_TRY(strait_codec_need(spec, "anchors", &spec->table_width, 128, spec->cols));
    spec->encodes_input = 0; // every stage has a token table here
    STRAIT_TRY(strait_codec_refuse_feedback(spec));
    return strait_payload_check(spec, 4);
}

static int can_pad(const strait_codec_spec *spec) {
    return !spec->is_stepwise;
}

static unsigned traits(const strait_codec_spec *spec) {
    (void)spec;
    return STRAIT_CODEC_TRAINED | STRAIT_CODEC_TOKENS | STRAIT_CODEC_INPUT;
}

/* Only strait_padded.c calls optional kernels. */
static unsigned kernels(const strait_codec_spec *spec) {
    return spec->is_padded ? STRAIT_NEEDS_AUTOENCODER : 0u;
}

static strait_err plan_sender(struct strait_codec *c) {
    struct strait_state *st = c->state;
    const int64_t k = c->spec.keep, d = c->spec.cols;
    const strait_codec_tensor tensors[] = {{&st->delta, strait_codec_slot_rows(c), d},
                                           {&st->d_u, strait_codec_grad_slot_rows(c), k},
                                           {&st->u, c->spec.rows, k}};
    STRAIT_TRY(strait_codec_add_param(c, "E", STRAIT_ROLE_ENCODER_BASIS, k, d));
    if (c->spec.is_padded) return STRAIT_OK; // strait_padded.c plans its own tensors
    return strait_codec_add(c, tensors, sizeof tensors / sizeof tensors[0]);
}

static strait_err plan_receiver(struct strait_codec *c) {
    struct strait_state *st = c->state;
    const strait_codec_spec *spec = &c->spec;
    const int64_t n = spec->rows, k = spec->keep, d = spec->cols, m = spec->hidden,
                  r = spec->table_width;
    const int64_t grads = strait_codec_grad_slot_rows(c);
    const strait_codec_tensor tensors[] = {
        {&st->z, strait_codec_slot_rows(c), k},
        {&st->d_x, grads, d},
        {&st->d_a, grads, m},
        {&st->normed, n, k},
        {&st->rstd, n, 1},
        {&st->a, n, m},
        {&st->h, n, m},
        {&st->rows, n, r},
        {&st->d_rows, n, r},
        {&st->d_z, n, k},
    };
    STRAIT_TRY(strait_codec_add_param(c, "D", STRAIT_ROLE_BOUNDARY, d, k));
    STRAIT_TRY(strait_codec_add_param(c, "V", STRAIT_ROLE_BOUNDARY, m, k));
    STRAIT_TRY(strait_codec_add_param(c, "W", STRAIT_ROLE_BOUNDARY, d, m));
    STRAIT_TRY(strait_codec_add_param(c, "T", STRAIT_ROLE_TOKEN_TABLE, spec->vocab, r));
    STRAIT_TRY(strait_codec_add_param(c, "P", STRAIT_ROLE_BOUNDARY, d, r));
    if (spec->is_padded) return STRAIT_OK;
    return strait_codec_add(c, tensors, sizeof tensors / sizeof tensors[0]);
}

static strait_err plan(struct strait_codec *c) {
    STRAIT_TRY(strait_meter_plan(&c->meter, &c->slab, c->spec.rows));
    return c->side == STRAIT_SENDER ? plan_sender(c) : plan_receiver(c);
}

/* Tied: every boundary starts from one orthonormal basis U, with E = U^T and D = U, so that the
 * code is one coherent stream from the first stage to the last. W starts at 0. The random stream
 * keeps its old name, frame: another name would change the initial values of every run. */
static strait_err start(struct strait_codec *c, struct strait_stream *s) {
    const strait_codec_spec *spec = &c->spec;
    const int is_tied = strait_codec_is_variant(spec, "tied");
    const strait_codec_basis_init basis = {"strait.frame", spec->keep, 1, c->side == STRAIT_SENDER};
    if (c->side == STRAIT_SENDER)
        return is_tied ? strait_codec_draw_basis(c, s, c->params[E].value, basis)
                       : strait_codec_draw(c, s, &c->params[E], sqrt(0.33 / (double)spec->cols));
    const double by_keep = 1 / sqrt((double)spec->keep);
    STRAIT_TRY(is_tied ? strait_codec_draw_basis(c, s, c->params[D].value, basis)
                       : strait_codec_draw(c, s, &c->params[D], by_keep));
    STRAIT_TRY(strait_codec_draw(c, s, &c->params[V], by_keep));
    STRAIT_TRY(strait_codec_draw(c, s, &c->params[T], 1));
    return strait_codec_draw(c, s, &c->params[P], 1 / sqrt((double)spec->table_width));
}

static strait_err act_pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                           strait_tensor y) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct strait_state *st = c->state;
    const strait_tensor delta = strait_codec_slot(c, st->delta, at->slot);
    STRAIT_TRY(k->cast(at->stream, delta, y));
    STRAIT_TRY(k->axpy(at->stream, delta, -1.0f, at->input));
    STRAIT_TRY(k->matmul(at->stream, st->u, delta, c->params[E].value, strait_abt));
    if (c->peer != NULL) {
        const struct strait_state *receiver = c->peer->state;
        const strait_tensor z = strait_codec_slot(c->peer, receiver->z, at->slot);
        STRAIT_TRY(k->axpy(at->stream, st->u, 1.0f, z));
    }
    return strait_payload_pack(c, at, wire, st->u);
}

/* Recomputes normed, rstd and a of a slot's code: [N x m] per slot would cost more memory than the
 * product costs time. */
static strait_err decode_inner(struct strait_codec *c, const strait_crossing *at) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct strait_state *st = c->state;
    const strait_tensor absent = {0};
    STRAIT_TRY(k->rmsnorm(at->stream, st->normed, absent, st->rstd,
                          strait_codec_slot(c, st->z, at->slot), absent,
                          (strait_norm_params){.epsilon = STRAIT_STRAIT_EPSILON}));
    return k->matmul(at->stream, st->a, st->normed, c->params[V].value, strait_abt);
}

static strait_err act_unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor x,
                             strait_tensor wire) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct strait_state *st = c->state;
    const strait_tensor z = strait_codec_slot(c, st->z, at->slot);
    STRAIT_TRY(strait_payload_unpack(c, at, z, wire));
    STRAIT_TRY(decode_inner(c, at));
    STRAIT_TRY(k->silu(at->stream, st->h, st->a));
    STRAIT_TRY(k->matmul(at->stream, x, z, c->params[D].value, strait_abt));
    STRAIT_TRY(k->matmul(at->stream, x, st->h, c->params[W].value, strait_add_abt));
    STRAIT_TRY(k->embed(at->stream, st->rows, c->params[T].value, at->tokens));
    return k->matmul(at->stream, x, st->rows, c->params[P].value, strait_add_abt);
}

static strait_err grad_unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor d_y,
                              strait_tensor wire) {
    const struct strait_state *st = c->state;
    const strait_tensor d_u = strait_codec_grad_slot(c, st->d_u, at->slot);
    STRAIT_TRY(strait_payload_unpack(c, at, d_u, wire));
    return c->backend->kernels->matmul(at->stream, d_y, d_u, c->params[E].value, strait_ab);
}

static strait_err input_grad(struct strait_codec *c, const strait_crossing *at, strait_tensor d_x) {
    const struct strait_state *st = c->state;
    const strait_tensor d_u = strait_codec_grad_slot(c, st->d_u, at->slot);
    return c->backend->kernels->matmul(at->stream, d_x, d_u, c->params[E].value,
                                       (strait_matmul_params){.alpha = -1, .beta = 1});
}

/* Computes the part of d_z that comes through x, and d_a, which param_grads needs. */
static strait_err code_grad(struct strait_codec *c, const strait_crossing *at, strait_tensor d_x) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct strait_state *st = c->state;
    const strait_tensor absent = {0};
    const strait_tensor d_a = strait_codec_grad_slot(c, st->d_a, at->slot);
    STRAIT_TRY(decode_inner(c, at));
    STRAIT_TRY(k->matmul(at->stream, st->h, d_x, c->params[W].value, strait_ab));
    STRAIT_TRY(k->silu_back(at->stream, d_a, st->h, st->a));
    STRAIT_TRY(k->matmul(at->stream, st->normed, d_a, c->params[V].value, strait_ab));
    STRAIT_TRY(k->matmul(at->stream, st->d_z, d_x, c->params[D].value, strait_ab));
    return k->rmsnorm_back(at->stream, st->d_z, absent, st->normed,
                           strait_codec_slot(c, st->z, at->slot), absent, st->rstd);
}

static strait_err grad_pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                            strait_tensor d_x) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct strait_state *st = c->state;
    STRAIT_TRY(k->cast(at->stream, strait_codec_grad_slot(c, st->d_x, at->slot), d_x));
    STRAIT_TRY(code_grad(c, at, d_x));
    if (c->peer != NULL) {
        const struct strait_state *sender = c->peer->state;
        const strait_tensor d_u = strait_codec_grad_slot(c->peer, sender->d_u, at->slot);
        STRAIT_TRY(k->axpy(at->stream, st->d_z, 1.0f, d_u));
    }
    return strait_payload_pack(c, at, wire, st->d_z);
}

static strait_err sender_grads(struct strait_codec *c, const strait_crossing *at) {
    const struct strait_state *st = c->state;
    return c->backend->kernels->matmul(at->stream, c->params[E].grad,
                                       strait_codec_grad_slot(c, st->d_u, at->slot),
                                       strait_codec_slot(c, st->delta, at->slot), strait_add_atb);
}

static strait_err table_grads(struct strait_codec *c, const strait_crossing *at,
                              strait_tensor d_x) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct strait_state *st = c->state;
    const strait_param *p = c->params;
    STRAIT_TRY(k->embed(at->stream, st->rows, p[T].value, at->tokens));
    STRAIT_TRY(k->matmul(at->stream, p[P].grad, d_x, st->rows, strait_add_atb));
    STRAIT_TRY(k->matmul(at->stream, st->d_rows, d_x, p[P].value, strait_ab));
    return k->embed_back(at->stream, p[T].grad, st->d_rows, at->tokens);
}

static strait_err receiver_grads(struct strait_codec *c, const strait_crossing *at) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct strait_state *st = c->state;
    const strait_param *p = c->params;
    const strait_tensor d_x = strait_codec_grad_slot(c, st->d_x, at->slot);
    const strait_tensor d_a = strait_codec_grad_slot(c, st->d_a, at->slot);
    const strait_tensor z = strait_codec_slot(c, st->z, at->slot);
    STRAIT_TRY(decode_inner(c, at));
    STRAIT_TRY(k->silu(at->stream, st->h, st->a));
    STRAIT_TRY(k->matmul(at->stream, p[D].grad, d_x, z, strait_add_atb));
    STRAIT_TRY(k->matmul(at->stream, p[W].grad, d_x, st->h, strait_add_atb));
    STRAIT_TRY(k->matmul(at->stream, p[V].grad, d_a, st->normed, strait_add_atb));
    return table_grads(c, at, d_x);
}

static strait_err param_grads(struct strait_codec *c, const strait_crossing *at) {
    return c->side == STRAIT_SENDER ? sender_grads(c, at) : receiver_grads(c, at);
}

extern const struct strait_codec_ops strait_codec_strait;

const struct strait_codec_ops strait_codec_strait = {
    .name = "strait",
    .variants = variants,
    .state_size = sizeof(struct strait_state),
    .kernels = kernels,
    .check = check,
    .traits = traits,
    .can_pad = can_pad,
    .padded = &strait_padded_ops,
    .wire_bytes = strait_payload_code_bytes,
    .plan = plan,
    .start = start,
    .join = strait_codec_join_codes,
    .act_pack = act_pack,
    .act_unpack = act_unpack,
    .grad_pack = grad_pack,
    .grad_unpack = grad_unpack,
    .input_grad = input_grad,
    .param_grads = param_grads,
};
