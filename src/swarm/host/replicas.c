/* replicas.c - spares that become further replicas of stages, and how replicas share the work.
 *
 * A step takes as long as its slowest stage. A newcomer becomes a replica of that stage before the
 * next step; where all are about as slow, of the one with the fewest replicas, so that newcomers
 * complete another pipeline. Results do not depend on it: groups of microbatches are summed in one
 * order, whoever computes them (docs/replicas.md). */
#include "swarm/host/replicas.h"

#include "base/clock.h"
#include "train/pipeline.h"

#include <math.h>
#include <string.h>

enum {
    RECRUIT_MS = 1000, // after a generation is ready, before the next newcomers interrupt it
    SPEED_SHARE = 4    // how much a new measurement of a worker's speed counts: one part of so many
};

static const double same_load = 1.1; // loads within this factor count as equal

/* ---- how many there may be ---- */

static int choose_limit(const struct host *h, const strait_run_plan *plan) {
    const int carries = plan->n_stages > 1 &&
                        (strait_codec_traits(&plan->codec) & STRAIT_CODEC_CARRIES) != 0;
    int limit = plan->n_members > plan->n_stages ? strait_run_plan_replicas_max(plan)
                                                 : STRAIT_SWARM_REPLICAS;
    if (limit > STRAIT_SWARM_REPLICAS) limit = STRAIT_SWARM_REPLICAS;
    if (limit > plan->groups.n_groups) limit = plan->groups.n_groups;
    if (limit > STRAIT_RUN_MEMBERS / plan->n_stages) limit = STRAIT_RUN_MEMBERS / plan->n_stages;
    /* Auditors recompute what one owner sent and received; with rounded gradients the number of
     * replicas would change the result. */
    if (carries || plan->reduce_bits < 32 || h->spec->audit_share > 0.0) limit = 1;
    return limit;
}

void strait_host_plan_replicas(struct host *h, strait_run_plan *plan) {
    const int limit = choose_limit(h, plan);
    int replicas[STRAIT_RUN_STAGES];
    for (int i = 0; i < plan->n_stages; i++)
        replicas[i] = limit;
    h->coordinator.config.replicas_limit = limit;
    strait_run_plan_set_replicas(plan, replicas);
    strait_run_plan_make_elastic(plan);
}

/* The run file may give a stage fewer than the others. */
static int limit_of(const struct host *h, int stage) {
    const strait_option_ints *wanted = &h->run.stages.replicas;
    const int limit = h->coordinator.config.replicas_limit;
    const int given = wanted->n > 1 ? (int)wanted->items[stage] : limit;
    return given < limit ? given : limit;
}

strait_stage_replicas strait_host_replicas_of(const struct host *h, int stage, int replica) {
    const struct strait_coordinator *c = &h->coordinator;
    strait_stage_replicas out = {.replica = replica, .n = {1, 1, 1}, .most = 1};
    for (int i = 0; i < c->config.n_stages; i++) {
        const int n = strait_coordinator_n_replicas(c, i);
        if (n > out.most) out.most = n;
        if (i >= stage - 1 && i <= stage + 1) out.n[i - stage + STRAIT_SIDE_SAME] = n;
    }
    return out;
}

/* ---- links ---- */

/* Both ends are told the same: the one in the lower slot dials if it can. */
static void describe_replica(struct host *h, int worker, int other, strait_task_peer *peer) {
    struct connection *own = strait_host_connection(h, worker);
    struct connection *theirs = strait_host_connection(h, other);
    struct connection *lower = worker < other ? own : theirs;
    struct connection *upper = worker < other ? theirs : own;
    const int lower_dials = strait_host_can_dial(lower, upper);
    peer->is_present = 1;
    peer->key = h->coordinator.workers[other].key;
    peer->is_near = strait_host_is_near(own, theirs);
    if (theirs != NULL && lower_dials == (worker < other))
        memcpy(peer->address, theirs->address, sizeof peer->address);
}

/* The first replicas of two stages reach each other by the route that routes.c has chosen. */
static void describe_first(struct host *h, int stage, int replica, int side,
                           strait_task_peer *peer) {
    const struct strait_coordinator *c = &h->coordinator;
    if (stage + side < 0 || stage + side >= c->config.n_stages) return;
    if (replica == 0)
        strait_host_describe_peer(h, side < 0 ? stage - 1 : stage, side > 0, peer);
    else
        describe_replica(h, strait_coordinator_replica(c, stage, replica), c->owner[stage + side],
                         peer);
}

void strait_host_describe_neighbours(struct host *h, int stage, int replica, strait_task *task,
                                     unsigned char *memory, size_t capacity) {
    const struct strait_coordinator *c = &h->coordinator;
    const int worker = strait_coordinator_replica(c, stage, replica);
    strait_task_replica others[STRAIT_TASK_REPLICAS];
    int n = 0;
    describe_first(h, stage, replica, -1, &task->neighbours.prev);
    describe_first(h, stage, replica, 1, &task->neighbours.next);
    for (int i = stage - 1; i <= stage + 1; i++) {
        if (i < 0 || i >= c->config.n_stages) continue;
        for (int k = i == stage ? 0 : 1; k < strait_coordinator_n_replicas(c, i); k++) {
            if (i == stage && k == replica) continue;
            others[n] = (strait_task_replica){.side = i - stage + STRAIT_SIDE_SAME, .replica = k};
            describe_replica(h, worker, strait_coordinator_replica(c, i, k), &others[n++].peer);
        }
    }
    (void)strait_task_replicas_pack(others, n, memory, capacity, &task->neighbours.others);
}

/* ---- shares ---- */

void strait_host_adopt_replicas(struct host *h) {
    const struct strait_coordinator *c = &h->coordinator;
    strait_run_plan *plan = &h->executor->plan;
    strait_step_times times[STRAIT_RUN_MEMBERS] = {{0}};
    int replicas[STRAIT_RUN_STAGES];
    for (int i = 0; i < plan->n_stages; i++)
        replicas[i] = strait_coordinator_n_replicas(c, i);
    strait_run_plan_set_replicas(plan, replicas);
    h->work.channel.n_members = plan->n_members;
    h->pace.n_steps = 0;
    for (int i = 0; i < plan->n_members; i++) {
        int stage, replica;
        strait_run_plan_locate(plan, i, &stage, &replica);
        times[i].forward = h->pace.batch_s[strait_coordinator_replica(c, stage, replica)];
    }
    if (h->pipeline != NULL) strait_pipeline_share(h->pipeline, times);
}

/* Shares follow the times that workers report: a false one makes a step longer and changes no
 * result. */
void strait_host_note_speeds(struct host *h) {
    struct strait_coordinator *c = &h->coordinator;
    const strait_run_plan *plan = &h->executor->plan;
    h->pace.n_steps++;
    for (int i = 0; i < plan->n_stages; i++)
        h->pace.load_s[i] = 0.0;
    for (int i = 0; i < plan->n_members; i++) {
        int stage, replica;
        strait_run_plan_locate(plan, i, &stage, &replica);
        const strait_step_times *t = &h->work.channel.replies.items[i].gradients.times;
        const int n = strait_pipeline_count_microbatches(h->pipeline, stage, replica);
        const double batch_s = (t->forward + t->input + t->weights + t->codec) / n;
        const int slot = strait_coordinator_replica(c, stage, replica);
        double *known = &h->pace.batch_s[slot];
        if (slot >= 0) c->workers[slot].tokens += n * plan->microbatch * plan->shape.context;
        *known = *known > 0.0 ? *known + (batch_s - *known) / SPEED_SHARE : batch_s;
        h->pace.load_s[stage] += fmax(t->wall - t->wait, 0.0) / plan->replicas[stage];
    }
}

/* ---- newcomers ---- */

/* Returns whether all replicas of the stage and of its neighbours can be connected with a spare,
 * without a relay: where it listens is known only when it has a stage. */
static int can_reach(struct host *h, int spare, int stage) {
    const struct strait_coordinator *c = &h->coordinator;
    if (c->workers[spare].report.is_reachable) return 1;
    for (int i = stage - 1; i <= stage + 1; i++) {
        if (i < 0 || i >= c->config.n_stages) continue;
        for (int k = 0; k < strait_coordinator_n_replicas(c, i); k++)
            if (!strait_host_can_dial(
                    strait_host_connection(h, spare),
                    strait_host_connection(h, strait_coordinator_replica(c, i, k))))
                return 0;
    }
    return 1;
}

/* Replicas must compute the same bits: on CPUs with the same kernels, on GPUs of one model. */
static int computes_alike(const struct host *h, int spare, int stage) {
    const struct strait_coordinator *c = &h->coordinator;
    const char *own = c->workers[c->owner[stage]].report.device;
    char kernels[2][STRAIT_REPLAY_KERNELS];
    strait_replay_kernels(c->workers[spare].report.device, kernels[0]);
    strait_replay_kernels(own, kernels[1]);
    if (kernels[1][0] == '\0') return strcmp(c->workers[spare].report.device, own) == 0;
    return strcmp(kernels[0], kernels[1]) == 0;
}

/* Returns the stage that a spare helps most; -1: none. */
static int slowest_for(struct host *h, int spare, const double *load, const int *n) {
    int best = -1;
    for (int i = 0; i < h->coordinator.config.n_stages; i++) {
        if (n[i] >= limit_of(h, i) || !strait_coordinator_may_help(&h->coordinator, spare, i) ||
            !computes_alike(h, spare, i) || !can_reach(h, spare, i))
            continue;
        const int is_slower = best >= 0 && load[i] > same_load * load[best];
        const int is_equal = best >= 0 && load[best] <= same_load * load[i];
        if (best < 0 || is_slower || (is_equal && n[i] < n[best])) best = i;
    }
    return best;
}

/* Of a change: what the last generation took to get ready, and to send the snapshot. */
static double change_s(const struct host *h) {
    return (double)(h->pace.restored_ns - h->pace.assigned_ns) * 1e-9 + h->pace.snapshot_s;
}

void strait_host_recruit(struct host *h, int64_t step) {
    const struct strait_coordinator *c = &h->coordinator;
    double load[STRAIT_RUN_STAGES];
    int n[STRAIT_RUN_STAGES];
    int n_idle = 0;
    if (c->config.replicas_limit < 2 || c->phase != STRAIT_PHASE_READY || h->pace.n_steps == 0 ||
        strait_clock_ns() - h->pace.restored_ns < RECRUIT_MS * INT64_C(1000000) ||
        (double)(h->run.train.steps - step) * h->pace.step_s < change_s(h))
        return;
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++)
        n_idle += c->workers[i].is_known && c->workers[i].is_connected &&
                  !c->workers[i].is_leaving && strait_coordinator_stage_of(c, i) < 0;
    for (int i = 0; i < c->config.n_stages; i++) {
        n[i] = strait_coordinator_n_replicas(c, i);
        load[i] = h->pace.load_s[i];
    }
    for (int i = 0; i < STRAIT_SWARM_WORKERS && n_idle > h->spec->n_spares; i++) {
        const int stage = strait_coordinator_stage_of(c, i) < 0 ? slowest_for(h, i, load, n) : -1;
        if (stage < 0) continue;
        strait_host_feed_coordinator(
            h, &(strait_swarm_event){.kind = STRAIT_SWARM_HELP, .worker = i, .stage = stage});
        load[stage] *= (double)n[stage] / (n[stage] + 1);
        n[stage]++;
        n_idle--;
    }
}
