/* replies.c - replies of the owners to the commands of a phase. */
#include "swarm/coordinator/state.h"

/* A worker that cannot serve a stage at all is not asked again before it reconnects. */
static void make_unfit(struct strait_coordinator *c, int slot, strait_swarm_actions *out) {
    strait_swarm_worker *worker = &c->workers[slot];
    (void)strait_coordinator_log(c, out, slot,
                                 "cannot serve its stage; not used again until it reconnects");
    worker->is_unfit = 1;
    c->owner[worker->stage] = -1;
    worker->stage = -1;
    strait_coordinator_penalise(c, slot,
                                out); // reconnecting alone must not make it the first choice
    (void)strait_coordinator_act(out, STRAIT_SWARM_RELEASE, slot);
}

/* Suspects those who may have caused an error. Which error it is does not matter for that, except
 * that those who wait for data wait for each other. */
static void charge(struct strait_coordinator *c, const strait_swarm_event *e, int stage,
                   strait_swarm_actions *out) {
    const int boundary = e->failed_side < 0 ? stage - 1 : stage;
    const int has_side = (e->failed_side == -1 || e->failed_side == 1) && boundary >= 0 &&
                         boundary + 1 < c->config.n_stages;
    c->has_other_route = has_side && e->has_other_route;
    if (!has_side) {
        (void)strait_coordinator_log(c, out, e->worker, "failed; trying again");
        strait_coordinator_charge_owner(c, stage);
    } else if (e->err == STRAIT_ETIMEDOUT && c->phase == STRAIT_PHASE_WORK) {
        (void)strait_coordinator_log(c, out, e->worker, "timed out waiting for a neighbour");
        strait_coordinator_charge_timeout(c, stage, e->failed_side);
    } else {
        (void)strait_coordinator_log(c, out, e->worker,
                                     e->failed_side < 0
                                         ? "its boundary with the previous stage failed"
                                         : "its boundary with the next stage failed");
        strait_coordinator_charge_boundary(c, boundary);
    }
}

/* A reply with an error ends the generation. What the error says decides who keeps its stage. */
static void fail_reply(struct strait_coordinator *c, const strait_swarm_event *e, int64_t now,
                       strait_swarm_actions *out) {
    const int stage = c->workers[e->worker].stage;
    const strait_scope scope = strait_err_scope(e->err);
    if (scope == STRAIT_SCOPE_PROCESS || scope == STRAIT_SCOPE_CALLER) {
        make_unfit(c, e->worker, out);
        strait_coordinator_abandon(c, now, 0);
        return;
    }
    /* Both ends report one failure; the first report counts. */
    if (c->phase == STRAIT_PHASE_WAITING) return;
    if (strait_coordinator_doubt_replicas(c, stage)) {
        (void)strait_coordinator_log(c, out, e->worker, "failed beside further replicas");
        strait_coordinator_abandon(c, now, GRACE_NS);
        return;
    }
    if (c->phase == STRAIT_PHASE_RESTORE || strait_coordinator_is_replaying(c))
        strait_coordinator_block_replay(c);
    if (e->err == STRAIT_ENONFINITE) {
        (void)strait_coordinator_log(c, out, e->worker,
                                     "its snapshot has non-finite values; restoring from another");
        strait_coordinator_charge_owner(c, stage);
        strait_coordinator_abandon(c, now, 0);
        return;
    }
    charge(c, e, stage, out);
    strait_coordinator_abandon(c, now, GRACE_NS);
}

void strait_coordinator_reply(struct strait_coordinator *c, const strait_swarm_event *e,
                              int64_t now, strait_swarm_actions *out) {
    strait_swarm_worker *worker = &c->workers[e->worker];
    const int stage = worker->stage;
    worker->asked_ns = 0; // also by a late reply it shows that it executes commands
    if (!worker->is_connected || e->generation != c->generation || e->sequence != c->sequence ||
        !strait_coordinator_awaits(c, e->worker))
        return; // late, repeated or not asked for
    worker->seen_ns = worker->progress_ns = now;
    c->replied_ns = now - c->phase_began_ns;
    worker->standing.awaited_replica = e->waits_for > STRAIT_SWARM_SAME_STAGE
                                           ? e->waits_for - STRAIT_SWARM_SAME_STAGE
                                           : 0;
    if (stage < 0) {
        strait_coordinator_replica_reply(c, e, now, out);
        return;
    }
    if (e->is_source_bad && c->phase == STRAIT_PHASE_RESTORE)
        strait_coordinator_bad_source(c, e->worker, now, out);
    else if (e->is_blaming)
        strait_coordinator_blame(c, e->worker, e->blamed, now, out);
    else if (e->err == STRAIT_OK)
        c->is_awaited[stage] = 0;
    else
        fail_reply(c, e, now, out);
}
