/* replicas.c - how the replicas of a stage reach each other and share the work. Results do not
 * depend on who takes part nor on the shares: groups of microbatches are summed in one order,
 * whoever computes them (docs/replicas.md). */
#include "swarm/host/replicas.h"

#include "train/pipeline.h"

#include <math.h>
#include <string.h>

enum {
    SPEED_SHARE = 4 // how much a new measurement counts: one part of so many
};

const strait_swarm_worker *strait_host_owner(const struct host *h, int stage) {
    static const strait_swarm_worker nobody = {.report = {.name = "a worker that has left"}};
    const int slot = h->coordinator.owner[stage];
    return slot >= 0 ? &h->coordinator.workers[slot] : &nobody;
}

/* ---- how many there may be ---- */

static int choose_limit(const strait_run_plan *plan) {
    const int has_outer = strait_run_plan_has_outer(plan);
    const int carries = plan->n_stages > 1 && !has_outer &&
                        (strait_codec_traits(&plan->codec) & STRAIT_CODEC_CARRIES) != 0;
    int limit = plan->n_members > plan->n_stages ? strait_run_plan_replicas_max(plan)
                                                 : STRAIT_SWARM_REPLICAS;
    if (limit > STRAIT_SWARM_REPLICAS) limit = STRAIT_SWARM_REPLICAS;
    if (limit > plan->groups.n_groups) limit = plan->groups.n_groups;
    if (limit > STRAIT_RUN_MEMBERS / plan->n_stages) limit = STRAIT_RUN_MEMBERS / plan->n_stages;
    /* With rounded gradients the number of replicas would change the result. */
    if (carries || (plan->reduce_bits < 32 && !has_outer)) limit = 1;
    return limit;
}

strait_err strait_host_check_replicas(const struct host *h, const strait_run_plan *plan) {
    if (h->run.stages.speeds.n > 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "stages.speeds: a swarm measures how fast workers are");
    if (strait_run_plan_has_outer(plan) && h->spec->audit_share > 0.0)
        return STRAIT_FAIL(
            STRAIT_ECONFIG,
            "train.outer: audits (--audit-share; 0.01 with --public) compute steps "
            "again and know no averages; start with --audit-share 0 and workers that "
            "you trust, or set train.outer.sync_every to 0");
    return STRAIT_OK;
}

void strait_host_plan_replicas(struct host *h, strait_run_plan *plan) {
    const int limit = choose_limit(plan);
    int replicas[STRAIT_RUN_STAGES];
    for (int i = 0; i < plan->n_stages; i++)
        replicas[i] = limit;
    h->coordinator.config.replicas_limit = limit;
    h->coordinator.config.has_pipelines = strait_run_plan_has_outer(plan);
    /* As in the plan of a worker, whose run has that many replicas from the beginning. */
    if (h->coordinator.config.has_pipelines && limit > 1) plan->sums_pairwise = 0;
    strait_run_plan_set_replicas(plan, replicas);
    strait_run_plan_make_elastic(plan);
    memcpy(h->pace.up_bps, plan->up_bps, (size_t)plan->n_stages * sizeof *plan->up_bps);
    memcpy(h->pace.down_bps, plan->down_bps, (size_t)plan->n_stages * sizeof *plan->down_bps);
}

/* The run file may give a stage fewer than the others. */
int strait_host_replicas_limit(const struct host *h, int stage) {
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
    if (h->spec->relay != NULL && h->coordinator.config.has_pipelines &&
        strait_host_needs_relay(h, worker, other)) {
        peer->must_listen = worker < other;
        strait_host_relay_address(h, worker, other, peer->address);
        return;
    }
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
    if (replica == 0 || !c->config.has_pipelines) {
        describe_first(h, stage, replica, -1, &task->neighbours.prev);
        describe_first(h, stage, replica, 1, &task->neighbours.next);
    }
    for (int i = stage - 1; i <= stage + 1; i++) {
        if (i < 0 || i >= c->config.n_stages) continue;
        for (int k = i == stage ? 0 : 1; k < strait_coordinator_n_replicas(c, i); k++) {
            /* Pipelines that train on their own exchange no microbatches. */
            if (i == stage ? k == replica : c->config.has_pipelines && k != replica) continue;
            others[n] = (strait_task_replica){.side = i - stage + STRAIT_SIDE_SAME, .replica = k};
            describe_replica(h, worker, strait_coordinator_replica(c, i, k), &others[n++].peer);
        }
    }
    (void)strait_task_replicas_pack(others, n, memory, capacity, &task->neighbours.others);
}

/* ---- shares ---- */

/* A lower claim than the least would make every simulated step endless. */
static double lower(double bps, double claimed) {
    const double least = 1000.0, limit = claimed > 0.0 ? fmax(claimed, least) : 0.0;
    return limit > 0.0 && (bps <= 0.0 || limit < bps) ? limit : bps;
}

double strait_host_up_bps(const struct host *h, int worker, int stage) {
    return lower(h->pace.up_bps[stage], h->coordinator.workers[worker].report.up_bps);
}

double strait_host_down_bps(const struct host *h, int worker, int stage) {
    return lower(h->pace.down_bps[stage], h->coordinator.workers[worker].report.down_bps);
}

double strait_host_relative_speed(const struct host *h, int worker, int stage) {
    const struct strait_coordinator *c = &h->coordinator;
    const double own = c->workers[worker].report.flops;
    const double owner = strait_host_owner(h, stage)->report.flops;
    return own > 0.0 && owner > 0.0 ? fmin(fmax(own / owner, 0.1), 10.0) : 1.0;
}

/* Shares the groups out by the times of a microbatch. A worker that has computed none yet counts as
 * its reported speed says, beside the owner. */
static void share(struct host *h) {
    const struct strait_coordinator *c = &h->coordinator;
    const strait_run_plan *plan = &h->executor->plan;
    strait_step_times times[STRAIT_RUN_MEMBERS] = {{0}};
    for (int i = 0; i < plan->n_members; i++) {
        int stage, replica;
        strait_run_plan_locate(plan, i, &stage, &replica);
        const int worker = strait_coordinator_replica(c, stage, replica);
        if (worker < 0 || c->owner[stage] < 0) return; // banned since: its stage is moved next
        times[i].forward = h->pace.batch_s[worker];
        if (times[i].forward <= 0.0)
            times[i].forward = h->pace.batch_s[c->owner[stage]] /
                               strait_host_relative_speed(h, worker, stage);
    }
    strait_pipeline_share(h->pipeline, times);
}

void strait_host_adopt_replicas(struct host *h) {
    const struct strait_coordinator *c = &h->coordinator;
    strait_run_plan *plan = &h->executor->plan;
    int replicas[STRAIT_RUN_STAGES];
    for (int i = 0; i < plan->n_stages; i++)
        replicas[i] = strait_coordinator_n_replicas(c, i);
    strait_run_plan_set_replicas(plan, replicas);
    for (int i = 0; i < plan->n_members; i++) {
        int stage, replica;
        strait_run_plan_locate(plan, i, &stage, &replica);
        const int worker = strait_coordinator_replica(c, stage, replica);
        plan->up_bps[i] = strait_host_up_bps(h, worker, stage);
        plan->down_bps[i] = strait_host_down_bps(h, worker, stage);
    }
    h->work.channel.n_members = plan->n_members;
    h->pace.n_steps = 0;
    h->pace.more = (strait_outlook_more){.stage = -1};
    h->pace.n_refused = 0;
    if (h->pipeline != NULL) share(h);
    strait_host_adopt_pipelines(h);
}

static double follow(double known, double found, int64_t n) {
    return known + (found - known) / (double)(n < SPEED_SHARE ? n : SPEED_SHARE);
}

/* What a replica of each stage did in a step, on average over the steps of this generation. */
static void note_stages(struct host_pace *pace, int n_stages,
                        const strait_executor_report *report) {
    const int64_t n = ++pace->n_steps;
    pace->forward_bytes = follow(pace->forward_bytes, report->forward_bytes, n);
    pace->backward_bytes = follow(pace->backward_bytes, report->backward_bytes, n);
    for (int i = 0; i < n_stages; i++) {
        const strait_step_times *found = &report->times[i];
        strait_step_times *t = &pace->times[i];
        *t = (strait_step_times){.forward = follow(t->forward, found->forward, n),
                                 .input = follow(t->input, found->input, n),
                                 .weights = follow(t->weights, found->weights, n),
                                 .codec = follow(t->codec, found->codec, n),
                                 .wait = follow(t->wait, found->wait, n),
                                 .wall = follow(t->wall, found->wall, n)};
    }
}

/* Shares follow the times that workers report: a false one makes a step longer and changes no
 * result. They are chosen again after 2, 4, 8, ... steps of a generation, since what a newcomer
 * reported of itself is no measurement. */
void strait_host_note_speeds(struct host *h, const strait_executor_report *report) {
    struct strait_coordinator *c = &h->coordinator;
    const strait_run_plan *plan = &h->executor->plan;
    note_stages(&h->pace, plan->n_stages, report);
    for (int i = 0; i < plan->n_members; i++) {
        int stage, replica;
        strait_run_plan_locate(plan, i, &stage, &replica);
        const strait_step_times *t = &h->work.channel.replies.items[i].gradients.times;
        const int n = strait_pipeline_count_microbatches(h->pipeline, stage, replica);
        const double batch_s = (t->forward + t->input + t->weights + t->codec) / n;
        const int slot = strait_coordinator_replica(c, stage, replica);
        if (slot < 0) continue; // it was banned since
        double *known = &h->pace.batch_s[slot];
        c->workers[slot].tokens += n * plan->microbatch * plan->shape.context;
        *known = *known > 0.0 ? *known + (batch_s - *known) / SPEED_SHARE : batch_s;
    }
    if (h->pace.n_steps > 1 && (h->pace.n_steps & (h->pace.n_steps - 1)) == 0) share(h);
}
