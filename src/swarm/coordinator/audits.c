/* audits.c - what follows for the owners of stages when the driver has verified their work: by
 * replays, and by audits (host/audit/audits.h). */
#include "swarm/coordinator/state.h"

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

/* A spare takes the stage before the next step, if there is one. A further replica is not needed.
 */
static void withheld(struct strait_coordinator *c, int slot, int64_t now,
                     strait_swarm_actions *out) {
    strait_swarm_worker *worker = &c->workers[slot];
    if (worker->replica > 0) {
        strait_coordinator_send_away(c, slot, withholds, out);
        strait_coordinator_abandon(c, now, 0);
        return;
    }
    const int successor = worker->stage >= 0 ? strait_coordinator_spare_for(c, worker->stage) : -1;
    /* If the generation ends before the next step, such as when the run goes back: settle. */
    worker->standing.withholds = 1;
    if (c->phase < STRAIT_PHASE_READY || successor < 0 || c->config.n_stages < 2) return;
    worker->has_successor = 1;
    worker->successor = successor;
    strait_coordinator_log(c, out, slot, withholds)->successor = successor;
    strait_coordinator_penalise(c, slot, out);
}

/* A spare that does not complete an audit disturbs no step. It loses its seniority. */
static void silent_auditor(struct strait_coordinator *c, int slot) {
    c->workers[slot].standing.n_steps = 0;
}

void strait_coordinator_replace_withholders(struct strait_coordinator *c,
                                            strait_swarm_actions *out) {
    for (int i = 0; i < c->config.n_stages && c->config.n_stages > 1; i++) {
        const int slot = c->owner[i];
        if (slot < 0 || !c->workers[slot].standing.withholds) continue;
        const int spare = strait_coordinator_spare_for(c, i);
        if (spare < 0) continue;
        strait_coordinator_log(c, out, slot, withholds)->successor = spare;
        strait_coordinator_penalise(c, slot, out);
        (void)strait_coordinator_act(out, STRAIT_SWARM_RELEASE, slot);
        strait_coordinator_assign(c, i, spare, out);
    }
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
    case STRAIT_SWARM_GAVE: c->workers[e->worker].standing.withholds = 0; break;
    case STRAIT_SWARM_DISPUTE: strait_coordinator_blame(c, e->worker, e->stage, now, out); break;
    default: break;
    }
}
