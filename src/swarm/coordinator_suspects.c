/* coordinator_suspects.c - which worker is at fault when values are invalid or do not arrive.
 *
 * The coordinator cannot see what passes between two neighbours. It only hears what workers report,
 * and any of them may be wrong or lying. The rules here therefore never ban an honest worker for
 * one report, and they let a dishonest one disturb only a bounded number of steps. */
#include "swarm/coordinator_state.h"

/* ---- invalid values ---- */

static void ban(struct strait_coordinator *c, int slot, strait_swarm_actions *out) {
    strait_swarm_worker *worker = &c->workers[slot];
    (void)strait_coordinator_log(c, out, slot, "violation 2 of 2; banned from this run");
    strait_coordinator_act(out, STRAIT_SWARM_BAN, slot)->reason =
        "banned from this run: this key sent non-finite values or invalid snapshots, or reported "
        "them falsely of others";
    if (worker->stage >= 0) c->owner[worker->stage] = -1;
    worker->stage = -1;
    worker->is_connected = worker->is_known = 0;
}

/* The step is recomputed, by the same workers or, after the last violation, without this one. */
static void count_violation(struct strait_coordinator *c, int slot, int64_t now,
                            strait_swarm_actions *out) {
    if (++c->workers[slot].n_violations >= STRAIT_SWARM_VIOLATIONS)
        ban(c, slot, out);
    else
        (void)strait_coordinator_log(c, out, slot, "violation 1 of 2; recomputing the step");
    strait_coordinator_abandon(c, now, 0);
}

/* One of the two is lying or broken, and the coordinator cannot tell which. It assumes the accused,
 * unless the accuser has reported another worker before: two broken neighbours are less likely than
 * one broken accuser. */
void strait_coordinator_accuse(struct strait_coordinator *c, int accuser, int accused, int64_t now,
                               strait_swarm_actions *out) {
    strait_swarm_worker *reporter = &c->workers[accuser];
    const strait_fingerprint *key = &c->workers[accused].key;
    const int is_first = !reporter->has_accused;
    const int is_same = !is_first && strait_fingerprint_equal(&reporter->accused, key);
    if (is_first) reporter->accused = *key;
    reporter->has_accused = 1;
    if (!is_first && !is_same)
        (void)strait_coordinator_log(c, out, accuser,
                                     "reported invalid values from a second worker: not believed");
    count_violation(c, is_first || is_same ? accused : accuser, now, out);
}

void strait_coordinator_invalid_data(struct strait_coordinator *c, int slot, int64_t now,
                                     strait_swarm_actions *out) {
    if (c->workers[slot].is_connected && c->workers[slot].stage >= 0)
        count_violation(c, slot, now, out);
}

/* A worker's report of non-finite values is verified by recomputing the step elsewhere: training
 * may diverge on any worker, or this one may be broken. */
void strait_coordinator_nonfinite(struct strait_coordinator *c, int slot, int64_t now,
                                  strait_swarm_actions *out) {
    strait_swarm_worker *worker = &c->workers[slot];
    if (!worker->is_connected || worker->stage < 0) return;
    worker->is_suspect = 1;
    if (strait_coordinator_count_spares(c) > 0) {
        (void)strait_coordinator_log(c, out, slot,
                                     "non-finite values; recomputing the step on a spare");
        c->owner[worker->stage] = -1;
        worker->stage = -1;
        (void)strait_coordinator_act(out, STRAIT_SWARM_RELEASE, slot);
    } else {
        (void)strait_coordinator_log(
            c, out, slot, "non-finite values; recomputing the step, no spare is available");
    }
    strait_coordinator_abandon(c, now, 0);
}

/* ---- timeouts ---- */

/* Returns whether the owner has neither replied nor reported that it waits for a neighbour. */
static int is_busy(const struct strait_coordinator *c, int stage) {
    return c->is_awaited[stage] && !c->workers[c->owner[stage]].is_waiting;
}

/* All links are up, and yet data did not arrive in time. The worker at fault may claim to compute,
 * to wait or to have replied, or may be the one that reports the timeout. Every busy owner is
 * suspected, or all owners if none is busy; the reporter always. Returns the stage whose owner has
 * the most timeouts. */
static int most_suspected(struct strait_coordinator *c, int reporter) {
    int n_busy = 0;
    int worst = reporter;
    for (int i = 0; i < c->config.n_stages; i++)
        n_busy += i != reporter && is_busy(c, i);
    /* The count before this timeout: on a tie the other worker loses its stage. */
    int most = c->workers[c->owner[reporter]].n_timeouts++;
    for (int i = 0; i < c->config.n_stages; i++) {
        if (i == reporter || (n_busy > 0 && !is_busy(c, i))) continue;
        const int n_timeouts = ++c->workers[c->owner[i]].n_timeouts;
        if (n_timeouts <= most) continue;
        most = n_timeouts;
        worst = i;
    }
    return worst;
}

/* The stage moves only to a spare with fewer timeouts, so a worker at fault is replaced after at
 * most as many steps as there are stages. An honest worker that loses its stage becomes a spare and
 * may get another. */
void strait_coordinator_timed_out(struct strait_coordinator *c, int reporter,
                                  strait_swarm_actions *out) {
    const int stage = most_suspected(c, reporter);
    const int slot = c->owner[stage];
    strait_swarm_worker *worker = &c->workers[slot];
    const int successor = strait_coordinator_spare_for(c, stage, worker->n_timeouts);
    if (worker->n_timeouts < STRAIT_SWARM_TIMEOUTS || successor < 0) return;
    worker->n_penalties++;
    strait_swarm_action *log = strait_coordinator_log(c, out, slot, "suspected of stalling");
    log->n_timeouts = worker->n_timeouts;
    log->successor = successor;
    (void)strait_coordinator_act(out, STRAIT_SWARM_RELEASE, slot);
    strait_coordinator_assign(c, stage, successor, out);
}
