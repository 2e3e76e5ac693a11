/* subspace.c - coordinates in a subspace that all stages share: subspace models (SM), arXiv
 * 2506.01260.
 *
 *   forward    sender: C = (X - T_fixed[t]) U      receiver: X = C U^T + T_fixed[t]
 *   backward   receiver: G_c = G U                 sender: G = G_c U^T
 *
 * This is exact as long as X - T_fixed[t] lies in the span of U, and the residual output
 * projections and the embedding must keep it there. Variant full: the codec projects their
 * gradients and, when it measures a leak, the weights. Variant factored: the model stores these
 * weights as coordinates. Variant code: the model also keeps its stream in coordinates, and the
 * codec only carries them. */
#include "codec/subspace/subspace.h"

#include "backend/random_fill.h"
#include "codec/payload.h"

static const char *const variants[] = {"full", "factored", "code", NULL};

static int is_code(const strait_codec_spec *spec) {
    return strait_codec_is_variant(spec, "code");
}

static int is_full(const strait_codec_spec *spec) {
    return strait_codec_is_variant(spec, "full");
}

static strait_err check(strait_codec_spec *spec) {
    if (!is_code(spec)) STRAIT_TRY(strait_codec_need_vocab(spec));
    STRAIT_TRY(strait_codec_need(spec, "keep", &spec->keep, 32, spec->cols));
    STRAIT_TRY(strait_codec_need(spec, "widest", &spec->widest, 4 * spec->cols, INT32_MAX));
    if (spec->grassmann_rate == 0) spec->grassmann_rate = 0.1;
    if (!(spec->leak_limit >= 0) || !(spec->grassmann_rate > 0) || spec->confine_every < 0 ||
        spec->grassmann_every < 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "codec subspace: leak_limit, grassmann_rate, "
                           "confine_every and grassmann_every must not be negative");
    STRAIT_TRY(strait_codec_refuse_feedback(spec));
    return strait_payload_check(spec, 16);
}

/* Every addition to the stream rounds it, and errors of n additions grow with sqrt(n): eight units
 * of the last place allow for 64. For bf16 that is 0.03; for f32 it would be 1e-6, little more than
 * what row-wise AdamW itself drifts in a thousand steps. The default depends on the precision of
 * the machine, so it is not written to the spec, which both sides of a boundary compare. */
double strait_subspace_leak_limit(const strait_codec_spec *spec) {
    if (spec->leak_limit > 0) return spec->leak_limit;
    return spec->precision == STRAIT_BF16 ? 8 * 0x1p-8 : 1e-5;
}

static unsigned traits(const strait_codec_spec *spec) {
    if (is_code(spec)) {
        const int is_exact = spec->bits == 32 && spec->grad_bits == 32;
        return STRAIT_CODEC_CODE | STRAIT_CODEC_STATEFUL |
               (unsigned)(is_exact ? STRAIT_CODEC_LOSSLESS : 0);
    }
    const unsigned both = STRAIT_CODEC_LINEAR | STRAIT_CODEC_TOKENS | STRAIT_CODEC_STATEFUL;
    /* Statistics for the next basis, and leaks that are corrected, are of this side's crossings. */
    const int carries = is_full(spec) || spec->grassmann_every > 0;
    return both | (unsigned)(is_full(spec) ? STRAIT_CODEC_CONFINES : 0) |
           (unsigned)(carries ? STRAIT_CODEC_CARRIES : 0);
}

/* Variant code packs what the model computed. */
static unsigned kernels(const strait_codec_spec *spec) {
    return is_code(spec) ? 0u : STRAIT_NEEDS_SUBSPACE;
}

/* Variant factored stores weights as coordinates; variant full projects the weights themselves,
 * which works only as long as nothing else writes the stream. */
static void requirements(const strait_codec_spec *spec, strait_codec_requirements *out) {
    out->has_code_stream = is_code(spec);
    out->is_closed = is_full(spec);
    out->subspace = is_code(spec) || is_full(spec) ? 0 : spec->keep;
}

/* Products with the basis: one to encode and one to decode, and forward another one, with which the
 * sender measures what is lost. */
static double fixed_flops(const strait_codec_spec *spec, strait_direction direction) {
    const double products = direction == STRAIT_FORWARD ? 3 : 2;
    return 2.0 * products * (double)spec->keep * (double)spec->cols;
}

/* A stage holds T_fixed once: the receiver owns it and the sender borrows it, except on the first
 * stage, which has no receiver. */
static int owns_fixed(const struct strait_codec *c) {
    return !is_code(&c->spec) && (c->side == STRAIT_RECEIVER || c->spec.boundary == 0);
}

/* Only the receiver of the last boundary sees gradients before any boundary has projected them on
 * the span of U: it collects them for basis updates. */
static int has_gram(const struct strait_codec *c) {
    return c->side == STRAIT_RECEIVER && c->spec.boundary == c->spec.n_boundaries - 1 &&
           c->spec.grassmann_every > 0 && !is_code(&c->spec);
}

static int can_pad(const strait_codec_spec *spec) {
    return !is_code(spec);
}

/* Codes that cross and sums for the basis stay f32; the products read the stream's type. */
static strait_err plan_padded(struct strait_codec *c) {
    struct strait_subspace *st = c->state;
    const int64_t n = c->spec.rows, d = c->spec.cols, k = c->spec.keep, kp = strait_codec_pad(k);
    const strait_codec_tensor typed[] = {
        {&st->wide, n, d}, {&st->rounded, n, kp}, {&st->half_basis, d, kp}};
    const strait_codec_tensor tensors[] = {{&st->crossing, n, kp}, {&st->half_gram, d, kp}};
    STRAIT_TRY(strait_codec_add_typed(c, c->spec.precision, typed, 3));
    STRAIT_TRY(strait_codec_add(c, tensors, st->has_gram ? 2 : 1));
    return strait_codec_add_copy(c, &c->states[SUBSPACE_BASIS].tensor, &st->half_basis, 0,
                                 strait_codec_padded(1, k));
}

static strait_err plan(struct strait_codec *c) {
    struct strait_subspace *st = c->state;
    const int64_t n = c->spec.rows, d = c->spec.cols, k = c->spec.keep;
    st->has_gram = has_gram(c);
    STRAIT_TRY(strait_meter_plan(&c->meter, &c->slab, n));
    STRAIT_TRY(strait_codec_add_state(c, "basis", STRAIT_F32, d, k));
    STRAIT_TRY(strait_codec_add_state(c, "book", STRAIT_I32, 1, COUNTER_ENTRIES));
    if (st->has_gram) STRAIT_TRY(strait_codec_add_state(c, "gram", STRAIT_F32, d, k));
    if (c->spec.is_padded) STRAIT_TRY(plan_padded(c));
    const strait_codec_tensor wide = {&st->wide, n, d};
    STRAIT_TRY(strait_codec_add(c, &wide, !c->spec.is_padded));
    const strait_codec_tensor tensors[] = {{&st->code, n, k},
                                           {&st->narrow, k, c->spec.widest},
                                           {&st->rotation, k, k},
                                           {&st->squares, k, k},
                                           {&st->fixed, c->spec.vocab, d}};
    return strait_codec_add(c, tensors, sizeof tensors / sizeof tensors[0] - !owns_fixed(c));
}

/* T_fixed comes from the seed, so that every stage draws the same. */
static strait_err draw_fixed(struct strait_codec *c, struct strait_stream *s) {
    const struct strait_subspace *st = c->state;
    const strait_rng rng = {c->spec.seed, strait_rng_stream("subspace.fixed")};
    return strait_random_fill_once(s, st->fixed,
                                   (strait_random_fill_params){.rng = rng, .deviation = 1});
}

static strait_err start(struct strait_codec *c, struct strait_stream *s) {
    STRAIT_TRY(strait_codec_draw_basis(
        c, s, c->states[SUBSPACE_BASIS].tensor,
        (strait_codec_basis_init){"subspace.basis", c->states[SUBSPACE_BASIS].tensor.cols, 1, 0}));
    STRAIT_TRY(strait_subspace_measure_basis(c, s));
    return owns_fixed(c) ? draw_fixed(c, s) : STRAIT_OK;
}

static strait_err join(struct strait_codec *c) {
    struct strait_subspace *st = c->state;
    if (is_code(&c->spec) || owns_fixed(c)) return STRAIT_OK;
    if (c->peer == NULL || c->peer->ops != c->ops || c->peer->spec.keep != c->spec.keep)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "boundary %d: codec subspace needs the same codec and keep at the "
                           "previous boundary",
                           c->spec.boundary);
    st->fixed = ((const struct strait_subspace *)c->peer->state)->fixed;
    return STRAIT_OK;
}

/* The tensors that crossings compute with. Without padding, crossing and code are the same. */
struct buffers {
    strait_tensor basis;    // [d x K]
    strait_tensor crossing; // [N x K] f32: what is packed
    strait_tensor code;     // [N x K] of the stream's type: what is multiplied
};

static struct buffers buffers_of(const struct strait_codec *c) {
    const struct strait_subspace *st = c->state;
    if (c->spec.is_padded) return (struct buffers){st->half_basis, st->crossing, st->rounded};
    return (struct buffers){c->states[SUBSPACE_BASIS].tensor, st->code, st->code};
}

/* Converts crossing to the stream's type, into code. */
static strait_err round_code(struct strait_codec *c, const strait_crossing *at,
                             const struct buffers *buf) {
    if (buf->code.data == buf->crossing.data) return STRAIT_OK;
    return c->backend->kernels->cast(at->stream, buf->code, buf->crossing);
}

/* wide = T_fixed - x, or -x where T_fixed crosses with the rest: most of it is then lost. */
static strait_err subtract_from_fixed(struct strait_codec *c, const strait_crossing *at,
                                      strait_tensor x) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct strait_subspace *st = c->state;
    if (!c->spec.keeps_fixed)
        return k->subspace->embed_minus(at->stream, st->wide, st->fixed, at->tokens, x);
    STRAIT_TRY(k->fill(at->stream, st->wide, 0.0f));
    return k->axpy(at->stream, st->wide, -1.0f, x);
}

/* Computes the code of x. wide becomes T_fixed - x, and then the part of it outside the subspace:
 * the leak. */
static strait_err encode(struct strait_codec *c, const strait_crossing *at, strait_tensor x,
                         const struct buffers *buf) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct strait_subspace *st = c->state;
    STRAIT_TRY(subtract_from_fixed(c, at, x));
    STRAIT_TRY(k->matmul(at->stream, buf->crossing, st->wide, buf->basis,
                         (strait_matmul_params){.alpha = -1}));
    STRAIT_TRY(round_code(c, at, buf));
    return k->matmul(at->stream, st->wide, buf->code, buf->basis, strait_add_abt);
}

static strait_err act_pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                           strait_tensor x) {
    if (is_code(&c->spec)) return strait_payload_pack(c, at, wire, x);
    const struct strait_kernels *k = c->backend->kernels;
    const struct strait_subspace *st = c->state;
    const struct buffers buf = buffers_of(c);
    if (st->fixed.data == NULL)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "boundary %d: strait_codec_join must come before the first crossing",
                           c->spec.boundary);
    STRAIT_TRY(encode(c, at, x, &buf));
    STRAIT_TRY(strait_payload_pack(c, at, wire, buf.crossing));
    if (at->is_evaluation) return STRAIT_OK;
    return k->measure_rows(at->stream, strait_meter_stats(&c->meter, STRAIT_METER_LEAK, x.rows), x,
                           st->wide);
}

static strait_err act_unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor x,
                             strait_tensor wire) {
    if (is_code(&c->spec)) return strait_payload_unpack(c, at, x, wire);
    const struct strait_kernels *k = c->backend->kernels;
    const struct strait_subspace *st = c->state;
    const struct buffers buf = buffers_of(c);
    STRAIT_TRY(strait_payload_unpack(c, at, buf.code, wire));
    if (c->spec.keeps_fixed) return k->matmul(at->stream, x, buf.code, buf.basis, strait_abt);
    STRAIT_TRY(k->embed(at->stream, x, st->fixed, at->tokens));
    return k->matmul(at->stream, x, buf.code, buf.basis, strait_add_abt);
}

/* Adds G^T (G U) of this microbatch to the sum that a basis update needs. */
static strait_err gather(struct strait_codec *c, const strait_crossing *at, strait_tensor g,
                         const struct buffers *buf) {
    const struct strait_subspace *st = c->state;
    if (!st->has_gram) return STRAIT_OK;
    STRAIT_TRY(round_code(c, at, buf));
    return strait_codec_add_gradient(c, at, c->states[SUBSPACE_GRAM].tensor, g, buf->code,
                                     st->half_gram, strait_codec_padded(1, c->spec.keep));
}

static strait_err grad_pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                            strait_tensor g) {
    if (is_code(&c->spec)) return strait_payload_pack(c, at, wire, g);
    const struct buffers buf = buffers_of(c);
    STRAIT_TRY(c->backend->kernels->matmul(at->stream, buf.crossing, g, buf.basis, strait_ab));
    STRAIT_TRY(gather(c, at, g, &buf));
    return strait_payload_pack(c, at, wire, buf.crossing);
}

static strait_err grad_unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor d_x,
                              strait_tensor wire) {
    if (is_code(&c->spec)) return strait_payload_unpack(c, at, d_x, wire);
    const struct buffers buf = buffers_of(c);
    STRAIT_TRY(strait_payload_unpack(c, at, buf.code, wire));
    return c->backend->kernels->matmul(at->stream, d_x, buf.code, buf.basis, strait_abt);
}

static strait_err project_gradients(struct strait_codec *c, struct strait_stream *s,
                                    strait_param *params, int n) {
    for (int i = 0; is_full(&c->spec) && i < n; i++)
        STRAIT_TRY(
            strait_subspace_project(c, s, params[i].role, STRAIT_BASIS_MOMENT, params[i].grad));
    return STRAIT_OK;
}

/* The embedding is projected every time, because weight decay also shrinks its fixed part. Other
 * weights drift so little under row-wise AdamW that it is enough to correct measured leaks. */
static strait_err after_update(struct strait_codec *c, struct strait_stream *s,
                               strait_param *params, int n) {
    struct strait_subspace *st = c->state;
    if (!is_full(&c->spec)) return STRAIT_OK;
    const int64_t every = c->spec.confine_every, updates = st->counters[COUNTER_UPDATES];
    const int is_due = updates == 0 || st->counters[COUNTER_LEAKS] ||
                       (every > 0 && updates % every == 0);
    for (int i = 0; i < n; i++)
        if (is_due || params[i].role == STRAIT_ROLE_EMBEDDING)
            STRAIT_TRY(strait_subspace_project(c, s, params[i].role, STRAIT_BASIS_WEIGHT,
                                               params[i].value));
    st->counters[COUNTER_UPDATES]++;
    st->counters[COUNTER_CORRECTIONS] += st->counters[COUNTER_LEAKS];
    st->counters[COUNTER_LEAKS] = 0;
    return strait_subspace_write_counters(c, s);
}

static strait_err metrics(struct strait_codec *c, struct strait_stream *s,
                          strait_codec_metrics *seen) {
    struct strait_subspace *st = c->state;
    const int leaks = seen->basis.leak > strait_subspace_leak_limit(&c->spec) &&
                      seen->non_finite == 0 && !c->spec.keeps_fixed;
    seen->basis.corrections = st->counters[COUNTER_CORRECTIONS];
    seen->basis.angle = st->angle;
    seen->basis.mean_angle = st->mean_angle;
    seen->basis.error = st->error;
    if (st->has_gram && seen->non_finite > 0)
        return c->backend->kernels->fill(s, c->states[SUBSPACE_GRAM].tensor, 0.0f);
    if (c->side != STRAIT_SENDER || !is_full(&c->spec) || !leaks) return STRAIT_OK;
    st->counters[COUNTER_LEAKS] = 1;
    return strait_subspace_write_counters(c, s);
}

static strait_err restored(struct strait_codec *c, struct strait_stream *s) {
    struct strait_subspace *st = c->state;
    const struct strait_backend_ops *ops = c->backend->ops;
    STRAIT_TRY(ops->download(s, st->counters, c->states[SUBSPACE_COUNTERS].tensor.data,
                             sizeof st->counters));
    return strait_subspace_measure_basis(c, s);
}

static uint32_t version(const struct strait_codec *c) {
    return (uint32_t)((const struct strait_subspace *)c->state)->counters[COUNTER_VERSION];
}

static int64_t update_every(const strait_codec_spec *spec) {
    return spec->grassmann_every;
}

static strait_tensor basis(const struct strait_codec *c) {
    return c->states[SUBSPACE_BASIS].tensor;
}

static strait_tensor fixed(const struct strait_codec *c) {
    return ((const struct strait_subspace *)c->state)->fixed;
}

static const struct strait_codec_basis_ops basis_ops = {
    .update_every = update_every,
    .basis = basis,
    .fixed = fixed,
    .propose = strait_subspace_propose,
    .adopt = strait_subspace_adopt,
    .carry_over = strait_subspace_carry_over,
};

extern const struct strait_codec_ops strait_codec_subspace;

const struct strait_codec_ops strait_codec_subspace = {
    .name = "subspace",
    .variants = variants,
    .state_size = sizeof(struct strait_subspace),
    .kernels = kernels,
    .check = check,
    .traits = traits,
    .requirements = requirements,
    .fixed_flops = fixed_flops,
    .basis = &basis_ops,
    .padded = &strait_codec_subspace, // the same crossings
    .can_pad = can_pad,
    .wire_bytes = strait_payload_code_bytes,
    .plan = plan,
    .start = start,
    .join = join,
    .act_pack = act_pack,
    .act_unpack = act_unpack,
    .grad_pack = grad_pack,
    .grad_unpack = grad_unpack,
    .project_gradients = project_gradients,
    .after_update = after_update,
    .metrics = metrics,
    .restored = restored,
    .version = version,
};
