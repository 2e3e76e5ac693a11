/* snapshots.c - the snapshots that a worker keeps in memory: of its own stage, and copies of its
 * neighbours'. Copies are sent in the background and must not delay activations and gradients. */
#include "base/clock.h"
#include "swarm/worker/state.h"

enum {
    SEND_MS = 60000, // for one piece to be accepted by the link
    POLL_MS = 20,
    RATE_MS = 500 // between measurements of the link
};

static const double encrypt_bytes_per_s = 1e9; // of TLS on one core, approximately
static const double background_share = 0.2;    // of the link's rate, for background copies
static const double first_bps = 8e6;           // assumed until the link is measured
static const double most_bps = 4e8;            // encrypting more would slow down computing
static const double burst_s = 0.25;            // of credit that may accumulate
static const double piece_s = 0.01; // longest time that a piece may delay an activation or gradient
static const double piece_bytes = 4096; // the smallest piece, however slow the link

struct strait_snapshot *strait_worker_find_snapshot(struct strait_snapshot *snapshots, int n,
                                                    int stage, int64_t step) {
    for (int i = 0; i < n; i++)
        if (strait_snapshot_is_complete(&snapshots[i]) && snapshots[i].stage == stage &&
            snapshots[i].step == step)
            return &snapshots[i];
    return NULL;
}

/* Returns whether the first may rather go: it is older, or no audit needs it. */
static int is_spent(const struct worker *w, const struct strait_snapshot *a,
                    const struct strait_snapshot *b) {
    const int needs_a = strait_worker_may_give(w, a);
    const int needs_b = strait_worker_may_give(w, b);
    return needs_a != needs_b ? needs_b : a->step < b->step;
}

struct strait_snapshot *strait_worker_free_snapshot(struct worker *w) {
    struct strait_snapshot *oldest_slot = NULL;
    int64_t newest = -1;
    for (int i = 0; i < STRAIT_SWARM_SNAPSHOTS; i++)
        if (strait_snapshot_is_complete(&w->snapshots.own[i]) && w->snapshots.own[i].step > newest)
            newest = w->snapshots.own[i].step;
    for (int i = 0; i < STRAIT_SWARM_SNAPSHOTS; i++) {
        struct strait_snapshot *snapshot = &w->snapshots.own[i];
        if (!strait_snapshot_is_complete(snapshot)) return snapshot;
        if (snapshot == w->snapshots.sending || snapshot->step == newest) continue;
        if (oldest_slot == NULL || is_spent(w, snapshot, oldest_slot)) oldest_slot = snapshot;
    }
    return oldest_slot;
}

static void list_snapshots(const struct strait_snapshot *snapshots, int n,
                           strait_snapshot_set *out) {
    *out = (strait_snapshot_set){.stage = -1};
    for (int i = 0; i < n; i++) {
        if (!strait_snapshot_is_complete(&snapshots[i])) continue;
        out->stage = snapshots[i].stage;
        out->steps[out->n] = snapshots[i].step;
        out->digests[out->n] = snapshots[i].digest;
        out->generations[out->n++] = snapshots[i].generation;
    }
}

void strait_worker_inventory(const struct worker *w, strait_snapshot_inventory *out) {
    list_snapshots(w->snapshots.own, STRAIT_SWARM_SNAPSHOTS, &out->own);
    list_snapshots(w->snapshots.copies[0], STRAIT_WORKER_COPIES, &out->prev);
    list_snapshots(w->snapshots.copies[1], STRAIT_WORKER_COPIES, &out->next);
    out->live = (strait_live_state){.stage = -1, .step = -1};
    if (w->service == NULL || strait_service_runner(w->service) == NULL) return;
    const strait_runner_live live = strait_runner_describe_live(strait_service_runner(w->service));
    if (live.step < 0) return;
    out->live = (strait_live_state){.stage = w->stage,
                                    .step = live.step,
                                    .generation = w->live_generation,
                                    .is_pending = live.is_pending,
                                    .first_kept = live.first_kept};
}

void strait_worker_drop_snapshot(struct strait_snapshot *snapshot) {
    snapshot->bytes = snapshot->filled = 0; // the memory is reused by the next
}

void strait_worker_trim_snapshots(struct worker *w, int64_t step) {
    for (int i = 0; i < STRAIT_SWARM_SNAPSHOTS; i++)
        if (w->snapshots.own[i].step > step) strait_worker_drop_snapshot(&w->snapshots.own[i]);
    for (int i = 0; i < 2 * STRAIT_WORKER_COPIES; i++) {
        struct strait_snapshot
            *copy = &w->snapshots.copies[i / STRAIT_WORKER_COPIES][i % STRAIT_WORKER_COPIES];
        if (copy->step > step || !strait_snapshot_is_complete(copy))
            strait_worker_drop_snapshot(copy);
    }
    w->snapshots.sending = NULL;
}

/* Waits until the link accepts the message and polls meanwhile: the neighbour may be sending too,
 * and two that only send would wait for each other. */
static strait_err send_and_poll(struct worker *w, struct strait_mesh *mesh, int peer,
                                struct strait_msg **msg) {
    const int64_t until = strait_clock_ns() + SEND_MS * INT64_C(1000000);
    for (;;) {
        const strait_err err = strait_mesh_send_wait(mesh, peer, POLL_MS, msg);
        if (err == STRAIT_OK) w->progress++;
        if (err != STRAIT_ETIMEDOUT && err != STRAIT_OK) return err;
        STRAIT_TRY(mesh == w->control.mesh ? strait_worker_poll_control(w) : strait_worker_poll(w));
        if (err == STRAIT_OK) return STRAIT_OK;
        if (strait_clock_ns() > until)
            return STRAIT_FAIL(STRAIT_ETIMEDOUT,
                               "sending a snapshot: the link accepted no data for %d s",
                               SEND_MS / 1000);
    }
}

strait_err strait_worker_send_snapshot(struct worker *w, struct strait_mesh *mesh, int peer,
                                       const struct strait_snapshot *snapshot,
                                       strait_priority priority) {
    strait_err err = STRAIT_OK;
    for (size_t at = 0; at < snapshot->bytes && err == STRAIT_OK;) {
        struct strait_msg *msg = NULL;
        strait_piece piece;
        strait_snapshot_next_piece(snapshot, &at, &piece);
        err = strait_piece_pack(strait_mesh_pool(mesh), &piece, &msg);
        if (err == STRAIT_OK) {
            msg->priority = (uint8_t)priority;
            err = send_and_poll(w, mesh, peer, &msg);
        }
        strait_msg_close(&msg);
    }
    return err;
}

static double lower(double bps, double limit) {
    return limit > 0.0 && limit < bps ? limit : bps;
}

/* The rate of the link: what the kernel measured lately, but no more than the emulated rate and
 * what our owner lends. */
static double link_bps(struct worker *w, int peer) {
    const strait_emulate_spec *emulated = &strait_service_plan(w->service)->emulate;
    const int64_t now = strait_clock_ns();
    if (now - w->snapshots.rate_ns >
        RATE_MS * INT64_C(1000000)) { // asking the net thread blocks briefly
        strait_link_stats stats = {0};
        if (strait_mesh_stats(w->mesh, peer, &stats) == STRAIT_OK)
            w->snapshots.rate_bps = stats.delivery_bps;
        w->snapshots.rate_ns = now;
    }
    const double rate = w->snapshots.rate_bps > 0.0 ? w->snapshots.rate_bps : first_bps;
    return lower(lower(lower(rate, emulated->rate_bps), emulated->up_bps), w->spec->up_bps);
}

static double background_bps(double bps) {
    return background_share * bps < most_bps ? background_share * bps : most_bps;
}

/* Returns the neighbour that keeps copies of our snapshots: the next stage; for the last stage the
 * previous one. */
static int copy_peer(const struct worker *w) {
    if (w->replicas.replica > 0) return -1;
    return w->next_peer >= 0 ? w->next_peer : w->prev;
}

double strait_worker_copy_seconds(struct worker *w, size_t bytes) {
    const int peer = copy_peer(w);
    return peer < 0 ? 0.0 : (double)bytes * 8.0 / background_bps(link_bps(w, peer));
}

/* Adds to the bytes that may be sent in the background; unused time counts for burst_s only. */
static void add_credit(struct worker *w, double bps) {
    const int64_t now = strait_clock_ns();
    const double rate = background_bps(bps);
    w->snapshots.credit += (double)(now - w->snapshots.credit_ns) * 1e-9 * rate / 8.0;
    if (w->snapshots.credit > burst_s * rate / 8.0) w->snapshots.credit = burst_s * rate / 8.0;
    w->snapshots.credit_ns = now;
}

/* Sends the next piece, no larger than the link carries in piece_s. */
static strait_err send_next(struct worker *w, int peer, double bps) {
    const double limit = piece_s * bps / 8.0 > piece_bytes ? piece_s * bps / 8.0 : piece_bytes;
    strait_piece piece;
    size_t at = w->snapshots.sent;
    strait_snapshot_next_piece(w->snapshots.sending, &at, &piece);
    piece.must_keep = 1;
    if (!w->snapshots.is_urgent && (double)piece.bytes > limit) piece.bytes = (size_t)limit;
    struct strait_msg *msg = NULL;
    STRAIT_TRY(strait_piece_pack(strait_mesh_pool(w->mesh), &piece, &msg));
    const strait_err err = strait_mesh_send(w->mesh, peer, &msg);
    strait_msg_close(&msg);
    STRAIT_TRY(err);
    w->snapshots.sent += piece.bytes;
    w->snapshots.credit -= (double)piece.bytes;
    if (w->snapshots.is_urgent) w->served_ns = strait_clock_ns(); // others wait for it
    strait_worker_reach(w, STRAIT_WORKER_COPY, w->snapshots.sending->step);
    if (w->snapshots.sent == w->snapshots.sending->bytes) w->snapshots.sending = NULL;
    return STRAIT_OK;
}

void strait_worker_send_copy(struct worker *w) {
    const int peer = copy_peer(w);
    if (w->snapshots.sending == NULL) return;
    if (peer < 0) {
        w->snapshots.sending = NULL;
        return;
    }
    const double bps = link_bps(w, peer);
    add_credit(w, bps);
    while (w->snapshots.sending != NULL && (w->snapshots.is_urgent || w->snapshots.credit > 0.0))
        if (send_next(w, peer, bps) != STRAIT_OK) return; // the link is full for now
}

/* ---- taking them ---- */

strait_err strait_worker_current_snapshot(struct worker *w, struct strait_snapshot **out) {
    struct strait_snapshot *slot = strait_worker_find_snapshot(
        w->snapshots.own, STRAIT_SWARM_SNAPSHOTS, w->stage, w->step);
    if (slot == NULL) {
        slot = strait_worker_free_snapshot(w);
        STRAIT_TRY(strait_snapshot_capture(strait_service_runner(w->service), w->step,
                                           w->generation, slot));
    }
    *out = slot;
    return STRAIT_OK;
}

strait_err strait_worker_keep_snapshot(struct worker *w, int is_urgent) {
    struct worker_snapshots *s = &w->snapshots;
    const double began = strait_clock_seconds();
    struct strait_snapshot *slot = NULL;
    if (w->service == NULL || strait_service_runner(w->service) == NULL)
        return STRAIT_FAIL(STRAIT_EPROTO, "task to take a snapshot before the stage was opened");
    /* A further replica that trains on its own has weights that nobody else continues from. */
    if (w->replicas.replica > 0 && strait_run_plan_has_outer(strait_service_plan(w->service)))
        return STRAIT_OK;
    STRAIT_TRY(strait_worker_current_snapshot(w, &slot));
    s->cost_s = strait_clock_seconds() - began + (double)slot->bytes / encrypt_bytes_per_s +
                s->copied_s;
    s->copied_s = 0.0;
    s->bytes = slot->bytes;
    s->is_urgent = is_urgent;
    if (w->replicas.replica > 0) return STRAIT_OK;          // the first replica has copies
    if (s->sending != NULL && !is_urgent) return STRAIT_OK; // the older copy is completed first
    s->sending = slot;
    s->sent = 0;
    return STRAIT_OK;
}
