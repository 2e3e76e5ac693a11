/* boundaries.c - which worker loses its stage after a failure.
 *
 * The coordinator cannot see what passes between two neighbours. It only hears what workers report,
 * and any of them may be wrong or lying. So every failure, of whatever kind, adds points of
 * suspicion to all workers that may have caused it, and the generation is tried again. A worker
 * with LIMIT_POINTS loses its stage to a spare; of two that are equally suspected, one end of a
 * boundary and then the other. The worker at fault gets points at every failure, its honest
 * neighbours only at some, so it is out after a bounded number of attempts. An honest worker that
 * loses its stage becomes a spare and may get another: nobody is banned for a failure. */
#include "swarm/coordinator/state.h"

#include <string.h>

enum {
    SUSPICION_MAX = 64
};

void strait_coordinator_penalise(struct strait_coordinator *c, int slot,
                                 strait_swarm_actions *out) {
    c->workers[slot].n_penalties++;
    c->n_changes++;
    (void)strait_coordinator_act(out, STRAIT_SWARM_RECORD, slot);
}

void strait_coordinator_remember(struct strait_coordinator *c, const strait_fingerprint *key,
                                 int n_violations, int n_penalties) {
    const int slot = strait_coordinator_admit(c, key);
    if (slot < 0) return;
    c->workers[slot].n_violations = n_violations;
    c->workers[slot].n_penalties = n_penalties;
}

/* ---- points ---- */

/* Points are dropped after a calm period of new steps, and not when any step succeeds: a worker
 * that fails at every second step would otherwise keep its stage. */
static void add_points(struct strait_coordinator *c, int stage, int points) {
    if (c->owner[stage] < 0) return;
    strait_swarm_worker *worker = &c->workers[c->owner[stage]];
    if (c->committed - worker->suspected_step >= STRAIT_SWARM_CALM_STEPS) worker->suspicion = 0;
    worker->suspected_step = c->committed;
    if (worker->suspicion < SUSPICION_MAX) worker->suspicion += points;
    c->charged[stage] += points;
}

void strait_coordinator_charge_boundary(struct strait_coordinator *c, int boundary) {
    if (boundary < 0 || boundary + 1 >= c->config.n_stages) return;
    c->charged_boundary = boundary;
    add_points(c, boundary, FULL_POINTS);
    add_points(c, boundary + 1, FULL_POINTS);
}

void strait_coordinator_charge_owner(struct strait_coordinator *c, int stage) {
    add_points(c, stage, FULL_POINTS);
}

/* Returns the boundary of a stage with a neighbour that has replied although the owner says that it
 * still waits for it; -1: there is none. */
static int find_unserved(const struct strait_coordinator *c, int stage) {
    const int side = c->workers[c->owner[stage]].standing.said_side;
    const int beside = stage + side;
    if (side == 0 || beside < 0 || beside >= c->config.n_stages || c->is_awaited[beside]) return -1;
    return side < 0 ? beside : stage;
}

/* Follows who waits for whom. Stages form a line, so this ends at an owner that does not wait,
 * which is at fault, or at two that wait for each other, or at one that has replied although its
 * neighbour still waits: then their boundary is. Someone on the way may have lied about waiting, so
 * all of them get some points. */
void strait_coordinator_charge_timeout(struct strait_coordinator *c, int stage, int side) {
    const int n = c->config.n_stages;
    int at = stage;
    int next = stage + side;
    for (int i = 0; i < n && next >= 0 && next < n; i++) {
        const strait_swarm_worker *worker = &c->workers[c->owner[next]];
        const int waits_for = worker->waits_for;
        if (c->n_helpers[next] > 0) { // any of them may be at fault
            (void)strait_coordinator_doubt_replicas(c, next);
            return;
        }
        if (!c->is_awaited[next] || (waits_for != 0 && next + waits_for == at)) {
            strait_coordinator_charge_boundary(c, at < next ? at : next);
            return;
        }
        add_points(c, at, PART_POINTS);
        if (waits_for == 0) {
            const int unserved = find_unserved(c, next);
            if (unserved >= 0)
                strait_coordinator_charge_boundary(c, unserved);
            else
                add_points(c, next, FULL_POINTS);
            return;
        }
        at = next;
        next += waits_for;
    }
    add_points(c, at, FULL_POINTS); // it waits for a stage that does not exist
}

void strait_coordinator_excuse(struct strait_coordinator *c, int stage) {
    for (int i = 0; i < c->config.n_stages; i++) {
        if (i == stage) continue;
        if (c->owner[i] >= 0) c->workers[c->owner[i]].suspicion -= c->charged[i];
        c->charged[i] = 0;
    }
}

/* ---- replacing ---- */

/* Moves a stage to a spare that has its state, or has lost stages no more often than its owner.
 * Without one the owner keeps it, and as its points are gone, the other suspects are tried before
 * it again. */
static void replace(struct strait_coordinator *c, int stage, strait_swarm_actions *out) {
    const int slot = c->owner[stage];
    strait_swarm_worker *worker = &c->workers[slot];
    const int spare = strait_coordinator_spare_for(c, stage);
    worker->suspicion = 0;
    strait_coordinator_penalise(c, slot, out);
    if (spare < 0 || (c->workers[spare].n_penalties > worker->n_penalties &&
                      !strait_coordinator_holds(c, spare, stage))) {
        (void)strait_coordinator_log(c, out, slot,
                                     "suspected of failures at its boundaries; it keeps the stage: "
                                     "no spare is better");
        return;
    }
    strait_coordinator_log(c, out, slot, "suspected of failures at its boundaries")
        ->successor = spare;
    (void)strait_coordinator_act(out, STRAIT_SWARM_RELEASE, slot);
    strait_coordinator_assign(c, stage, spare, out);
}

/* Returns the stage whose owner is suspected most among those of the last failure; -1: nobody has
 * failed often enough. */
static int most_suspected(const struct strait_coordinator *c) {
    int worst = -1;
    int most = LIMIT_POINTS;
    for (int i = 0; i < c->config.n_stages; i++) {
        if (c->charged[i] == 0 || c->owner[i] < 0) continue;
        const strait_swarm_worker *worker = &c->workers[c->owner[i]];
        const int wins_tie = worst < 0 || c->turn;
        if (!worker->is_connected || worker->suspicion < most) continue;
        if (worker->suspicion == most && !wins_tie) continue;
        most = worker->suspicion;
        worst = i;
    }
    return worst;
}

void strait_coordinator_settle(struct strait_coordinator *c, strait_swarm_actions *out) {
    const int worst = most_suspected(c);
    /* Another route between the same two is tried first, in one generation each. */
    if (worst >= 0 && !c->has_other_route) {
        if (c->charged_boundary >= 0) strait_coordinator_remember_pair(c, c->charged_boundary);
        c->turn = !c->turn;
        replace(c, worst, out);
    }
    memset(c->charged, 0, sizeof c->charged);
    c->charged_boundary = -1;
    c->has_other_route = 0;
    strait_coordinator_separate(c, out);
}
