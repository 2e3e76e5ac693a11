/* phase.c - moves from phase to phase: chooses owners and commits steps. */
#include "swarm/coordinator/arrivals.h"
#include "swarm/coordinator/handover.h"

#define BACKOFF_NS     INT64_C(100000000) // after the second failure in a row, doubling
#define BACKOFF_MAX_NS INT64_C(5000000000)

void strait_coordinator_forget(struct strait_coordinator *c, int worker) {
    const strait_swarm_worker *gone = &c->workers[worker];
    c->workers[worker].is_known = gone->n_violations + gone->n_penalties + gone->n_disputes +
                                      gone->n_returns + gone->n_sent_away +
                                      gone->standing.n_opponents >
                                  0;
}

void strait_coordinator_abandon(struct strait_coordinator *c, int64_t now_ns, int64_t delay_ns) {
    if (c->phase == STRAIT_PHASE_WAITING) return;
    int64_t backoff = c->n_failures < 2 ? 0 : BACKOFF_NS << (c->n_failures < 8 ? c->n_failures : 8);
    if (backoff > BACKOFF_MAX_NS) backoff = BACKOFF_MAX_NS;
    c->n_failures++;
    /* The driver chooses successors and newcomers anew, for the stages as they will be then. */
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++) {
        c->workers[i].has_successor = 0;
        if (c->workers[i].is_known) c->workers[i].will_help = -1;
    }
    c->phase = STRAIT_PHASE_WAITING;
    c->phase_began_ns = now_ns;
    c->retry_ns = now_ns + (backoff > delay_ns ? backoff : delay_ns);
}

/* ---- choosing owners ---- */

int strait_coordinator_can_own(const struct strait_coordinator *c, int slot) {
    const strait_swarm_worker *worker = &c->workers[slot];
    return worker->is_known && worker->is_connected && !worker->is_unfit && !worker->is_leaving;
}

/* Returns a number from 0 to 1 that a worker cannot choose and that differs in each generation. */
static double lot(const struct strait_coordinator *c, const strait_fingerprint *key) {
    uint32_t hash = UINT32_C(2166136261) ^ c->generation; // FNV-1a
    for (int i = 0; i < STRAIT_FINGERPRINT_BYTES; i++)
        hash = (hash ^ key->bytes[i]) * UINT32_C(16777619);
    return (double)(hash ^ hash >> 15) / 4294967296.0;
}

/* What a spare claims about itself: snapshots of the stage, and speed, mapped to less than 1. Those
 * who want a stage to do harm claim the most, so after repeated failures the choice is by lot. */
static double claims(const struct strait_coordinator *c, int slot, int stage) {
    const strait_swarm_worker *worker = &c->workers[slot];
    const int has_snapshots = worker->inventory.own.stage == stage && worker->inventory.own.n > 0;
    if (c->n_changes > 1) return lot(c, &worker->key);
    return worker->report.flops / (1.0 + worker->report.flops) + 4.0 * has_snapshots;
}

int strait_coordinator_count_spares(const struct strait_coordinator *c) {
    int n = 0;
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++)
        n += c->workers[i].stage < 0 && strait_coordinator_can_own(c, i);
    return n;
}

/* Ranks a spare for a stage. What makes it useless for the stage counts most: too little memory, a
 * neighbour that it cannot connect to, non-finite values that it reported, workers that contradict
 * it. Then the stages it has lost; only then what it claims. */
static double score(const struct strait_coordinator *c, int slot, int stage) {
    const strait_swarm_worker *worker = &c->workers[slot];
    const double memory = worker->report.memory_bytes;
    const int n_penalties = worker->n_penalties < 100 ? worker->n_penalties : 100;
    const int is_last = worker->is_suspect || worker->n_disputes > 0 ||
                        worker->n_returns >= STRAIT_SWARM_RETURNS;
    double score = claims(c, slot, stage) - 8.0 * n_penalties - 1e4 * is_last;
    if (worker->helps >= 0) score -= 2.0; // idle spares first
    /* With its state no step is lost. If it fails as an owner, it is not asked for it again. */
    if (!c->is_replay_blocked && strait_coordinator_holds(c, slot, stage)) score += 1000.0;
    if (memory > 0.0 && memory < c->config.need_bytes[stage]) score -= 1e6;
    return score - 1e5 * strait_coordinator_count_bad(c, slot, stage);
}

int strait_coordinator_spare_for(const struct strait_coordinator *c, int stage) {
    int best = -1;
    double most = 0.0;
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++) {
        if (c->workers[i].stage >= 0 || !strait_coordinator_can_own(c, i)) continue;
        const double its = score(c, i, stage);
        if (best >= 0 && its <= most) continue;
        best = i;
        most = its;
    }
    return best;
}

void strait_coordinator_assign(struct strait_coordinator *c, int stage, int worker,
                               strait_swarm_actions *out) {
    const int old = c->owner[stage];
    strait_coordinator_end_help(c, worker);
    c->owner[stage] = worker;
    c->workers[worker].stage = stage;
    c->workers[worker].standing.owns_since = c->committed;
    c->n_failures = 0; // of other owners
    if (old < 0) return;
    c->workers[old].stage = -1;
    c->workers[old].keeps_state = 0;
    c->workers[old].standing.withholds = c->workers[old].standing.n_kept = 0;
    c->workers[old].served = -1; // what it has is not asked for again: it may be at fault
    if (c->workers[old].is_connected && c->workers[old].is_leaving) {
        (void)strait_coordinator_act(out, STRAIT_SWARM_DISCONNECT, old);
        c->workers[old].is_connected = 0;
    }
    if (!c->workers[old].is_connected) strait_coordinator_forget(c, old);
}

/* A leaving owner keeps its stage for one more generation if a spare exists: it may hold the only
 * snapshot of the latest step, and hands it over once the stages are ready again. */
static int can_stay(const struct strait_coordinator *c, int stage) {
    const int slot = c->owner[stage];
    if (slot < 0 || !c->workers[slot].is_connected || c->workers[slot].is_unfit) return 0;
    return !c->workers[slot].is_leaving || c->workers[slot].is_kept ||
           (strait_coordinator_successor(c, stage) < 0 &&
            strait_coordinator_spare_for(c, stage) >= 0);
}

int strait_coordinator_has_lost_state(const struct strait_coordinator *c, int stage) {
    const strait_swarm_worker *owner = &c->workers[c->owner[stage]];
    const strait_live_state *live = &owner->inventory.live;
    return live->stage != stage || live->step < 0 ||
           (c->config.has_pipelines && !owner->keeps_state);
}

/* Returns whether a pipeline that lost nothing takes the place of the owners. */
static int must_promote(const struct strait_coordinator *c) {
    if (!c->config.has_pipelines || c->is_replay_blocked ||
        strait_coordinator_pipeline_successor(c, 0) < 0)
        return 0;
    for (int i = 0; i < c->config.n_stages; i++)
        if (!can_stay(c, i) || strait_coordinator_has_lost_state(c, i)) return 1;
    return 0;
}

/* Returns who takes a stage over with the state that it has; -1: nobody. One that asked to leave
 * does so if there is a spare that it can hand the stage over to once the stages are ready. */
static int heir_of(const struct strait_coordinator *c, int stage) {
    const int successor = c->is_replay_blocked ? -1 : strait_coordinator_successor(c, stage);
    if (successor >= 0 || c->is_replay_blocked || strait_coordinator_spare_for(c, stage) < 0)
        return successor;
    return strait_coordinator_leaver(c, stage);
}

/* Assigns vacant stages to their other replicas or to spares; returns whether every stage has a
 * connected owner. */
static int fill_stages(struct strait_coordinator *c, int64_t now, strait_swarm_actions *out) {
    int is_full = 1;
    if (must_promote(c)) strait_coordinator_promote_pipeline(c, out);
    strait_coordinator_take_back(c, out);
    for (int i = 0; i < c->config.n_stages; i++) {
        const int successor = heir_of(c, i);
        if (can_stay(c, i) && !(successor >= 0 && strait_coordinator_has_lost_state(c, i)))
            continue;
        const int may_return = c->owner[i] >= 0 && now < c->owners_until_ns;
        const int spare = successor >= 0 ? successor
                          : may_return   ? -1
                                         : strait_coordinator_spare_for(c, i);
        if (spare >= 0)
            strait_coordinator_assign(c, i, spare, out);
        else
            is_full = 0;
    }
    if (!is_full && !c->has_logged_shortage)
        (void)strait_coordinator_log(c, out, -1,
                                     "not enough workers for all stages: waiting for more to join");
    c->has_logged_shortage = !is_full;
    strait_coordinator_say_why_owners(
        c, is_full ? STRAIT_STAY_UNTIL_READY : STRAIT_STAY_FOR_WORKERS, out);
    return is_full;
}

/* Forgets the start step of the generation 64 before, and what depends on it. */
static void count_generation(struct strait_coordinator *c) {
    c->generation++;
    int64_t *start_step = &c->start_steps[c->generation % STRAIT_SWARM_GENERATIONS];
    if (c->generation > STRAIT_SWARM_GENERATIONS && *start_step != INT64_MAX)
        c->forgotten = c->generation - STRAIT_SWARM_GENERATIONS;
    *start_step = INT64_MAX; // until the step to restore is chosen; a skipped one restored none
}

static void begin_generation(struct strait_coordinator *c, int64_t now, strait_swarm_actions *out) {
    if (!c->has_started || now < c->retry_ns) return;
    strait_coordinator_settle(c, out);
    if (!fill_stages(c, now, out)) return;
    if (strait_coordinator_replace_withholders(c, out) > 0) strait_coordinator_separate(c, out);
    const int had_replicas = strait_coordinator_has_replicas(c);
    strait_coordinator_seat_replicas(c, out);
    c->had_replicas = had_replicas || strait_coordinator_has_replicas(c);
    do
        count_generation(c);
    while (c->generation <= c->newest_reported);
    (void)strait_coordinator_act(out, STRAIT_SWARM_PERSIST, -1);
    strait_coordinator_enter(c, STRAIT_PHASE_ASSIGN, now, out);
}

/* ---- working ---- */

static void finish_work(struct strait_coordinator *c, int64_t now, strait_swarm_actions *out) {
    strait_coordinator_note_goal(c, now);
    if (strait_coordinator_is_saving(c)) c->n_late_saves = 0;
    c->phase = STRAIT_PHASE_READY;
    c->phase_began_ns = now;
    c->n_failures = 0;
    if (c->goal.is_begin) strait_coordinator_note_shared(c, c->goal.step);
    if (c->goal.is_update) {
        c->step = c->goal.step + 1;
        const int is_new = c->step > c->committed;
        if (is_new) {
            c->committed = c->step;
            c->n_changes = c->n_differing = c->n_replays = c->is_replay_blocked = 0;
            c->n_handovers = 0;
            strait_coordinator_forgive_replicas(c);
            strait_coordinator_count_step(c, out);
        }
        /* Replayed steps are committed already, but their snapshots are new. */
        if (is_new || c->has_new_records)
            (void)strait_coordinator_act(out, STRAIT_SWARM_PERSIST, -1);
        c->has_new_records = 0;
    }
    (void)strait_coordinator_act(out, STRAIT_SWARM_DONE, -1);
}

/* ---- barriers ---- */

/* A worker that has taken part all the time and did not reply to the last assignment owes a reply
 * since then. Nobody waits for others yet. */
static void note_asked(struct strait_coordinator *c) {
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++) {
        strait_swarm_worker *worker = &c->workers[i];
        worker->waits_for = 0;
        if (!worker->is_known || strait_coordinator_stage_of(c, i) < 0)
            worker->asked_ns = 0;
        else if (worker->asked_ns == 0)
            worker->asked_ns = c->now_ns;
    }
}

void strait_coordinator_enter(struct strait_coordinator *c, strait_swarm_phase phase,
                              int64_t now_ns, strait_swarm_actions *out) {
    c->phase = phase;
    c->phase_began_ns = now_ns;
    c->replied_ns = -1;
    c->sequence++;
    if (phase == STRAIT_PHASE_ASSIGN) note_asked(c);
    strait_coordinator_forget_arrivals(c);
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++)
        c->workers[i].standing.awaited_replica = c->workers[i].standing.said_side = 0;
    for (int i = 0; i < c->config.n_stages; i++) {
        c->is_awaited[i] = phase != STRAIT_PHASE_WORK || c->goal.stage < 0 || c->goal.stage == i;
        strait_coordinator_command_replicas(c, i, out);
        if (!c->is_awaited[i]) continue;
        strait_swarm_action *action = strait_coordinator_act(out, STRAIT_SWARM_COMMAND,
                                                             c->owner[i]);
        action->stage = i;
        action->step = c->step;
        if (phase == STRAIT_PHASE_RESTORE) strait_coordinator_fill_restore(c, i, action);
    }
}

static int is_barrier_passed(const struct strait_coordinator *c) {
    for (int i = 0; i < c->config.n_stages; i++)
        if (c->is_awaited[i]) return 0;
    return !strait_coordinator_awaits_replicas(c);
}

void strait_coordinator_advance(struct strait_coordinator *c, int64_t now_ns,
                                strait_swarm_actions *out) {
    if (c->phase == STRAIT_PHASE_HANDOVER) strait_coordinator_hand_over(c, now_ns, out);
    if (c->phase == STRAIT_PHASE_WAITING) begin_generation(c, now_ns, out);
    if (c->phase == STRAIT_PHASE_WAITING || c->phase == STRAIT_PHASE_READY ||
        c->phase == STRAIT_PHASE_HANDOVER || !is_barrier_passed(c))
        return;
    switch (c->phase) {
    case STRAIT_PHASE_ASSIGN: strait_coordinator_enter(c, STRAIT_PHASE_LISTEN, now_ns, out); break;
    case STRAIT_PHASE_LISTEN: strait_coordinator_enter(c, STRAIT_PHASE_CONNECT, now_ns, out); break;
    case STRAIT_PHASE_CONNECT: strait_coordinator_enter(c, STRAIT_PHASE_OPEN, now_ns, out); break;
    case STRAIT_PHASE_OPEN: strait_coordinator_begin_restore(c, now_ns, out); break;
    case STRAIT_PHASE_RESTORE: strait_coordinator_finish_restore(c, now_ns, out); break;
    case STRAIT_PHASE_WORK: finish_work(c, now_ns, out); break;
    case STRAIT_PHASE_SNAPSHOT:
        c->phase = STRAIT_PHASE_HANDOVER;
        c->phase_began_ns = now_ns;
        strait_coordinator_hand_over(c, now_ns, out);
        if (c->phase == STRAIT_PHASE_WAITING) begin_generation(c, now_ns, out);
        break;
    default: break;
    }
}
