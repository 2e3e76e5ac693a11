/* context_padded.c - strait's variant context where the stream is bf16: the function of context.c,
 * computed in the stream's type on padded copies of the parameters, with what crosses, sums and
 * norms of codes in f32.
 *
 *   tail   c, r = the last codes of z, of rms(z);  a = r V';  x = [c, silu(a)] [D, W]'
 *   head   n = rms(y);  b = n A';  u = [y - x, silu(b), z] [E, B, M]'
 *   head   [dg, m] = du [B, M];  db = dg silu'(b)
 *          dy = [du, rstd db] [E; A] - (rstd (b . db) / d) n;  dx -= du E
 *   tail   [dc, dh] = dx [D, W];  da = dh silu'(a);  dz = m + back(dc) + rms_back(back(da V))
 *
 * The line of dy is rms_back(db A) with its dot product taken in b's space: n . (db A) = b . db. */
#include "codec/context.h"
#include "codec/payload.h"

typedef struct strait_context_padded padded;

static padded *of(const struct strait_codec *c) {
    return c->state;
}

enum {
    PART_BYTES = 16 << 20, // of the stream that is made and added to before the next part
    PART_ROWS = 128        // a part has whole such, of which products are made
};

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static strait_err plan_types(struct strait_codec *c, const strait_codec_part *typed, size_t n_typed,
                             const strait_codec_part *wide, size_t n_wide) {
    STRAIT_TRY(strait_codec_add_typed(c, c->spec.precision, typed, n_typed));
    return strait_codec_add(c, wide, n_wide);
}

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Where B and M lie in [E, B, M], behind E's `first` columns, and in [B, M]. */
static strait_regroup_how place_in_head(const strait_codec_spec *spec, int which, int64_t first) {
    strait_regroup_how how = which == B ? strait_codec_whole(spec->encoder)
                                        : strait_codec_padded(1, spec->keep);
    how.to = first + (which == B ? 0 : spec->encoder);
    return how;
}

static strait_err copy_head(struct strait_codec *c, struct strait_context_padded *st) {
    const strait_codec_spec *spec = &c->spec;
    const int64_t d = spec->cols, kp = strait_codec_pad(spec->keep);
    const strait_param *p = c->params;
    STRAIT_TRY(strait_codec_add_copy(c, &p[E].value, &st->ea, 0, strait_codec_whole(d)));
    STRAIT_TRY(strait_codec_add_copy(c, &p[A].value, &st->ea, kp, strait_codec_whole(d)));
    STRAIT_TRY(strait_codec_add_copy(c, &p[E].value, &st->ebm, 0, strait_codec_whole(d)));
    STRAIT_TRY(strait_codec_add_copy(c, &p[B].value, &st->ebm, 0, place_in_head(spec, B, d)));
    STRAIT_TRY(strait_codec_add_copy(c, &p[B].value, &st->bm, 0, place_in_head(spec, B, 0)));
    if (c->n_params <= M) return STRAIT_OK;
    STRAIT_TRY(strait_codec_add_copy(c, &p[M].value, &st->ebm, 0, place_in_head(spec, M, d)));
    return strait_codec_add_copy(c, &p[M].value, &st->bm, 0, place_in_head(spec, M, 0));
}

strait_err strait_context_plan_head(struct strait_codec *c, struct strait_context_padded *st) {
    const int64_t n = c->spec.rows, d = c->spec.cols, w = c->spec.encoder, k = c->spec.keep;
    const int64_t kp = strait_codec_pad(k);
    const int64_t slots = strait_codec_slot_rows(c), grads = strait_codec_grad_slot_rows(c);
    const strait_codec_part typed[] = {
        {&st->seen, slots, d + w + kp}, {&st->normed, slots, d}, {&st->b, slots, w},
        {&st->d_b, grads, w},           {&st->d_u, grads, kp},   {&st->d_h, grads, w + kp},
        {&st->scaled, n, kp + w},       {&st->ea, kp + w, d},    {&st->ebm, kp, d + w + kp},
        {&st->bm, kp, w + kp}};
    const strait_codec_part wide[] = {
        {&st->head_rstd, slots, 1}, {&st->u, n, kp}, {&st->room, kp, d + w + kp}};
    STRAIT_TRY(plan_types(c, typed, COUNT(typed), wide, COUNT(wide)));
    return copy_head(c, st);
}

/* Where W lies in [D, W]. */
static strait_regroup_how place_of_w(const strait_codec_spec *spec) {
    strait_regroup_how how = strait_codec_whole(spec->hidden);
    how.to = spec->context * strait_codec_pad(spec->keep);
    return how;
}

strait_err strait_context_plan_tail(struct strait_codec *c, struct strait_context_padded *st) {
    const strait_codec_spec *spec = &c->spec;
    const int64_t n = spec->rows, d = spec->cols, m = spec->hidden, k = spec->keep;
    const int64_t kp = strait_codec_pad(k), nk = spec->context * kp;
    const int64_t slots = strait_codec_slot_rows(c), grads = strait_codec_grad_slot_rows(c);
    const strait_codec_part typed[] = {
        {&st->both, slots, nk + m}, {&st->d_both, n, nk + m}, {&st->normeds, slots, nk},
        {&st->d_normeds, n, nk},    {&st->a, slots, m},       {&st->d_a, grads, m},
        {&st->dw, d, nk + m},       {&st->half_v, m, nk},     {&st->held.kept, grads, d}};
    const strait_codec_part wide[] = {{&st->z, slots, kp},
                                      {&st->tail_rstd, slots, 1},
                                      {&st->d_z, n, kp},
                                      {&st->largest, n, 1},
                                      {&st->room, larger(d, m), nk + m}};
    STRAIT_TRY(plan_types(c, typed, COUNT(typed) - !spec->can_defer, wide, COUNT(wide)));
    const strait_param *p = c->params;
    const strait_regroup_how codes = strait_codec_padded(spec->context, k);
    STRAIT_TRY(strait_codec_add_copy(c, &p[D].value, &st->dw, 0, codes));
    STRAIT_TRY(strait_codec_add_copy(c, &p[W].value, &st->dw, 0, place_of_w(spec)));
    return strait_codec_add_copy(c, &p[V].value, &st->half_v, 0, codes);
}

/* E and A among the rows of [E; A]. */
static strait_tensor e_of(const struct strait_codec *c) {
    return strait_tensor_rows(of(c)->ea, 0, strait_codec_pad(c->spec.keep));
}

static strait_tensor a_of(const struct strait_codec *c) {
    return strait_tensor_rows(of(c)->ea, strait_codec_pad(c->spec.keep), c->spec.encoder);
}

static strait_err act_pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                           strait_tensor y) {
    const struct strait_kernels *k = c->backend->kernels;
    const padded *st = of(c);
    const strait_tensor seen = strait_codec_slot(c, st->seen, at->slot);
    const strait_tensor normed = strait_codec_slot(c, st->normed, at->slot);
    const strait_tensor b = strait_codec_slot(c, st->b, at->slot);
    strait_tensor z = {0};
    if (c->peer != NULL) z = strait_codec_slot(c->peer, of(c->peer)->z, at->slot);
    STRAIT_TRY(k->part_rows(at->stream, seen, normed, strait_codec_slot(c, st->head_rstd, at->slot),
                            y, at->input, STRAIT_CONTEXT_EPSILON));
    STRAIT_TRY(k->matmul(at->stream, b, normed, a_of(c), strait_abt));
    STRAIT_TRY(k->encode(at->stream, st->u, seen, b, z, st->ebm));
    return strait_context_send(c, at, wire, st->u, (strait_tensor){0});
}

static strait_recall_how recall_of(const strait_codec_spec *spec) {
    return (strait_recall_how){.keep = spec->keep,
                               .taps = spec->context,
                               .seq_len = spec->seq_len,
                               .epsilon = STRAIT_CONTEXT_EPSILON};
}

static strait_err act_unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor x,
                             strait_tensor wire) {
    const struct strait_kernels *k = c->backend->kernels;
    const padded *st = of(c);
    strait_hidden hidden = {.both = strait_codec_slot(c, st->both, at->slot),
                            .normeds = strait_codec_slot(c, st->normeds, at->slot),
                            .rstd = strait_codec_slot(c, st->tail_rstd, at->slot),
                            .a = strait_codec_slot(c, st->a, at->slot),
                            .z = strait_codec_slot(c, st->z, at->slot),
                            .v = st->half_v};
    if (strait_context_gets_octaves(c)) {
        hidden.packed = wire;
        hidden.stats = strait_codec_stats(c, at, c->spec.rows, STRAIT_METER_UNPACK);
        hidden.is_stochastic = strait_context_how(c).is_stochastic;
    } else {
        STRAIT_TRY(strait_context_receive(c, at, hidden.z, wire));
    }
    STRAIT_TRY(k->hidden(at->stream, &hidden, recall_of(&c->spec)));
    return k->matmul(at->stream, x, hidden.both, st->dw, strait_abt);
}

/* Rows of d_y from `first` on, of d_u and d_h. */
static strait_err widen_gradient(struct strait_codec *c, const strait_crossing *at,
                                 strait_tensor d_y, int64_t first, int64_t n) {
    const struct strait_kernels *k = c->backend->kernels;
    const padded *st = of(c);
#define OF_SLOT(t)      strait_tensor_rows(strait_codec_slot(c, st->t, at->slot), first, n)
#define OF_GRAD_SLOT(t) strait_tensor_rows(strait_codec_grad_slot(c, st->t, at->slot), first, n)
    const strait_normed_silu back = {.d_a = OF_GRAD_SLOT(d_b),
                                     .scaled = strait_tensor_rows(st->scaled, first, n),
                                     .d_y = strait_tensor_rows(d_y, first, n),
                                     .d_h = OF_GRAD_SLOT(d_h),
                                     .a = OF_SLOT(b),
                                     .rstd = OF_SLOT(head_rstd),
                                     .before = OF_GRAD_SLOT(d_u),
                                     .n = OF_SLOT(normed)};
#undef OF_SLOT
#undef OF_GRAD_SLOT
    STRAIT_TRY(k->normed_silu_back(at->stream, &back));
    return k->matmul(at->stream, back.d_y, back.scaled, st->ea, strait_add_ab);
}

/* Rows of the stream that a device's cache holds from one pass over them to the next. */
static int64_t rows_at_once(strait_tensor x) {
    const int64_t row_bytes = (int64_t)strait_tensor_bytes(strait_tensor_rows(x, 0, 1));
    const int64_t n_parts = (x.rows * row_bytes + PART_BYTES - 1) / PART_BYTES;
    const int64_t even = (x.rows + n_parts - 1) / n_parts;
    return (even + PART_ROWS - 1) / PART_ROWS * PART_ROWS;
}

/* d_u of the wire, and d_h of it. */
static strait_err receive_gradient(struct strait_codec *c, const strait_crossing *at,
                                   strait_tensor wire) {
    const struct strait_kernels *k = c->backend->kernels;
    const padded *st = of(c);
    const strait_tensor d_u = strait_codec_grad_slot(c, st->d_u, at->slot);
    const strait_tensor d_h = strait_codec_grad_slot(c, st->d_h, at->slot);
    if (strait_context_gets_octaves(c))
        return k->restore_product(at->stream, d_h, d_u,
                                  strait_codec_stats(c, at, d_u.rows, STRAIT_METER_UNPACK), wire,
                                  st->bm, strait_context_how(c));
    STRAIT_TRY(strait_context_receive(c, at, d_u, wire));
    return k->matmul(at->stream, d_h, d_u, st->bm, strait_ab);
}

static strait_err grad_unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor d_y,
                              strait_tensor wire) {
    const int64_t step = rows_at_once(d_y);
    STRAIT_TRY(receive_gradient(c, at, wire));
    for (int64_t row = 0; row < d_y.rows; row += step)
        STRAIT_TRY(widen_gradient(c, at, d_y, row, smaller(step, d_y.rows - row)));
    return STRAIT_OK;
}

static strait_err input_grad(struct strait_codec *c, const strait_crossing *at, strait_tensor d_x) {
    return c->backend->kernels->matmul(at->stream, d_x,
                                       strait_codec_grad_slot(c, of(c)->d_u, at->slot), e_of(c),
                                       (strait_matmul_how){.alpha = -1, .beta = 1});
}

static strait_err grad_pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                            strait_tensor d_x) {
    const struct strait_kernels *k = c->backend->kernels;
    padded *st = of(c);
    STRAIT_TRY(strait_codec_hold(c, at, &st->held, d_x));
    STRAIT_TRY(k->matmul(at->stream, st->d_both, d_x, st->dw, strait_ab));
    strait_recall_how how = recall_of(&c->spec);
    how.largest = st->largest;
    if (c->peer != NULL) how.beside = strait_codec_grad_slot(c->peer, of(c->peer)->d_h, at->slot);
    const strait_hidden_back back = {.d_a = strait_codec_grad_slot(c, st->d_a, at->slot),
                                     .d_z = st->d_z,
                                     .d_normeds = st->d_normeds,
                                     .d_both = st->d_both,
                                     .a = strait_codec_slot(c, st->a, at->slot),
                                     .v = st->half_v,
                                     .z = strait_codec_slot(c, st->z, at->slot),
                                     .rstd = strait_codec_slot(c, st->tail_rstd, at->slot)};
    STRAIT_TRY(k->hidden_back(at->stream, &back, how));
    return strait_context_send(c, at, wire, st->d_z, st->largest);
}

static strait_err head_grads(struct strait_codec *c, const strait_crossing *at) {
    const padded *st = of(c);
    const strait_codec_spec *spec = &c->spec;
    const strait_param *p = c->params;
    const strait_regroup_how whole = strait_codec_whole(spec->cols);
    STRAIT_TRY(c->backend->kernels->matmul(at->stream, st->room,
                                           strait_codec_grad_slot(c, st->d_u, at->slot),
                                           strait_codec_slot(c, st->seen, at->slot), strait_atb));
    STRAIT_TRY(strait_codec_gather(c, at, p[E].grad, st->room, whole));
    STRAIT_TRY(strait_codec_gather(c, at, p[B].grad, st->room, place_in_head(spec, B, spec->cols)));
    if (c->peer != NULL)
        STRAIT_TRY(
            strait_codec_gather(c, at, p[M].grad, st->room, place_in_head(spec, M, spec->cols)));
    return strait_codec_add_gradient(c, at, p[A].grad, strait_codec_grad_slot(c, st->d_b, at->slot),
                                     strait_codec_slot(c, st->normed, at->slot), st->room, whole);
}

static strait_err tail_grads(struct strait_codec *c, const strait_crossing *at) {
    const padded *st = of(c);
    const strait_param *p = c->params;
    const strait_codec_spec *spec = &c->spec;
    const strait_regroup_how codes = strait_codec_padded(spec->context, spec->keep);
    const strait_tensor d_x = strait_codec_held_at(c, at, &st->held);
    const strait_tensor product = {st->room.data, STRAIT_F32, spec->cols, st->both.cols};
    STRAIT_TRY(c->backend->kernels->matmul(at->stream, product, d_x,
                                           strait_codec_slot(c, st->both, at->slot), strait_atb));
    STRAIT_TRY(strait_codec_gather(c, at, p[D].grad, product, codes));
    STRAIT_TRY(strait_codec_gather(c, at, p[W].grad, product, place_of_w(spec)));
    return strait_codec_add_gradient(c, at, p[V].grad, strait_codec_grad_slot(c, st->d_a, at->slot),
                                     strait_codec_slot(c, st->normeds, at->slot), st->room, codes);
}

static strait_err param_grads(struct strait_codec *c, const strait_crossing *at) {
    return c->half == STRAIT_HEAD ? head_grads(c, at) : tail_grads(c, at);
}

const struct strait_codec_ops strait_context_padded_ops = {
    .name = "strait",
    .act_pack = act_pack,
    .act_unpack = act_unpack,
    .grad_pack = grad_pack,
    .grad_unpack = grad_unpack,
    .input_grad = input_grad,
    .param_grads = param_grads,
};
