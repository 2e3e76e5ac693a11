/* lend_image.c - the images a worker keeps: its own, and copies of a neighbour's. */
#include "base/clock.h"
#include "swarm/worker/state.h"

enum {
    SEND_MS = 60000, // for a piece
    LOOK_MS = 20,
    RATE_MS = 500
};

static const double share = 0.2;        // of the link, for copies in the background
static const double first_bps = 8e6;    // until its rate is known
static const double most_bps = 4e8;     // more would cost computing its core
static const double burst_s = 0.25;     // of the share, that may go at once
static const double piece_s = 0.01;     // of the line, that others may have to wait for a piece
static const double piece_bytes = 4096; // or this

struct strait_snapshot *strait_worker_find(struct strait_snapshot *snapshots, int n, int stage,
                                           int64_t step) {
    for (int i = 0; i < n; i++)
        if (strait_snapshot_is_whole(&snapshots[i]) && snapshots[i].stage == stage &&
            snapshots[i].step == step)
            return &snapshots[i];
    return NULL;
}

struct strait_snapshot *strait_worker_place(struct lend *l) {
    struct strait_snapshot *place = NULL;
    int64_t newest = -1;
    for (int i = 0; i < STRAIT_SWARM_SNAPSHOTS; i++)
        if (strait_snapshot_is_whole(&l->own[i]) && l->own[i].step > newest)
            newest = l->own[i].step;
    for (int i = 0; i < STRAIT_SWARM_SNAPSHOTS; i++) {
        struct strait_snapshot *snapshot = &l->own[i];
        if (!strait_snapshot_is_whole(snapshot)) return snapshot;
        if (snapshot == l->sending || snapshot->step == newest) continue;
        if (place == NULL || snapshot->step < place->step) place = snapshot;
    }
    return place;
}

static void list(const struct strait_snapshot *snapshots, int n, strait_snapshot_set *out) {
    *out = (strait_snapshot_set){.stage = -1};
    for (int i = 0; i < n; i++) {
        if (!strait_snapshot_is_whole(&snapshots[i])) continue;
        out->stage = snapshots[i].stage;
        out->steps[out->n] = snapshots[i].step;
        out->generations[out->n++] = snapshots[i].generation;
    }
}

void strait_worker_inventory(const struct lend *l, strait_snapshot_inventory *out) {
    list(l->own, STRAIT_SWARM_SNAPSHOTS, &out->own);
    list(l->copies[0], STRAIT_WORKER_COPIES, &out->prev);
    list(l->copies[1], STRAIT_WORKER_COPIES, &out->next);
}

static void forget(struct strait_snapshot *snapshot) {
    snapshot->bytes = snapshot->filled = 0; // the memory stays, for the next
}

void strait_worker_trim(struct lend *l, int64_t step) {
    for (int i = 0; i < STRAIT_SWARM_SNAPSHOTS; i++)
        if (l->own[i].step > step) forget(&l->own[i]);
    for (int i = 0; i < 2 * STRAIT_WORKER_COPIES; i++) {
        struct strait_snapshot
            *copy = &l->copies[i / STRAIT_WORKER_COPIES][i % STRAIT_WORKER_COPIES];
        if (copy->step > step || !strait_snapshot_is_whole(copy)) forget(copy);
    }
    l->sending = NULL;
}

/* Waits until the link takes it, and looks up meanwhile: others may be sending to us. */
static strait_err send_patiently(struct lend *l, struct strait_mesh *mesh, int peer,
                                 struct strait_msg **msg) {
    const int64_t until = strait_clock_ns() + SEND_MS * INT64_C(1000000);
    for (;;) {
        const strait_err err = strait_mesh_send_wait(mesh, peer, LOOK_MS, msg);
        if (err == STRAIT_OK) l->progress++;
        if (err != STRAIT_ETIMEDOUT && err != STRAIT_OK) return err;
        STRAIT_TRY(mesh == l->control ? strait_worker_lookup(l) : strait_worker_poll(l));
        if (err == STRAIT_OK) return STRAIT_OK;
        if (strait_clock_ns() > until)
            return STRAIT_FAIL(STRAIT_ETIMEDOUT, "an image was not taken for %d s", SEND_MS / 1000);
    }
}

strait_err strait_worker_send_all(struct lend *l, struct strait_mesh *mesh, int peer,
                                  const struct strait_snapshot *snapshot,
                                  strait_priority priority) {
    strait_err err = STRAIT_OK;
    for (size_t at = 0; at < snapshot->bytes && err == STRAIT_OK;) {
        struct strait_msg *msg = NULL;
        strait_piece piece;
        strait_snapshot_next(snapshot, &at, &piece);
        err = strait_piece_pack(strait_mesh_pool(mesh), &piece, &msg);
        if (err == STRAIT_OK) {
            msg->priority = (uint8_t)priority;
            err = send_patiently(l, mesh, peer, &msg);
        }
        strait_msg_close(&msg);
    }
    return err;
}

/* The line's rate: what the kernel lately saw delivered, or what is emulated above it. */
static double line_bps(struct lend *l, int peer) {
    const double emulated = l->server.plan.emulate.rate_bps;
    const int64_t now = strait_clock_ns();
    if (now - l->rate_ns > RATE_MS * INT64_C(1000000)) { // asking costs a turn of the net thread
        strait_link_stats stats = {0};
        if (strait_mesh_stats(l->server.mesh, peer, &stats) == STRAIT_OK)
            l->rate_bps = stats.delivery_bps;
        l->rate_ns = now;
    }
    const double rate = l->rate_bps > 0.0 ? l->rate_bps : first_bps;
    return emulated > 0.0 && emulated < rate ? emulated : rate;
}

static double background_bps(double bps) {
    return share * bps < most_bps ? share * bps : most_bps;
}

static int copier(const struct lend *l) {
    return l->server.next >= 0 ? l->server.next : l->server.prev;
}

double strait_worker_copy_seconds(struct lend *l, size_t bytes) {
    const int peer = copier(l);
    return peer < 0 ? 0.0 : (double)bytes * 8.0 / background_bps(line_bps(l, peer));
}

/* What the background may send by now; time that was not used is soon forgotten. */
static void earn(struct lend *l, double bps) {
    const int64_t now = strait_clock_ns();
    const double rate = background_bps(bps);
    l->credit += (double)(now - l->credit_ns) * 1e-9 * rate / 8.0;
    if (l->credit > burst_s * rate / 8.0) l->credit = burst_s * rate / 8.0;
    l->credit_ns = now;
}

/* The next piece of the image that is being sent, not larger than the line can bear. */
static strait_err send_next(struct lend *l, int peer, double bps) {
    const double limit = piece_s * bps / 8.0 > piece_bytes ? piece_s * bps / 8.0 : piece_bytes;
    strait_piece piece;
    size_t at = l->sent;
    strait_snapshot_next(l->sending, &at, &piece);
    piece.must_keep = 1;
    if (!l->is_urgent && (double)piece.bytes > limit) piece.bytes = (size_t)limit;
    struct strait_msg *msg = NULL;
    STRAIT_TRY(strait_piece_pack(strait_mesh_pool(l->server.mesh), &piece, &msg));
    const strait_err err = strait_mesh_send(l->server.mesh, peer, &msg);
    strait_msg_close(&msg);
    STRAIT_TRY(err);
    l->sent += piece.bytes;
    l->credit -= (double)piece.bytes;
    strait_worker_pass(l, STRAIT_WORKER_COPY, l->sending->step);
    if (l->sent == l->sending->bytes) l->sending = NULL;
    return STRAIT_OK;
}

void strait_worker_send_some(struct lend *l) {
    const int peer = copier(l);
    if (l->sending == NULL) return;
    if (peer < 0) {
        l->sending = NULL;
        return;
    }
    const double bps = line_bps(l, peer);
    earn(l, bps);
    while (l->sending != NULL && (l->is_urgent || l->credit > 0.0))
        if (send_next(l, peer, bps) != STRAIT_OK) return; // no room now
}

/* The copy that the next pieces belong to: the one they began, or the older of the two. */
static struct strait_snapshot *copy_for(struct strait_snapshot *copies, const strait_piece *piece) {
    struct strait_snapshot *oldest = &copies[0];
    for (int i = 0; i < STRAIT_WORKER_COPIES; i++) {
        struct strait_snapshot *copy = &copies[i];
        const int is_begun = copy->bytes > 0 && !strait_snapshot_is_whole(copy);
        if (piece->offset > 0 && is_begun && copy->step == piece->step) return copy;
        if (is_begun || copy->bytes == 0) {
            oldest = copy;
        } else if (strait_snapshot_is_whole(oldest) && copy->step < oldest->step) {
            oldest = copy;
        }
    }
    return oldest;
}

/* No stage takes more than the whole model does. Only the first piece makes room, and those behind
 * it must agree with it: a copy comes in thousands, beside the training. */
static size_t size_limit(const struct lend *l, const struct strait_snapshot *snapshot,
                         const strait_piece *piece) {
    size_t sum = 1 << 20;
    if (piece->offset > 0) return snapshot->bytes;
    for (int i = 0; i < l->server.plan.n_stages; i++) {
        strait_runner_memory memory;
        if (strait_runner_plan(&l->server.plan, i, 1, &memory) != STRAIT_OK) continue;
        sum += 2 * (memory.weights + memory.optimizer + memory.activations + memory.codecs);
    }
    return sum;
}

/* Whoever keeps a copy that is no use would be blamed for it later. */
static void inspect(struct lend *l, struct strait_snapshot *copy, int is_behind) {
    if (strait_snapshot_match(copy, &l->server.plan) == STRAIT_OK &&
        strait_snapshot_check(copy) == STRAIT_OK)
        return;
    strait_worker_note(l, "a neighbour's copy is dropped: %s", strait_err_detail());
    l->n_refused[is_behind ? STRAIT_SENDER : STRAIT_RECEIVER]++;
    forget(copy);
}

strait_err strait_worker_piece(struct lend *l, const struct strait_msg *msg, int is_host) {
    strait_piece piece;
    STRAIT_TRY(strait_piece_unpack(msg, &piece));
    if (!piece.must_keep || is_host) {
        l->progress++;
        return strait_snapshot_add(&l->incoming, &piece, size_limit(l, &l->incoming, &piece));
    }
    if (l->is_giving) return STRAIT_OK; // what is being sent must not change; nobody copies now
    const int is_behind = msg->peer == l->server.next;
    if (piece.stage != l->server.start.stage + (is_behind ? 1 : -1))
        return STRAIT_FAIL(STRAIT_EPROTO, "a neighbour sent a copy of stage %d, which is not its",
                           piece.stage);
    struct strait_snapshot *copies = l->copies[is_behind];
    for (int i = 0; i < STRAIT_WORKER_COPIES; i++) // of a stage that is no longer beside ours
        if (copies[i].stage != piece.stage) forget(&copies[i]);
    struct strait_snapshot *copy = copy_for(copies, &piece);
    STRAIT_TRY(strait_snapshot_add(copy, &piece, size_limit(l, copy, &piece)));
    if (strait_snapshot_is_whole(copy)) inspect(l, copy, is_behind);
    return STRAIT_OK;
}
