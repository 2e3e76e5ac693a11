/* context_gates.c - token gates: a value is multiplied by 1 + g, column by column, where g depends
 * on the token alone: its row of a table, or what two matrices make of its row of the stage's token
 * table. The parameters are the last ones of their side. */
#include "codec/strait/context.h"

#include <assert.h>
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

/* The rows of the token table of this side's stage. The first stage's is the embedding. */
static int64_t stage_table_rows(const struct strait_codec *c) {
    const int is_first = c->side == STRAIT_SENDER && c->spec.boundary == 0;
    return is_first ? c->spec.vocab : table_rows(&c->spec);
}

/* A step computes the gates of a token at least twice, forward and backward. */
static int keeps_all(const struct strait_codec *c) {
    return c->spec.is_padded && stage_table_rows(c) <= 2 * c->spec.rows;
}

static strait_err plan_computed(struct strait_codec *c) {
    struct strait_context_gates *g = c->state;
    const int64_t n = c->spec.rows, d = c->spec.cols, r = c->spec.gate_width;
    const strait_codec_tensor typed[] = {
        {&g->rows, n, d}, {&g->normed, n, d}, {&g->a, n, r}, {&g->h, n, r}, {&g->d_h, n, r}};
    const strait_codec_tensor gates = keeps_all(c)
                                          ? (strait_codec_tensor){&g->all, stage_table_rows(c), d}
                                          : (strait_codec_tensor){&g->gate, n, d};
    const strait_codec_tensor wide[] = {{&g->rstd, n, 1}, gates};
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

/* The hidden units h of rows of the token table, with what their gradient needs; fewer than N rows
 * fill the first ones of each tensor. */
static strait_err hidden_of(struct strait_codec *c, const strait_crossing *at, strait_tensor rows) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct strait_context_gates *g = c->state;
    const strait_tensor normed = strait_tensor_rows(g->normed, 0, rows.rows), absent = {0};
    const strait_tensor a = strait_tensor_rows(g->a, 0, rows.rows);
    STRAIT_TRY(k->rmsnorm(at->stream, normed, absent, strait_tensor_rows(g->rstd, 0, rows.rows),
                          rows, absent, (strait_norm_params){.epsilon = STRAIT_CONTEXT_EPSILON}));
    STRAIT_TRY(k->matmul(at->stream, a, normed, c->spec.is_padded ? g->p : matrix_p(c)->value,
                         strait_abt));
    return k->autoencoder->silu_cols(at->stream, strait_tensor_rows(g->h, 0, rows.rows), a, 0,
                                     absent);
}

/* The hidden units of the tokens that cross. */
static strait_err compute_hidden(struct strait_codec *c, const strait_crossing *at) {
    const struct strait_context_gates *g = c->state;
    strait_tensor ids;
    STRAIT_TRY(find_rows(c, at, at->table, &ids));
    STRAIT_TRY(c->backend->kernels->embed(at->stream, g->rows, at->table, ids));
    return hidden_of(c, at, g->rows);
}

/* gate = h Q^T, for as many rows as gate has. */
static strait_err gate_of_hidden(struct strait_codec *c, const strait_crossing *at,
                                 strait_tensor gate) {
    const struct strait_context_gates *g = c->state;
    return c->backend->kernels->matmul(at->stream, gate, strait_tensor_rows(g->h, 0, gate.rows),
                                       c->spec.is_padded ? g->q : matrix_q(c)->value, strait_abt);
}

/* Gates of the whole token table, as many rows at a time as there is scratch for. */
static strait_err compute_all(struct strait_codec *c, const strait_crossing *at) {
    struct strait_context_gates *g = c->state;
    const int64_t n = g->normed.rows, end = at->table.rows;
    for (int64_t first = 0; first < end; first += n) {
        const int64_t rows = end - first < n ? end - first : n;
        STRAIT_TRY(hidden_of(c, at, strait_tensor_rows(at->table, first, rows)));
        STRAIT_TRY(gate_of_hidden(c, at, strait_tensor_rows(g->all, first, rows)));
    }
    g->n_refreshed = c->n_refreshed;
    return STRAIT_OK;
}

/* *gate is a table of gates: of the token table's rows, whose *ids are the tokens', or, without
 * ids, of the tokens that cross. */
static strait_err compute_gate(struct strait_codec *c, const strait_crossing *at,
                               strait_tensor *gate, strait_tensor *ids) {
    const struct strait_context_gates *g = c->state;
    if (g->all.data == NULL) {
        *gate = g->gate;
        *ids = (strait_tensor){0};
        STRAIT_TRY(compute_hidden(c, at));
        return gate_of_hidden(c, at, g->gate);
    }
    assert(at->table.rows <= g->all.rows && at->table.dtype == g->normed.dtype);
    *gate = g->all;
    STRAIT_TRY(find_rows(c, at, at->table, ids));
    return g->n_refreshed == c->n_refreshed ? STRAIT_OK : compute_all(c, at);
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
    strait_tensor gate, ids;
    STRAIT_TRY(compute_gate(c, at, &gate, &ids));
    return k->token_gates->apply(at->stream, y, x, gate, ids);
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
    strait_tensor gate, ids;
    STRAIT_TRY(compute_gate(c, at, &gate, &ids));
    return k->token_gates->apply_back(at->stream, d_x, x, d_y, x, gate, ids);
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
