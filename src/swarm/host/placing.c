/* placing.c - spares become further replicas of the stages where one more makes steps shortest.
 *
 * How long a step would take is simulated as by `strait plan` (train/outlook/outlook_members.h),
 * from the times and bytes of the steps before, the rates of homes that the run file or their
 * owners give, and measured rates of links. Where several stages would bring the same, such as
 * nothing, the one with the fewest replicas gets it, so that newcomers complete another pipeline.
 * Where all that are there together would make steps longer, they stay spares.
 * Workers can report false times: they change how long steps take, and no result. */
#include "base/clock.h"
#include "swarm/host/replicas.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    RECRUIT_MS = 1000, // after a generation is ready, before the next newcomers interrupt it
    TOLD_STEPS = 3,    // of a generation, after which its speed is logged
    LOOK_STEPS = 8     // before workers that would bring nothing are looked at again
};

static const double brings = 1.005;     // a lower gain is none, as strait plan has it
static const double unexplained = 1.25; // a step that is so much longer than simulated
static const double same = 1.02;        // steps that differ by less than this factor count as equal

/* The run as it is now, with copies of all that the simulation needs: it runs beside the event
 * loop. */
struct outlook {
    strait_run_plan plan;
    struct strait_limits_pipeline pipeline;
    int windows[STRAIT_RUN_STAGES];
    strait_outlook_view view;                            // of these
    int may_grow[STRAIT_RUN_STAGES];                     // the stage may get the worker in question
    strait_outlook_newcomer newcomer[STRAIT_RUN_STAGES]; // that worker, in each stage
    double link_bps[STRAIT_RUN_STAGES];                  // as measured
    double measured_s;                                   // of a step
    double now_s;                                        // of a step
    double seconds[STRAIT_RUN_STAGES]; // with the worker in a stage; INFINITY: unknown
    strait_err err;
    char reason[256];
};

static strait_err describe(struct host *h, struct outlook *o) {
    const double n = (double)h->executor->plan.n_microbatches;
    o->plan = h->executor->plan;
    for (int i = 0; i < o->plan.n_stages && h->pace.n_values[i] == 0; i++) {
        strait_runner_memory memory;
        STRAIT_TRY(strait_runner_plan(&o->plan, i, 1, &memory));
        h->pace.n_values[i] = memory.n_values;
    }
    strait_limits_pipeline(&o->plan, h->pace.times, n, h->pace.forward_bytes / n,
                           h->pace.backward_bytes / n, &o->pipeline);
    memcpy(o->windows, h->executor->windows, sizeof o->windows);
    memcpy(o->link_bps, h->pace.link_bps, sizeof o->link_bps);
    o->measured_s = 0.0;
    for (int i = 0; i < o->plan.n_stages; i++)
        o->measured_s = fmax(o->measured_s, h->pace.times[i].wall);
    o->view = (strait_outlook_view){&o->plan, &o->pipeline.pipe, h->pace.n_values, o->windows, 1,
                                    NULL};
    return STRAIT_OK;
}

static strait_err simulate_all(struct outlook *o) {
    strait_outlook_members now;
    STRAIT_TRY(strait_outlook_members_predict(&o->view, &now));
    /* The kernel's rate of a link that is seldom full is too low, and would hide what limits the
     * run: it counts only where all else does not explain a step. */
    if (o->measured_s > unexplained * now.seconds) {
        o->view.link_bps = o->link_bps;
        STRAIT_TRY(strait_outlook_members_predict(&o->view, &now));
    }
    o->now_s = now.seconds;
    for (int i = 0; i < o->plan.n_stages; i++)
        if (o->may_grow[i])
            STRAIT_TRY(strait_outlook_members_with(&o->view, i, &o->newcomer[i], &o->seconds[i]));
    return STRAIT_OK;
}

static strait_err simulate(void *arg) {
    struct outlook *o = arg;
    o->err = simulate_all(o);
    (void)snprintf(o->reason, sizeof o->reason, "%.255s", strait_err_detail());
    return STRAIT_OK; // without a simulation the run goes on
}

/* Fills in o->seconds. Links are served meanwhile, as many stages take a while. */
static strait_err look_ahead(struct host *h, struct outlook *o) {
    for (int i = 0; i < o->plan.n_stages; i++)
        o->seconds[i] = INFINITY;
    STRAIT_TRY(strait_host_run_async(h, simulate, o, strait_host_keep_alive));
    if (o->err != STRAIT_OK)
        strait_host_note(h, "what a replica more would bring is not known: %s", o->reason);
    return STRAIT_OK;
}

/* Returns the stage with the shortest step; -1: none may grow. */
static int choose(const struct outlook *o) {
    int best = -1;
    for (int i = 0; i < o->plan.n_stages; i++) {
        if (!o->may_grow[i]) continue;
        const int is_shorter = best >= 0 && same * o->seconds[i] < o->seconds[best];
        const int is_longer = best >= 0 && same * o->seconds[best] < o->seconds[i];
        if (best < 0 || is_shorter || (!is_longer && o->plan.replicas[i] < o->plan.replicas[best]))
            best = i;
    }
    return best;
}

static double gain_of(const struct outlook *o, int stage) {
    return isfinite(o->seconds[stage]) ? o->now_s / o->seconds[stage] : 0.0;
}

/* ---- newcomers ---- */

/* Returns whether all replicas of the stage and of its neighbours can be connected with a spare,
 * without a relay: where it listens is known only when it has a stage. */
static int can_reach_replicas(struct host *h, int spare, int stage) {
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
    const char *own = strait_host_owner(h, stage)->report.device;
    char kernels[2][STRAIT_REPLAY_KERNELS];
    strait_replay_kernels(c->workers[spare].report.device, kernels[0]);
    strait_replay_kernels(own, kernels[1]);
    if (kernels[1][0] ==
        '\0') // what they sum has other bits each time: no audit could tell who lies
        return h->audits == NULL && strcmp(c->workers[spare].report.device, own) == 0;
    return strcmp(kernels[0], kernels[1]) == 0;
}

/* Notes which stages the spare may help; returns how many. */
static int find_stages(struct host *h, int spare, struct outlook *o) {
    int n = 0;
    for (int i = 0; i < o->plan.n_stages; i++) {
        o->may_grow[i] = o->plan.replicas[i] < strait_host_replicas_limit(h, i) &&
                         strait_coordinator_may_help(&h->coordinator, spare, i) &&
                         computes_alike(h, spare, i) && can_reach_replicas(h, spare, i);
        o->newcomer[i] = (strait_outlook_newcomer){.speed = strait_host_relative_speed(h, spare, i),
                                                   .has_home = 1,
                                                   .up_bps = strait_host_up_bps(h, spare, i),
                                                   .down_bps = strait_host_down_bps(h, spare, i)};
        n += o->may_grow[i];
    }
    return n;
}

/* Its owner may wonder why nobody uses it. */
static void tell_gpus(struct host *h, int spare) {
    const strait_swarm_report *report = &h->coordinator.workers[spare].report;
    char kernels[STRAIT_REPLAY_KERNELS];
    strait_replay_kernels(report->device, kernels);
    if (h->audits == NULL || h->audits->has_told_gpus || kernels[0] != '\0') return;
    h->audits->has_told_gpus = 1;
    strait_host_note(
        h,
        "audits: %s and other workers on GPUs stay spares; with audits only workers on "
        "CPUs are further replicas of a stage (--audit-share 0 uses all)",
        report->name);
}

/* Of a change: what the last generation took to get ready, and to send the snapshot. */
static double change_s(const struct host *h) {
    return (double)(h->pace.restored_ns - h->pace.assigned_ns) * 1e-9 + h->pace.snapshot_s;
}

static int is_idle(const struct strait_coordinator *c, int slot) {
    const strait_swarm_worker *worker = &c->workers[slot];
    return worker->is_known && worker->is_connected && !worker->is_leaving &&
           strait_coordinator_stage_of(c, slot) < 0;
}

/* A spare and the stage that it would help. */
struct placement {
    int spare, stage;
    double seconds; // of a step, with it and those before it; INFINITY: unknown
    double gain;    // beside that without it; 0: unknown
};

/* Lists where up to n spares would go, one after the other. */
static strait_err list_placements(struct host *h, struct outlook *o, int n, struct placement *out,
                                  int *n_listed, double *now_s) {
    *n_listed = 0;
    *now_s = INFINITY;
    for (int i = 0; i < STRAIT_SWARM_WORKERS && *n_listed < n; i++) {
        if (!is_idle(&h->coordinator, i) || strait_host_is_auditing(h, i)) continue;
        if (find_stages(h, i, o) == 0) {
            tell_gpus(h, i);
            continue;
        }
        STRAIT_TRY(look_ahead(h, o));
        const int stage = choose(o);
        if (*n_listed == 0 && o->err == STRAIT_OK) *now_s = o->now_s;
        out[(*n_listed)++] = (struct placement){i, stage, o->seconds[stage], gain_of(o, stage)};
        (void)strait_outlook_members_add(&o->plan, stage, &o->newcomer[stage], o->pipeline.stages,
                                         &o->plan);
    }
    return STRAIT_OK;
}

/* How many of them are taken: all where the run file asks for replicas, or where nothing is known
 * of their steps. */
static int count_worth(const struct host *h, const struct placement *placements, int n,
                       double now_s) {
    double seconds[STRAIT_RUN_MEMBERS];
    for (int i = 0; i < n; i++) {
        seconds[i] = placements[i].seconds;
        if (!isfinite(seconds[i])) return n;
    }
    if (h->run.stages.replicas.n > 1 || h->run.stages.replicas.items[0] > 1) return n;
    return strait_outlook_members_worth(now_s, seconds, n);
}

/* They stay spares. It is looked at again after twice as many steps. */
static void refuse(struct host *h, int64_t step, const struct placement *placements, int n,
                   double now_s, int n_idle) {
    double best = placements[0].seconds;
    for (int i = 1; i < n; i++)
        best = fmin(best, placements[i].seconds);
    if (h->pace.n_refused != n_idle)
        strait_host_note(h,
                         "step %lld: more replicas would bring %.2f times the speed; idle workers "
                         "stay spares (stages.replicas above 1 uses them all the same)",
                         (long long)step, now_s / best);
    h->pace.n_refused = n_idle;
    h->pace.look_at = 2 * h->pace.n_steps + LOOK_STEPS;
}

static void place(struct host *h, int64_t step, const struct placement *p) {
    strait_host_feed_coordinator(
        h, &(strait_swarm_event){.kind = STRAIT_SWARM_HELP, .worker = p->spare, .stage = p->stage});
    const int is_placed = h->coordinator.workers[p->spare].will_help == p->stage;
    if (is_placed && p->gain > 0.0) // it may be gone by now
        strait_host_note(h,
                         "step %lld: a replica more of stage %d should bring %.2f times the speed",
                         (long long)step, p->stage, p->gain);
}

int strait_host_may_recruit(const struct host *h, int64_t step) {
    return h->coordinator.config.replicas_limit >= 2 &&
           h->coordinator.phase == STRAIT_PHASE_READY && h->pace.n_steps > 0 &&
           strait_clock_ns() - h->pace.restored_ns >= RECRUIT_MS * INT64_C(1000000) &&
           (double)(h->run.train.steps - step) * h->pace.step_s >= change_s(h);
}

int strait_host_count_idle(const struct host *h) {
    int n = 0;
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++)
        n += is_idle(&h->coordinator, i);
    return n;
}

/* Spares that do not become replicas. */
static int64_t count_kept(const struct host *h) {
    return h->audits != NULL && h->spec->n_spares < STRAIT_AUDIT_SPARES ? STRAIT_AUDIT_SPARES
                                                                        : h->spec->n_spares;
}

strait_err strait_host_recruit(struct host *h, int64_t step) {
    const struct strait_coordinator *c = &h->coordinator;
    struct placement placements[STRAIT_RUN_MEMBERS];
    struct outlook o;
    double now_s;
    int n = 0;
    if (c->config.has_pipelines) return strait_host_recruit_pipelines(h, step);
    if (!strait_host_may_recruit(h, step)) return STRAIT_OK;
    const int n_idle = strait_host_count_idle(h);
    int64_t n_most = n_idle - count_kept(h);
    if (n_most <= 0 || (h->pace.n_refused == n_idle && h->pace.n_steps < h->pace.look_at))
        return STRAIT_OK;
    if (n_most > STRAIT_RUN_MEMBERS) n_most = STRAIT_RUN_MEMBERS;
    STRAIT_TRY(describe(h, &o));
    STRAIT_TRY(list_placements(h, &o, (int)n_most, placements, &n, &now_s));
    const int n_worth = count_worth(h, placements, n, now_s);
    for (int i = 0; i < n_worth; i++)
        place(h, step, &placements[i]);
    if (n > 0 && n_worth == 0) refuse(h, step, placements, n, now_s, n_idle);
    return STRAIT_OK;
}

/* ---- what one more would bring ---- */

/* "2 + 1 + 1" */
static void list_replicas(const strait_run_plan *plan, char *out, size_t capacity) {
    size_t used = 0;
    for (int i = 0; i < plan->n_stages && used < capacity; i++)
        used += (size_t)snprintf(out + used, capacity - used, "%s%d", i > 0 ? " + " : "",
                                 plan->replicas[i]);
}

static void tell(struct host *h, int64_t step, const struct outlook *o) {
    char replicas[256];
    const strait_outlook_more *more = &h->pace.more;
    const double seconds = (double)(strait_clock_ns() - h->pace.first_ns) * 1e-9;
    const double tokens_per_s = TOLD_STEPS * (double)h->run.train.batch_tokens / seconds;
    list_replicas(&o->plan, replicas, sizeof replicas);
    if (more->gain >= brings)
        strait_host_note(h,
                         "step %lld: %s workers compute %.0f tokens/s; one more would bring %.2f "
                         "times the speed, as a replica of stage %d",
                         (long long)step, replicas, tokens_per_s, more->gain, more->stage);
    else
        strait_host_note(
            h, "step %lld: %s workers compute %.0f tokens/s; one more would bring nothing",
            (long long)step, replicas, tokens_per_s);
}

strait_err strait_host_tell_outlook(struct host *h, int64_t step) {
    struct outlook o;
    /* One worker alone brings nothing to pipelines that train on their own. */
    if (h->coordinator.config.replicas_limit < 2 || h->coordinator.config.has_pipelines)
        return STRAIT_OK;
    if (h->pace.n_steps == 1) h->pace.first_ns = strait_clock_ns();
    if (h->pace.n_steps != 1 + TOLD_STEPS || h->pace.more.gain > 0.0) return STRAIT_OK;
    STRAIT_TRY(describe(h, &o));
    for (int i = 0; i < o.plan.n_stages; i++) {
        o.may_grow[i] = o.plan.replicas[i] < strait_host_replicas_limit(h, i);
        o.newcomer[i] = (strait_outlook_newcomer){.speed = 1.0};
    }
    STRAIT_TRY(look_ahead(h, &o));
    const int stage = choose(&o);
    h->pace.more = (strait_outlook_more){.stage = -1, .gain = 1.0};
    if (stage >= 0 && gain_of(&o, stage) > 0.0)
        h->pace.more = (strait_outlook_more){.stage = stage, .gain = gain_of(&o, stage)};
    tell(h, step, &o);
    return STRAIT_OK;
}
