/* outer_check.c - what a replica makes of what others send in an exchange: values that cannot be,
 * and what does not come. */
#include "stage/outer/outer_state.h"
#include "stage/replicas/quantize.h"

#include <math.h>
#include <string.h>

/* ---- values ---- */

/* Squared norms in a chunk: of the own difference, and of the momentum. */
static void measure_chunk(void *arg, int index) {
    struct strait_outer *o = arg;
    struct chunk *c = &o->chunks[index];
    float difference[STRAIT_OUTER_PIECE];
    c->distance = c->size = 0.0;
    for (int64_t at = 0; at < c->n && !c->is_state; at += STRAIT_OUTER_PIECE) {
        const int n = (int)(c->n - at < STRAIT_OUTER_PIECE ? c->n - at : STRAIT_OUTER_PIECE);
        const float *momentum = o->momentum + c->first + at;
        strait_outer_difference(o, c, c->first + at, n, difference);
        for (int i = 0; i < n; i++) {
            c->distance += (double)difference[i] * (double)difference[i];
            c->size += (double)momentum[i] * (double)momentum[i];
        }
    }
}

/* A replica that has just come has learnt little of the interval. It judges others by its momentum,
 * which all have alike and which is at least as large as one average; before the first average by
 * what it would have learnt in all steps. One that has learnt nothing yet cannot judge sizes. */
void strait_outer_measure(struct strait_outer *o) {
    const strait_outer_schedule *schedule = &o->spec.params.schedule;
    double own = 0.0, before = 0.0;
    o->yardstick = INFINITY;
    if (!o->spec.is_wary || strait_outer_count_bits(o->exchange.alive) < 2) return;
    strait_outer_run(o, o->n_chunks, measure_chunk);
    for (int i = 0; i < o->n_chunks; i++) {
        own += o->chunks[i].distance;
        before += o->chunks[i].size;
    }
    o->yardstick = isfinite(own) ? sqrt(own) : 0.0;
    if (o->is_averaged[o->exchange.fragment] && own > 0.0) return;
    o->yardstick = before > 0.0 ? fmax(o->yardstick, sqrt(before))
                                : o->yardstick * (double)schedule->sync_every;
    if (!(o->yardstick > 0.0)) o->yardstick = INFINITY;
}

/* Squared norm; NaN or infinite where a value is. */
static double squares_of(const struct strait_msg *msg, int bits, int64_t n_values) {
    const unsigned char *from = msg->body;
    float values[STRAIT_OUTER_PIECE];
    double sum = 0.0;
    for (int64_t at = 0; at < n_values; at += STRAIT_OUTER_PIECE) {
        const int n = (int)(n_values - at < STRAIT_OUTER_PIECE ? n_values - at
                                                               : STRAIT_OUTER_PIECE);
        if (bits == 32)
            memcpy(values, from, (size_t)n * sizeof *values);
        else
            strait_dequantize(bits, from, n, values);
        from += strait_quantized_bytes(bits, n);
        for (int i = 0; i < n; i++)
            sum += (double)values[i] * (double)values[i];
    }
    return sum;
}

/* The squares of finite values are finite in double precision. An average is no larger than the
 * largest part, which its owner has judged by a yardstick of its own. The limit is one of all
 * chunks of a sender: each by itself could be as large as the whole difference. */
int strait_outer_is_plausible(struct strait_outer *o, int from, const struct chunk *chunk,
                              const struct strait_msg *msg) {
    const int is_result = msg->flags == HOLDS_RESULT;
    const double most = (is_result ? 2.0 : 1.0) * STRAIT_OUTER_MOST * o->yardstick;
    double *sum = is_result ? &o->result_squares[from] : &o->part_squares[from];
    if (!o->spec.is_wary) return 1;
    const double squares = squares_of(msg, strait_outer_wire_bits(o, chunk), chunk->n);
    if (!isfinite(squares)) return 0;
    if (chunk->is_state) return 1;
    if (*sum + squares > most * most) return 0;
    *sum += squares;
    return 1;
}

/* What is not missing has been summed or will be: others that were told to expect nothing would
 * stop waiting for it, and report its absence. */
strait_err strait_outer_reject(struct strait_outer *o, int replica) {
    o->rejected |= UINT64_C(1) << replica;
    if (o->has_told || !strait_outer_has(strait_outer_missing(o), replica)) return STRAIT_OK;
    o->has_told = 1;
    for (int r = 0; r < o->spec.n_replicas; r++) {
        struct strait_msg *msg = NULL;
        if (r == o->spec.replica || !strait_outer_has(o->exchange.alive, r)) continue;
        STRAIT_TRY(strait_outer_message(o, HOLDS_NOTHING, 0, 0, &msg));
        strait_outer_queue(o, r, msg);
    }
    return STRAIT_OK;
}

/* ---- what is missing ---- */

int strait_outer_is_begun(const struct strait_outer *o) {
    return o->is_begun;
}

int strait_outer_first(uint64_t missing, uint64_t withheld) {
    const uint64_t replicas = missing != 0 ? missing : withheld;
    int r = 0;
    while (r < STRAIT_RUN_REPLICAS && (replicas >> r & 1) == 0)
        r++;
    return r < STRAIT_RUN_REPLICAS ? r + 1 : 0;
}

uint64_t strait_outer_delivered(const struct strait_outer *o) {
    return o->n_delivered;
}

uint64_t strait_outer_taken(const struct strait_outer *o) {
    return o->n_taken;
}

int64_t strait_outer_extend(const struct strait_outer *o, int64_t until_ns, uint64_t bytes,
                            int64_t now_ns, int64_t deadline_ns) {
    const int n_others = strait_outer_count_bits(o->exchange.alive) - 1;
    const double rate = (double)STRAIT_OUTER_SLOWEST / (n_others > 1 ? n_others : 1);
    const int64_t latest = now_ns + deadline_ns;
    if (bytes == 0) return until_ns;
    if (!o->spec.is_wary) return latest;
    const double more_ns = (double)bytes / rate * 1e9;
    return more_ns >= (double)(latest - until_ns) ? latest : until_ns + (int64_t)more_ns;
}

int strait_outer_is_complete(const struct strait_outer *o) {
    for (int r = 0; r < o->spec.n_replicas; r++)
        if (o->outgoing[r].first != NULL) return 0;
    return o->is_begun && o->n_results == o->n_chunks;
}

uint64_t strait_outer_rejected(const struct strait_outer *o) {
    return o->rejected;
}

uint64_t strait_outer_missing(const struct strait_outer *o) {
    uint64_t missing = 0;
    for (int i = 0; i < o->n_chunks; i++) {
        const struct chunk *c = &o->chunks[i];
        if (c->result != NULL || strait_outer_owner(o, i) != o->spec.replica) continue;
        for (int r = 0; r < o->spec.n_replicas; r++)
            if (r != o->spec.replica && strait_outer_has(o->exchange.members, r) &&
                c->parts[r] == NULL)
                missing |= UINT64_C(1) << r;
    }
    return missing;
}

uint64_t strait_outer_withheld(const struct strait_outer *o) {
    uint64_t withheld = 0;
    if (strait_outer_missing(o) != 0) return 0;
    for (int r = 0; r < o->spec.n_replicas; r++)
        if (o->outgoing[r].first != NULL) withheld |= UINT64_C(1) << r;
    for (int i = 0; i < o->n_chunks; i++)
        if (o->chunks[i].result == NULL) withheld |= UINT64_C(1) << strait_outer_owner(o, i);
    return withheld;
}

int64_t strait_outer_wait_ns(double bytes, int64_t deadline_ns) {
    return deadline_ns + (int64_t)(bytes / 2.0 / STRAIT_OUTER_SLOWEST * 1e9); // in both directions
}

int64_t strait_outer_limit_ns(const struct strait_outer *o, int64_t deadline_ns) {
    const int self = o->spec.replica, n_alive = strait_outer_count_bits(o->exchange.alive);
    const uint64_t own = UINT64_C(1) << self, members = o->exchange.members;
    const int n_parts = strait_outer_count_bits(members & ~own);
    double bytes = 0.0; // that this replica sends and receives
    if (!o->spec.is_wary) return INT64_MAX;
    for (int i = 0; i < o->n_chunks; i++) {
        const int n = strait_outer_owner(o, i) == self ? n_parts + n_alive - 1
                                                       : strait_outer_has(members, self) + 1;
        const int bits = strait_outer_wire_bits(o, &o->chunks[i]);
        bytes += n * (double)strait_quantized_bytes(bits, o->chunks[i].n);
    }
    const int64_t limit_ns = strait_outer_wait_ns(bytes, deadline_ns);
    return strait_outer_missing(o) != 0 ? limit_ns : 2 * limit_ns;
}

int strait_outer_is_settled(const struct strait_outer *o) {
    const uint64_t missing = strait_outer_missing(o);
    const uint64_t awaited = missing != 0 ? missing : strait_outer_withheld(o);
    for (int r = 0; r < o->spec.n_replicas; r++)
        if (o->outgoing[r].first != NULL) return 0;
    return (awaited & ~o->rejected & ~(missing != 0 ? 0 : o->given_up)) == 0;
}
