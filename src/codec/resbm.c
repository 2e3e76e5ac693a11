/* resbm.c - a trained residual bottleneck: residual bottleneck models (ResBM), arXiv 2604.11947.
 * The first k channels cross as they are; a small network on each side adds what it can infer about
 * the others.
 *
 * Variant a:
 *   sender     n = rms(x);  a = n W1^T;  z = x[:k] + silu(a) W2^T           sends z
 *   receiver   a = z W1^T;  x' = pad(z) + silu(a) W2^T
 *   receiver   da = (g W2) silu'(a);  dz = g[:k] + da W1                    sends dz
 *   sender     da = (dz W2) silu'(a);  dx = pad(dz) + rms_back(da W1)
 *
 * Variant b: both networks are part of the blocks next to the boundary, so the model itself
 * computes z and reads it; the codec only carries [N x k].
 *
 * Matrices are [outputs x inputs]. The sender has W1 [m x d] and W2 [k x m], the receiver W1 [m x
 * k] and W2 [d x m]. */
#include "codec/resbm.h"

#include "codec/payload.h"

#include <math.h>

#define VARIANCE 0.33 // of initial values, times the inputs of their matrix

struct resbm {
    strait_tensor seen;         // slots: x on the sender [d], z on the receiver [k]
    strait_tensor a;            // slots [m]
    strait_tensor d_out;        // gradient slots: dz on the sender [k], g on the receiver [d]
    strait_tensor d_a;          // gradient slots [m]
    strait_tensor normed, rstd; // sender: [N x d], [N x 1]
    strait_tensor d_normed;     // sender: [N x d]
    strait_tensor h;            // [N x m]
    strait_tensor code;         // [N x k]: z or dz before it is packed
};

static const char *const variants[] = {"a", "b", NULL};

static int is_fused(const strait_codec_spec *spec) {
    return strait_codec_is_variant(spec, "b");
}

static int can_pad(const strait_codec_spec *spec) {
    return !is_fused(spec);
}

static strait_err check(strait_codec_spec *spec) {
    STRAIT_TRY(strait_codec_need(spec, "keep", &spec->keep, 32, spec->cols));
    const int64_t hidden = 4 * spec->keep > 256 ? 4 * spec->keep : 256;
    STRAIT_TRY(strait_codec_need(spec, "hidden", &spec->hidden, hidden, INT32_MAX));
    STRAIT_TRY(strait_codec_refuse_feedback(spec));
    return strait_payload_check(spec, 16);
}

static unsigned traits(const strait_codec_spec *spec) {
    if (!is_fused(spec)) return STRAIT_CODEC_TRAINED;
    const int is_exact = spec->bits == 32 && spec->grad_bits == 32;
    return STRAIT_CODEC_CODE | (unsigned)(is_exact ? STRAIT_CODEC_LOSSLESS : 0);
}

/* Only resbm_padded.c calls optional kernels. */
static unsigned kernels(const strait_codec_spec *spec) {
    return spec->is_padded ? STRAIT_NEEDS_AUTOENCODER : 0u;
}

static void requirements(const strait_codec_spec *spec, strait_codec_requirements *out) {
    if (!is_fused(spec)) return;
    out->bottleneck = spec->keep;
    out->drops_identity = spec->drops_identity;
}

static strait_err plan(struct strait_codec *c) {
    struct resbm *st = c->state;
    const int is_sender = c->side == STRAIT_SENDER;
    const int64_t n = c->spec.rows, k = c->spec.keep, d = c->spec.cols, m = c->spec.hidden;
    const int64_t in = is_sender ? d : k, out = is_sender ? k : d;
    STRAIT_TRY(strait_meter_plan(&c->meter, &c->slab, n));
    if (is_fused(&c->spec)) return STRAIT_OK;
    STRAIT_TRY(strait_codec_add_param(c, "W1", STRAIT_ROLE_BOUNDARY, m, in));
    STRAIT_TRY(strait_codec_add_param(c, "W2", STRAIT_ROLE_BOUNDARY, out, m));
    if (c->spec.is_padded) return STRAIT_OK; // resbm_padded.c plans its own tensors
    const strait_codec_tensor tensors[] = {
        {&st->seen, strait_codec_slot_rows(c), in},
        {&st->a, strait_codec_slot_rows(c), m},
        {&st->d_out, strait_codec_grad_slot_rows(c), out},
        {&st->d_a, strait_codec_grad_slot_rows(c), m},
        {&st->h, n, m},
        {&st->code, n, k},
        {&st->normed, n, d}, // from here on for the sender only
        {&st->d_normed, n, d},
        {&st->rstd, n, 1},
    };
    const size_t n_tensors = sizeof tensors / sizeof tensors[0];
    return strait_codec_add(c, tensors, is_sender ? n_tensors : n_tensors - 3);
}

static strait_err start(struct strait_codec *c, struct strait_stream *s) {
    if (is_fused(&c->spec)) return STRAIT_OK;
    const strait_param *p = c->params;
    STRAIT_TRY(strait_codec_draw(c, s, &p[W1], sqrt(VARIANCE / (double)p[W1].value.cols)));
    return strait_codec_draw(c, s, &p[W2], sqrt(VARIANCE / (double)p[W2].value.cols));
}

/* Sender: recomputes the norm of a slot's x. It is cheaper than keeping [N x d] per slot. */
static strait_err norm(struct strait_codec *c, const strait_crossing *at) {
    const struct resbm *st = c->state;
    const strait_tensor absent = {0};
    return c->backend->kernels->rmsnorm(at->stream, st->normed, absent, st->rstd,
                                        strait_codec_slot(c, st->seen, at->slot), absent,
                                        (strait_norm_params){.epsilon = STRAIT_RESBM_EPSILON});
}

/* The rectangular identity: the first channels of x, cut or padded with zeros; or zeros, where the
 * identity path is left out. */
static strait_err cross(struct strait_codec *c, const strait_crossing *at, strait_tensor y,
                        strait_tensor x) {
    const struct strait_kernels *k = c->backend->kernels;
    if (c->spec.drops_identity) return k->fill(at->stream, y, 0.0f);
    return k->resize_cols(at->stream, y, x);
}

/* y = the rectangular identity of x (the first channels, cut or padded) plus the output of the
 * network, whose input is `in`. */
static strait_err apply(struct strait_codec *c, const strait_crossing *at, strait_tensor y,
                        strait_tensor x, strait_tensor in) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct resbm *st = c->state;
    const strait_tensor a = strait_codec_slot(c, st->a, at->slot);
    STRAIT_TRY(k->matmul(at->stream, a, in, c->params[W1].value, strait_abt));
    STRAIT_TRY(k->silu(at->stream, st->h, a));
    STRAIT_TRY(cross(c, at, y, x));
    return k->matmul(at->stream, y, st->h, c->params[W2].value, strait_add_abt);
}

static strait_err act_pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                           strait_tensor x) {
    if (is_fused(&c->spec)) return strait_payload_pack(c, at, wire, x);
    const struct resbm *st = c->state;
    const strait_tensor kept = strait_codec_slot(c, st->seen, at->slot);
    STRAIT_TRY(c->backend->kernels->cast(at->stream, kept, x));
    STRAIT_TRY(norm(c, at));
    STRAIT_TRY(apply(c, at, st->code, kept, st->normed));
    return strait_payload_pack(c, at, wire, st->code);
}

static strait_err act_unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor x,
                             strait_tensor wire) {
    if (is_fused(&c->spec)) return strait_payload_unpack(c, at, x, wire);
    const struct resbm *st = c->state;
    const strait_tensor z = strait_codec_slot(c, st->seen, at->slot);
    STRAIT_TRY(strait_payload_unpack(c, at, z, wire));
    return apply(c, at, x, z, z);
}

/* Computes d_a of a slot from d_out, the gradient of the network's output. */
static strait_err inner_grad(struct strait_codec *c, const strait_crossing *at,
                             strait_tensor d_out) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct resbm *st = c->state;
    STRAIT_TRY(k->matmul(at->stream, st->h, d_out, c->params[W2].value, strait_ab));
    return k->silu_back(at->stream, strait_codec_grad_slot(c, st->d_a, at->slot), st->h,
                        strait_codec_slot(c, st->a, at->slot));
}

static strait_err grad_pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                            strait_tensor g) {
    if (is_fused(&c->spec)) return strait_payload_pack(c, at, wire, g);
    const struct strait_kernels *k = c->backend->kernels;
    const struct resbm *st = c->state;
    STRAIT_TRY(k->cast(at->stream, strait_codec_grad_slot(c, st->d_out, at->slot), g));
    STRAIT_TRY(inner_grad(c, at, g));
    STRAIT_TRY(cross(c, at, st->code, g));
    STRAIT_TRY(k->matmul(at->stream, st->code, strait_codec_grad_slot(c, st->d_a, at->slot),
                         c->params[W1].value, strait_add_ab));
    return strait_payload_pack(c, at, wire, st->code);
}

static strait_err grad_unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor d_x,
                              strait_tensor wire) {
    if (is_fused(&c->spec)) return strait_payload_unpack(c, at, d_x, wire);
    const struct strait_kernels *k = c->backend->kernels;
    const struct resbm *st = c->state;
    const strait_tensor absent = {0};
    const strait_tensor d_z = strait_codec_grad_slot(c, st->d_out, at->slot);
    STRAIT_TRY(strait_payload_unpack(c, at, d_z, wire));
    STRAIT_TRY(inner_grad(c, at, d_z));
    STRAIT_TRY(k->matmul(at->stream, st->d_normed, strait_codec_grad_slot(c, st->d_a, at->slot),
                         c->params[W1].value, strait_ab));
    STRAIT_TRY(norm(c, at));
    STRAIT_TRY(cross(c, at, d_x, d_z));
    return k->rmsnorm_back(at->stream, d_x, absent, st->d_normed,
                           strait_codec_slot(c, st->seen, at->slot), absent, st->rstd);
}

static strait_err param_grads(struct strait_codec *c, const strait_crossing *at) {
    if (is_fused(&c->spec)) return STRAIT_OK;
    const struct strait_kernels *k = c->backend->kernels;
    const struct resbm *st = c->state;
    const int is_sender = c->side == STRAIT_SENDER;
    if (is_sender) STRAIT_TRY(norm(c, at));
    const strait_tensor in = is_sender ? st->normed : strait_codec_slot(c, st->seen, at->slot);
    STRAIT_TRY(k->silu(at->stream, st->h, strait_codec_slot(c, st->a, at->slot)));
    STRAIT_TRY(k->matmul(at->stream, c->params[W2].grad,
                         strait_codec_grad_slot(c, st->d_out, at->slot), st->h, strait_add_atb));
    return k->matmul(at->stream, c->params[W1].grad, strait_codec_grad_slot(c, st->d_a, at->slot),
                     in, strait_add_atb);
}

extern const struct strait_codec_ops strait_codec_resbm;

const struct strait_codec_ops strait_codec_resbm = {
    .name = "resbm",
    .variants = variants,
    .state_size = sizeof(struct resbm),
    .check = check,
    .traits = traits,
    .kernels = kernels,
    .requirements = requirements,
    .can_pad = can_pad,
    .padded = &strait_resbm_padded_ops,
    .wire_bytes = strait_payload_code_bytes,
    .plan = plan,
    .start = start,
    .act_pack = act_pack,
    .act_unpack = act_unpack,
    .grad_pack = grad_pack,
    .grad_unpack = grad_unpack,
    .param_grads = param_grads,
};
