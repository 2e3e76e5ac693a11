/* outer_step.c - applies an exchange: the outer step, from its results. */
#include "stage/outer/outer_state.h"
#include "stage/replicas/quantize.h"
#include "stage/replicas/value_set.h"

#include <string.h>

/* What this replica's difference keeps for the next exchange: what rounding lost of it, nothing, or
 * all of it where it did not count. The rounding is computed once more rather than kept. */
static void keep_residual(struct strait_outer *o, int index, int64_t first, int n) {
    unsigned char codes[STRAIT_OUTER_PIECE + STRAIT_OUTER_PIECE / STRAIT_QUANTIZE_BLOCK * 4];
    float difference[STRAIT_OUTER_PIECE];
    const int bits = strait_outer_part_bits(o, index);
    float *residual = o->residual + first;
    const int is_member = strait_outer_has(o->exchange.members, o->self);
    if (is_member && (bits == 32 || !o->spec.params.has_feedback)) {
        if (o->has_residual) memset(residual, 0, (size_t)n * sizeof *residual);
        return;
    }
    strait_value_set_best()->subtract(o->anchor + first, o->sent + first, n, difference);
    if (is_member) {
        strait_quantize(bits, difference, residual, n, codes);
        return;
    }
    for (int i = 0; i < n; i++)
        residual[i] += difference[i];
}

/* `average` has the values of the piece that begins at `first`. In the warmup the weights become
 * the plain average: a momentum of differences of single steps would not fit those of intervals. */
static void step_piece(struct strait_outer *o, struct chunk *c, int64_t first, int n,
                       const float *average) {
    const int is_plain = o->exchange.step <= o->spec.params.schedule.warmup;
    const float rate = is_plain ? 1.0f : o->spec.params.learning_rate;
    const float momentum = is_plain ? 0.0f : o->spec.params.momentum;
    float *anchor = o->anchor + first, *velocity = o->momentum + first, *sent = o->sent + first;
    float *now = o->now != NULL ? o->now + (first - strait_outer_range(o, 0).first) : NULL;
    strait_value_step step = {.rate = rate,
                              .momentum = momentum,
                              .average = average,
                              .anchor = anchor,
                              .velocity = velocity,
                              .sent = sent,
                              .distance = c->distance,
                              .size = c->size};
    strait_value_set_best()->step(&step, n);
    c->distance = step.distance;
    c->size = step.size;
    if (is_plain) memset(velocity, 0, (size_t)n * sizeof *velocity);
    /* What was learnt since the difference was sent is kept. */
    for (int i = 0; now != NULL && i < n; i++)
        now[i] = now[i] - sent[i] + anchor[i];
    if (now == NULL) memcpy(sent, anchor, (size_t)n * sizeof *sent);
}

static void apply_chunk(void *arg, int index) {
    struct strait_outer *o = arg;
    struct chunk *c = &o->chunks[index];
    const int bits = strait_outer_result_bits(o, index);
    float average[STRAIT_OUTER_PIECE];
    const unsigned char *at = c->result->body;
    c->distance = c->size = 0.0;
    for (int64_t k = 0; k < c->n; k += STRAIT_OUTER_PIECE) {
        const int n = (int)(c->n - k < STRAIT_OUTER_PIECE ? c->n - k : STRAIT_OUTER_PIECE);
        if (bits == 32)
            memcpy(average, at, (size_t)n * sizeof *average);
        else
            strait_dequantize(bits, at, n, average);
        at += strait_quantized_bytes(bits, n);
        if (c->is_state) {
            memcpy(o->sent + c->first + k, average, (size_t)n * sizeof *average);
            continue;
        }
        if (o->residual != NULL) keep_residual(o, index, c->first + k, n);
        step_piece(o, c, c->first + k, n, average);
    }
    if (c->lost != NULL && o->spec.params.has_feedback)
        memcpy(o->result_residual + c->first, c->lost->body, (size_t)c->n * sizeof(float));
}

strait_err strait_outer_apply(struct strait_outer *o, struct strait_stream *stream,
                              strait_outer_result *out) {
    const struct strait_backend_ops *ops = o->backend->ops;
    const int is_member = strait_outer_has(o->exchange.members, o->self);
    strait_outer_result result = {0};
    if (!o->is_begun || !strait_outer_is_complete(o))
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d, replica %d: no exchange is complete",
                           o->spec.stage, o->spec.replica);
    const struct strait_outer_range weights = strait_outer_range(o, 0),
                                    states = strait_outer_range(o, 1);
    if (o->now != NULL)
        STRAIT_TRY(strait_outer_copy(o, stream, weights.first, weights.end, o->now, 0));
    STRAIT_TRY(ops->wait(stream));
    strait_outer_run(o, o->n_chunks, apply_chunk);
    o->has_residual = o->residual != NULL &&
                      (o->has_residual || !is_member || o->spec.params.bits < 32);
    for (int i = 0; i < o->n_chunks; i++) {
        result.distance += o->chunks[i].distance;
        result.size += o->chunks[i].size;
    }
    STRAIT_TRY(strait_outer_copy(o, stream, weights.first, weights.end,
                                 o->now != NULL ? o->now : o->sent + weights.first, 1));
    STRAIT_TRY(strait_outer_copy(o, stream, states.first, states.end, o->sent + states.first, 1));
    STRAIT_TRY(ops->wait(stream));
    strait_outer_drop(o);
    o->has_applied = 1;
    o->is_averaged[o->exchange.fragment] = 1;
    *out = result;
    return STRAIT_OK;
}
