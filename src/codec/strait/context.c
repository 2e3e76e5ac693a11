/* context.c - the strait codec's variant context, its default: the residual stream in code space of
 * strait.c, with a decoder that also reads the codes of the previous tokens, a nonlinear encoder,
 * and token gates. What follows from the token ids alone is left to the model (model.conv,
 * model.anchors, model.value_tables).
 *
 *   receiver   n = rms(z);  c, r = the last codes of z, of n;  a = r V^T
 *              x = g (c D^T + silu(a) W^T)
 *   sender     b = rms(y) A^T;  u = z M^T + h (y - x) E^T + silu(b) B^T
 *   sender     db = (du B) silu'(b);  e = h (du E);  dy = e + rms_back(db A)
 *              the stage's blocks turn dy into dx;  dx -= e
 *   receiver   dv = g dx;  da = (dv W) silu'(a)
 *              dz = du M + back(dv D) + rms_back(back(da V))
 *
 * y is the stage's output for x. g and h are the token gates, which depend on the token alone
 * (context_gates.c): both sides know it, so the meaning of a code may depend on it. Without gates
 * they are 1. back() returns to each code the gradients of the later tokens that read it.
 *
 * Matrices are [outputs x inputs]. On the first stage there is no receiver, z is 0 and there is no
 * M; on the last there is no sender and du is 0. With spec.encodes_input the first sender encodes y
 * instead of y - x. Rounding of u and dz on the wire counts as the identity backward. */
#include "codec/strait/context.h"

#include "codec/payload.h"

#include <math.h>

/* The inner layer of the encoder or decoder: a norm, a product and a nonlinearity. It is recomputed
 * in the backward pass, which costs less than keeping it per slot. */
struct inner {
    strait_tensor normed, rstd; // [N x inputs], [N x 1]
    strait_tensor a, h;         // [N x width]
};

struct context_state {
    struct strait_context_gates gates;
    struct inner inner;
    /* sender */
    strait_tensor delta, gated, y; // slots [d]: y - x, h (y - x), y
    strait_tensor d_u, d_b;        // gradient slots [k], [w]
    strait_tensor d_delta;         // gradient slots [d]
    strait_tensor u;               // [N x k]
    /* receiver */
    strait_tensor z;              // slots [k]
    strait_tensor wide;           // slots [d]: x before the gates
    strait_tensor d_wide, d_a;    // gradient slots [d], [m]
    strait_tensor codes, normeds; // [N x nk]
    strait_tensor d_z;            // [N x k]
    strait_tensor past;           // stepwise: [n x k], the codes of the last tokens
};

static const char *const variants[] = {"context", NULL};

static strait_err check(strait_codec_spec *spec) {
    STRAIT_TRY(strait_codec_need(spec, "keep", &spec->keep, STRAIT_CONTEXT_KEEP, spec->cols));
    STRAIT_TRY(strait_codec_need(spec, "hidden", &spec->hidden, 512, INT32_MAX));
    STRAIT_TRY(strait_codec_need(spec, "encoder", &spec->encoder, 256, INT32_MAX));
    STRAIT_TRY(strait_codec_need(spec, "context", &spec->context, 4, 64));
    if (spec->encoder_gain == 0) spec->encoder_gain = 1;
    spec->table_width = 0; // token tables are part of the model here
    if (spec->seq_len == 0) spec->seq_len = spec->rows;
    if (spec->rows % spec->seq_len != 0 || (spec->is_stepwise && spec->rows != 1))
        return STRAIT_FAIL(
            STRAIT_ECONFIG,
            "codec strait: a microbatch of %lld tokens is not made of whole sequences of "
            "%lld",
            (long long)spec->rows, (long long)spec->seq_len);
    if (strait_context_has_gates(spec)) STRAIT_TRY(strait_codec_need_vocab(spec));
    if (spec->has_gates && spec->gate_width > 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "link.codec.gains and link.codec.gate_width exclude "
                                           "each other");
    if (spec->gate_width % 8 != 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "link.codec.gate_width: %lld is not a multiple of 8",
                           (long long)spec->gate_width);
    STRAIT_TRY(strait_codec_refuse_feedback(spec));
    return strait_payload_check(spec, 4);
}

static int can_pad(const strait_codec_spec *spec) {
    return !spec->is_stepwise; // padding does not pay for a single row
}

int strait_context_encodes_input(const struct strait_codec *c) {
    return c->spec.encodes_input && c->spec.boundary == 0;
}

static unsigned traits(const strait_codec_spec *spec) {
    return STRAIT_CODEC_TRAINED | STRAIT_CODEC_INPUT |
           (strait_context_has_gates(spec) ? STRAIT_CODEC_TOKENS : 0u) |
           (spec->gate_width > 0 ? STRAIT_CODEC_TABLE : 0u);
}

static unsigned kernels(const strait_codec_spec *spec) {
    const int has_log_scale = strait_codec_bits(spec, STRAIT_FORWARD) == 4 ||
                              strait_codec_bits(spec, STRAIT_BACKWARD) == 4;
    return STRAIT_NEEDS_AUTOENCODER | (has_log_scale ? STRAIT_NEEDS_LOG_SCALE : 0u) |
           (strait_context_has_gates(spec) ? STRAIT_NEEDS_TOKEN_GATES : 0u);
}

static strait_err plan_inner(struct strait_codec *c, int64_t rows, int64_t inputs, int64_t width) {
    struct inner *inner = &((struct context_state *)c->state)->inner;
    const strait_codec_tensor tensors[] = {{&inner->normed, rows, inputs},
                                           {&inner->rstd, rows, 1},
                                           {&inner->a, c->spec.rows, width},
                                           {&inner->h, c->spec.rows, width}};
    return strait_codec_add(c, tensors, sizeof tensors / sizeof tensors[0]);
}

static strait_err plan_sender(struct strait_codec *c) {
    struct context_state *st = c->state;
    const int64_t k = c->spec.keep, d = c->spec.cols, w = c->spec.encoder;
    const int64_t slots = strait_codec_slot_rows(c), grads = strait_codec_grad_slot_rows(c);
    const strait_codec_tensor tensors[] = {{&st->delta, slots, d},   {&st->gated, slots, d},
                                           {&st->y, slots, d},       {&st->d_u, grads, k},
                                           {&st->d_b, grads, w},     {&st->d_delta, grads, d},
                                           {&st->u, c->spec.rows, k}};
    STRAIT_TRY(strait_codec_add_param(c, "E", STRAIT_ROLE_ENCODER_BASIS, k, d));
    STRAIT_TRY(strait_codec_add_param(c, "A", STRAIT_ROLE_BOUNDARY, w, d));
    STRAIT_TRY(strait_codec_add_param(c, "B", STRAIT_ROLE_BOUNDARY, k, w));
    if (c->spec.boundary > 0) STRAIT_TRY(strait_codec_add_param(c, "M", STRAIT_ROLE_MIXING, k, k));
    STRAIT_TRY(strait_context_plan_gates(c));
    if (c->spec.is_padded) return STRAIT_OK; // context_padded.c plans its own tensors
    STRAIT_TRY(plan_inner(c, c->spec.rows, d, w));
    return strait_codec_add(c, tensors, sizeof tensors / sizeof tensors[0]);
}

static strait_err plan_receiver(struct strait_codec *c) {
    struct context_state *st = c->state;
    const strait_codec_spec *spec = &c->spec;
    const int64_t k = spec->keep, d = spec->cols, m = spec->hidden, n = spec->context;
    const int64_t rows = spec->is_stepwise ? n : spec->rows;
    const int64_t grads = strait_codec_grad_slot_rows(c);
    const strait_codec_tensor tensors[] = {{&st->z, strait_codec_slot_rows(c), k},
                                           {&st->wide, strait_codec_slot_rows(c), d},
                                           {&st->d_wide, grads, d},
                                           {&st->d_a, grads, m},
                                           {&st->codes, rows, n * k},
                                           {&st->normeds, rows, n * k},
                                           {&st->d_z, spec->rows, k}};
    STRAIT_TRY(strait_codec_add_param(c, "D", STRAIT_ROLE_BOUNDARY, d, n * k));
    STRAIT_TRY(strait_codec_add_param(c, "V", STRAIT_ROLE_BOUNDARY, m, n * k));
    STRAIT_TRY(strait_codec_add_param(c, "W", STRAIT_ROLE_BOUNDARY, d, m));
    STRAIT_TRY(strait_context_plan_gates(c));
    if (spec->is_padded) return STRAIT_OK;
    STRAIT_TRY(plan_inner(c, rows, k, m));
    const strait_codec_tensor past = {&st->past, n * spec->n_slots, k};
    if (spec->is_stepwise) STRAIT_TRY(strait_codec_add(c, &past, 1));
    return strait_codec_add(c, tensors, sizeof tensors / sizeof tensors[0]);
}

static strait_err plan(struct strait_codec *c) {
    STRAIT_TRY(strait_meter_plan(&c->meter, &c->slab, c->spec.rows));
    return c->side == STRAIT_SENDER ? plan_sender(c) : plan_receiver(c);
}

/* The encoder basis E on the sender, on the receiver the part of D that reads the token's own code.
 * The random stream keeps its old name, frame, which determines the initial values. */
static strait_err start_basis(struct strait_codec *c, struct strait_stream *s) {
    const strait_codec_spec *spec = &c->spec;
    const int is_sender = c->side == STRAIT_SENDER;
    const strait_codec_basis_init basis = {
        "strait.frame", spec->keep, is_sender ? spec->encoder_gain : spec->basis_gain, is_sender};
    const strait_param *param = &c->params[is_sender ? E : D];
    if (spec->basis_gain > 0) return strait_codec_draw_basis(c, s, param->value, basis);
    if (is_sender)
        return strait_codec_draw(c, s, param, spec->encoder_gain * sqrt(0.33 / (double)spec->cols));
    return strait_codec_draw_cols(c, s, param, 1 / sqrt((double)spec->keep), spec->keep);
}

/* B, W and G stay at 0: at the start encoder and decoder are linear, read one token, and treat all
 * tokens alike. */
static strait_err start(struct strait_codec *c, struct strait_stream *s) {
    const strait_codec_spec *spec = &c->spec;
    STRAIT_TRY(start_basis(c, s));
    STRAIT_TRY(strait_context_start_gates(c, s));
    if (c->side == STRAIT_SENDER) {
        STRAIT_TRY(strait_codec_draw(c, s, &c->params[A], sqrt(0.33 / (double)spec->cols)));
        return spec->boundary > 0 ? strait_codec_set_identity(s, c->params[M].value) : STRAIT_OK;
    }
    return strait_codec_draw(c, s, &c->params[V],
                             1 / sqrt((double)spec->keep) / sqrt((double)spec->context));
}

/* Computes normed, rstd, and b (in inner.a) from a slot's y. */
static strait_err encode_inner(struct strait_codec *c, const strait_crossing *at) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct context_state *st = c->state;
    const struct inner *inner = &st->inner;
    const strait_tensor absent = {0};
    STRAIT_TRY(k->rmsnorm(at->stream, inner->normed, absent, inner->rstd,
                          strait_codec_slot(c, st->y, at->slot), absent,
                          (strait_norm_params){.epsilon = STRAIT_CONTEXT_EPSILON}));
    return k->matmul(at->stream, inner->a, inner->normed, c->params[A].value, strait_abt);
}

static strait_err act_pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                           strait_tensor y) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct context_state *st = c->state;
    const strait_tensor delta = strait_codec_slot(c, st->delta, at->slot);
    const strait_tensor gated = strait_codec_slot(c, st->gated, at->slot);
    STRAIT_TRY(k->cast(at->stream, strait_codec_slot(c, st->y, at->slot), y));
    STRAIT_TRY(k->cast(at->stream, delta, y));
    if (!strait_context_encodes_input(c)) STRAIT_TRY(k->axpy(at->stream, delta, -1.0f, at->input));
    STRAIT_TRY(strait_context_gate(c, at, gated, delta));
    STRAIT_TRY(k->matmul(at->stream, st->u, gated, c->params[E].value, strait_abt));
    STRAIT_TRY(encode_inner(c, at));
    STRAIT_TRY(k->silu(at->stream, st->inner.h, st->inner.a));
    STRAIT_TRY(k->matmul(at->stream, st->u, st->inner.h, c->params[B].value, strait_add_abt));
    if (c->peer != NULL) {
        const struct context_state *receiver = c->peer->state;
        const strait_tensor z = strait_codec_slot(c->peer, receiver->z, at->slot);
        STRAIT_TRY(k->matmul(at->stream, st->u, z, c->params[M].value, strait_add_abt));
    }
    return strait_context_send(c, at, wire, st->u);
}

/* Stepwise: the codes of the last tokens of the sequence that crosses, one per slot. */
static strait_tensor past_codes(const struct strait_codec *c, const strait_crossing *at) {
    const strait_tensor all = ((const struct context_state *)c->state)->past;
    return strait_tensor_rows(all, at->slot * c->spec.context, c->spec.context);
}

/* Stepwise: appends the new code to those of the last tokens and drops the oldest. */
static strait_err remember(struct strait_codec *c, const strait_crossing *at, strait_tensor z) {
    const struct strait_kernels *k = c->backend->kernels;
    const strait_tensor past = past_codes(c, at);
    if (at->past == 0) STRAIT_TRY(k->fill(at->stream, past, 0.0f));
    for (int64_t i = 0; i + 1 < past.rows; i++)
        STRAIT_TRY(k->cast(at->stream, strait_tensor_rows(past, i, 1),
                           strait_tensor_rows(past, i + 1, 1)));
    return k->cast(at->stream, strait_tensor_rows(past, past.rows - 1, 1), z);
}

/* The rows of the tokens that cross: the last ones, because a stepwise window also holds earlier
 * tokens. */
static strait_tensor crossing_rows(const struct strait_codec *c, strait_tensor t) {
    return strait_tensor_rows(t, t.rows - c->spec.rows, c->spec.rows);
}

/* Computes codes, normeds and a. `all` are the codes to read: a slot's, or the stepwise window. */
static strait_err decode_inner(struct strait_codec *c, const strait_crossing *at,
                               strait_tensor all) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct context_state *st = c->state;
    const struct inner *inner = &st->inner;
    const strait_tensor absent = {0};
    const int64_t seq_len = c->spec.is_stepwise ? all.rows : c->spec.seq_len;
    STRAIT_TRY(k->rmsnorm(at->stream, inner->normed, absent, inner->rstd, all, absent,
                          (strait_norm_params){.epsilon = STRAIT_CONTEXT_EPSILON}));
    STRAIT_TRY(k->autoencoder->window(at->stream, st->codes, all, seq_len));
    STRAIT_TRY(k->autoencoder->window(at->stream, st->normeds, inner->normed, seq_len));
    return k->matmul(at->stream, inner->a, crossing_rows(c, st->normeds), c->params[V].value,
                     strait_abt);
}

static strait_err act_unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor x,
                             strait_tensor wire) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct context_state *st = c->state;
    const strait_tensor z = strait_codec_slot(c, st->z, at->slot);
    STRAIT_TRY(strait_context_receive(c, at, z, wire));
    if (c->spec.is_stepwise) STRAIT_TRY(remember(c, at, z));
    STRAIT_TRY(decode_inner(c, at, c->spec.is_stepwise ? past_codes(c, at) : z));
    STRAIT_TRY(k->silu(at->stream, st->inner.h, st->inner.a));
    const strait_tensor wide = strait_codec_slot(c, st->wide, at->slot);
    STRAIT_TRY(
        k->matmul(at->stream, wide, crossing_rows(c, st->codes), c->params[D].value, strait_abt));
    STRAIT_TRY(k->matmul(at->stream, wide, st->inner.h, c->params[W].value, strait_add_abt));
    return strait_context_gate(c, at, x, wide);
}

static strait_err grad_unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor d_y,
                              strait_tensor wire) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct context_state *st = c->state;
    const struct inner *inner = &st->inner;
    const strait_tensor absent = {0};
    const strait_tensor d_u = strait_codec_grad_slot(c, st->d_u, at->slot);
    const strait_tensor d_b = strait_codec_grad_slot(c, st->d_b, at->slot);
    const strait_tensor d_delta = strait_codec_grad_slot(c, st->d_delta, at->slot);
    STRAIT_TRY(strait_context_receive(c, at, d_u, wire));
    STRAIT_TRY(encode_inner(c, at));
    STRAIT_TRY(k->matmul(at->stream, inner->h, d_u, c->params[B].value, strait_ab));
    STRAIT_TRY(k->silu_back(at->stream, d_b, inner->h, inner->a));
    STRAIT_TRY(k->matmul(at->stream, inner->normed, d_b, c->params[A].value, strait_ab));
    STRAIT_TRY(k->matmul(at->stream, d_delta, d_u, c->params[E].value, strait_ab));
    STRAIT_TRY(strait_context_gate_back(c, at, d_delta, d_delta,
                                        strait_codec_slot(c, st->delta, at->slot)));
    STRAIT_TRY(k->cast(at->stream, d_y, d_delta));
    return k->rmsnorm_back(at->stream, d_y, absent, inner->normed,
                           strait_codec_slot(c, st->y, at->slot), absent, inner->rstd);
}

static strait_err input_grad(struct strait_codec *c, const strait_crossing *at, strait_tensor d_x) {
    const struct context_state *st = c->state;
    if (strait_context_encodes_input(c)) return STRAIT_OK;
    return c->backend->kernels->axpy(at->stream, d_x, -1.0f,
                                     strait_codec_grad_slot(c, st->d_delta, at->slot));
}

/* Computes the part of d_z that comes through the stream, and d_a, which param_grads needs. */
static strait_err code_grad(struct strait_codec *c, const strait_crossing *at, strait_tensor d) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct context_state *st = c->state;
    const struct inner *inner = &st->inner;
    const strait_tensor absent = {0};
    const strait_tensor z = strait_codec_slot(c, st->z, at->slot);
    const strait_tensor d_a = strait_codec_grad_slot(c, st->d_a, at->slot);
    STRAIT_TRY(decode_inner(c, at, z));
    STRAIT_TRY(k->matmul(at->stream, inner->h, d, c->params[W].value, strait_ab));
    STRAIT_TRY(k->silu_back(at->stream, d_a, inner->h, inner->a));
    STRAIT_TRY(k->matmul(at->stream, st->normeds, d_a, c->params[V].value, strait_ab));
    STRAIT_TRY(
        k->autoencoder->window_back(at->stream, inner->normed, st->normeds, c->spec.seq_len));
    STRAIT_TRY(k->matmul(at->stream, st->codes, d, c->params[D].value, strait_ab));
    STRAIT_TRY(k->autoencoder->window_back(at->stream, st->d_z, st->codes, c->spec.seq_len));
    return k->rmsnorm_back(at->stream, st->d_z, absent, inner->normed, z, absent, inner->rstd);
}

static strait_err grad_pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                            strait_tensor d_x) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct context_state *st = c->state;
    const strait_tensor d_wide = strait_codec_grad_slot(c, st->d_wide, at->slot);
    STRAIT_TRY(
        strait_context_gate_back(c, at, d_wide, d_x, strait_codec_slot(c, st->wide, at->slot)));
    STRAIT_TRY(code_grad(c, at, d_wide));
    if (c->peer != NULL) {
        const struct context_state *sender = c->peer->state;
        const strait_tensor d_u = strait_codec_grad_slot(c->peer, sender->d_u, at->slot);
        STRAIT_TRY(k->matmul(at->stream, st->d_z, d_u, c->peer->params[M].value, strait_add_ab));
    }
    return strait_context_send(c, at, wire, st->d_z);
}

static strait_err sender_grads(struct strait_codec *c, const strait_crossing *at) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct context_state *st = c->state;
    const strait_param *p = c->params;
    const strait_tensor d_u = strait_codec_grad_slot(c, st->d_u, at->slot);
    const strait_tensor d_b = strait_codec_grad_slot(c, st->d_b, at->slot);
    STRAIT_TRY(encode_inner(c, at));
    STRAIT_TRY(k->silu(at->stream, st->inner.h, st->inner.a));
    STRAIT_TRY(k->matmul(at->stream, p[E].grad, d_u, strait_codec_slot(c, st->gated, at->slot),
                         strait_add_atb));
    STRAIT_TRY(strait_context_gate_grads(c, at, st->delta));
    STRAIT_TRY(k->matmul(at->stream, p[A].grad, d_b, st->inner.normed, strait_add_atb));
    STRAIT_TRY(k->matmul(at->stream, p[B].grad, d_u, st->inner.h, strait_add_atb));
    if (c->peer == NULL) return STRAIT_OK;
    const struct context_state *receiver = c->peer->state;
    return k->matmul(at->stream, p[M].grad, d_u, strait_codec_slot(c->peer, receiver->z, at->slot),
                     strait_add_atb);
}

static strait_err receiver_grads(struct strait_codec *c, const strait_crossing *at) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct context_state *st = c->state;
    const strait_param *p = c->params;
    const strait_tensor d = strait_codec_grad_slot(c, st->d_wide, at->slot);
    const strait_tensor d_a = strait_codec_grad_slot(c, st->d_a, at->slot);
    STRAIT_TRY(strait_context_gate_grads(c, at, st->wide));
    STRAIT_TRY(decode_inner(c, at, strait_codec_slot(c, st->z, at->slot)));
    STRAIT_TRY(k->silu(at->stream, st->inner.h, st->inner.a));
    STRAIT_TRY(k->matmul(at->stream, p[D].grad, d, st->codes, strait_add_atb));
    STRAIT_TRY(k->matmul(at->stream, p[W].grad, d, st->inner.h, strait_add_atb));
    return k->matmul(at->stream, p[V].grad, d_a, st->normeds, strait_add_atb);
}

static strait_err param_grads(struct strait_codec *c, const strait_crossing *at) {
    return c->side == STRAIT_SENDER ? sender_grads(c, at) : receiver_grads(c, at);
}

const struct strait_codec_ops strait_codec_context = {
    .name = "strait",
    .variants = variants,
    .state_size = sizeof(struct context_state),
    .kernels = kernels,
    .check = check,
    .traits = traits,
    .can_pad = can_pad,
    .padded = &strait_context_padded_ops,
    .wire_bytes = strait_context_wire_bytes,
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
