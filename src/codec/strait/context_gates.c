/* context_gates.c - token gates: a value is multiplied by 1 + g, column by column, where g depends
 * on the token alone: its row of a table, or what two matrices make of its row of the stage's token
 * table. The parameters are the last ones of their side. */
#include "codec/strait/context.h"

#include <math.h>

static strait_param table_of(const struct strait_codec *c) {
    return c->params[c->n_params - 1];
}

static strait_param *matrix_p(struct strait_codec *c) {
    return &c->params[c->n_params - 2];
}

static strait_param *matrix_q(struct strait_codec *c) {
    return &c->params[c->n_params - 1];
}

static int64_t table_rows(const strait_codec_spec *spec) {
    return spec->table_rows > 0 ? spec->table_rows : spec->vocab;
}

/* The rows of the tokens in a table, which has table_rows rows; the embedding has one per token. */
static strait_err find_rows(const struct strait_codec *c, const strait_crossing *at,
                            strait_tensor table, strait_tensor *out) {
    const struct strait_context_gates *g = c->state;
    *out = at->tokens;
    if (g->ids.data == NULL || table.rows != c->spec.table_rows) return STRAIT_OK;
    *out = g->ids;
    return c->backend->kernels->table_ids(at->stream, g->ids, at->tokens, table.rows);
}

/* Copies of P and Q in the stream's type. */
static strait_err plan_copies(struct strait_codec *c, struct strait_context_gates *g) {
    const int64_t r = c->spec.gate_width, d = c->spec.cols;
    const strait_codec_tensor copies[] = {{&g->p, r, d}, {&g->q, d, r}};
    STRAIT_TRY(strait_codec_add_typed(c, c->spec.precision, copies, STRAIT_COUNT(copies)));
    STRAIT_TRY(strait_codec_add_copy(c, &matrix_p(c)->value, &g->p, 0, strait_codec_whole(d)));
    return strait_codec_add_copy(c, &matrix_q(c)->value, &g->q, 0, strait_codec_whole(r));
}

static strait_err plan_computed(struct strait_codec *c) {
    struct strait_context_gates *g = c->state;
    const int64_t n = c->spec.rows, d = c->spec.cols, r = c->spec.gate_width;
    const strait_codec_tensor typed[] = {
        {&g->rows, n, d}, {&g->normed, n, d}, {&g->a, n, r}, {&g->h, n, r}, {&g->d_h, n, r}};
    const strait_codec_tensor wide[] = {{&g->rstd, n, 1}, {&g->gate, n, d}};
    STRAIT_TRY(strait_codec_add_param(c, "P", STRAIT_ROLE_GATE, r, d));
    STRAIT_TRY(strait_codec_add_param(c, "Q", STRAIT_ROLE_GATE, d, r));
    STRAIT_TRY(strait_codec_add_typed(c, c->spec.is_padded ? c->spec.precision : STRAIT_F32, typed,
                                      STRAIT_COUNT(typed)));
    STRAIT_TRY(strait_codec_add(c, wide, STRAIT_COUNT(wide)));
    return c->spec.is_padded ? plan_copies(c, g) : STRAIT_OK;
}

/* The names "G", "P" and "Q" are part of checkpoints. */
strait_err strait_context_plan_gates(struct strait_codec *c) {
    struct strait_context_gates *g = c->state;
    const strait_codec_tensor ids = {&g->ids, c->spec.rows, 1};
    if (!strait_context_has_gates(&c->spec)) return STRAIT_OK;
    if (c->spec.table_rows > 0) STRAIT_TRY(strait_codec_add_typed(c, STRAIT_I32, &ids, 1));
    if (c->spec.gate_width > 0) return plan_computed(c);
    return strait_codec_add_param(c, "G", STRAIT_ROLE_VALUES, table_rows(&c->spec), c->spec.cols);
}

strait_err strait_context_start_gates(struct strait_codec *c, struct strait_stream *s) {
    if (c->spec.gate_width == 0) return STRAIT_OK;
    return strait_codec_draw(c, s, matrix_p(c), sqrt(0.33 / (double)c->spec.cols));
}

/* The hidden units h, with what its gradient needs. */
static strait_err compute_hidden(struct strait_codec *c, const strait_crossing *at) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct strait_context_gates *g = c->state;
    const strait_tensor absent = {0};
    strait_tensor ids;
    STRAIT_TRY(find_rows(c, at, at->table, &ids));
    STRAIT_TRY(k->embed(at->stream, g->rows, at->table, ids));
    STRAIT_TRY(k->rmsnorm(at->stream, g->normed, absent, g->rstd, g->rows, absent,
                          (strait_norm_params){.epsilon = STRAIT_CONTEXT_EPSILON}));
    STRAIT_TRY(k->matmul(at->stream, g->a, g->normed, c->spec.is_padded ? g->p : matrix_p(c)->value,
                         strait_abt));
    return k->autoencoder->silu_cols(at->stream, g->h, g->a, 0, absent);
}

static strait_err compute_gate(struct strait_codec *c, const strait_crossing *at) {
    const struct strait_context_gates *g = c->state;
    STRAIT_TRY(compute_hidden(c, at));
    return c->backend->kernels->matmul(at->stream, g->gate, g->h,
                                       c->spec.is_padded ? g->q : matrix_q(c)->value, strait_abt);
}

strait_err strait_context_gate(struct strait_codec *c, const strait_crossing *at, strait_tensor y,
                               strait_tensor x) {
    const struct strait_kernels *k = c->backend->kernels;
    if (!strait_context_has_gates(&c->spec)) return k->cast(at->stream, y, x);
    if (c->spec.has_gates) {
        strait_tensor ids;
        STRAIT_TRY(find_rows(c, at, table_of(c).value, &ids));
        return k->token_gates->apply(at->stream, y, x, table_of(c).value, ids);
    }
    STRAIT_TRY(compute_gate(c, at));
    return k->token_gates->apply(at->stream, y, x, ((struct strait_context_gates *)c->state)->gate,
                                 (strait_tensor){0});
}

strait_err strait_context_gate_back(struct strait_codec *c, const strait_crossing *at,
                                    strait_tensor d_x, strait_tensor d_y, strait_tensor x) {
    const struct strait_kernels *k = c->backend->kernels;
    if (!strait_context_has_gates(&c->spec))
        return d_x.data == d_y.data ? STRAIT_OK : k->cast(at->stream, d_x, d_y);
    if (c->spec.has_gates) {
        strait_tensor ids;
        STRAIT_TRY(find_rows(c, at, table_of(c).value, &ids));
        return k->token_gates->apply_back(at->stream, d_x, x, d_y, x, table_of(c).value, ids);
    }
    STRAIT_TRY(compute_gate(c, at));
    return k->token_gates->apply_back(at->stream, d_x, x, d_y, x,
                                      ((struct strait_context_gates *)c->state)->gate,
                                      (strait_tensor){0});
}

/* d is the gradient of g: through Q, silu and P. */
static strait_err computed_grads(struct strait_codec *c, const strait_crossing *at,
                                 strait_tensor d) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct strait_context_gates *g = c->state;
    STRAIT_TRY(compute_hidden(c, at));
    STRAIT_TRY(
        k->matmul(at->stream, g->d_h, d, c->spec.is_padded ? g->q : matrix_q(c)->value, strait_ab));
    STRAIT_TRY(k->matmul(at->stream, matrix_q(c)->grad, d, g->h, strait_add_atb));
    STRAIT_TRY(k->autoencoder->silu_cols_back(at->stream, g->h, g->d_h, g->a, 0));
    return k->matmul(at->stream, matrix_p(c)->grad, g->h, g->normed, strait_add_atb);
}

strait_err strait_context_gate_grads(struct strait_codec *c, const strait_crossing *at,
                                     strait_tensor slots) {
    if (!strait_context_has_gates(&c->spec)) return STRAIT_OK;
    const strait_tensor d = strait_codec_slot(c, slots, at->slot);
    if (c->spec.gate_width > 0) return computed_grads(c, at, d);
    strait_tensor ids;
    const strait_tensor grad = table_of(c).grad;
    const struct strait_kernels *k = c->backend->kernels;
    STRAIT_TRY(find_rows(c, at, grad, &ids));
    /* The stage's lists serve a table with as many rows as its own have. */
    if (at->lists.cols == strait_token_list_cols(d.rows, grad.rows))
        return k->token_tables->back(at->stream, grad, d, 0, ids, at->lists);
    return k->embed_back(at->stream, grad, d, ids);
}
