#include "swarm/coordinator.h"

#include "swarm/coordinator_state.h"

#include <assert.h>
#include <string.h>

void strait_coordinator_init(struct strait_coordinator *c, const strait_swarm_config *config) {
    assert(config->n_stages >= 1 && config->n_stages <= STRAIT_RUN_STAGES);
    memset(c, 0, sizeof *c);
    c->config = *config;
    c->checkpoint = c->limit = -1;
    for (int i = 0; i < STRAIT_RUN_STAGES; i++)
        c->owner[i] = -1;
}

int strait_coordinator_find(const struct strait_coordinator *c, const strait_fingerprint *key) {
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++)
        if (c->workers[i].is_known && strait_fingerprint_equal(&c->workers[i].key, key)) return i;
    return -1;
}

/* A slot for a new key: a free one, or that of someone who has gone and owned nothing. */
static int new_node(struct strait_coordinator *c, const strait_fingerprint *key) {
    int slot = -1;
    for (int i = 0; i < STRAIT_SWARM_WORKERS && slot < 0; i++)
        if (!c->workers[i].is_known) slot = i;
    for (int i = 0; i < STRAIT_SWARM_WORKERS && slot < 0; i++)
        if (!c->workers[i].is_connected && c->workers[i].stage < 0) slot = i;
    if (slot < 0) return -1;
    c->workers[slot] = (strait_swarm_worker){.key = *key, .is_known = 1, .stage = -1};
    c->workers[slot].inventory = strait_snapshot_inventory_empty();
    return slot;
}

int strait_coordinator_admit(struct strait_coordinator *c, const strait_fingerprint *key) {
    const int known = strait_coordinator_find(c, key);
    return known >= 0 ? known : new_node(c, key);
}

void strait_coordinator_resume(struct strait_coordinator *c, const strait_swarm_durable *facts,
                               int64_t now_ns) {
    c->generation = facts->generation;
    c->committed = facts->committed;
    c->settled = c->limit = facts->settled;
    memcpy(c->rolled, facts->rolled, sizeof c->rolled);
    if (c->generation >= STRAIT_SWARM_GENERATIONS)
        c->forgotten = c->generation - STRAIT_SWARM_GENERATIONS;
    c->hold_ns = now_ns + c->config.owner_wait_ns;
    for (int i = 0; i < c->config.n_stages; i++) {
        if (!facts->has_owner[i]) continue;
        const int worker = new_node(c, &facts->owners[i]);
        c->owner[i] = worker;
        c->workers[worker].stage = i;
    }
}

void strait_coordinator_durable(const struct strait_coordinator *c, strait_swarm_durable *out) {
    memset(out, 0, sizeof *out);
    out->generation = c->generation;
    out->committed = c->committed;
    out->settled = c->settled;
    memcpy(out->rolled, c->rolled, sizeof out->rolled);
    for (int i = 0; i < c->config.n_stages; i++) {
        out->has_owner[i] = c->owner[i] >= 0;
        if (c->owner[i] >= 0) out->owners[i] = c->workers[c->owner[i]].key;
    }
}

int strait_coordinator_count_spares(const struct strait_coordinator *c) {
    int n = 0;
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++)
        n += c->workers[i].is_known && c->workers[i].is_connected && c->workers[i].stage < 0 &&
             !c->workers[i].is_unfit && !c->workers[i].is_leaving;
    return n;
}

const char *strait_coordinator_phase_name(strait_swarm_phase phase) {
    static const char *const names[] = {"waiting",      "assigning",   "listening", "connecting",
                                        "opening",      "restoring",   "ready",     "working",
                                        "snapshotting", "handing over"};
    return names[phase];
}

strait_swarm_action *strait_coordinator_act(strait_swarm_actions *out,
                                            strait_swarm_action_kind kind, int worker) {
    assert(out->n < STRAIT_SWARM_ACTIONS);
    strait_swarm_action *action = &out->items[out->n++];
    *action = (strait_swarm_action){.kind = kind, .worker = worker, .stage = -1, .reason = ""};
    return action;
}

static void note(const struct strait_coordinator *c, strait_swarm_actions *out, int worker,
                 const char *reason) {
    strait_swarm_action *action = strait_coordinator_act(out, STRAIT_SWARM_LOG, worker);
    action->stage = c->workers[worker].stage;
    action->reason = reason;
}

/* What it holds of steps that were rolled back since is of another past. */
static void trim_old(const struct strait_coordinator *c, strait_snapshot_set *holding) {
    for (int i = holding->n - 1; i >= 0; i--) {
        const int is_of_time = holding->generations[i] >= c->forgotten &&
                               holding->generations[i] <= c->generation;
        int64_t limit = is_of_time ? INT64_MAX : -1;
        uint32_t first = holding->generations[i] + 1;
        if (c->generation - holding->generations[i] >= STRAIT_SWARM_GENERATIONS)
            first = c->generation - STRAIT_SWARM_GENERATIONS + 1; // those before came to nothing
        for (uint32_t e = first; limit >= 0 && e <= c->generation; e++)
            if (c->rolled[e % STRAIT_SWARM_GENERATIONS] < limit)
                limit = c->rolled[e % STRAIT_SWARM_GENERATIONS];
        if (holding->steps[i] <= limit) continue;
        holding->n--;
        holding->steps[i] = holding->steps[holding->n];
        holding->generations[i] = holding->generations[holding->n];
    }
}

static void take_holdings(struct strait_coordinator *c, strait_swarm_worker *worker,
                          const strait_swarm_event *e) {
    worker->inventory = e->inventory;
    trim_old(c, &worker->inventory.own);
    trim_old(c, &worker->inventory.prev);
    trim_old(c, &worker->inventory.next);
}

static void join(struct strait_coordinator *c, const strait_swarm_event *e, int64_t now,
                 strait_swarm_actions *out) {
    const int at = strait_coordinator_admit(c, &e->key);
    if (at < 0) return;
    strait_swarm_worker *worker = &c->workers[at];
    if (worker->is_connected && worker->stage >= 0) // it came back before we saw it go
        strait_coordinator_fail(c, now, 0);
    worker->report = *e->report;
    worker->is_connected = 1;
    worker->is_leaving = worker->is_unfit = 0;
    worker->seen_ns = worker->moved_ns = now;
    worker->gap_ns = worker->rest_ns = 0;
    take_holdings(c, worker, e);
    note(c, out, at, worker->stage < 0 ? "joined" : "is back");
    /* Whatever it did before, it has no part in the present epoch. */
    (void)strait_coordinator_act(out, STRAIT_SWARM_RELEASE, at);
}

static void lose(struct strait_coordinator *c, int at, int64_t now, strait_swarm_actions *out,
                 const char *reason) {
    strait_swarm_worker *worker = &c->workers[at];
    if (!worker->is_connected) return;
    worker->is_connected = 0;
    note(c, out, at, reason);
    if (worker->stage >= 0) strait_coordinator_fail(c, now, 0);
    if (worker->stage < 0) strait_coordinator_forget(c, at);
}

static void leave(struct strait_coordinator *c, int at, strait_swarm_actions *out) {
    strait_swarm_worker *worker = &c->workers[at];
    if (!worker->is_connected || worker->is_leaving) return;
    worker->is_leaving = 1;
    note(c, out, at, "wants to leave");
    if (worker->stage >= 0) return; // at the beginning of the next step
    strait_coordinator_act(out, STRAIT_SWARM_DISCONNECT, at)->reason = "";
    worker->is_connected = 0;
    strait_coordinator_forget(c, at);
}

/* ---- what is no number ---- */

/* Out, for good. */
static void bar(struct strait_coordinator *c, int at, strait_swarm_actions *out) {
    strait_swarm_worker *worker = &c->workers[at];
    note(c, out, at, "is to blame again: refused for this run");
    strait_coordinator_act(out, STRAIT_SWARM_BAN, at)->reason =
        "this key sent values that are no numbers or images of no such stage, or said so of "
        "others without reason";
    if (worker->stage >= 0) c->owner[worker->stage] = -1;
    worker->stage = -1;
    worker->is_connected = worker->is_known = 0;
}

/* The step is made again, by the same machines or, the second time, without this one. */
static void punish(struct strait_coordinator *c, int at, int64_t now, strait_swarm_actions *out) {
    if (++c->workers[at].n_violations >= STRAIT_SWARM_VIOLATIONS)
        bar(c, at, out);
    else
        note(c, out, at, "is to blame: once more, and it is refused");
    strait_coordinator_fail(c, now, 0);
}

/* One of two lies or is broken, and nobody can tell which: the accused, unless the accuser has said
 * it of another machine before. */
static void accuse(struct strait_coordinator *c, int by, int of, int64_t now,
                   strait_swarm_actions *out) {
    strait_swarm_worker *accuser = &c->workers[by];
    const strait_fingerprint *key = &c->workers[of].key;
    const int is_first = !accuser->has_accused;
    const int is_same = !is_first && strait_fingerprint_equal(&accuser->accused, key);
    if (is_first) accuser->accused = *key;
    accuser->has_accused = 1;
    if (!is_first && !is_same) note(c, out, by, "blames one machine after another");
    punish(c, is_first || is_same ? of : by, now, out);
}

static void blame(struct strait_coordinator *c, int at, int64_t now, strait_swarm_actions *out) {
    if (c->workers[at].is_connected && c->workers[at].stage >= 0) punish(c, at, now, out);
}

/* Whoever computes the same on another machine will know whether it is so. */
static void doubt(struct strait_coordinator *c, int at, int64_t now, strait_swarm_actions *out) {
    strait_swarm_worker *worker = &c->workers[at];
    if (!worker->is_connected || worker->stage < 0) return;
    worker->is_suspect = 1;
    const int may_go = strait_coordinator_count_spares(c) > 0;
    note(c, out, at, may_go ? "its numbers are none: another shall see" : "its numbers are none");
    if (may_go) {
        c->owner[worker->stage] = -1;
        worker->stage = -1;
        (void)strait_coordinator_act(out, STRAIT_SWARM_RELEASE, at);
    }
    strait_coordinator_fail(c, now, 0);
}

/* ---- who is waited for in vain ---- */

/* Neither answers nor waits for others, as far as it says. */
static int is_busy(const struct strait_coordinator *c, int stage) {
    return c->is_awaited[stage] && !c->workers[c->owner[stage]].is_waiting;
}

/* Links live, and yet nothing came over them in time. Whose fault that is nobody can tell: it may
 * say that it computes, that it waits or has answered, or be the one that complains. Suspected are
 * those who are busy, or else all; and who complains, always. */
static int suspect(struct strait_coordinator *c, int by) {
    int n_busy = 0;
    int worst = by;
    for (int i = 0; i < c->config.n_stages; i++)
        n_busy += i != by && is_busy(c, i);
    int most = c->workers[c->owner[by]].n_timeouts++; // of two alike the other one goes
    for (int i = 0; i < c->config.n_stages; i++) {
        if (i == by || (n_busy > 0 && !is_busy(c, i))) continue;
        const int n_timeouts = ++c->workers[c->owner[i]].n_timeouts;
        if (n_timeouts <= most) continue;
        most = n_timeouts;
        worst = i;
    }
    return worst;
}

/* The most suspected goes, if there is a spare that is less so. Who is at fault has its turn after
 * as many steps as there are stages; an honest machine loses a place, and may have the next. */
static void relieve(struct strait_coordinator *c, int by, strait_swarm_actions *out) {
    const int stage = suspect(c, by);
    const int at = c->owner[stage];
    const int successor = strait_coordinator_spare_for(c, stage, c->workers[at].n_timeouts);
    if (c->workers[at].n_timeouts < STRAIT_SWARM_TIMEOUTS || successor < 0) return;
    c->workers[at].n_penalties++;
    note(c, out, at, "others wait in vain, for it perhaps: its stage goes to a spare");
    (void)strait_coordinator_act(out, STRAIT_SWARM_RELEASE, at);
    strait_coordinator_give(c, stage, successor, out);
}

/* Who waits, waits for a stage beside it that has not answered either; others may say so. */
static int may_wait(const struct strait_coordinator *c, int stage) {
    return (stage > 0 && c->is_awaited[stage - 1]) ||
           (stage >= 0 && stage + 1 < c->config.n_stages && c->is_awaited[stage + 1]);
}

static void pulse(struct strait_coordinator *c, const strait_swarm_event *e, int64_t now) {
    strait_swarm_worker *worker = &c->workers[e->worker];
    if (!worker->is_connected) return;
    if (now - worker->seen_ns > worker->gap_ns) worker->gap_ns = now - worker->seen_ns;
    worker->seen_ns = now;
    const int is_waiting = e->is_waiting && may_wait(c, worker->stage);
    if (e->progress != worker->progress || is_waiting || worker->is_waiting) {
        if (e->progress != worker->progress && !worker->is_waiting &&
            now - worker->moved_ns > worker->rest_ns)
            worker->rest_ns = now - worker->moved_ns;
        worker->moved_ns = now;
    }
    worker->progress = e->progress;
    worker->is_waiting = is_waiting;
    take_holdings(c, worker, e);
}

static void reply(struct strait_coordinator *c, const strait_swarm_event *e, int64_t now,
                  strait_swarm_actions *out) {
    strait_swarm_worker *worker = &c->workers[e->worker];
    const int stage = worker->stage;
    if (!worker->is_connected || stage < 0 || e->generation != c->generation ||
        e->sequence != c->sequence || !c->is_awaited[stage])
        return;
    worker->seen_ns = worker->moved_ns = now;
    const int is_beside = e->blamed == stage - 1 || e->blamed == stage + 1;
    if (e->is_blaming && is_beside && e->blamed >= 0 && e->blamed < c->config.n_stages) {
        accuse(c, e->worker, c->owner[e->blamed], now, out);
        return;
    }
    if (e->err == STRAIT_OK) {
        c->is_awaited[stage] = 0;
        return;
    }
    const strait_scope scope = strait_err_scope(e->err);
    const int is_own_fault = scope == STRAIT_SCOPE_PROCESS || scope == STRAIT_SCOPE_CALLER;
    if (is_own_fault) {
        worker->is_unfit = 1;
        worker->stage = c->owner[stage] = -1;
        (void)strait_coordinator_act(out, STRAIT_SWARM_RELEASE, e->worker);
    }
    const int is_lost = !is_own_fault && e->err != STRAIT_ENONFINITE;
    const char *reason = is_own_fault ? "cannot serve its stage" : "its image is of no use";
    const int is_vain = e->err == STRAIT_ETIMEDOUT && c->phase == STRAIT_PHASE_WORK &&
                        !c->goal.is_slow;
    const char *lost = is_vain ? "waits for a neighbour in vain" : "lost a neighbour";
    note(c, out, e->worker, is_lost ? lost : reason);
    if (is_vain) relieve(c, stage, out);
    strait_coordinator_fail(c, now, is_lost ? GRACE_NS : 0);
}

static void yield(struct strait_coordinator *c, int at, int successor, strait_swarm_actions *out) {
    strait_swarm_worker *worker = &c->workers[at];
    if (c->phase != STRAIT_PHASE_READY || c->config.n_stages < 2 || worker->stage < 0) return;
    if (!strait_coordinator_can_own(c, successor) || c->workers[successor].stage >= 0) return;
    worker->has_successor = 1;
    worker->successor = successor;
    note(c, out, at, "its stage shall go to a faster machine");
}

/* Whether stages change hands before the step begins; those who leave go first. */
static int must_hand_over(struct strait_coordinator *c) {
    int is_leaving = 0;
    int is_yielding = 0;
    for (int i = 0; i < c->config.n_stages; i++) {
        is_leaving |= c->workers[c->owner[i]].is_leaving;
        is_yielding |= c->workers[c->owner[i]].has_successor;
    }
    for (int i = 0; i < c->config.n_stages && is_leaving; i++)
        c->workers[c->owner[i]].has_successor = 0;
    return is_leaving || is_yielding;
}

static void begin_goal(struct strait_coordinator *c, const strait_swarm_goal *goal, int64_t now,
                       strait_swarm_actions *out) {
    if (c->phase != STRAIT_PHASE_READY) return; // the driver sees that
    c->goal = *goal;
    if (goal->is_begin && goal->step > c->settled) c->settled = goal->step;
    const int hands_over = goal->is_begin && must_hand_over(c);
    strait_coordinator_enter(c, hands_over ? STRAIT_PHASE_SNAPSHOT : STRAIT_PHASE_WORK, now, out);
}

static void tick(struct strait_coordinator *c, int64_t now, strait_swarm_actions *out) {
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++) {
        strait_swarm_worker *worker = &c->workers[i];
        if (!worker->is_known || !worker->is_connected) continue;
        const char *fault = strait_coordinator_fault(c, i, now);
        if (fault == NULL) continue;
        worker->n_penalties++;
        strait_coordinator_act(out, STRAIT_SWARM_DISCONNECT, i)->reason = fault;
        lose(c, i, now, out, fault);
    }
}

/* Until now nobody was listening: those who are to come back have all their time before them. */
static void start(struct strait_coordinator *c, int64_t now) {
    c->has_started = 1;
    if (c->hold_ns != 0) c->hold_ns = now + c->config.owner_wait_ns;
}

static void forgive_silence(struct strait_coordinator *c, int64_t now) {
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++)
        c->workers[i].seen_ns = c->workers[i].moved_ns = now;
}

void strait_coordinator_step(struct strait_coordinator *c, const strait_swarm_event *e,
                             int64_t now_ns, strait_swarm_actions *out) {
    out->n = 0;
    switch (e->kind) {
    case STRAIT_SWARM_JOIN: join(c, e, now_ns, out); break;
    case STRAIT_SWARM_LOST: lose(c, e->worker, now_ns, out, "is lost"); break;
    case STRAIT_SWARM_LEAVE: leave(c, e->worker, out); break;
    case STRAIT_SWARM_HEARTBEAT: pulse(c, e, now_ns); break;
    case STRAIT_SWARM_REPLY: reply(c, e, now_ns, out); break;
    case STRAIT_SWARM_INVALID_DATA: blame(c, e->worker, now_ns, out); break;
    case STRAIT_SWARM_NONFINITE: doubt(c, e->worker, now_ns, out); break;
    case STRAIT_SWARM_REASSIGN: yield(c, e->worker, e->successor, out); break;
    case STRAIT_SWARM_START: start(c, now_ns); break;
    case STRAIT_SWARM_GOAL: begin_goal(c, &e->goal, now_ns, out); break;
    case STRAIT_SWARM_TICK: tick(c, now_ns, out); break;
    case STRAIT_SWARM_RESUMED: forgive_silence(c, now_ns); break;
    }
    strait_coordinator_advance(c, now_ns, out);
}
