/* audits.c - what follows for the owners of stages when the driver has verified their work: by
 * replays, and by audits (host/audit/audits.h). */
#include "swarm/coordinator/state.h"

enum {
    KEPT_MAX = 8 // generations that an owner keeps its stage, so that no steps are lost
};

/* Steps after `limit` count as never committed: their values come from a lie, or were computed from
 * one. */
static void forget_steps(struct strait_coordinator *c, int64_t limit) {
    if (c->committed > limit) c->committed = limit;
    if (c->settled > limit) c->settled = limit;
    if (c->updating >= limit) c->updating = limit - 1;
    strait_coordinator_block_replay(c); // what live states hold was computed from it
    if (c->restore_limit < 0 || c->restore_limit > limit) c->restore_limit = limit;
}

/* Unless `limit` is -1, steps after it do not count, and all stages return to it or before. A
 * further replica ends the generation too: its reply would be awaited for ever. */
static void guilty(struct strait_coordinator *c, int slot, int64_t limit, int64_t now,
                   strait_swarm_actions *out) {
    const int takes_part = slot >= 0 && strait_coordinator_stage_of(c, slot) >= 0;
    if (limit >= 0) forget_steps(c, limit);
    if (slot >= 0)
        strait_coordinator_ban(c, slot, "an audit found it at fault; banned from this run", out);
    if (takes_part || limit >= 0) strait_coordinator_abandon(c, now, 0);
}

/* One of the two lies. Unlike a guilty one neither is banned: see strait_coordinator_dispute. */
static void contradiction(struct strait_coordinator *c, int a, int b, int64_t now,
                          strait_swarm_actions *out) {
    if (a >= 0 && b >= 0) strait_coordinator_dispute(c, a, b, out);
    if (c->phase == STRAIT_PHASE_WAITING) return;
    strait_coordinator_block_replay(c);
    strait_coordinator_abandon(c, now, 0);
}

static const char withholds[] = "did not send the evidence that audits requested";
static const char gives_nothing[] =
    "did not send the evidence that audits requested, nor a copy of its stage in time: steps are "
    "computed again";

/* The stage moves to a spare before the next step, if there is one. A further replica is not
 * needed. */
static void withheld(struct strait_coordinator *c, int slot, int64_t now,
                     strait_swarm_actions *out) {
    if (c->workers[slot].replica > 0) {
        strait_coordinator_send_away(c, slot, withholds, out);
        strait_coordinator_abandon(c, now, 0);
        return;
    }
    c->workers[slot].standing.withholds = 1;
}

/* A spare that does not complete an audit disturbs no step. It loses its seniority. */
static void silent_auditor(struct strait_coordinator *c, int slot) {
    c->workers[slot].standing.n_steps = 0;
}

int strait_coordinator_must_replace(const struct strait_coordinator *c, int stage) {
    return c->config.n_stages > 1 && c->owner[stage] >= 0 &&
           c->workers[c->owner[stage]].standing.withholds &&
           strait_coordinator_spare_for(c, stage) >= 0;
}

void strait_coordinator_end_patience(struct strait_coordinator *c, int stage) {
    strait_swarm_standing *standing = &c->workers[c->owner[stage]].standing;
    if (standing->n_kept < KEPT_MAX) standing->n_kept = KEPT_MAX;
}

/* Returns how many stage-steps are computed again with the owners that the stages have now. */
static int64_t repeated_steps(const struct strait_coordinator *c) {
    strait_swarm_replay plan;
    strait_coordinator_plan_replay(c, strait_coordinator_best_step(c), &plan);
    return plan.n_stage_steps;
}

/* Returns whether more steps are computed again if the spare takes the stage now: no neighbour has
 * a copy of its newest step, or only its owner has one for a neighbour that needs it. */
static int loses_steps(struct strait_coordinator *c, int stage, int spare) {
    const int owner = c->owner[stage];
    const int64_t n = repeated_steps(c);
    c->owner[stage] = spare;
    const int64_t n_moved = repeated_steps(c);
    c->owner[stage] = owner;
    return n_moved > n;
}

/* Returns whether a neighbouring stage has an owner that has not been ready with it yet: the only
 * copy that it can restore may be at the owner of this stage. */
static int is_beside_new_owner(const struct strait_coordinator *c, int stage) {
    for (int i = stage - 1; i <= stage + 1; i += 2)
        if (i >= 0 && i < c->config.n_stages && c->workers[c->owner[i]].served != i) return 1;
    return 0;
}

/* A move that would lose steps now loses none before the next step, when the coordinator waits for
 * a copy. The limit is for generations that fail before that, and for neighbours that come and go.
 */
static int may_keep(const struct strait_coordinator *c, int stage) {
    const int most = is_beside_new_owner(c, stage) ? 2 * KEPT_MAX : KEPT_MAX;
    return c->workers[c->owner[stage]].standing.n_kept < most;
}

int strait_coordinator_replace_withholders(struct strait_coordinator *c,
                                           strait_swarm_actions *out) {
    int n_moved = 0;
    for (int i = 0; i < c->config.n_stages; i++) {
        const int slot = c->owner[i];
        if (!strait_coordinator_must_replace(c, i)) continue;
        const int spare = strait_coordinator_spare_for(c, i);
        const int loses = loses_steps(c, i, spare);
        if (loses && may_keep(c, i)) {
            c->workers[slot].standing.n_kept++;
            continue;
        }
        strait_coordinator_log(c, out, slot, loses ? gives_nothing : withholds)->successor = spare;
        strait_coordinator_penalise(c, slot, out);
        (void)strait_coordinator_act(out, STRAIT_SWARM_RELEASE, slot);
        strait_coordinator_assign(c, i, spare, out);
        n_moved++;
    }
    return n_moved;
}

static void gave(struct strait_coordinator *c, int slot) {
    c->workers[slot].standing.withholds = c->workers[slot].standing.n_kept = 0;
}

void strait_coordinator_verified(struct strait_coordinator *c, const strait_swarm_event *e,
                                 int64_t now, strait_swarm_actions *out) {
    switch (e->kind) {
    case STRAIT_SWARM_CONFIRMED: strait_coordinator_confirmed(c, e->worker); break;
    case STRAIT_SWARM_REPLAY_DIFFERS: strait_coordinator_replay_differs(c, now, out); break;
    case STRAIT_SWARM_GUILTY: guilty(c, e->worker, e->goal.step, now, out); break;
    case STRAIT_SWARM_CONTRADICTION: contradiction(c, e->worker, e->successor, now, out); break;
    case STRAIT_SWARM_WITHHELD: withheld(c, e->worker, now, out); break;
    case STRAIT_SWARM_SILENT_AUDITOR: silent_auditor(c, e->worker); break;
    case STRAIT_SWARM_GAVE: gave(c, e->worker); break;
    case STRAIT_SWARM_DISPUTE: strait_coordinator_blame(c, e->worker, e->stage, now, out); break;
    default: break;
    }
}
