#include "swarm/coordinator/coordinator.h"

#include "swarm/coordinator/arrivals.h"
#include "swarm/coordinator/handover.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

void strait_coordinator_init(struct strait_coordinator *c, const strait_swarm_config *config) {
    assert(config->n_stages >= 1 && config->n_stages <= STRAIT_RUN_STAGES);
    memset(c, 0, sizeof *c);
    c->config = *config;
    c->reported_limit = STRAIT_SWARM_SKIP_MAX;
    c->checkpoint = c->restore_limit = c->charged_boundary = c->failed_near = -1;
    c->updating = c->history_first = c->replay.until = -1;
    for (int i = 0; i < STRAIT_RUN_STAGES; i++)
        c->owner[i] = -1;
}

int strait_coordinator_find(const struct strait_coordinator *c, const strait_fingerprint *key) {
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++)
        if (c->workers[i].is_known && strait_fingerprint_equal(&c->workers[i].key, key)) return i;
    return -1;
}

/* Returns how much would be lost with what is remembered of a worker. What one lost its stage for
 * often must not outweigh a violation. */
static int remembered(const strait_swarm_worker *worker) {
    const int n_penalties = worker->n_penalties < 100 ? worker->n_penalties : 100;
    return 10000 * worker->n_violations + 1000 * worker->n_returns + 100 * worker->n_disputes +
           n_penalties;
}

/* Takes a slot for a new key: a free one, or that of the disconnected worker without a stage about
 * which the least is remembered. */
static int take_slot(struct strait_coordinator *c, const strait_fingerprint *key) {
    int slot = -1;
    int least = INT_MAX;
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++) {
        const strait_swarm_worker *worker = &c->workers[i];
        if (worker->is_known && (worker->is_connected || worker->stage >= 0)) continue;
        const int kept = worker->is_known ? 1 + remembered(worker) : 0;
        if (kept >= least) continue;
        least = kept;
        slot = i;
    }
    if (slot < 0) return -1;
    c->workers[slot] = (strait_swarm_worker){
        .key = *key, .is_known = 1, .stage = -1, .helps = -1, .will_help = -1, .served = -1};
    c->workers[slot].moved_from = -1;
    c->workers[slot].inventory = strait_snapshot_inventory_empty();
    return slot;
}

int strait_coordinator_admit(struct strait_coordinator *c, const strait_fingerprint *key) {
    const int known = strait_coordinator_find(c, key);
    return known >= 0 ? known : take_slot(c, key);
}

void strait_coordinator_resume(struct strait_coordinator *c, const strait_swarm_durable *durable,
                               int64_t now_ns) {
    c->generation = durable->generation;
    c->reported_limit = c->generation + STRAIT_SWARM_SKIP_MAX;
    c->committed = durable->committed;
    /* Whether the work after the last committed step (validation, checkpoint) was done is unknown.
     * Restoring at most the settled step does it again. */
    c->settled = c->restore_limit = durable->settled;
    memcpy(c->start_steps, durable->start_steps, sizeof c->start_steps);
    memcpy(c->records, durable->records, sizeof c->records);
    if (c->generation >= STRAIT_SWARM_GENERATIONS)
        c->forgotten = c->generation - STRAIT_SWARM_GENERATIONS;
    c->owners_until_ns = now_ns + c->config.owner_wait_ns;
    for (int i = 0; i < c->config.n_stages; i++) {
        if (!durable->has_owner[i]) continue;
        const int slot = take_slot(c, &durable->owners[i]);
        c->owner[i] = slot;
        c->workers[slot].stage = i;
    }
}

/* Only what a restart cannot learn from the workers: inventories come with their heartbeats. */
void strait_coordinator_durable(const struct strait_coordinator *c, strait_swarm_durable *out) {
    memset(out, 0, sizeof *out);
    out->generation = c->generation;
    out->committed = c->committed;
    out->settled = c->settled;
    memcpy(out->start_steps, c->start_steps, sizeof out->start_steps);
    memcpy(out->records, c->records, sizeof out->records);
    for (int i = 0; i < c->config.n_stages; i++) {
        out->has_owner[i] = c->owner[i] >= 0;
        if (c->owner[i] >= 0) out->owners[i] = c->workers[c->owner[i]].key;
    }
}

/* ---- joining and losing ---- */

/* Steps that were rolled back after a state was taken are computed again, and their values may
 * differ. A state of generation g is valid only up to the earliest step that a later generation
 * restored; -1: no step. */
static int64_t newest_valid(const struct strait_coordinator *c, uint32_t generation) {
    int64_t limit = generation >= c->forgotten && generation <= c->generation ? INT64_MAX : -1;
    uint32_t first = generation + 1;
    /* Generations between `forgotten` and those remembered restored nothing. */
    if (c->generation - generation >= STRAIT_SWARM_GENERATIONS)
        first = c->generation - STRAIT_SWARM_GENERATIONS + 1;
    for (uint32_t g = first; limit >= 0 && g <= c->generation; g++)
        if (c->start_steps[g % STRAIT_SWARM_GENERATIONS] < limit)
            limit = c->start_steps[g % STRAIT_SWARM_GENERATIONS];
    return limit;
}

static void drop_stale(const struct strait_coordinator *c, strait_snapshot_set *set) {
    for (int i = set->n - 1; i >= 0; i--)
        if (set->steps[i] > newest_valid(c, set->generations[i]))
            strait_snapshot_set_remove(set, i);
}

static void update_inventory(struct strait_coordinator *c, strait_swarm_worker *worker,
                             const strait_swarm_event *e) {
    worker->inventory = e->inventory;
    drop_stale(c, &worker->inventory.own);
    drop_stale(c, &worker->inventory.prev);
    drop_stale(c, &worker->inventory.next);
    if (worker->inventory.live.step > newest_valid(c, worker->inventory.live.generation))
        worker->inventory.live.step = -1;
}

static void join(struct strait_coordinator *c, const strait_swarm_event *e, int64_t now,
                 strait_swarm_actions *out) {
    const int slot = strait_coordinator_admit(c, &e->key);
    if (slot < 0) return;
    strait_swarm_worker *worker = &c->workers[slot];
    /* A new link of an owner that still counts as connected means that its old link is dead. */
    if (worker->is_connected && strait_coordinator_stage_of(c, slot) >= 0) {
        if (worker->stage >= 0) strait_coordinator_charge_owner(c, worker->stage);
        strait_coordinator_count_loss(c, slot);
        strait_coordinator_abandon(c, now, 0);
    }
    strait_coordinator_end_help(c, slot);
    worker->report = *e->report;
    if (e->generation > c->newest_reported && e->generation <= c->reported_limit)
        c->newest_reported = e->generation;
    worker->is_connected = 1;
    worker->served = -1;
    worker->is_leaving = worker->is_kept = worker->is_unfit = 0;
    worker->seen_ns = worker->progress_ns = now;
    worker->max_gap_ns = worker->max_pause_ns = worker->asked_ns = 0;
    update_inventory(c, worker, e);
    (void)strait_coordinator_log(c, out, slot, worker->stage < 0 ? "joined" : "reconnected");
    /* Whatever it did before, it takes no part in the current generation. */
    (void)strait_coordinator_act(out, STRAIT_SWARM_RELEASE, slot);
}

/* The stage keeps its owner until a spare takes it. Without a spare, the worker may reconnect with
 * its snapshots. */
static void lose(struct strait_coordinator *c, int slot, int64_t now, strait_swarm_actions *out,
                 const char *reason) {
    strait_swarm_worker *worker = &c->workers[slot];
    if (!worker->is_connected) return;
    worker->is_connected = 0;
    (void)strait_coordinator_log(c, out, slot, reason);
    const int is_replica = worker->replica > 0;
    if (is_replica || worker->stage >= 0) c->failed_near = -1; // that explains a failure near it
    strait_coordinator_count_loss(c, slot);
    strait_coordinator_end_help(c, slot);
    if (worker->stage < 0) {
        if (is_replica) strait_coordinator_abandon(c, now, 0);
        strait_coordinator_lose_successor(c, slot, out);
        strait_coordinator_forget(c, slot);
        return;
    }
    /* Its neighbours may have reported the end of their links to it first. */
    if (c->phase == STRAIT_PHASE_WAITING && c->charged[worker->stage] > 0)
        strait_coordinator_excuse(c, worker->stage);
    /* It keeps the stage if it is back soon, but not each time. One that asked to leave before that
     * costs the others as much. */
    if (!worker->is_leaving) strait_coordinator_charge_owner(c, worker->stage);
    strait_coordinator_penalise(c, slot, out);
    strait_coordinator_abandon(c, now, 0);
}

/* ---- heartbeats ---- */

static int is_other_awaited(const struct strait_coordinator *c, int slot, int stage) {
    for (int k = 0; k < strait_coordinator_n_replicas(c, stage); k++) {
        const int other = strait_coordinator_replica(c, stage, k);
        if (other >= 0 && other != slot && strait_coordinator_awaits(c, other)) return 1;
    }
    return 0;
}

/* A worker can only wait for a replica of a neighbouring stage, or for another one of its own, that
 * has not replied either. Any other claim to wait is ignored, since it would exempt the worker from
 * the stall timeout. The owner of a stage may have replied while another replica of it is stopped
 * that has data for a neighbour. Pipelines that train on their own have links of their own. */
static int may_wait(const struct strait_coordinator *c, int slot, int stage, int side) {
    if (stage >= 0 && side == STRAIT_SWARM_SAME_STAGE) return is_other_awaited(c, slot, stage);
    if (stage < 0 || (side != -1 && side != 1)) return 0;
    const int other = stage + side;
    if (other < 0 || other >= c->config.n_stages) return 0;
    if (strait_coordinator_is_replaying(c)) return 1;
    return c->config.has_pipelines ? c->is_awaited[other] : is_other_awaited(c, slot, other);
}

static void heartbeat(struct strait_coordinator *c, const strait_swarm_event *e, int64_t now,
                      strait_swarm_actions *out) {
    strait_swarm_worker *worker = &c->workers[e->worker];
    if (!worker->is_connected) return;
    if (now - worker->seen_ns > worker->max_gap_ns) worker->max_gap_ns = now - worker->seen_ns;
    worker->seen_ns = now;
    const int stage = strait_coordinator_stage_of(c, e->worker);
    /* Above SAME_STAGE it names the replica, from 1: all others may have replied since. */
    const int names_one = e->waits_for > STRAIT_SWARM_SAME_STAGE;
    const int side = names_one ? STRAIT_SWARM_SAME_STAGE : e->waits_for;
    const int waits_for = may_wait(c, e->worker, stage, side) ? side : 0;
    worker->standing.said_side = side == -1 || side == 1 ? side : 0;
    if (strait_coordinator_awaits(c, e->worker)) // else what it said in its reply counts
        worker->standing.awaited_replica = names_one ? e->waits_for - STRAIT_SWARM_SAME_STAGE : 0;
    if (e->progress != worker->progress || waits_for != 0 || worker->waits_for != 0) {
        /* Time spent waiting for a neighbour is not a pause of its own. */
        if (e->progress != worker->progress && worker->waits_for == 0 &&
            now - worker->progress_ns > worker->max_pause_ns)
            worker->max_pause_ns = now - worker->progress_ns;
        worker->progress_ns = now;
    }
    worker->progress = e->progress;
    worker->waits_for = waits_for;
    update_inventory(c, worker, e);
    strait_coordinator_note_arrived(c, e->worker, &e->arrived);
    strait_coordinator_record(c, e->worker, &e->inventory.own, now, out);
    strait_coordinator_compare_replica(c, e->worker, &e->inventory.own, now, out);
}

/* ---- goals and time ---- */

/* A step is settled once the next one begins, because validation and checkpoint come in between. */
static void begin_goal(struct strait_coordinator *c, const strait_swarm_goal *goal, int64_t now,
                       strait_swarm_actions *out) {
    if (c->phase != STRAIT_PHASE_READY) return; // the driver reads the phase and tries again
    c->goal = *goal;
    if (goal->is_begin && goal->step > c->settled) c->settled = goal->step;
    if (goal->is_update && goal->step > c->updating) c->updating = goal->step;
    const int hands_over = goal->is_begin && !goal->is_replay &&
                           strait_coordinator_must_hand_over(c);
    c->n_handovers += hands_over;
    strait_coordinator_enter(c, hands_over ? STRAIT_PHASE_SNAPSHOT : STRAIT_PHASE_WORK, now, out);
}

void strait_coordinator_disconnect(struct strait_coordinator *c, int slot, int64_t now,
                                   const char *fault, strait_swarm_actions *out) {
    strait_coordinator_act(out, STRAIT_SWARM_DISCONNECT, slot)->reason = fault;
    lose(c, slot, now, out, fault);
}

/* Returns the side from which the owner of a stage still needs data; 0: it is not waiting. */
static int awaited_side(const struct strait_coordinator *c, int stage) {
    if (strait_coordinator_names_nobody(c, c->owner[stage])) return 0;
    if (c->phase == STRAIT_PHASE_WORK) return c->workers[c->owner[stage]].waits_for;
    if (c->phase != STRAIT_PHASE_RESTORE) return 0;
    if (c->source[stage] == STRAIT_SWARM_FROM_PREV) return -1;
    return c->source[stage] == STRAIT_SWARM_FROM_NEXT;
}

/* Ends a phase that has taken all the time it may. Owners that have not replied and wait for nobody
 * are disconnected. If all wait for each other, their boundaries are at fault. */
static void end_overdue(struct strait_coordinator *c, int64_t now, strait_swarm_actions *out) {
    int late[STRAIT_RUN_STAGES];
    int n_late = 0;
    int waiting = -1;
    if (strait_coordinator_settle_average(c, now, out)) return;
    for (int i = 0; i < c->config.n_stages; i++) {
        if (!strait_coordinator_is_overdue(c, i, now)) continue;
        if (awaited_side(c, i) == 0)
            late[n_late++] = c->owner[i];
        else
            waiting = i;
    }
    if (n_late > 0 && strait_coordinator_is_saving(c)) c->n_late_saves++;
    for (int i = 0; i < n_late; i++)
        strait_coordinator_disconnect(
            c, late[i], now, "did not reply within the limit of the phase; disconnected", out);
    n_late += strait_coordinator_end_overdue_replicas(c, now, &waiting, out);
    if (n_late > 0 || waiting < 0) return;
    (void)strait_coordinator_log(c, out, c->owner[waiting],
                                 "waited for a neighbour beyond the limit of the phase");
    if (!strait_coordinator_doubt_replicas(c, waiting))
        strait_coordinator_charge_timeout(c, waiting, awaited_side(c, waiting));
    strait_coordinator_abandon(c, now, GRACE_NS);
}

/* Disconnects workers whose lease, progress or time for a reply ran out, before anything is
 * assigned to them. */
static void tick(struct strait_coordinator *c, int64_t now, strait_swarm_actions *out) {
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++) {
        const strait_swarm_worker *worker = &c->workers[i];
        if (!worker->is_known || !worker->is_connected) continue;
        const char *fault = strait_coordinator_fault(c, i, now);
        if (fault != NULL) strait_coordinator_disconnect(c, i, now, fault, out);
    }
    end_overdue(c, now, out);
}

/* Nobody could connect before this: previous owners get the whole waiting time from now on. In a
 * new run the stages go to the workers that the layers were split for, as far as they are still
 * here. */
static void start(struct strait_coordinator *c, const int *owners, int64_t now,
                  strait_swarm_actions *out) {
    c->has_started = 1;
    if (c->owners_until_ns != 0) c->owners_until_ns = now + c->config.owner_wait_ns;
    for (int i = 0; owners != NULL && i < c->config.n_stages; i++)
        if (c->owner[i] < 0 && c->workers[owners[i]].stage < 0 &&
            strait_coordinator_can_own(c, owners[i]))
            strait_coordinator_assign(c, i, owners[i], out);
}

/* Messages that arrived while the driver was blocked were not read: extend every lease and the
 * phase. */
static void extend_leases(struct strait_coordinator *c, int64_t now) {
    c->phase_began_ns = now;
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++) {
        c->workers[i].seen_ns = c->workers[i].progress_ns = now;
        if (c->workers[i].asked_ns != 0) c->workers[i].asked_ns = now;
    }
}

void strait_coordinator_step(struct strait_coordinator *c, const strait_swarm_event *e,
                             int64_t now_ns, strait_swarm_actions *out) {
    out->n = 0;
    c->now_ns = now_ns;
    switch (e->kind) {
    case STRAIT_SWARM_JOIN: join(c, e, now_ns, out); break;
    case STRAIT_SWARM_LOST: lose(c, e->worker, now_ns, out, "connection lost"); break;
    case STRAIT_SWARM_LEAVE: strait_coordinator_leave(c, e->worker, out); break;
    case STRAIT_SWARM_HEARTBEAT: heartbeat(c, e, now_ns, out); break;
    case STRAIT_SWARM_REPLY: strait_coordinator_reply(c, e, now_ns, out); break;
    case STRAIT_SWARM_INVALID_DATA:
        strait_coordinator_invalid_data(c, e->worker, now_ns, out);
        break;
    case STRAIT_SWARM_NONFINITE: strait_coordinator_nonfinite(c, e->worker, now_ns, out); break;
    case STRAIT_SWARM_CONTRADICTED:
        strait_coordinator_contradicted(c, e->worker, e->stage, now_ns, out);
        break;
    case STRAIT_SWARM_REASSIGN: strait_coordinator_reassign(c, e->worker, e->successor, out); break;
    case STRAIT_SWARM_HELP:
        strait_coordinator_help(c, e->worker, e->stage, e->pipeline, out);
        break;
    case STRAIT_SWARM_LEFT_OUT:
        (void)strait_coordinator_leave_out(
            c, e->worker, "received no average: its pipeline is left out for a while", now_ns, out);
        break;
    case STRAIT_SWARM_BAD_VALUES: strait_coordinator_bad_values(c, e->worker, now_ns, out); break;
    case STRAIT_SWARM_IN_DOUBT: strait_coordinator_in_doubt(c, now_ns, out); break;
    case STRAIT_SWARM_START: start(c, e->owners, now_ns, out); break;
    case STRAIT_SWARM_FIRST: strait_coordinator_restore_first(c, now_ns); break;
    case STRAIT_SWARM_ANEW: strait_coordinator_begin_anew(c, now_ns); break;
    case STRAIT_SWARM_GOAL: begin_goal(c, &e->goal, now_ns, out); break;
    case STRAIT_SWARM_TICK: tick(c, now_ns, out); break;
    case STRAIT_SWARM_RESUMED: extend_leases(c, now_ns); break;
    default: strait_coordinator_verified(c, e, now_ns, out); break;
    }
    strait_coordinator_advance(c, now_ns, out);
}
