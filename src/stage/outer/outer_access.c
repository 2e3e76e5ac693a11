/* outer_access.c - the values of an outer step for others: validations, checkpoints, plans. */
#include "base/alloc.h"
#include "stage/outer/outer_state.h"
#include "stage/replicas/quantize.h"

#include <math.h>
#include <string.h>

/* ---- another number, another start ---- */

void strait_outer_connect(struct strait_outer *o, struct strait_mesh *mesh, const int *peers) {
    o->mesh = mesh;
    for (int i = 0; i < o->spec.n_replicas; i++)
        o->peers[i] = peers[i];
}

/* Exchanges of the same step may follow: their messages must not count as old ones. */
static void forget_exchange(struct strait_outer *o) {
    strait_outer_drop(o);
    o->exchange = (strait_outer_exchange){0};
}

/* Messages that came early are from peers of the mesh before. */
void strait_outer_set_replica(struct strait_outer *o, int replica) {
    strait_outer_drop_early(o);
    if (o->is_begun && !strait_outer_is_complete(o)) forget_exchange(o);
    o->spec.replica = replica;
}

int strait_outer_has_applied(const struct strait_outer *o, int64_t step, int fragment) {
    return o->has_applied && o->exchange.step == step && o->exchange.fragment == fragment;
}

strait_err strait_outer_catch_up(struct strait_outer *o, struct strait_stream *stream) {
    const struct strait_backend_ops *ops = o->backend->ops;
    const size_t bytes = (size_t)o->n_weights * sizeof(float);
    forget_exchange(o);
    if (o->residual != NULL) memset(o->residual, 0, bytes);
    if (o->result_residual != NULL) memset(o->result_residual, 0, bytes);
    o->has_residual = 0;
    memset(o->is_averaged, 0, sizeof o->is_averaged);
    memcpy(o->sent, o->anchor, bytes); // it takes part in no exchange that is under way
    for (int i = 0; i < o->n_segments; i++) {
        const struct segment *s = &o->segments[i];
        if (s->weight < 0) continue;
        STRAIT_TRY(ops->upload(stream, s->tensor.data, o->anchor + s->first,
                               (size_t)(s->tensor.rows * s->tensor.cols) * sizeof(float)));
    }
    return ops->wait(stream);
}

/* Piece by piece: a copy of all weights would take as much memory again. */
static strait_err swap_piece(struct strait_outer *o, struct strait_stream *stream, float *there,
                             float *anchor, int64_t n, float *scratch) {
    const struct strait_backend_ops *ops = o->backend->ops;
    const size_t bytes = (size_t)n * sizeof(float);
    STRAIT_TRY(ops->download(stream, scratch, there, bytes));
    STRAIT_TRY(ops->wait(stream));
    STRAIT_TRY(ops->upload(stream, there, anchor, bytes));
    STRAIT_TRY(ops->wait(stream));
    memcpy(anchor, scratch, bytes);
    return STRAIT_OK;
}

strait_err strait_outer_swap(struct strait_outer *o, struct strait_stream *stream) {
    enum {
        PIECE = 1 << 22
    };
    float *scratch = NULL;
    strait_err err = strait_alloc_unset(PIECE, sizeof *scratch, "weights of a replica",
                                        (void **)&scratch);
    for (int i = 0; i < o->n_segments && err == STRAIT_OK; i++) {
        const struct segment *s = &o->segments[i];
        const int64_t n = s->tensor.rows * s->tensor.cols;
        for (int64_t at = 0; s->weight >= 0 && at < n && err == STRAIT_OK; at += PIECE)
            err = swap_piece(o, stream, (float *)s->tensor.data + at, o->anchor + s->first + at,
                             n - at < PIECE ? n - at : PIECE, scratch);
    }
    strait_alloc_free(scratch);
    return err;
}

strait_tensor strait_outer_get(const struct strait_outer *o, strait_outer_tensor kind, int weight,
                               int wants_all) {
    float *const rows[STRAIT_OUTER_TENSORS] = {
        [STRAIT_OUTER_ANCHOR] = o->anchor,
        [STRAIT_OUTER_MOMENTUM] = o->momentum,
        [STRAIT_OUTER_RESIDUAL] = wants_all || o->has_residual ? o->residual : NULL,
        [STRAIT_OUTER_RESULT_RESIDUAL] = o->result_residual,
        [STRAIT_OUTER_SENT] = wants_all || o->is_begun ? o->sent : NULL,
    };
    const int segment = o->segment_of[weight];
    if (segment < 0 || rows[kind] == NULL) return (strait_tensor){0};
    strait_tensor t = o->segments[segment].tensor;
    t.data = rows[kind] + o->segments[segment].first;
    return t;
}

void strait_outer_note_read(struct strait_outer *o, int has_residual) {
    forget_exchange(o);
    memset(o->is_averaged, 0, sizeof o->is_averaged);
    o->has_residual = has_residual;
}

/* ---- sizes ---- */

size_t strait_outer_bytes(const strait_outer_spec *spec) {
    const struct strait_outer_count n = strait_outer_count(spec);
    const int has_others = spec->n_replicas > 1;
    const int64_t rows = 3 + has_others + (has_others && spec->params.bits < 32);
    int64_t values = rows * n.weights + n.states;
    if (spec->params.schedule.overlap > 0) values += n.weights / spec->params.schedule.fragments;
    return (size_t)values * sizeof(float);
}

/* Each replica owns a share of the chunks: it sends the others their parts, and its results to all
 * of them. */
static double sent_bytes(const strait_outer_spec *spec, int64_t n_weights, int64_t n_states) {
    const double others = spec->n_replicas - 1;
    return 2.0 * others / spec->n_replicas *
           ((double)strait_quantized_bytes(spec->params.bits, n_weights) +
            (double)strait_quantized_bytes(spec->params.state_bits, n_states));
}

strait_outer_bytes_sent strait_outer_sent_bytes(const strait_outer_spec *spec) {
    const struct strait_outer_count n = strait_outer_count(spec);
    const double rest = sent_bytes(spec, n.weights - n.attention, n.states);
    return (strait_outer_bytes_sent){.fragment = rest / spec->params.schedule.fragments,
                                     .attention = sent_bytes(spec, n.attention, 0)};
}

/* The fewer members there are, the more chunks each of them sums and sends to all others. */
double strait_outer_most_bytes(const strait_outer_spec *spec) {
    const int n_replicas = spec->n_replicas, bits = spec->params.bits;
    const struct strait_outer_count n = strait_outer_count(spec); // a swarm averages no state
    const int64_t rest = n.weights - n.attention;
    double most = 0.0;
    const int64_t share = rest / spec->params.schedule.fragments + STRAIT_QUANTIZE_BLOCK + 1;
    const int64_t fragment = share < rest ? share : rest; // the largest
    const int64_t values = fragment > n.attention ? fragment : n.attention;
    for (int m = 1; m <= n_replicas && values > 0; m++) {
        const int64_t size = strait_outer_chunk_size(values, m);
        const int64_t n_chunks = (values + size - 1) / size;
        const int64_t summed = (n_chunks + m - 1) / m * size;
        const int64_t own = summed < values ? summed : values;
        most = fmax(most, (m + n_replicas - 2) * (double)strait_quantized_bytes(bits, own) +
                              2.0 * (double)strait_quantized_bytes(bits, values - own));
    }
    return most;
}
