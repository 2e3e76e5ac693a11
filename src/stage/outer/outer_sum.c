/* outer_sum.c - the owner of a chunk averages what the members sent, and sends the result. */
#include "stage/outer/outer_state.h"
#include "stage/replicas/quantize.h"
#include "stage/replicas/value_set.h"

#include <math.h>
#include <string.h>

/* A stretch of a chunk that is summed at a time. */
struct piece {
    int64_t at; // offset in the chunk
    int n;
    float sum[STRAIT_OUTER_PIECE];
    double squares[STRAIT_OUTER_PIECE / STRAIT_OUTER_BLOCK]; // of what was added, by its shares
};

static int is_summable(const struct strait_outer *o, int index) {
    const struct chunk *c = &o->chunks[index];
    if (c->result != NULL || strait_outer_owner(o, index) != o->spec.replica) return 0;
    for (int r = 0; r < o->spec.n_replicas; r++)
        if (r != o->spec.replica && strait_outer_has(o->exchange.members, r) && c->parts[r] == NULL)
            return 0;
    return 1;
}

static int block_size(const struct piece *p, int first) {
    return p->n - first < STRAIT_OUTER_BLOCK ? p->n - first : STRAIT_OUTER_BLOCK;
}

/* Adds share x value of a member. */
static void add_part(struct strait_outer *o, const struct chunk *c, int replica, float share,
                     struct piece *p) {
    const struct strait_value_set *set = strait_value_set_best();
    const int bits = strait_outer_wire_bits(o, c);
    float values[STRAIT_OUTER_PIECE];
    if (replica == o->spec.replica)
        strait_outer_difference(o, c, c->first + p->at, p->n, values);
    else if (bits == 32)
        memcpy(values, c->parts[replica]->body + (size_t)p->at * sizeof(float),
               (size_t)p->n * sizeof(float));
    else
        strait_dequantize(bits, c->parts[replica]->body + strait_quantized_bytes(bits, p->at), p->n,
                          values);
    set->add(share, values, p->n, p->sum);
    for (int i = 0; o->spec.params.keeps_norm && i < p->n; i += STRAIT_OUTER_BLOCK)
        p->squares[i / STRAIT_OUTER_BLOCK] += (double)share *
                                              set->squares(values + i, block_size(p, i));
}

/* Optimizers such as Muon and AdamW give each update a length that does not depend on that of the
 * gradient. What is noise in the gradients of the members cancels in the average of their updates,
 * so the average is shorter than the update that one optimizer would have made of all gradients.
 * Each block of the average gets the length that the members' blocks have, in the root of the mean
 * square. `most` limits the factor: it is the squared ratio for members that have nothing but
 * noise.
 */
static void restore_norms(struct piece *p, double most) {
    const struct strait_value_set *set = strait_value_set_best();
    for (int i = 0; i < p->n; i += STRAIT_OUTER_BLOCK) {
        const double squares = set->squares(p->sum + i, block_size(p, i));
        const double ratio = p->squares[i / STRAIT_OUTER_BLOCK] / squares;
        /* A block that is 0 has no direction, and one with values that are not finite stays so. */
        if (squares > 0.0 && isfinite(ratio))
            set->scale((float)sqrt(fmin(ratio, most)), block_size(p, i), p->sum + i);
    }
}

/* In the order of replicas, whatever the order of arrival. */
static void average_piece(struct strait_outer *o, const struct chunk *c, struct piece *p) {
    float shares = 0.0f;
    double squares = 0.0; // of the shares; the inverse is the number of members if all are equal
    for (int r = 0; r < o->spec.n_replicas; r++)
        if (strait_outer_has(o->exchange.members, r)) shares += o->exchange.shares[r];
    for (int r = 0; r < o->spec.n_replicas; r++) {
        const float share = o->exchange.shares[r] / shares;
        if (!strait_outer_has(o->exchange.members, r)) continue;
        add_part(o, c, r, share, p);
        squares += (double)share * (double)share;
    }
    const int is_plain = c->is_state || o->exchange.step <= o->spec.params.schedule.warmup;
    if (o->spec.params.keeps_norm && !is_plain) restore_norms(p, 1.0 / squares);
}

static void sum_chunk(void *arg, int k) {
    struct strait_outer *o = arg;
    const int index = o->ready[k], bits = strait_outer_result_bits(o, index);
    struct chunk *c = &o->chunks[index];
    unsigned char *to = c->result->body;
    for (int64_t at = 0; at < c->n; at += STRAIT_OUTER_PIECE) {
        const int n = (int)(c->n - at < STRAIT_OUTER_PIECE ? c->n - at : STRAIT_OUTER_PIECE);
        struct piece p = {.at = at, .n = n};
        average_piece(o, c, &p);
        if (bits == 32) {
            memcpy(to, p.sum, (size_t)n * sizeof *p.sum);
        } else if (c->is_state) {
            float lost[STRAIT_OUTER_PIECE] = {0};
            strait_quantize(bits, p.sum, lost, n, to);
        } else {
            float *lost = (float *)(void *)c->lost->body + at;
            memcpy(lost, o->result_residual + c->first + at, (size_t)n * sizeof *lost);
            strait_quantize(bits, p.sum, lost, n, to);
        }
        to += strait_quantized_bytes(bits, n);
    }
}

static strait_err send_result(struct strait_outer *o, int index) {
    const struct chunk *c = &o->chunks[index];
    for (int r = 0; r < o->spec.n_replicas; r++) {
        struct strait_msg *msg = NULL;
        if (r == o->spec.replica || !strait_outer_has(o->exchange.alive, r)) continue;
        STRAIT_TRY(strait_outer_chunk_message(o, HOLDS_RESULT, index,
                                              strait_outer_result_bits(o, index), &msg));
        memcpy(msg->body, c->result->body, msg->size);
        strait_outer_queue(o, r, msg);
    }
    return STRAIT_OK;
}

strait_err strait_outer_sum_ready(struct strait_outer *o) {
    o->n_ready = 0;
    for (int i = 0; i < o->n_chunks; i++) {
        if (!is_summable(o, i)) continue;
        const int bits = strait_outer_result_bits(o, i);
        STRAIT_TRY(strait_outer_chunk_message(o, HOLDS_RESULT, i, bits, &o->chunks[i].result));
        if (bits < 32 && !o->chunks[i].is_state)
            STRAIT_TRY(strait_outer_chunk_message(o, HOLDS_RESULT, i, 32, &o->chunks[i].lost));
        o->ready[o->n_ready++] = i;
    }
    strait_outer_run(o, o->n_ready, sum_chunk);
    for (int k = 0; k < o->n_ready; k++) {
        struct chunk *c = &o->chunks[o->ready[k]];
        for (int r = 0; r < o->spec.n_replicas; r++)
            strait_msg_close(&c->parts[r]);
        STRAIT_TRY(send_result(o, o->ready[k]));
        o->n_results++;
    }
    return STRAIT_OK;
}
