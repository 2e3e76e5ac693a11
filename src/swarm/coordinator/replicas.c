/* replicas.c - further replicas of stages: spares that take a share of a stage's microbatches.
 *
 * They come before a step and may be lost at any time. Nothing depends on one of them: the others
 * have all of the stage's state, and the step is computed again by those that are left. Whatever
 * fails where there are further replicas is first blamed on nobody: they are sent away for a while
 * that doubles each time, and what fails after that is handled as in a run without them. */
#include "swarm/coordinator/state.h"

/* ---- who takes part ---- */

int strait_coordinator_n_replicas(const struct strait_coordinator *c, int stage) {
    return 1 + c->n_helpers[stage];
}

int strait_coordinator_replica(const struct strait_coordinator *c, int stage, int replica) {
    return replica == 0 ? c->owner[stage] : c->helper[stage][replica - 1];
}

int strait_coordinator_stage_of(const struct strait_coordinator *c, int slot) {
    const strait_swarm_worker *worker = &c->workers[slot];
    if (worker->stage >= 0) return worker->stage;
    return worker->replica > 0 ? worker->helps : -1;
}

int strait_coordinator_awaits(const struct strait_coordinator *c, int slot) {
    const strait_swarm_worker *worker = &c->workers[slot];
    if (worker->stage >= 0) return c->is_awaited[worker->stage];
    return worker->replica > 0 && worker->is_awaited;
}

int strait_coordinator_has_replicas(const struct strait_coordinator *c) {
    for (int i = 0; i < c->config.n_stages; i++)
        if (c->n_helpers[i] > 0) return 1;
    return 0;
}

int strait_coordinator_may_help(const struct strait_coordinator *c, int slot, int stage) {
    const strait_swarm_worker *worker = &c->workers[slot];
    const double memory = worker->report.memory_bytes;
    return !c->is_replay_blocked && !strait_coordinator_is_alone(c, stage) &&
           strait_coordinator_can_own(c, slot) && worker->stage < 0 && worker->helps < 0 &&
           worker->will_help < 0 && !worker->is_suspect && worker->n_violations == 0 &&
           worker->n_disputes == 0 && worker->n_returns < STRAIT_SWARM_RETURNS &&
           c->now_ns >= worker->away_until_ns &&
           c->now_ns >= worker->standing.alone_until_ns && // an owner before that, or a replica
           (memory <= 0.0 || memory >= c->config.need_bytes[stage]) &&
           strait_coordinator_count_bad(c, slot, stage) == 0;
}

void strait_coordinator_end_help(struct strait_coordinator *c, int slot) {
    strait_swarm_worker *worker = &c->workers[slot];
    worker->helps = worker->will_help = -1;
    worker->replica = worker->is_awaited = worker->keeps_state = 0;
}

/* ---- a generation ---- */

static int is_near(const struct strait_coordinator *c, int stage) {
    return c->failed_near >= 0 && stage >= c->failed_near - 1 && stage <= c->failed_near + 1;
}

void strait_coordinator_seat_replicas(struct strait_coordinator *c, strait_swarm_actions *out) {
    for (int i = 0; i < c->config.n_stages; i++)
        c->n_helpers[i] = 0;
    for (int slot = 0; slot < STRAIT_SWARM_WORKERS; slot++) {
        strait_swarm_worker *worker = &c->workers[slot];
        const int stage = worker->helps;
        worker->replica = worker->is_awaited = 0;
        if (!worker->is_known || stage < 0) continue;
        if (c->is_replay_blocked)
            strait_coordinator_send_away(
                c, slot, "values are in doubt: one worker per stage recomputes them", out);
        else if (is_near(c, stage))
            strait_coordinator_send_away(
                c, slot, "a failure near it is not explained: it is a spare for a while", out);
        else if (worker->is_leaving && worker->stage < 0)
            strait_coordinator_let_leave(c, slot, 0, out); // the generation is over anyway
        else if (!strait_coordinator_can_own(c, slot) || worker->stage >= 0)
            strait_coordinator_end_help(c, slot);
        else if (c->config.has_pipelines)
            continue; // below, stage by stage
        else if (c->n_helpers[stage] + 1 >= c->config.replicas_limit ||
                 c->n_helpers[stage] + 1 >= STRAIT_SWARM_REPLICAS)
            strait_coordinator_end_help(c, slot);
        else
            c->helper[stage][c->n_helpers[stage]++] = slot;
        if (worker->helps >= 0) worker->replica = c->n_helpers[stage];
    }
    if (c->config.has_pipelines) strait_coordinator_seat_pipelines(c, out);
    c->failed_near = -1;
}

static void command(struct strait_coordinator *c, int stage, int k, strait_swarm_actions *out) {
    strait_swarm_worker *worker = &c->workers[c->helper[stage][k]];
    strait_swarm_action *action = strait_coordinator_act(out, STRAIT_SWARM_COMMAND,
                                                         c->helper[stage][k]);
    worker->is_awaited = 1;
    action->stage = stage;
    action->replica = k + 1;
    action->step = c->step;
    if (c->phase != STRAIT_PHASE_RESTORE) return;
    strait_coordinator_fill_restore(c, stage, action);
    action->source = worker->source;
    action->gives_prev = action->gives_next = action->gives_replicas = 0;
}

void strait_coordinator_command_replicas(struct strait_coordinator *c, int stage,
                                         strait_swarm_actions *out) {
    const int is_for_all = c->phase != STRAIT_PHASE_WORK ||
                           (c->goal.stage < 0 && !c->goal.is_first);
    for (int k = 0; k < c->n_helpers[stage]; k++) {
        c->workers[c->helper[stage][k]].is_awaited = 0;
        if (is_for_all) command(c, stage, k, out);
    }
}

int strait_coordinator_awaits_replicas(const struct strait_coordinator *c) {
    for (int i = 0; i < c->config.n_stages; i++)
        for (int k = 0; k < c->n_helpers[i]; k++)
            if (c->workers[c->helper[i][k]].is_awaited) return 1;
    return 0;
}

void strait_coordinator_note_shared(struct strait_coordinator *c, int64_t step) {
    if (strait_coordinator_has_replicas(c) && step + 1 > c->shared_until)
        c->shared_until = step + 1;
}

/* ---- restoring ---- */

int strait_coordinator_is_live(const struct strait_coordinator *c, int slot, int stage,
                               int64_t until) {
    const strait_swarm_worker *worker = &c->workers[slot];
    const strait_live_state *live = &worker->inventory.live;
    return !worker->is_suspect && live->stage == stage && live->step >= 0 &&
           (!c->config.has_pipelines || worker->keeps_state) &&
           (live->step == until || (live->is_pending && live->step + 1 == until));
}

/* Returns where a further replica of a stage gets the state from; -1: from nowhere. The owner gives
 * the snapshot that it took itself. */
static int source_of(const struct strait_coordinator *c, int slot, int stage) {
    const strait_swarm_worker *worker = &c->workers[slot];
    const strait_swarm_worker *owner = &c->workers[c->owner[stage]];
    const strait_snapshot_record *record = strait_snapshot_records_find(&c->records[stage],
                                                                        c->step);
    if (c->replay.until >= 0 && strait_coordinator_is_live(c, slot, stage, c->replay.until))
        return STRAIT_SWARM_FROM_LIVE;
    if (c->replay.until >= 0 && c->step != c->replay.until) return -1;
    if (record != NULL && !worker->is_suspect &&
        strait_snapshot_set_has_digest(&worker->inventory.own, stage, c->step, &record->digest))
        return STRAIT_SWARM_FROM_SELF;
    if (record != NULL &&
        strait_snapshot_set_has_digest(&owner->inventory.own, stage, c->step, &record->digest))
        return STRAIT_SWARM_FROM_REPLICA;
    if (c->step == 0 && !c->has_first) return STRAIT_SWARM_FROM_SEED;
    return strait_coordinator_is_saved(c, c->step) && c->source[stage] == STRAIT_SWARM_FROM_HOST
               ? STRAIT_SWARM_FROM_HOST
               : -1;
}

/* Every replica knows how many there are from the beginning of a generation, so one that has no
 * source ends it; it comes back with a snapshot that is taken for it. */
int strait_coordinator_restore_replicas(struct strait_coordinator *c, int64_t now,
                                        strait_swarm_actions *out) {
    int n_without = 0;
    for (int i = 0; i < c->config.n_stages; i++)
        for (int k = 0; k < c->n_helpers[i]; k++) {
            strait_swarm_worker *worker = &c->workers[c->helper[i][k]];
            const int source = source_of(c, c->helper[i][k], i);
            worker->source = (strait_swarm_source)source;
            if (source >= 0) continue;
            n_without++;
            (void)strait_coordinator_log(c, out, c->helper[i][k],
                                         "no replica has a snapshot for it; it joins again before "
                                         "the next step");
            strait_coordinator_end_help(c, c->helper[i][k]);
            (void)strait_coordinator_act(out, STRAIT_SWARM_RELEASE, c->helper[i][k]);
        }
    if (n_without == 0) return 1;
    strait_coordinator_abandon(c, now, 0);
    return 0;
}

int strait_coordinator_given_replicas(const struct strait_coordinator *c, int stage) {
    int bits = 0;
    for (int k = 0; k < c->n_helpers[stage]; k++)
        if (c->workers[c->helper[stage][k]].source == STRAIT_SWARM_FROM_REPLICA) bits |= 2 << k;
    return bits;
}

void strait_coordinator_note_served(struct strait_coordinator *c) {
    for (int slot = 0; slot < STRAIT_SWARM_WORKERS; slot++) {
        c->workers[slot].served = strait_coordinator_stage_of(c, slot);
        c->workers[slot].moved_from = -1;
        c->workers[slot].is_kept = 0;
    }
}

static int has_state(const strait_swarm_worker *worker, int stage) {
    const strait_live_state *live = &worker->inventory.live;
    return !worker->is_suspect && live->stage == stage && live->step >= 0;
}

int strait_coordinator_holds(const struct strait_coordinator *c, int slot, int stage) {
    const strait_swarm_worker *worker = &c->workers[slot];
    const strait_live_state *live = &worker->inventory.live;
    /* Pipelines that train on their own have other weights. */
    return !c->config.has_pipelines && worker->stage < 0 && worker->served == stage &&
           has_state(worker, stage) && live->step + live->is_pending >= c->step;
}

/* Whether what a further replica has is the newest state is known when it is restored. */
static int may_inherit(const struct strait_coordinator *c, int slot, int stage) {
    const strait_swarm_worker *worker = &c->workers[slot];
    if (!strait_coordinator_can_own(c, slot) || worker->stage >= 0) return 0;
    return worker->helps == stage ? has_state(worker, stage)
                                  : strait_coordinator_holds(c, slot, stage);
}

int strait_coordinator_leaver(const struct strait_coordinator *c, int stage) {
    if (c->config.has_pipelines) return -1;
    for (int slot = 0; slot < STRAIT_SWARM_WORKERS; slot++) {
        const strait_swarm_worker *worker = &c->workers[slot];
        if (worker->is_known && worker->is_connected && worker->is_leaving && !worker->is_unfit &&
            worker->helps == stage && has_state(worker, stage))
            return slot;
    }
    return -1;
}

int strait_coordinator_successor(const struct strait_coordinator *c, int stage) {
    int best = -1;
    if (c->config.has_pipelines) return strait_coordinator_pipeline_successor(c, stage);
    for (int slot = 0; slot < STRAIT_SWARM_WORKERS; slot++) {
        const strait_swarm_worker *worker = &c->workers[slot];
        if (!worker->is_known || !may_inherit(c, slot, stage)) continue;
        if (best < 0 || worker->inventory.live.step > c->workers[best].inventory.live.step)
            best = slot;
    }
    return best;
}

/* ---- coming and going ---- */

void strait_coordinator_help(struct strait_coordinator *c, int slot, int stage, int pipeline,
                             strait_swarm_actions *out) {
    if (c->phase != STRAIT_PHASE_READY || stage < 0 || stage >= c->config.n_stages ||
        strait_coordinator_n_replicas(c, stage) >= c->config.replicas_limit ||
        !strait_coordinator_may_help(c, slot, stage))
        return;
    c->workers[slot].will_help = stage;
    c->workers[slot].pipeline = pipeline;
    strait_swarm_action *line = strait_coordinator_log(c, out, slot,
                                                       "becomes a further replica of the stage "
                                                       "before the next step");
    line->stage = stage;
}

int strait_coordinator_replicas_change(const struct strait_coordinator *c) {
    for (int slot = 0; slot < STRAIT_SWARM_WORKERS; slot++) {
        const strait_swarm_worker *worker = &c->workers[slot];
        if (!worker->is_known || !worker->is_connected) continue;
        if (worker->will_help >= 0 || (worker->replica > 0 && worker->is_leaving)) return 1;
    }
    return 0;
}

void strait_coordinator_change_replicas(struct strait_coordinator *c, strait_swarm_actions *out) {
    for (int slot = 0; slot < STRAIT_SWARM_WORKERS; slot++) {
        strait_swarm_worker *worker = &c->workers[slot];
        if (!worker->is_known || worker->stage >= 0) continue;
        if (worker->will_help >= 0) worker->helps = worker->will_help;
        worker->will_help = -1;
        if (worker->replica == 0 || !worker->is_leaving || !worker->is_connected) continue;
        strait_coordinator_let_leave(c, slot, worker->replica, out);
    }
}

/* ---- failures ---- */

int strait_coordinator_doubt_replicas(struct strait_coordinator *c, int stage) {
    int n = 0;
    for (int i = stage - 1; i <= stage + 1; i++)
        if (i >= 0 && i < c->config.n_stages) n += c->n_helpers[i];
    if (n > 0) c->failed_near = stage;
    return n > 0;
}

void strait_coordinator_in_doubt(struct strait_coordinator *c, int64_t now,
                                 strait_swarm_actions *out) {
    if (c->phase == STRAIT_PHASE_WAITING || !strait_coordinator_has_replicas(c)) return;
    (void)strait_coordinator_log(c, out, -1,
                                 "implausible values: one worker per stage recomputes the step");
    strait_coordinator_block_replay(c);
    strait_coordinator_abandon(c, now, 0);
}

/* Whatever it reports, the stage goes on without it. */
void strait_coordinator_replica_reply(struct strait_coordinator *c, const strait_swarm_event *e,
                                      int64_t now, strait_swarm_actions *out) {
    strait_swarm_worker *worker = &c->workers[e->worker];
    const strait_scope scope = strait_err_scope(e->err);
    const int stage = worker->helps;
    if (e->err == STRAIT_OK && !e->is_source_bad && !e->is_blaming) {
        worker->is_awaited = 0;
        return;
    }
    if (c->phase == STRAIT_PHASE_WAITING) return; // both ends report one failure
    if (scope == STRAIT_SCOPE_PROCESS || scope == STRAIT_SCOPE_CALLER) {
        worker->is_unfit = 1;
        strait_coordinator_send_away(
            c, e->worker, "cannot serve the stage; not used again until it reconnects", out);
        strait_coordinator_abandon(c, now, 0);
        return;
    }
    if (c->config.has_pipelines && e->is_blaming) { // both ends are in its own pipeline
        (void)strait_coordinator_leave_out(
            c, e->worker, "rejected values of its own pipeline: left out for a while", now, out);
        return;
    }
    /* A worker that is lost is often first reported by those connected to it. */
    (void)strait_coordinator_log(c, out, e->worker, "failed as a further replica; trying again");
    (void)strait_coordinator_doubt_replicas(c, stage);
    strait_coordinator_abandon(c, now, GRACE_NS);
}

int strait_coordinator_end_overdue_replicas(struct strait_coordinator *c, int64_t now, int *waiting,
                                            strait_swarm_actions *out) {
    int late[STRAIT_RUN_MEMBERS];
    int n = 0;
    for (int i = 0; i < c->config.n_stages; i++)
        for (int k = 0; k < c->n_helpers[i] && n < STRAIT_RUN_MEMBERS; k++) {
            const strait_swarm_worker *worker = &c->workers[c->helper[i][k]];
            if (!worker->is_awaited || !strait_coordinator_is_late(c, c->helper[i][k], i, now))
                continue;
            if (worker->waits_for == 0 || strait_coordinator_names_nobody(c, c->helper[i][k]))
                late[n++] = c->helper[i][k];
            else
                *waiting = i;
        }
    for (int i = 0; i < n; i++)
        strait_coordinator_disconnect(
            c, late[i], now, "did not reply within the limit of the phase; disconnected", out);
    return n;
}

/* All replicas apply the same updates to the same gradients. One of the two is broken or lies, and
 * which is not known: the further replica goes, both are remembered to contradict each other, and
 * the steps since they agreed are computed again. */
void strait_coordinator_compare_replica(struct strait_coordinator *c, int slot,
                                        const strait_snapshot_set *own, int64_t now,
                                        strait_swarm_actions *out) {
    const int stage = c->workers[slot].replica > 0 ? c->workers[slot].helps : -1;
    if (c->config.has_pipelines) return; // each has weights of its own
    /* After an update an audit finds out which of the two it is, if the driver can tell at all. */
    if (c->config.has_audits && c->phase <= STRAIT_PHASE_WORK) return;
    if (stage < 0 || own->stage != stage || c->phase < STRAIT_PHASE_READY) return;
    for (int i = 0; i < own->n; i++) {
        const strait_snapshot_record *known = strait_snapshot_records_find(&c->records[stage],
                                                                           own->steps[i]);
        if (own->generations[i] != c->generation || known == NULL ||
            known->generation != c->generation ||
            strait_digest_equal(&known->digest, &own->digests[i]))
            continue;
        (void)strait_coordinator_contradict(c, slot, c->owner[stage]);
        (void)strait_coordinator_log(c, out, slot,
                                     "its snapshot differs from that of the stage's owner; one of "
                                     "the two is at fault");
        c->restore_limit = own->steps[i] > 0 ? own->steps[i] - 1 : 0;
        strait_coordinator_block_replay(c);
        strait_coordinator_abandon(c, now, 0);
        return;
    }
}
