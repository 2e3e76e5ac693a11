/* verdicts.c - what follows from audits: workers are banned, and if an owner is among them the run
 * returns to a step before its lie, as after a restart of the host.
 *
 * Replicas that committed to different snapshots do not go on together: the run returns to before
 * the interval as soon as what their audit needs is here, and whoever is at fault is banned when
 * the audit has found it. Until then neither of the two is a further replica. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "swarm/host/audit/driver.h"
#include "swarm/host/state.h"

#include <stdio.h>
#include <string.h>

enum {
    PUMP_MS = 100,
    SPARE_MS = 5000,   // for a spare to be found
    FINISH_MS = 120000 // at the end of the run, for audits that are open
};

static void close_audit(struct host *h, uint32_t id) {
    struct host_audit *a = strait_host_audit_find(h, id);
    if (a == NULL) return;
    strait_host_audit_excuse(h, a);
    strait_host_work_drop(a);
    strait_evidence_fini(&a->evidence);
    for (int i = 0; i < STRAIT_AUDIT_VOTES; i++)
        strait_evidence_fini(&a->ends[i]);
    strait_alloc_free(a->steps);
    *a = (struct host_audit){.auditor = -1};
}

const char *strait_host_audit_name(const struct host *h, const strait_fingerprint *key) {
    const int slot = strait_coordinator_find(&h->coordinator, key);
    return slot >= 0 ? h->coordinator.workers[slot].report.name : "a worker that has left";
}

static void return_to(struct host *h, int64_t step) {
    if (h->audits->rewind_to < 0 || step < h->audits->rewind_to) h->audits->rewind_to = step;
}

static void ban(struct host *h, const strait_fingerprint *key, int64_t limit) {
    const int slot = strait_coordinator_find(&h->coordinator, key);
    const strait_err err = slot < 0 ? strait_host_ban(h, key) : STRAIT_OK;
    if (err != STRAIT_OK) strait_host_fail(h, err);
    if (slot >= 0 || limit >= 0)
        strait_host_feed_coordinator(h, &(strait_swarm_event){.kind = STRAIT_SWARM_GUILTY,
                                                              .worker = slot,
                                                              .goal = {.step = limit}});
}

static int is_banned(struct host *h, const strait_fingerprint *key) {
    const struct host_key *known = strait_host_find_key(h, key);
    return known != NULL && known->is_banned;
}

/* Returns whether steps that count may come from the guilty. A run that went back for them has none
 * unless they had a stage since. */
static int is_affected(struct host *h, const strait_verdict *v) {
    const struct host_audit *a = strait_host_audit_find(h, v->id);
    return v->is_run_affected &&
           (a == NULL || !a->has_returned || (a->took_part & v->at_fault) != 0);
}

/* Returns the step since when the guilty had a part in what counts. If the run went back for them,
 * that is where they got a stage again: earlier than the interval, if it went back further. */
static int64_t first_affected(struct host *h, const strait_verdict *v) {
    const struct host_audit *a = strait_host_audit_find(h, v->id);
    int64_t first = -1;
    if (a == NULL || !a->has_returned) return v->from;
    for (int k = 0; k < STRAIT_WORK_REPLICAS; k++)
        if ((a->took_part & v->at_fault) >> k & 1 && (first < 0 || a->part_from[k] < first))
            first = a->part_from[k];
    return first;
}

/* Owners are banned when the run returns to before what they did, so that it happens at once. */
static void convict(struct host *h, const strait_verdict *v) {
    const int must_return = is_affected(h, v);
    for (int i = 0; i < v->n_guilty; i++) {
        if (is_banned(h, &v->guilty[i])) continue; // for another interval
        strait_host_note(h,
                         "audit of stage %d, steps %lld to %lld: %s gave a result that two others "
                         "contradict",
                         v->stage, (long long)v->from, (long long)v->to,
                         strait_host_audit_name(h, &v->guilty[i]));
        if (!must_return)
            ban(h, &v->guilty[i], -1);
        else if (h->audits->n_guilty < STRAIT_AUDIT_GUILTY)
            h->audits->guilty[h->audits->n_guilty++] = v->guilty[i];
    }
    if (must_return) return_to(h, first_affected(h, v));
}

/* Returns the slot of a worker; also of one that has left: it would come back as if nothing had
 * happened. -1: it is banned, or there is no slot for it. */
static int recall(struct host *h, const strait_fingerprint *key) {
    const struct host_key *known = strait_host_find_key(h, key);
    const int is_here = strait_coordinator_find(&h->coordinator, key) >= 0;
    const int slot = is_banned(h, key) ? -1 : strait_coordinator_admit(&h->coordinator, key);
    if (slot >= 0 && !is_here && known != NULL) // for messages
        (void)snprintf(h->coordinator.workers[slot].report.name, STRAIT_NAME_MAX, "%s",
                       known->name);
    return slot;
}

/* One of two replicas is at fault, and nobody can tell which, or not yet. If both left and there is
 * one slot, the second has taken that of the first. */
static void contradict(struct host *h, const strait_fingerprint pair[2], int64_t from) {
    const int a = recall(h, &pair[0]);
    const int b = recall(h, &pair[1]);
    if (a >= 0 && b >= 0 && a != b)
        strait_host_feed_coordinator(
            h,
            &(strait_swarm_event){.kind = STRAIT_SWARM_CONTRADICTION, .worker = a, .successor = b});
    return_to(h, from);
}

/* The run went back for it before. */
static int has_returned(struct host *h, uint32_t id) {
    const struct host_audit *a = strait_host_audit_find(h, id);
    return a != NULL && a->has_returned;
}

void strait_host_audit_judge(struct host *h, const strait_verdict *v) {
    switch (v->kind) {
    case STRAIT_VERDICT_NONE: return;
    case STRAIT_VERDICT_APPROVED:
        strait_host_note(h, "audit of stage %d, steps %lld to %lld: the result is right", v->stage,
                         (long long)v->from, (long long)v->to);
        break;
    case STRAIT_VERDICT_DROPPED:
        strait_host_note(h, "audit of stage %d, steps %lld to %lld dropped: %s", v->stage,
                         (long long)v->from, (long long)v->to, v->reason);
        if (v->is_contested && !has_returned(h, v->id)) contradict(h, v->contested, v->from);
        break;
    case STRAIT_VERDICT_GUILTY: convict(h, v); break;
    }
    close_audit(h, v->id);
}

void strait_host_audit_drop(struct host *h, uint32_t id, const strait_fingerprint *worker,
                            const char *reason) {
    strait_verdict verdict;
    if (worker != NULL) strait_host_audit_withheld(h, worker, reason);
    strait_audits_drop(&h->audits->state, id, reason, &verdict);
    strait_host_audit_judge(h, &verdict);
}

/* ---- replicas that differ ---- */

const strait_audit *strait_host_audit_contested(struct host *h) {
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++) {
        const strait_audit *audit = &h->audits->state.items[i];
        const struct host_audit *a = strait_host_audit_find(h, audit->id);
        if (audit->phase != STRAIT_AUDIT_CLOSED && audit->is_contested && a != NULL &&
            !a->has_returned)
            return audit;
    }
    return NULL;
}

const strait_audit *strait_host_audit_gathering(const struct host *h, int64_t limit) {
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++) {
        const strait_audit *audit = &h->audits->state.items[i];
        if (audit->phase == STRAIT_AUDIT_GATHERING && audit->commitment.to > limit) return audit;
    }
    return NULL;
}

static void go_back(struct host *h) {
    const strait_audit *audit;
    while ((audit = strait_host_audit_contested(h)) != NULL) {
        struct host_audit *a = strait_host_audit_find(h, audit->id);
        strait_fingerprint pair[2];
        strait_audit_contested(audit, pair);
        strait_host_note(h,
                         "stage %d, steps %lld to %lld: %s and %s hold different states; the run "
                         "goes back, and the audit will tell which of them is at fault",
                         audit->stage, (long long)audit->commitment.from,
                         (long long)audit->commitment.to, strait_host_audit_name(h, &pair[0]),
                         strait_host_audit_name(h, &pair[1]));
        a->has_returned = 1;
        contradict(h, pair, audit->commitment.from);
    }
}

/* Once the steps are computed again, what workers keep of them may have other bytes than they
 * stated the first time: nobody is to blame for that. */
static void drop_gathering(struct host *h, int64_t limit) {
    const strait_audit *audit;
    while ((audit = strait_host_audit_gathering(h, limit)) != NULL)
        strait_host_audit_drop(h, audit->id, NULL, "the run returns to before it");
}

/* What audits find in steps that do not count any more costs no steps that do. */
static void note_return(struct host *h, int64_t limit) {
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++) {
        struct host_audit *a = &h->audits->open[i];
        const strait_audit *audit = strait_audits_find(&h->audits->state, a->id);
        if (audit == NULL || audit->commitment.from < limit) continue;
        a->has_returned = 1;
        a->took_part = 0;
    }
}

/* ---- returning ---- */

/* Renames the checkpoints after `limit`, and writes the step of the newest before it; -1: there is
 * none. They are kept for the operator, and never continued from. */
static strait_err distrust_checkpoints(struct host *h, int64_t limit, int64_t *newest) {
    char from[STRAIT_PATH_MAX];
    char to[STRAIT_PATH_MAX];
    int64_t *steps = NULL;
    int n = 0;
    *newest = -1;
    STRAIT_TRY(strait_checkpoint_list(h->spec->folder, &steps, &n));
    strait_err err = STRAIT_OK;
    for (int i = 0; i < n && err == STRAIT_OK; i++) {
        if (steps[i] <= limit) {
            *newest = steps[i];
            continue;
        }
        err = strait_file_path(from, "%s/checkpoints/%08lld", h->spec->folder, (long long)steps[i]);
        if (err == STRAIT_OK) err = strait_file_path(to, "%s.distrusted", from);
        if (err == STRAIT_OK && strait_file_exists(to)) err = strait_file_remove_folder(to);
        if (err == STRAIT_OK) err = strait_file_move(from, to);
    }
    strait_alloc_free(steps);
    return err;
}

strait_err strait_host_audit_check(struct host *h) {
    struct host_audits *audits = h->audits;
    int64_t newest = -1;
    if (audits == NULL) return STRAIT_OK;
    /* What workers keep of the interval is overwritten when it is computed again, so they give it
     * first; steps that were computed meanwhile would be lost. */
    STRAIT_TRY(strait_host_audit_await(h));
    go_back(h);
    if (audits->rewind_to < 0) return STRAIT_OK;
    const int64_t limit = audits->rewind_to;
    STRAIT_TRY(strait_host_check_folder(h));
    STRAIT_TRY(distrust_checkpoints(h, limit, &newest));
    strait_host_note(h,
                     "step %lld: returning to step %lld or before, since when a worker "
                     "computed something else",
                     (long long)h->work.step, (long long)limit);
    drop_gathering(h, limit);
    note_return(h, limit);
    audits->rewind_to = -1;
    h->coordinator.checkpoint = newest;
    h->checkpoint.saving = -1;
    strait_checkpoint_close(&h->checkpoint.source);
    memset(&h->replay, 0, sizeof h->replay); // what was computed from the lie
    memset(&h->claims.loss, 0, sizeof h->claims.loss);
    memset(&h->claims.valid_loss, 0, sizeof h->claims.valid_loss);
    memset(h->claims.squares, 0, sizeof h->claims.squares);
    for (int i = 0; i < audits->n_guilty; i++)
        ban(h, &audits->guilty[i], limit);
    if (audits->n_guilty == 0) // two contradict each other, and nobody knows which is right
        strait_host_feed_coordinator(h, &(strait_swarm_event){.kind = STRAIT_SWARM_GUILTY,
                                                              .worker = -1,
                                                              .goal = {.step = limit}});
    audits->n_guilty = 0;
    strait_host_audit_interrupt(h); // there are no token ids until the session has begun again
    return STRAIT_FAIL(STRAIT_EAGAIN, "returning to step %lld", (long long)limit);
}

/* Returns whether an audit may still come to a verdict. */
static int is_active(struct host *h, int64_t now_ns) {
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++) {
        const strait_audit *audit = &h->audits->state.items[i];
        const int is_waiting = audit->phase == STRAIT_AUDIT_WAITING;
        if (audit->phase == STRAIT_AUDIT_CLOSED) continue;
        if (!is_waiting || now_ns - audit->since_ns < SPARE_MS * INT64_C(1000000)) return 1;
    }
    return 0;
}

strait_err strait_host_audit_finish(struct host *h) {
    const int64_t until = strait_clock_ns() + FINISH_MS * INT64_C(1000000);
    if (h->audits == NULL) return STRAIT_OK;
    STRAIT_TRY(strait_host_audit_check(h));
    if (is_active(h, strait_clock_ns()))
        strait_host_note(h, "waiting for the audits that are open");
    for (int64_t now = 0;
         now < until && h->audits->rewind_to < 0 && is_active(h, now = strait_clock_ns());)
        STRAIT_TRY(strait_host_pump(h, PUMP_MS));
    return strait_host_audit_check(h);
}
