/* outer_exchange.c - the messages of an exchange: parts to the owners of chunks, and results. */
#include "stage/outer/outer_state.h"
#include "stage/replicas/quantize.h"
#include "stage/replicas/value_set.h"

#include <stdio.h>
#include <string.h>

/* ---- who has what ---- */

int strait_outer_count_bits(uint64_t bits) {
    int n = 0;
    for (; bits != 0; bits &= bits - 1)
        n++;
    return n;
}

/* An exchange has members, of which begin makes sure; without any, everything would be our own. */
int strait_outer_owner(const struct strait_outer *o, int chunk) {
    const int n = strait_outer_count_bits(o->exchange.members);
    int k = n > 0 ? chunk % n : 0;
    for (int r = 0; r < o->spec.n_replicas; r++)
        if (strait_outer_has(o->exchange.members, r) && k-- == 0) return r;
    return o->spec.replica;
}

int strait_outer_wire_bits(const struct strait_outer *o, const struct chunk *chunk) {
    return chunk->is_state ? o->spec.params.state_bits : o->spec.params.bits;
}

/* What does not cross a link loses nothing. */
int strait_outer_part_bits(const struct strait_outer *o, int chunk) {
    const int is_own = strait_outer_owner(o, chunk) == o->self;
    return is_own ? 32 : strait_outer_wire_bits(o, &o->chunks[chunk]);
}

int strait_outer_result_bits(const struct strait_outer *o, int chunk) {
    const int is_alone = strait_outer_count_bits(o->exchange.alive) == 1;
    return is_alone ? 32 : strait_outer_wire_bits(o, &o->chunks[chunk]);
}

int strait_outer_peer(const struct strait_outer *o, int replica) {
    return o->mesh != NULL && replica != o->spec.replica ? o->peers[replica] : -1;
}

static int replica_of(const struct strait_outer *o, int peer) {
    for (int i = 0; i < o->spec.n_replicas; i++)
        if (strait_outer_peer(o, i) == peer && peer >= 0) return i;
    return -1;
}

/* ---- messages ---- */

void strait_outer_drop(struct strait_outer *o) {
    for (int i = 0; i < o->n_chunks; i++) {
        struct chunk *c = &o->chunks[i];
        for (int r = 0; r < o->spec.n_replicas; r++)
            strait_msg_close(&c->parts[r]);
        strait_msg_close(&c->result);
        strait_msg_close(&c->lost);
    }
    for (int r = 0; r < o->spec.n_replicas; r++)
        while (o->outgoing[r].first != NULL) {
            struct strait_msg *msg = o->outgoing[r].first;
            o->outgoing[r].first = msg->next;
            strait_msg_close(&msg);
        }
    o->n_chunks = o->n_results = o->is_begun = o->has_applied = 0;
    o->rejected = o->given_up = 0;
    o->has_told = 0;
    memset(o->part_squares, 0, sizeof o->part_squares);
    memset(o->result_squares, 0, sizeof o->result_squares);
}

strait_err strait_outer_message(struct strait_outer *o, int holds, int chunk, size_t bytes,
                                struct strait_msg **out) {
    struct strait_msg_pool *pool = o->alone != NULL ? o->alone : strait_mesh_pool(o->mesh);
    STRAIT_TRY(strait_msg_open(pool, STRAIT_MSG_OUTER, bytes, out));
    (*out)->priority = STRAIT_PRIORITY_ACTIVATION;
    (*out)->flags = (uint8_t)holds;
    (*out)->boundary = (uint16_t)o->spec.stage;
    (*out)->microbatch = (uint16_t)chunk;
    (*out)->basis = (uint16_t)(o->exchange.fragment << 8 | o->exchange.attempt);
    (*out)->step = (uint32_t)o->exchange.step;
    return STRAIT_OK;
}

strait_err strait_outer_chunk_message(struct strait_outer *o, int holds, int chunk, int bits,
                                      struct strait_msg **out) {
    return strait_outer_message(o, holds, chunk, strait_quantized_bytes(bits, o->chunks[chunk].n),
                                out);
}

void strait_outer_queue(struct strait_outer *o, int replica, struct strait_msg *msg) {
    struct outgoing *out = &o->outgoing[replica];
    msg->next = NULL;
    if (out->first == NULL)
        out->first = msg;
    else
        out->last->next = msg;
    out->last = msg;
}

void strait_outer_drop_early(struct strait_outer *o) {
    while (o->early != NULL) {
        struct strait_msg *msg = o->early;
        o->early = msg->next;
        strait_msg_close(&msg);
    }
    memset(o->n_early, 0, sizeof o->n_early);
}

/* A replica that reads nothing holds up what is for it, and nobody else. */
static strait_err post(struct strait_outer *o, int *is_blocked) {
    for (int r = 0; r < o->spec.n_replicas; r++) {
        struct outgoing *out = &o->outgoing[r];
        while (out->first != NULL) {
            struct strait_msg *msg = out->first;
            struct strait_msg *next = msg->next;
            const strait_err err = strait_mesh_send(o->mesh, o->peers[r], &msg);
            if (err == STRAIT_EAGAIN) {
                *is_blocked = 1;
                break;
            }
            STRAIT_TRY(err);
            out->first = next;
        }
    }
    return STRAIT_OK;
}

/* ---- parts ---- */

/* The k-th entry of `ready` is a chunk, whose part lies in its `result` meanwhile. */
static void encode_part(void *arg, int k) {
    struct strait_outer *o = arg;
    const int index = o->ready[k];
    struct chunk *c = &o->chunks[index];
    const int bits = strait_outer_part_bits(o, index);
    unsigned char *to = c->result->body;
    float difference[STRAIT_OUTER_PIECE];
    float residual[STRAIT_OUTER_PIECE];
    for (int64_t at = 0; at < c->n; at += STRAIT_OUTER_PIECE) {
        const int n = (int)(c->n - at < STRAIT_OUTER_PIECE ? c->n - at : STRAIT_OUTER_PIECE);
        if (bits == 32) {
            strait_outer_difference(o, c, c->first + at, n, difference);
            memcpy(to, difference, (size_t)n * sizeof *difference);
        } else if (c->is_state) {
            memset(residual, 0, (size_t)n * sizeof *residual);
            strait_quantize(bits, o->sent + c->first + at, residual, n, to);
        } else {
            /* The residual itself changes when the exchange is applied. */
            strait_value_set_best()->subtract(o->anchor + c->first + at, o->sent + c->first + at, n,
                                              difference);
            memcpy(residual, o->residual + c->first + at, (size_t)n * sizeof *residual);
            strait_quantize(bits, difference, residual, n, to);
        }
        to += strait_quantized_bytes(bits, n);
    }
}

static strait_err redeliver(struct strait_outer *o);

strait_err strait_outer_send_parts(struct strait_outer *o) {
    o->n_ready = 0;
    for (int i = 0; strait_outer_has(o->exchange.members, o->spec.replica) && i < o->n_chunks;
         i++) {
        if (strait_outer_owner(o, i) == o->spec.replica) continue;
        STRAIT_TRY(strait_outer_chunk_message(o, HOLDS_PART, i, strait_outer_part_bits(o, i),
                                              &o->chunks[i].result));
        o->ready[o->n_ready++] = i;
    }
    strait_outer_run(o, o->n_ready, encode_part);
    for (int k = 0; k < o->n_ready; k++) {
        struct chunk *c = &o->chunks[o->ready[k]];
        strait_outer_queue(o, strait_outer_owner(o, o->ready[k]), c->result);
        c->result = NULL;
    }
    return redeliver(o);
}

strait_err strait_outer_progress(struct strait_outer *o, int *is_blocked) {
    *is_blocked = 0;
    if (!o->is_begun) return STRAIT_OK;
    STRAIT_TRY(strait_outer_sum_ready(o));
    return o->mesh != NULL ? post(o, is_blocked) : STRAIT_OK;
}

/* ---- receiving ---- */

static strait_err fail_unexpected(const struct strait_outer *o, const struct strait_msg *m) {
    return STRAIT_FAIL(STRAIT_EPROTO,
                       "stage %d, replica %d, after step %lld: unexpected difference of step %u, "
                       "chunk %d, %zu bytes from replica %d",
                       o->spec.stage, o->spec.replica, (long long)o->exchange.step,
                       (unsigned)m->step, m->microbatch, m->size, replica_of(o, m->peer));
}

/* In a swarm no sender may make a receiver fail: the message is dropped and counts against it. */
static strait_err refuse(struct strait_outer *o, int from, struct strait_msg **msg) {
    if (!o->spec.is_wary) return fail_unexpected(o, *msg);
    strait_msg_close(msg);
    return from >= 0 ? strait_outer_reject(o, from) : STRAIT_OK;
}

/* Before, during or after the exchange that is under way or was the last: -1, 0 or 1. Within one
 * step fragments follow each other, and attempts. */
static int compare(const struct strait_outer *o, const struct strait_msg *m) {
    const uint32_t step = (uint32_t)o->exchange.step;
    const int which = o->exchange.fragment << 8 | o->exchange.attempt;
    if (m->step != step) return m->step < step ? -1 : 1;
    if (m->basis != which) return m->basis < which ? -1 : 1;
    return o->is_begun ? 0 : -1;
}

/* A replica is at most one exchange ahead, with parts and results of each chunk. One that sends
 * more uses up its own share of the memory, and nobody else's. A frame may be much larger than a
 * chunk, so the number of messages alone would not limit the bytes. */
static strait_err keep_early(struct strait_outer *o, int from, struct strait_msg **msg) {
    if (o->n_early[from] >= 2 * o->capacity ||
        (*msg)->size > strait_quantized_bytes(32, STRAIT_OUTER_CHUNK)) {
        strait_msg_close(msg);
        return strait_outer_reject(o, from);
    }
    (*msg)->next = o->early;
    o->early = *msg;
    o->n_early[from]++;
    *msg = NULL;
    return STRAIT_OK;
}

static strait_err take_nothing(struct strait_outer *o, int from, struct strait_msg **msg) {
    o->n_delivered += !strait_outer_has(o->given_up, from); // once: repeating it moves nothing
    o->given_up |= UINT64_C(1) << from;
    strait_msg_close(msg);
    return STRAIT_OK;
}

strait_err strait_outer_deliver(struct strait_outer *o, struct strait_msg **msg) {
    const int from = replica_of(o, (*msg)->peer);
    const int index = (*msg)->microbatch;
    if (from < 0 || (*msg)->flags > HOLDS_NOTHING || (*msg)->boundary != o->spec.stage)
        return refuse(o, from, msg);
    const int when = compare(o, *msg);
    if (when > 0) return keep_early(o, from, msg);
    if (when < 0 || strait_outer_has(o->rejected, from)) {
        strait_msg_close(msg);
        return STRAIT_OK;
    }
    if ((*msg)->flags == HOLDS_NOTHING && (*msg)->size == 0) return take_nothing(o, from, msg);
    if (index >= o->n_chunks || (*msg)->flags == HOLDS_NOTHING) return refuse(o, from, msg);
    struct chunk *c = &o->chunks[index];
    const int is_part = (*msg)->flags == HOLDS_PART, owner = strait_outer_owner(o, index);
    const int bits = strait_outer_wire_bits(o, c);
    if ((*msg)->size != strait_quantized_bytes(bits, c->n) || c->result != NULL ||
        owner != (is_part ? o->spec.replica : from) ||
        (is_part && (!strait_outer_has(o->exchange.members, from) || c->parts[from] != NULL)))
        return refuse(o, from, msg);
    if (!strait_outer_is_plausible(o, from, c, *msg)) {
        strait_msg_close(msg);
        return strait_outer_reject(o, from);
    }
    *(is_part ? &c->parts[from] : &c->result) = *msg;
    o->n_delivered++;
    o->n_taken += (*msg)->size;
    o->n_results += !is_part;
    *msg = NULL;
    return STRAIT_OK;
}

/* What arrived before this replica was told to begin. */
static strait_err redeliver(struct strait_outer *o) {
    struct strait_msg *waiting = o->early;
    strait_err err = STRAIT_OK;
    o->early = NULL;
    memset(o->n_early, 0, sizeof o->n_early);
    while (waiting != NULL) {
        struct strait_msg *msg = waiting;
        waiting = msg->next;
        if (err == STRAIT_OK) err = strait_outer_deliver(o, &msg);
        strait_msg_close(&msg);
    }
    return err;
}
