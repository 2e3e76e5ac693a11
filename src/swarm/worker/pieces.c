/* pieces.c - the pieces of snapshots that a worker receives: of its own stage, to restore it, and
 * of its neighbours' stages, to keep copies.
 *
 * A neighbour may send anything. Memory is taken only for what is expected, and exactly as much as
 * the plan of that stage says; everything else is ignored, so that it disturbs no step. */
#include "base/clock.h"
#include "swarm/worker/state.h"

strait_err strait_worker_expect_copies(struct worker *w) {
    const strait_run_plan *plan = strait_service_plan(w->service);
    const int last = plan->n_stages - 1;
    struct worker_snapshots *s = &w->snapshots;
    s->copy_bytes[0] = s->copy_bytes[1] = 0;
    STRAIT_TRY(strait_snapshot_expected_bytes(plan, w->stage, &s->own_bytes));
    if (w->stage > 0)
        STRAIT_TRY(strait_snapshot_expected_bytes(plan, w->stage - 1, &s->copy_bytes[0]));
    /* Every stage has its copies at the next one, and the last stage at the one before it. */
    return w->stage + 1 == last ? strait_snapshot_expected_bytes(plan, last, &s->copy_bytes[1])
                                : STRAIT_OK;
}

/* ---- to restore ---- */

void strait_worker_expect_snapshot(struct worker *w, int giver, int64_t step) {
    w->snapshots.giver = giver;
    w->snapshots.expected_step = step;
    w->snapshots.is_incoming_bad = 0;
    strait_worker_drop_snapshot(&w->snapshots.incoming);
}

/* Once per task: a neighbour that floods us must not fill the log. */
static void ignore_piece(struct worker *w, const strait_piece *piece) {
    if (!w->snapshots.has_ignored)
        strait_worker_note(w,
                           "ignored a piece of a snapshot of stage %d at step %lld: not asked for",
                           piece->stage, (long long)piece->step);
    w->snapshots.has_ignored = 1;
}

/* A snapshot whose pieces do not fit together is no better than one with other values. The giver
 * sends pieces of what was asked for and of nothing else. */
static strait_err receive_incoming(struct worker *w, const strait_piece *piece, int from) {
    struct worker_snapshots *s = &w->snapshots;
    if (from != s->giver) {
        ignore_piece(w, piece);
        return STRAIT_OK;
    }
    if (piece->stage != w->stage || piece->step != s->expected_step) s->is_incoming_bad = 1;
    if (s->is_incoming_bad) return STRAIT_OK;
    w->progress++;
    const strait_err err = strait_snapshot_add_piece(&s->incoming, piece, s->own_bytes);
    s->is_incoming_bad = err == STRAIT_EPROTO;
    return s->is_incoming_bad ? STRAIT_OK : err;
}

/* ---- copies ---- */

/* Returns the copy that a piece continues; for a first piece an incomplete or the older one. NULL:
 * its copy was dropped. */
static struct strait_snapshot *find_copy(struct strait_snapshot *copies,
                                         const strait_piece *piece) {
    struct strait_snapshot *oldest = &copies[0];
    for (int i = 0; i < STRAIT_WORKER_COPIES; i++) {
        struct strait_snapshot *copy = &copies[i];
        const int is_begun = copy->bytes > 0 && !strait_snapshot_is_complete(copy);
        if (piece->offset > 0 && is_begun && copy->step == piece->step) return copy;
        if (is_begun || copy->bytes == 0) {
            oldest = copy;
        } else if (strait_snapshot_is_complete(oldest) && copy->step < oldest->step) {
            oldest = copy;
        }
    }
    return piece->offset == 0 ? oldest : NULL;
}

/* An unusable copy is dropped and reported now: when it is restored, we would be blamed for it. */
static void reject_copy(struct worker *w, struct strait_snapshot *copy, int is_next) {
    strait_worker_note(w, "dropped the copy of a neighbour's snapshot: %s", strait_err_detail());
    *(is_next ? &w->snapshots.rejected_next : &w->snapshots.rejected_prev) += 1;
    strait_worker_drop_snapshot(copy);
}

/* The digest is reported with the inventory; the coordinator compares it with the owner's. */
static strait_err check_copy(struct worker *w, struct strait_snapshot *copy) {
    const double began = strait_clock_seconds();
    STRAIT_TRY(strait_snapshot_match(copy, strait_service_plan(w->service)));
    STRAIT_TRY(strait_snapshot_check_finite(copy));
    STRAIT_TRY(strait_snapshot_hash(copy));
    w->snapshots.copied_s += strait_clock_seconds() - began;
    return STRAIT_OK;
}

/* Without memory there is no copy, which is no fault of the neighbour's and none of ours. */
static void receive_copy(struct worker *w, const strait_piece *piece, int is_next) {
    struct strait_snapshot *copies = w->snapshots.copies[is_next];
    for (int i = 0; i < STRAIT_WORKER_COPIES; i++) // copies of former neighbours
        if (copies[i].stage != piece->stage) strait_worker_drop_snapshot(&copies[i]);
    struct strait_snapshot *copy = find_copy(copies, piece);
    if (copy == NULL) return;
    strait_err err = strait_snapshot_add_piece(copy, piece, w->snapshots.copy_bytes[is_next]);
    if (err == STRAIT_OK && strait_snapshot_is_complete(copy)) err = check_copy(w, copy);
    if (err == STRAIT_ENOMEM) {
        strait_worker_note(w, "no memory for a copy of stage %d: not kept", piece->stage);
        strait_worker_drop_snapshot(copy);
    } else if (err != STRAIT_OK) {
        reject_copy(w, copy, is_next);
    }
}

/* Of a copy that its sender gave up for a newer one nothing more comes. */
static uint64_t count_copied(const struct worker *w, const struct strait_snapshot *copies) {
    for (int i = 0; i < STRAIT_WORKER_COPIES; i++)
        if (!strait_snapshot_is_complete(&copies[i]) && copies[i].step == w->step)
            return copies[i].filled;
    return 0;
}

strait_snapshot_arrivals strait_worker_arrived(const struct worker *w) {
    return (strait_snapshot_arrivals){.own = w->snapshots.incoming.filled,
                                      .prev = count_copied(w, w->snapshots.copies[0]),
                                      .next = count_copied(w, w->snapshots.copies[1])};
}

strait_err strait_worker_receive_piece(struct worker *w, const struct strait_msg *msg,
                                       int is_from_host) {
    strait_piece piece;
    STRAIT_TRY(strait_piece_unpack(msg, &piece));
    if (w->service == NULL) return STRAIT_OK; // late: for a stage that we no longer have
    /* Nobody keeps copies of our own stage here: whatever its flag says, it is to be restored. */
    if (!piece.must_keep || is_from_host || piece.stage == w->stage)
        return receive_incoming(w, &piece, is_from_host ? STRAIT_WORKER_FROM_HOST : msg->peer);
    const int is_next = msg->peer == w->next_peer;
    if (!is_next && msg->peer != w->prev) { // only the first replica of a neighbour has copies
        ignore_piece(w, &piece);
        return STRAIT_OK;
    }
    if (w->snapshots.is_returning_copy) return STRAIT_OK; // what is being sent must not change
    if (piece.stage != w->stage + (is_next ? 1 : -1) || w->snapshots.copy_bytes[is_next] == 0)
        ignore_piece(w, &piece);
    else
        receive_copy(w, &piece, is_next);
    return STRAIT_OK;
}
