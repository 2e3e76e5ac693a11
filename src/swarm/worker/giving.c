/* giving.c - what an owner gives for audits: the snapshot that begins an interval, and the
 * crossings that it sent to a neighbour. In the background: a step never waits for it.
 *
 * The coordinator knows the digests of all of it, so other bytes are of no use to anyone. */
#include "swarm/worker/state.h"

enum {
    BURST = 16 // messages per poll, between two actions of a step
};

/* Behind everything else that goes to the coordinator, and in this order. */
static strait_err post(struct worker *w, struct strait_msg **msg) {
    (*msg)->priority = STRAIT_PRIORITY_ACTIVATION;
    const strait_err err = strait_mesh_send(w->control.mesh, 0, msg);
    strait_msg_close(msg);
    return err;
}

static struct strait_snapshot *find_snapshot(struct worker *w, const strait_give *wanted) {
    return strait_worker_find_snapshot(w->snapshots.own, STRAIT_SWARM_SNAPSHOTS, w->stage,
                                       wanted->from);
}

/* The interval that has just ended is asked for soon, or not at all. */
int strait_worker_may_give(const struct worker *w, const struct strait_snapshot *snapshot) {
    if (w->interval.is_on &&
        (snapshot->step == w->interval.from || snapshot->step == w->interval.before))
        return 1;
    for (int i = 0; i < w->giving.n; i++)
        if (w->giving.wanted[i].wants_snapshot && w->giving.wanted[i].from == snapshot->step)
            return 1;
    return 0;
}

/* A worker without a stage has nothing: what it had may be of another stage by now. */
strait_err strait_worker_give(struct worker *w, const struct strait_msg *msg) {
    struct worker_giving *g = &w->giving;
    strait_give wanted;
    STRAIT_TRY(strait_give_unpack(msg, &wanted));
    if (g->n < STRAIT_WORKER_GIVES) g->wanted[g->n++] = wanted;
    return STRAIT_OK; // the coordinator gives up what it gets no answer to
}

static strait_err send_piece(struct worker *w, const struct strait_snapshot *snapshot) {
    struct strait_msg *msg = NULL;
    strait_piece piece;
    size_t at = w->giving.at;
    strait_snapshot_next_piece(snapshot, &at, &piece);
    piece.must_keep = 1; // not for the checkpoint, which may be saved at the same time
    STRAIT_TRY(strait_piece_pack(strait_mesh_pool(w->control.mesh), &piece, &msg));
    STRAIT_TRY(post(w, &msg));
    w->giving.at = at;
    return STRAIT_OK;
}

/* Writes the boundary, step and microbatch of the next crossing; returns 0 after the last one.
 * Those for the previous stage come first. A further replica has those of its groups. */
static int next_crossing(struct worker *w, struct strait_boundary **boundary, int64_t *step,
                         int *microbatch) {
    const strait_give *wanted = &w->giving.wanted[0];
    struct strait_runner *runner = strait_service_runner(w->service);
    const int64_t n = runner->plan.n_microbatches;
    const int64_t n_side = (wanted->to - wanted->from) * n;
    int64_t at = w->giving.n_sent;
    *boundary = wanted->wants_prev && at < n_side ? runner->receiver : runner->sender;
    if (wanted->wants_prev && at >= n_side) at -= n_side;
    if ((*boundary == runner->sender && !wanted->wants_next) || at >= n_side) return 0;
    *step = wanted->from + at / n;
    *microbatch = (int)(at % n);
    return 1;
}

static strait_err send_crossing(struct worker *w, struct strait_boundary *boundary, int64_t step,
                                int microbatch) {
    const struct strait_crossing_log *log = boundary != NULL ? strait_boundary_log(boundary) : NULL;
    strait_crossing_view kept = {0};
    struct strait_msg *msg = NULL;
    if (log == NULL || !strait_crossing_log_holds(log, step)) return STRAIT_ENOTSUP; // no longer
    kept = strait_crossing_log_find(log, step, microbatch);
    w->giving.n_sent += kept.data == NULL;
    if (kept.data == NULL) return STRAIT_OK; // another replica sent it
    STRAIT_TRY(
        strait_msg_open(strait_mesh_pool(w->control.mesh), STRAIT_MSG_CROSSING, kept.bytes, &msg));
    msg->boundary = (uint16_t)strait_boundary_codec(boundary)->spec.boundary;
    msg->step = (uint32_t)step;
    msg->microbatch = (uint16_t)microbatch;
    msg->basis = kept.basis;
    memcpy(msg->body, kept.data, kept.bytes);
    STRAIT_TRY(post(w, &msg));
    w->giving.n_sent++;
    return STRAIT_OK;
}

/* Sends the next message of the first request. STRAIT_OK: there is more; STRAIT_ECLOSED: that was
 * all; STRAIT_ENOTSUP: it is no longer there. */
static strait_err send_next(struct worker *w) {
    const strait_give *wanted = &w->giving.wanted[0];
    struct strait_boundary *boundary = NULL;
    int64_t step = 0;
    int microbatch = 0;
    if (!w->has_stage || w->service == NULL || strait_service_runner(w->service) == NULL)
        return STRAIT_ENOTSUP;
    const struct strait_snapshot *snapshot = wanted->wants_snapshot ? find_snapshot(w, wanted)
                                                                    : NULL;
    if (wanted->wants_snapshot && snapshot == NULL) return STRAIT_ENOTSUP;
    /* Crossings first: they are overwritten sooner. */
    if (next_crossing(w, &boundary, &step, &microbatch))
        return send_crossing(w, boundary, step, microbatch);
    if (snapshot != NULL && w->giving.at < snapshot->bytes) return send_piece(w, snapshot);
    return STRAIT_ECLOSED;
}

static strait_err finish(struct worker *w, strait_err err) {
    struct worker_giving *g = &w->giving;
    const strait_given given = {g->wanted[0].audit, err};
    struct strait_msg *msg = NULL;
    STRAIT_TRY(strait_given_pack(strait_mesh_pool(w->control.mesh), &given, &msg));
    STRAIT_TRY(post(w, &msg));
    memmove(g->wanted, g->wanted + 1, (size_t)--g->n * sizeof *g->wanted);
    g->n_sent = 0;
    g->at = 0;
    return STRAIT_OK;
}

void strait_worker_continue_giving(struct worker *w) {
    for (int i = 0; i < BURST && w->giving.n > 0; i++) {
        strait_err err = send_next(w);
        if (err == STRAIT_ECLOSED || err == STRAIT_ENOTSUP)
            err = finish(w, err == STRAIT_ECLOSED ? STRAIT_OK : err);
        if (err != STRAIT_OK) return; // the link is full for now
    }
}
