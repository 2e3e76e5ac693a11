/* probe.c - measures the links to the neighbours: all workers of a run fill all links at the same
 * time, in both directions, over the routes that crossings will take.
 *
 * Each end sends as much as the other acknowledges and measures what arrives. Acknowledgements also
 * tell how long messages have waited on their way: the sender keeps that to a fraction of a second.
 * So a slow link is empty again soon, and does not hold up the acknowledgements of a fast one in
 * the other direction. A neighbour may begin before our command has come, and end after us: its
 * messages name the command that they belong to. */
#include "base/bytes.h"
#include "base/clock.h"
#include "swarm/worker/rate_meter.h"
#include "swarm/worker/state.h"

#include <string.h>

enum {
    DURATION_MAX_MS = 10000,
    SLICES = 16,            // of the whole duration; half of them are the warm-up
    WAIT_MS = 2,            // for a message, while nothing can be sent
    BURST = 256,            // messages that are received before more is sent
    ACK_BYTES = 20,         // sequence, bytes that have arrived, time that the last one waited
    PROBE_MIN = 4 * 1024,   // of the first messages: on a slow link each takes long
    WINDOW_MIN = 16 * 1024, // bytes on their way before the first acknowledgement
    WINDOW_MAX = 8 * 1024 * 1024, // at any time
    WAIT_NS = 250000000,          // that messages should wait at most on their way
    WAIT_LONG_NS = 500000000,     // after which fewer are sent
    STRAY_MAX = 32 * 1024 * 1024  // of neighbours that begin early or end late
};

/* One neighbour. */
struct side {
    int peer;                // in the mesh; -1: none
    uint64_t sent, acked;    // bytes to it
    uint64_t window;         // that may be on their way
    int64_t shrunk_ns;       // when it was last made smaller
    uint64_t received, told; // bytes from it, and what it was told of them
    int64_t least_ns;        // between the clocks of both ends, on the fastest message so far
    uint64_t waited_ns;      // how much longer the last one took
    strait_rate_meter in, out;
};

struct probe {
    uint32_t sequence;
    int64_t until_ns;
    struct side sides[2]; // previous, next
};

/* An error names the side that it came from: the coordinator would suspect this worker alone
 * otherwise, for what a neighbour sends. */
static void note_side(struct worker *w, int peer) {
    struct strait_runner *runner = strait_service_runner(w->service);
    const int side = strait_worker_side_of(w, peer);
    if (runner != NULL) runner->side = side == STRAIT_WORKER_BROKEN_SAME ? 0 : side;
}

static strait_err malformed(const struct worker *w, int i) {
    return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: malformed probe from stage %d", w->stage,
                       w->stage + (i == 0 ? -1 : 1));
}

/* ---- receiving ---- */

/* The beginning of a command that we have not got yet is acknowledged later, the rest of an earlier
 * one is dropped. */
static strait_err take_stray(struct worker *w, const struct strait_msg *msg) {
    const int i = msg->peer == w->prev ? 0 : 1;
    struct worker_stray *stray = &w->stray[i];
    if (msg->peer != w->prev && msg->peer != w->next_peer)
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: probe from a worker that is no neighbour",
                           w->stage);
    if (msg->size < ACK_BYTES) return malformed(w, i);
    stray->total += msg->size;
    if (stray->total > STRAY_MAX)
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: stage %d sends probes without end", w->stage,
                           w->stage + (i == 0 ? -1 : 1));
    if (msg->size == ACK_BYTES) return STRAIT_OK;
    const uint32_t sequence = strait_get_u32(msg->body);
    if (sequence != stray->sequence) stray->bytes = 0;
    stray->sequence = sequence;
    stray->bytes += msg->size;
    return STRAIT_OK;
}

strait_err strait_worker_stray_probe(struct worker *w, const struct strait_msg *msg) {
    const strait_err err = take_stray(w, msg);
    if (err != STRAIT_OK) note_side(w, msg->peer);
    return err;
}

/* The window doubles with each round trip while messages hardly wait, as TCP's does at first. */
static void adapt(struct side *side, uint64_t n_acked, uint64_t waited_ns, int64_t now) {
    if (waited_ns <= WAIT_NS) {
        side->window += n_acked;
        if (side->window > WINDOW_MAX) side->window = WINDOW_MAX;
    } else if (waited_ns > WAIT_LONG_NS && now - side->shrunk_ns > WAIT_LONG_NS) {
        side->window = side->window / 2 > WINDOW_MIN ? side->window / 2 : WINDOW_MIN;
        side->shrunk_ns = now;
    }
}

static strait_err take_ack(struct worker *w, struct probe *p, int i, const struct strait_msg *msg) {
    struct side *side = &p->sides[i];
    const uint64_t acked = strait_get_u64(msg->body + 4);
    const int64_t now = strait_clock_ns();
    if (acked < side->acked || acked > side->sent) return malformed(w, i);
    strait_rate_meter_add(&side->out, (double)(acked - side->acked), now);
    adapt(side, acked - side->acked, strait_get_u64(msg->body + 12), now);
    side->acked = acked;
    return STRAIT_OK;
}

/* The clocks of two machines differ by what does not matter here. */
static void take_bytes(struct side *side, const struct strait_msg *msg) {
    const int64_t took = (int64_t)((uint64_t)msg->queued_ns - strait_get_u64(msg->body + 4));
    if (took < side->least_ns) side->least_ns = took;
    side->waited_ns = (uint64_t)took - (uint64_t)side->least_ns; // which a peer chooses, in part
    side->received += msg->size;
    strait_rate_meter_add(&side->in, (double)msg->size, msg->queued_ns);
}

/* A message of this probe; others are of an earlier one. */
static strait_err take_probe(struct worker *w, struct probe *p, const struct strait_msg *msg) {
    const int i = msg->peer == w->prev ? 0 : 1;
    struct side *side = &p->sides[i];
    if (msg->peer != side->peer || msg->size < ACK_BYTES ||
        strait_get_u32(msg->body) != p->sequence)
        return take_stray(w, msg);
    if (msg->size == ACK_BYTES) return take_ack(w, p, i, msg);
    take_bytes(side, msg);
    return STRAIT_OK;
}

static strait_err receive(struct worker *w, struct probe *p) {
    for (int n = 0; n < BURST; n++) {
        struct strait_msg *msg = NULL;
        if (strait_mesh_receive(w->mesh, n == 0 ? WAIT_MS : 0, &msg) != STRAIT_OK) break;
        const int peer = msg->peer; // routing may take the message
        const strait_err err = msg->type == STRAIT_MSG_PROBE
                                   ? take_probe(w, p, msg)
                                   : strait_service_route(w->service, &msg);
        strait_msg_close(&msg);
        if (err != STRAIT_OK) note_side(w, peer);
        STRAIT_TRY(err);
    }
    return STRAIT_OK;
}

/* ---- sending ---- */

/* Takes *msg. STRAIT_EAGAIN: too much is queued. */
static strait_err send(struct worker *w, struct probe *p, int i, struct strait_msg **msg) {
    strait_put_u32((*msg)->body, p->sequence);
    const strait_err err = strait_mesh_send(w->mesh, p->sides[i].peer, msg);
    strait_msg_close(msg);
    return err;
}

static strait_err acknowledge(struct worker *w, struct probe *p, int i) {
    struct side *side = &p->sides[i];
    struct strait_msg *msg = NULL;
    if (side->peer < 0 || side->received == side->told) return STRAIT_OK;
    STRAIT_TRY(strait_msg_open(strait_mesh_pool(w->mesh), STRAIT_MSG_PROBE, ACK_BYTES, &msg));
    msg->priority = STRAIT_PRIORITY_CONTROL;
    strait_put_u64(msg->body + 4, side->received);
    strait_put_u64(msg->body + 12, side->waited_ns);
    const strait_err err = send(w, p, i, &msg);
    if (err == STRAIT_OK) side->told = side->received;
    return err == STRAIT_EAGAIN ? STRAIT_OK : err;
}

/* Small beside what is on its way, so that its arrival is a fine mark in time. */
static size_t message_bytes(const struct side *side) {
    size_t bytes = PROBE_MIN;
    while (bytes < STRAIT_PROBE_BYTES && 8 * bytes < side->window)
        bytes *= 2;
    return bytes;
}

static strait_err fill(struct worker *w, struct probe *p, int i) {
    struct side *side = &p->sides[i];
    while (side->peer >= 0 && side->sent - side->acked < side->window) {
        const size_t bytes = message_bytes(side);
        struct strait_msg *msg = NULL;
        STRAIT_TRY(strait_msg_open(strait_mesh_pool(w->mesh), STRAIT_MSG_PROBE, bytes, &msg));
        msg->priority = STRAIT_PRIORITY_ACTIVATION;
        memset(msg->body, 0, bytes); // encrypted on the way, so that nothing compresses it
        strait_put_u64(msg->body + 4, (uint64_t)strait_clock_ns());
        const strait_err err = send(w, p, i, &msg);
        if (err == STRAIT_EAGAIN) return STRAIT_OK;
        STRAIT_TRY(err);
        side->sent += bytes;
    }
    return STRAIT_OK;
}

/* ---- the command ---- */

static void begin(struct worker *w, const strait_stage_command *command, struct probe *p) {
    const int64_t now = strait_clock_ns();
    const int64_t duration = command->probe.duration_ms * INT64_C(1000000);
    const int peers[] = {w->prev, w->next_peer};
    *p = (struct probe){.sequence = command->sequence, .until_ns = now + duration};
    for (int i = 0; i < 2; i++) {
        struct side *side = &p->sides[i];
        side->peer = peers[i];
        side->window = WINDOW_MIN;
        side->least_ns = INT64_MAX;
        if (w->stray[i].sequence == command->sequence) side->received = w->stray[i].bytes;
        strait_rate_meter_init(&side->in, now, now + duration / 2, duration / SLICES);
        strait_rate_meter_init(&side->out, now, now + duration / 2, duration / SLICES);
        w->stray[i] = (struct worker_stray){0};
    }
}

strait_err strait_worker_probe(struct worker *w, const strait_stage_command *command,
                               strait_stage_reply *reply) {
    struct probe p;
    if (command->probe.duration_ms < 1 || command->probe.duration_ms > DURATION_MAX_MS)
        return STRAIT_FAIL(STRAIT_EPROTO, "the coordinator asked for probes of %d ms",
                           command->probe.duration_ms);
    begin(w, command, &p);
    while (strait_clock_ns() < p.until_ns) {
        for (int i = 0; i < 2; i++) {
            STRAIT_TRY(acknowledge(w, &p, i));
            STRAIT_TRY(fill(w, &p, i));
        }
        STRAIT_TRY(receive(w, &p));
        w->progress++;
        STRAIT_TRY(strait_worker_poll_control(w));
    }
    const int64_t now = strait_clock_ns();
    reply->probe.from_prev_bps = strait_rate_meter_bps(&p.sides[0].in, now);
    reply->probe.from_next_bps = strait_rate_meter_bps(&p.sides[1].in, now);
    reply->probe.to_prev_bps = strait_rate_meter_bps(&p.sides[0].out, now);
    reply->probe.to_next_bps = strait_rate_meter_bps(&p.sides[1].out, now);
    return STRAIT_OK;
}
