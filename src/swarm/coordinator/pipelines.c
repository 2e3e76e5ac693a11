/* pipelines.c - replicas that train on their own (train.outer) form whole pipelines: one worker of
 * each stage, with weights of its own between two averages.
 *
 * The owners are one of them, the lead. A pipeline that loses a worker ends, and what is left of it
 * are spares, which may complete another: that one gets the state of the lead and continues from
 * the averaged weights. When the lead loses a worker, another pipeline takes its place with the
 * state that it has, so no step is repeated while one pipeline is complete. */
#include "swarm/coordinator/state.h"

enum {
    NUMBERS = 64 // of pipelines: the record of averages has one bit for each
};

/* Returns the worker of a stage in a pipeline besides the lead, also one that is leaving; -1: there
 * is none. */
static int any_member_of(const struct strait_coordinator *c, int pipeline, int stage) {
    for (int slot = 0; slot < STRAIT_SWARM_WORKERS; slot++) {
        const strait_swarm_worker *worker = &c->workers[slot];
        if (worker->is_known && worker->is_connected && worker->helps == stage &&
            worker->pipeline == pipeline && worker->stage < 0)
            return slot;
    }
    return -1;
}

/* The same, of workers that may go on. */
static int member_of(const struct strait_coordinator *c, int pipeline, int stage) {
    const int slot = any_member_of(c, pipeline, stage);
    return slot >= 0 && strait_coordinator_can_own(c, slot) ? slot : -1;
}

int strait_coordinator_pipeline(const struct strait_coordinator *c, int replica) {
    return replica == 0 ? c->lead : c->workers[c->helper[0][replica - 1]].pipeline;
}

int strait_coordinator_free_pipeline(const struct strait_coordinator *c) {
    int is_used[NUMBERS] = {0};
    int number = 0;
    is_used[c->lead] = 1;
    for (int slot = 0; slot < STRAIT_SWARM_WORKERS; slot++) {
        const strait_swarm_worker *worker = &c->workers[slot];
        if (worker->is_known && (worker->helps >= 0 || worker->will_help >= 0))
            is_used[worker->pipeline] = 1;
    }
    while (number < NUMBERS - 1 && is_used[number])
        number++;
    return number;
}

/* ---- a generation ---- */

/* What is left of a pipeline waits for another. */
static void end_pipeline(struct strait_coordinator *c, const int *slots,
                         strait_swarm_actions *out) {
    for (int i = 0; i < c->config.n_stages; i++) {
        if (slots[i] < 0) continue;
        (void)strait_coordinator_log(c, out, slots[i],
                                     "its pipeline is not complete: a spare until another is");
        strait_coordinator_end_help(c, slots[i]);
        (void)strait_coordinator_act(out, STRAIT_SWARM_RELEASE, slots[i]);
    }
}

/* In the order of their numbers: averages are summed in the order of replicas. */
void strait_coordinator_seat_pipelines(struct strait_coordinator *c, strait_swarm_actions *out) {
    const int n_stages = c->config.n_stages;
    for (int number = 0; number < NUMBERS; number++) {
        int slots[STRAIT_RUN_STAGES] = {0};
        int n = 0;
        for (int i = 0; i < n_stages; i++) {
            slots[i] = member_of(c, number, i);
            n += slots[i] >= 0;
        }
        const int k = c->n_helpers[0];
        if (n < n_stages || k + 1 >= c->config.replicas_limit || k + 1 >= STRAIT_SWARM_REPLICAS) {
            end_pipeline(c, slots, out);
            continue;
        }
        for (int i = 0; i < n_stages; i++) {
            c->helper[i][k] = slots[i];
            c->workers[slots[i]].replica = ++c->n_helpers[i];
        }
    }
}

/* ---- another lead ---- */

/* Returns whether all stages of a pipeline have the state of one step, or can apply an update to
 * have it. */
static int is_whole(const struct strait_coordinator *c, int pipeline) {
    const int first = member_of(c, pipeline, 0);
    if (first < 0) return 0;
    const strait_live_state *live = &c->workers[first].inventory.live;
    for (int64_t step = live->step; step <= live->step + live->is_pending; step++) {
        int n = 0;
        for (int i = 0; i < c->config.n_stages; i++) {
            const int slot = member_of(c, pipeline, i);
            n += slot >= 0 && strait_coordinator_is_live(c, slot, i, step);
        }
        if (n == c->config.n_stages) return 1;
    }
    return 0;
}

static int next_pipeline(const struct strait_coordinator *c) {
    for (int number = 0; number < NUMBERS; number++)
        if (is_whole(c, number)) return number;
    return -1;
}

int strait_coordinator_pipeline_successor(const struct strait_coordinator *c, int stage) {
    const int number = next_pipeline(c);
    return number >= 0 ? member_of(c, number, stage) : -1;
}

/* The snapshots of the lead before are of other weights: nobody continues from them any more. */
void strait_coordinator_promote_pipeline(struct strait_coordinator *c, strait_swarm_actions *out) {
    const int number = next_pipeline(c);
    if (number < 0) return;
    for (int i = 0; i < c->config.n_stages; i++) {
        const int old = c->owner[i];
        strait_coordinator_assign(c, i, member_of(c, number, i), out);
        c->workers[c->owner[i]].keeps_state = 1;
        strait_snapshot_records_trim(&c->records[i], -1);
        if (old >= 0 && c->workers[old].is_connected)
            (void)strait_coordinator_act(out, STRAIT_SWARM_RELEASE, old);
    }
    c->lead = number;
    (void)strait_coordinator_log(c, out, -1,
                                 "the first pipeline lost a worker: another takes its place");
}

/* ---- leaving one out ---- */

/* The owners can only be left out if another pipeline takes their place. One that is leaving is
 * left out like the others, or it could ask to leave first and be back at once. */
int strait_coordinator_leave_out(struct strait_coordinator *c, int slot, const char *reason,
                                 int64_t now, strait_swarm_actions *out) {
    const int is_lead = c->workers[slot].stage >= 0;
    const int pipeline = c->workers[slot].pipeline;
    if (is_lead && next_pipeline(c) < 0) return 0;
    if (!is_lead && c->workers[slot].helps < 0) return 0; // it was left out since
    for (int i = 0; i < c->config.n_stages; i++) {
        const int member = is_lead ? c->owner[i] : any_member_of(c, pipeline, i);
        if (member < 0) continue;
        if (is_lead) {
            c->workers[member].stage = -1;
            c->owner[i] = -1;
        }
        strait_coordinator_send_away(c, member, reason, out);
    }
    strait_coordinator_abandon(c, now, 0);
    return 1;
}

/* Its neighbours may have made its values what they are. A worker whom it happens to again, perhaps
 * beside others, is used last. */
void strait_coordinator_bad_values(struct strait_coordinator *c, int slot, int64_t now,
                                   strait_swarm_actions *out) {
    static const char reason[] = "values that cannot be used: its pipeline is left out for a while";
    strait_swarm_worker *worker = &c->workers[slot];
    if (!strait_coordinator_leave_out(c, slot, reason, now, out)) return;
    if (worker->n_penalties > 0) worker->is_suspect = 1;
    strait_coordinator_penalise(c, slot, out);
}
