/* lowrank.c - a microbatch as the product of two thin factors, x = P Q^T with P [N x r]
 * orthonormal, found by one step of power iteration that starts from the factor of the previous
 * crossing:
 *
 *   P = orthonormal(x start);  Q = x^T P;  P and Q cross;  start = orthonormal(Q) + a little of the
 *   initial start, so that a direction that was once empty can be found again */
#include "codec/builder.h"
#include "codec/feedback.h"
#include "codec/payload.h"

struct lowrank {
    struct strait_feedback feedback;
    strait_tensor left;  // P [N x r]
    strait_tensor right; // Q [D x r]
    strait_tensor first; // the start of the first crossing [D x r], from the seed
    int warm;            // index of the state that holds the start of the next crossing
};

#define RESTART 1e-4f // share of the initial start that every later start contains

static strait_err check(strait_codec_spec *spec) {
    const int64_t most = spec->rows < spec->cols ? spec->rows : spec->cols;
    STRAIT_TRY(strait_codec_need(spec, "rank", &spec->rank, 16, most));
    return strait_payload_check(spec, 16);
}

static unsigned traits(const strait_codec_spec *spec) {
    (void)spec;
    return STRAIT_CODEC_STATEFUL | STRAIT_CODEC_CARRIES;
}

/* Two products for the factors, one to multiply them. */
static double fixed_flops(const strait_codec_spec *spec, strait_direction direction) {
    (void)direction;
    return 2.0 * 3.0 * (double)spec->rank * (double)spec->cols;
}

/* A single row has rank 1, and its factors would be longer than itself: it crosses whole. */
static void for_generation(strait_codec_spec *spec) {
    *spec = (strait_codec_spec){.name = "none",
                                .variant = "fp32",
                                .rows = 1,
                                .cols = spec->cols,
                                .precision = spec->precision,
                                .n_boundaries = spec->n_boundaries,
                                .n_slots = 1};
}

/* Offset of Q in the message: behind P, at a multiple of four bytes, because its first bytes are a
 * float. */
static size_t right_at(const strait_codec_spec *spec, int bits) {
    return (strait_payload_bytes(spec->rows, spec->rank, bits) + 3) / 4 * 4;
}

static unsigned kernels(const strait_codec_spec *spec) {
    (void)spec;
    return STRAIT_NEEDS_LOWRANK;
}

static size_t wire_bytes(const strait_codec_spec *spec, strait_direction direction) {
    const int bits = strait_codec_bits(spec, direction);
    return right_at(spec, bits) + strait_payload_bytes(spec->cols, spec->rank, bits);
}

/* The bytes of P (part 0) and of Q (part 1). */
static strait_tensor part_of(const struct strait_codec *c, strait_tensor wire, int part, int bits) {
    const size_t at = part == 0 ? 0 : right_at(&c->spec, bits);
    const int64_t rows = part == 0 ? c->spec.rows : c->spec.cols;
    return (strait_tensor){(char *)wire.data + at, STRAIT_I8, 1,
                           (int64_t)strait_payload_bytes(rows, c->spec.rank, bits)};
}

/* Zeroes the bytes between P and Q: a message must not carry old memory, and equal inputs must give
 * equal bytes. */
static strait_err clear_gap(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                            int bits) {
    static const char zeros[4];
    const int64_t end = part_of(c, wire, 0, bits).cols;
    const size_t gap = right_at(&c->spec, bits) - (size_t)end;
    if (gap == 0) return STRAIT_OK;
    return c->backend->ops->upload(at->stream, (char *)wire.data + end, zeros, gap);
}

/* Computes left and right from x, and the start of the next crossing. */
static strait_err factor(struct strait_codec *c, const strait_crossing *at, strait_tensor x) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct lowrank *st = c->state;
    const strait_tensor warm = c->states[st->warm].tensor;
    STRAIT_TRY(k->matmul(at->stream, st->left, x, warm, strait_ab));
    STRAIT_TRY(k->lowrank->orthonormalise(at->stream, st->left));
    STRAIT_TRY(k->matmul(at->stream, st->right, x, st->left, strait_atb));
    if (at->is_evaluation) return STRAIT_OK;
    STRAIT_TRY(k->cast(at->stream, warm, st->right));
    STRAIT_TRY(k->lowrank->orthonormalise(at->stream, warm));
    return k->axpy(at->stream, warm, RESTART, st->first);
}

static strait_err pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                       strait_tensor x) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct lowrank *st = c->state;
    const strait_tensor absent = {0};
    const int bits = strait_codec_bits(&c->spec, strait_codec_sends(c));
    strait_pack_params params = strait_payload_params(c, at, bits);
    STRAIT_TRY(factor(c, at, x));
    STRAIT_TRY(k->pack_rows(at->stream, part_of(c, wire, 0, bits), absent, st->left, params));
    STRAIT_TRY(clear_gap(c, at, wire, bits));
    params.stream++; // the factors must not share random bits
    return k->pack_rows(at->stream, part_of(c, wire, 1, bits), absent, st->right, params);
}

/* x = P Q^T from the wire; counts rejected values of both factors if is_metered. */
static strait_err multiply(struct strait_codec *c, const strait_crossing *at, strait_tensor x,
                           strait_tensor wire, strait_direction direction, int is_metered) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct lowrank *st = c->state;
    const strait_pack_params params = {.bits = strait_codec_bits(&c->spec, direction)};
    for (int part = 0; part < 2; part++) {
        const strait_tensor factor = part == 0 ? st->left : st->right;
        strait_tensor stats = {0};
        if (is_metered) stats = strait_codec_stats(c, at, factor.rows, STRAIT_METER_UNPACK);
        STRAIT_TRY(k->restore_rows(at->stream, factor, stats, part_of(c, wire, part, params.bits),
                                   params));
    }
    return k->matmul(at->stream, x, st->left, st->right, strait_abt);
}

static strait_err restore(struct strait_codec *c, const strait_crossing *at, strait_tensor x,
                          strait_tensor wire) {
    return multiply(c, at, x, wire, strait_codec_sends(c), 0);
}

static const strait_lossy lossy = {.pack = pack, .restore = restore};

static strait_err plan(struct strait_codec *c) {
    struct lowrank *st = c->state;
    const int64_t n = c->spec.rows, d = c->spec.cols, r = c->spec.rank;
    const strait_codec_tensor tensors[] = {
        {&st->left, n, r}, {&st->right, d, r}, {&st->first, d, r}};
    STRAIT_TRY(strait_meter_plan(&c->meter, &c->slab, n > d ? n : d));
    STRAIT_TRY(strait_codec_add(c, tensors, sizeof tensors / sizeof tensors[0]));
    STRAIT_TRY(strait_feedback_plan(&st->feedback, c, &lossy));
    st->warm = c->n_states;
    return strait_codec_add_state(c, "warm", STRAIT_F32, d, r);
}

static strait_err start(struct strait_codec *c, struct strait_stream *s) {
    const struct lowrank *st = c->state;
    STRAIT_TRY(strait_codec_draw_basis(
        c, s, st->first, (strait_codec_basis_init){"lowrank.first", st->first.cols, 1, 0}));
    return c->backend->kernels->cast(s, c->states[st->warm].tensor, st->first);
}

static strait_err act_pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                           strait_tensor x) {
    struct lowrank *st = c->state;
    return strait_feedback_send(&st->feedback, c, at, wire, x, &lossy);
}

static strait_err act_unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor x,
                             strait_tensor wire) {
    return multiply(c, at, x, wire, strait_codec_receives(c), 1);
}

static strait_err metrics(struct strait_codec *c, struct strait_stream *s,
                          strait_codec_metrics *seen) {
    const struct lowrank *st = c->state;
    STRAIT_TRY(strait_feedback_metrics(c, s, seen));
    if (seen->non_finite == 0) return STRAIT_OK;
    /* The start was computed from non-finite values: begin again. */
    return c->backend->kernels->cast(s, c->states[st->warm].tensor, st->first);
}

extern const struct strait_codec_ops strait_codec_lowrank;

const struct strait_codec_ops strait_codec_lowrank = {
    .name = "lowrank",
    .state_size = sizeof(struct lowrank),
    .kernels = kernels,
    .check = check,
    .traits = traits,
    .fixed_flops = fixed_flops,
    .for_generation = for_generation,
    .wire_bytes = wire_bytes,
    .plan = plan,
    .start = start,
    .act_pack = act_pack,
    .act_unpack = act_unpack,
    .metrics = metrics,
};
