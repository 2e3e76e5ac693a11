/* handover.c - see handover.h. */
#include "swarm/coordinator/handover.h"

enum {
    HANDOVERS = 4 // before one new step; then it is computed with the workers that are there
};

/* What a worker that asked to leave waits for. */
static const char *const reasons[] = {
    [STRAIT_STAY_FOR_COPY] = "stays until a neighbour has a copy of its stage",
    [STRAIT_STAY_FOR_NEIGHBOUR] = "stays for one more step: a neighbour leaves first, and one of "
                                  "the two has the only copy of the other's stage",
    [STRAIT_STAY_FOR_WORKERS] = "stays until there are enough workers for all stages",
    [STRAIT_STAY_UNTIL_READY] = "stays until all stages are ready again: nobody else may have the "
                                "newest state of its stage"};

void strait_coordinator_say_why(struct strait_coordinator *c, int slot, strait_swarm_stay why,
                                strait_swarm_actions *out) {
    strait_swarm_worker *worker = &c->workers[slot];
    if (worker->why_it_stays == reasons[why]) return;
    worker->why_it_stays = reasons[why];
    (void)strait_coordinator_log(c, out, slot, reasons[why]);
    strait_coordinator_act(out, STRAIT_SWARM_STAY, slot)->reason = reasons[why];
}

void strait_coordinator_say_why_owners(struct strait_coordinator *c, strait_swarm_stay why,
                                       strait_swarm_actions *out) {
    for (int i = 0; i < c->config.n_stages; i++)
        if (c->owner[i] >= 0 && c->workers[c->owner[i]].is_leaving &&
            c->workers[c->owner[i]].is_connected && !c->workers[c->owner[i]].is_kept)
            strait_coordinator_say_why(c, c->owner[i], why, out);
}

/* ---- who goes ---- */

void strait_coordinator_leave(struct strait_coordinator *c, int slot, strait_swarm_actions *out) {
    strait_swarm_worker *worker = &c->workers[slot];
    if (!worker->is_connected || worker->is_leaving) return;
    worker->is_leaving = 1;
    worker->why_it_stays = NULL;
    if (worker->stage >= 0 || worker->replica > 0) { // the handover is before the next step
        (void)strait_coordinator_log(c, out, slot,
                                     "asked to leave; its stage is handed over before the next "
                                     "step");
        return;
    }
    (void)strait_coordinator_log(c, out, slot, "left");
    strait_coordinator_lose_successor(c, slot, out);
    (void)strait_coordinator_act(out, STRAIT_SWARM_DISCONNECT, slot);
    worker->is_connected = 0;
    strait_coordinator_forget(c, slot);
}

void strait_coordinator_lose_successor(struct strait_coordinator *c, int slot,
                                       strait_swarm_actions *out) {
    for (int i = 0; i < c->config.n_stages; i++) {
        strait_swarm_worker *owner = c->owner[i] >= 0 ? &c->workers[c->owner[i]] : NULL;
        if (owner == NULL || !owner->has_successor || owner->successor != slot) continue;
        /* The copies that are awaited are of use to all stages. */
        if (c->phase < STRAIT_PHASE_SNAPSHOT) owner->has_successor = 0;
        strait_coordinator_penalise(c, slot, out);
    }
}

void strait_coordinator_reassign(struct strait_coordinator *c, int slot, int successor,
                                 strait_swarm_actions *out) {
    strait_swarm_worker *worker = &c->workers[slot];
    if (c->phase != STRAIT_PHASE_READY || c->config.n_stages < 2 || worker->stage < 0) return;
    if (!strait_coordinator_can_own(c, successor) || c->workers[successor].stage >= 0 ||
        strait_coordinator_count_bad(c, successor, worker->stage) > 0)
        return;
    worker->has_successor = 1;
    worker->successor = successor;
    strait_coordinator_log(c, out, slot, "a faster spare is available")->successor = successor;
}

int strait_coordinator_must_hand_over(struct strait_coordinator *c) {
    int is_leaving = 0;
    int is_moving = 0;
    for (int i = 0; i < c->config.n_stages; i++) {
        is_leaving |= c->workers[c->owner[i]].is_leaving;
        is_moving |= c->workers[c->owner[i]].has_successor || strait_coordinator_must_replace(c, i);
    }
    for (int i = 0; i < c->config.n_stages && is_leaving; i++)
        c->workers[c->owner[i]].has_successor = 0;
    /* Owners that ask to leave as soon as they have a stage would otherwise put the step off. */
    if (c->n_handovers >= HANDOVERS) return 0;
    return is_leaving || is_moving || strait_coordinator_replicas_change(c);
}

/* ---- copies ---- */

static int has_copy(const struct strait_coordinator *c, int stage) {
    return strait_coordinator_can_give(c, stage + 1, stage, c->step) ||
           strait_coordinator_can_give(c, stage - 1, stage, c->step);
}

static int lacks_copy(const struct strait_coordinator *c, int stage) {
    const strait_swarm_worker *worker = &c->workers[c->owner[stage]];
    const int moves = worker->is_leaving || worker->has_successor ||
                      strait_coordinator_must_replace(c, stage);
    return moves && c->config.n_stages > 1 && !has_copy(c, stage) &&
           strait_coordinator_successor(c, stage) < 0;
}

/* The stages that move have no more time for copies. Who restores them computes steps again. */
static void move_without(struct strait_coordinator *c, strait_swarm_actions *out) {
    for (int i = 0; i < c->config.n_stages; i++) {
        if (!lacks_copy(c, i)) continue;
        strait_coordinator_log(c, out, c->owner[i],
                               "no neighbour received a copy of its stage within the limit")
            ->stage = i;
        if (strait_coordinator_must_replace(c, i)) strait_coordinator_end_patience(c, i);
    }
}

/* ---- moving ---- */

/* Returns whether a stage can move to the successor of its owner, which stays as a spare. If the
 * successor is gone or no neighbour holds a copy, the stage stays where it is. */
static int can_move(const struct strait_coordinator *c, int stage) {
    const strait_swarm_worker *owner = &c->workers[c->owner[stage]];
    return owner->has_successor && strait_coordinator_can_own(c, owner->successor) &&
           c->workers[owner->successor].stage < 0 && has_copy(c, stage);
}

/* Returns whether the copy of a stage that goes is lost with it: those who have one go too. What no
 * neighbour has, or another replica of the stage has too, is not lost with a copy. */
static int loses_copy(const struct strait_coordinator *c, const unsigned char *goes, int stage) {
    if (!has_copy(c, stage) || strait_coordinator_successor(c, stage) >= 0) return 0;
    for (int i = stage - 1; i <= stage + 1; i += 2)
        if (strait_coordinator_can_give(c, i, stage, c->step) && !goes[i]) return 0;
    return 1;
}

/* Chooses which stages change their owner now. Two neighbours often have the only copies of each
 * other's stages: if both went, one stage could not be restored to this step. The second goes in
 * the next handover, when the first one's successor has the state. */
static void choose(const struct strait_coordinator *c, unsigned char *goes) {
    for (int i = 0; i < c->config.n_stages; i++) {
        goes[i] = c->workers[c->owner[i]].is_leaving || can_move(c, i);
        for (int k = i - 1; k <= i + 1 && goes[i]; k++)
            if (k >= 0 && k < c->config.n_stages && goes[k] && loses_copy(c, goes, k)) goes[i] = 0;
    }
}

static void move_stage(struct strait_coordinator *c, int stage, strait_swarm_actions *out) {
    const int old = c->owner[stage];
    (void)strait_coordinator_act(out, STRAIT_SWARM_RELEASE, old);
    strait_coordinator_assign(c, stage, c->workers[old].successor, out);
    c->workers[old].moved_from = stage;
}

/* Returns whether steps are lost with an owner that leaves, because nobody else has their state. */
static int loses_steps(const struct strait_coordinator *c, int stage) {
    return c->step > 0 && !has_copy(c, stage) && strait_coordinator_successor(c, stage) < 0 &&
           !strait_coordinator_is_saved(c, c->step);
}

/* One that leaves soon, or without a copy, comes after other spares when it is back: the others had
 * to wait for it, and two workers could take a stage in turn for ever. */
static void let_owner_leave(struct strait_coordinator *c, int stage, strait_swarm_actions *out) {
    strait_swarm_worker *worker = &c->workers[c->owner[stage]];
    if (c->committed - worker->standing.owns_since < STRAIT_SWARM_CALM_STEPS ||
        loses_steps(c, stage))
        strait_coordinator_penalise(c, c->owner[stage], out);
    (void)strait_coordinator_act(out, STRAIT_SWARM_DISCONNECT, c->owner[stage]);
    strait_coordinator_forget(c, c->owner[stage]);
    worker->is_connected = 0;
    worker->stage = -1;
    c->owner[stage] = -1;
}

/* Without a spare it keeps the stage too: it is there for its copies. */
static void keep_for_copies(struct strait_coordinator *c, int stage, strait_swarm_actions *out) {
    c->workers[c->owner[stage]].is_kept = 1;
    strait_coordinator_say_why(c, c->owner[stage], STRAIT_STAY_FOR_NEIGHBOUR, out);
}

/* Returns whether some stages that move still have time for copies. */
static int awaits_copies(struct strait_coordinator *c, int64_t now, strait_swarm_actions *out) {
    int n = 0;
    for (int i = 0; i < c->config.n_stages; i++) {
        if (!lacks_copy(c, i) || strait_coordinator_is_late(c, c->owner[i], i, now)) continue;
        if (c->workers[c->owner[i]].is_leaving)
            strait_coordinator_say_why(c, c->owner[i], STRAIT_STAY_FOR_COPY, out);
        n++;
    }
    return n > 0;
}

void strait_coordinator_hand_over(struct strait_coordinator *c, int64_t now,
                                  strait_swarm_actions *out) {
    unsigned char goes[STRAIT_RUN_STAGES] = {0};
    if (awaits_copies(c, now, out)) return;
    move_without(c, out);
    choose(c, goes);
    for (int i = 0; i < c->config.n_stages; i++) {
        const int is_leaving = c->workers[c->owner[i]].is_leaving;
        if (goes[i] && is_leaving)
            let_owner_leave(c, i, out);
        else if (is_leaving)
            keep_for_copies(c, i, out);
        else if (goes[i] && c->workers[c->workers[c->owner[i]].successor].stage < 0)
            move_stage(c, i, out);
    }
    strait_coordinator_change_replicas(c, out);
    strait_coordinator_abandon(c, now, 0);
}

void strait_coordinator_take_back(struct strait_coordinator *c, strait_swarm_actions *out) {
    for (int slot = 0; slot < STRAIT_SWARM_WORKERS && !c->is_replay_blocked; slot++) {
        const strait_swarm_worker *worker = &c->workers[slot];
        const int stage = worker->is_known ? worker->moved_from : -1;
        if (stage < 0 || worker->stage >= 0 || !strait_coordinator_can_own(c, slot) ||
            !strait_coordinator_is_live(c, slot, stage, c->step) || c->owner[stage] < 0 ||
            !strait_coordinator_has_lost_state(c, stage) || has_copy(c, stage))
            continue;
        (void)strait_coordinator_log(c, out, slot,
                                     "takes its stage back: the copy for its successor is lost");
        (void)strait_coordinator_act(out, STRAIT_SWARM_RELEASE, c->owner[stage]);
        strait_coordinator_assign(c, stage, slot, out);
    }
}
