#include "train/outlook/outlook_members.h"

#include "train/shares.h"

#include <math.h>
#include <string.h>

static const double slack = 0.02; // windows that cost less than this suffice

static strait_err simulate(const strait_limits_members *members, strait_members_use *use,
                           double *seconds) {
    return strait_members_simulate(&members->spec, use, seconds);
}

/* Shares follow the homes, as in training. Pipelines of their own have equal ones: shares of
 * training would leave a replica that only one stage has without microbatches. */
static void describe(const strait_outlook_view *view, strait_limits_members *out) {
    strait_step_times times[STRAIT_RUN_MEMBERS] = {{0}};
    const strait_run_plan *plan = view->plan;
    strait_limits_members_init(plan, view->pipe, view->windows, view->n_values, out);
    for (int i = 0; i < plan->n_members; i++) {
        int stage, replica;
        strait_run_plan_locate(plan, i, &stage, &replica);
        const strait_pipe_stage *cost = &out->stages[stage].cost;
        times[i].forward = cost->forward_s + cost->input_s + cost->weights_s;
    }
    if (!strait_run_plan_has_outer(plan)) strait_shares_choose(NULL, plan, times, out->owners);
    for (int i = 0; view->link_bps != NULL && i + 1 < plan->n_stages; i++) {
        strait_pipe_link *link = &out->links[i];
        if (view->link_bps[i] <= 0.0 ||
            (link->forward_bps > 0.0 && link->forward_bps < view->link_bps[i]))
            continue;
        link->forward_bps = link->backward_bps = view->link_bps[i];
    }
}

strait_err strait_outlook_members_windows(const strait_outlook_view *view) {
    strait_limits_members members;
    describe(view, &members);
    STRAIT_TRY(strait_members_fit_windows(&members.spec, members.stages, NULL, slack));
    for (int i = 0; i < view->plan->n_stages; i++)
        view->windows[i] = members.stages[i].window;
    return STRAIT_OK;
}

strait_err strait_outlook_members_predict(const strait_outlook_view *view,
                                          strait_outlook_members *out) {
    strait_limits_members members;
    double computed = 0.0, reduced = 0.0;
    describe(view, &members);
    STRAIT_TRY(simulate(&members, out->use, &out->seconds));
    for (int i = 0; i < view->plan->n_members; i++) {
        computed = fmax(computed, out->use[i].computed_s);
        reduced = fmax(reduced, out->use[i].reduced_s);
    }
    out->reduce_s = reduced - computed;
    return STRAIT_OK;
}

/* How busy the busiest part of a member is, in seconds: its processor or one of its wires. */
static double load_of(const strait_members_use *use) {
    return fmax(use->busy_s, fmax(use->up_s, use->down_s));
}

static int busiest_stage(const strait_run_plan *plan, const strait_members_use *use,
                         double (*load)(const strait_members_use *)) {
    int most = 0, stage, replica;
    for (int i = 1; i < plan->n_members; i++)
        if (load(&use[i]) > load(&use[most])) most = i;
    strait_run_plan_locate(plan, most, &stage, &replica);
    return stage;
}

static double computing(const strait_members_use *use) {
    return use->busy_s;
}

static double sending(const strait_members_use *use) {
    return fmax(use->up_s, use->down_s);
}

/* Removes one cost from a run. */
static void remove_cost(strait_limits_members *m, strait_limit_kind kind) {
    static const double unlimited[STRAIT_RUN_MEMBERS];
    for (int i = 0; i < m->spec.n_stages; i++) {
        strait_pipe_link *link = &m->links[i];
        if (kind == STRAIT_LIMIT_COMPUTE) m->stages[i].cost = (strait_pipe_stage){0};
        if (kind == STRAIT_LIMIT_SERIALISATION) link->forward_bps = link->backward_bps = 0.0;
        if (kind == STRAIT_LIMIT_PROPAGATION) link->delay_s = 0.0;
        if (kind == STRAIT_LIMIT_CODEC) link->codec_s = 0.0;
    }
    if (kind == STRAIT_LIMIT_SERIALISATION) m->spec.up_bps = m->spec.down_bps = unlimited;
}

/* Returns the link on which a cost that is not of one stage takes longest. */
static int slowest_link(const strait_limits_members *m, strait_limit_kind kind) {
    int most = 0;
    for (int i = 1; i + 1 < m->spec.n_stages; i++) {
        const strait_pipe_link *link = &m->links[i], *other = &m->links[most];
        if (kind == STRAIT_LIMIT_CODEC ? link->codec_s > other->codec_s
                                       : link->delay_s > other->delay_s)
            most = i;
    }
    return most;
}

strait_err strait_outlook_members_limit(const strait_outlook_view *view, strait_limit *out) {
    static const strait_limit_kind kinds[] = {STRAIT_LIMIT_COMPUTE, STRAIT_LIMIT_SERIALISATION,
                                              STRAIT_LIMIT_PROPAGATION, STRAIT_LIMIT_CODEC};
    strait_limits_members members;
    strait_outlook_members all;
    strait_limit found = {0};
    STRAIT_TRY(strait_outlook_members_predict(view, &all));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        double without = 0.0;
        describe(view, &members);
        remove_cost(&members, kinds[i]);
        STRAIT_TRY(simulate(&members, NULL, &without));
        found.saved[kinds[i]] = fmax(0.0, all.seconds - without);
        if (found.saved[kinds[i]] > found.saved[found.kind]) found.kind = kinds[i];
    }
    describe(view, &members);
    if (found.kind == STRAIT_LIMIT_PROPAGATION || found.kind == STRAIT_LIMIT_CODEC)
        found.where = slowest_link(&members, found.kind);
    else
        found.where = busiest_stage(view->plan, all.use,
                                    found.kind == STRAIT_LIMIT_COMPUTE ? computing : sending);
    *out = found;
    return STRAIT_OK;
}

/* Puts a rate behind those of the first n members. */
static void insert_home(double *rates, int n, int n_members, double bps) {
    memmove(rates + n + 1, rates + n, (size_t)(n_members - n) * sizeof *rates);
    rates[n] = bps;
}

int strait_outlook_members_add(const strait_run_plan *plan, int stage,
                               const strait_outlook_newcomer *newcomer, strait_pipe_stage *stages,
                               strait_run_plan *out) {
    const int first = strait_run_plan_member(plan, stage, 0), n = plan->replicas[stage];
    if (out != plan) *out = *plan;
    if (plan->n_members == STRAIT_RUN_MEMBERS || n == STRAIT_RUN_REPLICAS ||
        n == plan->groups.n_groups)
        return 0;
    insert_home(out->up_bps, first + n, out->n_members,
                newcomer->has_home ? newcomer->up_bps : out->up_bps[first]);
    insert_home(out->down_bps, first + n, out->n_members,
                newcomer->has_home ? newcomer->down_bps : out->down_bps[first]);
    out->replicas[stage]++;
    out->n_members++;
    out->groups = strait_groups_make(out->groups.n_microbatches, out->groups.n_groups,
                                     strait_run_plan_replicas_max(out));
    const double share = n / (n + newcomer->speed);
    stages[stage].forward_s *= share;
    stages[stage].input_s *= share;
    stages[stage].weights_s *= share;
    return 1;
}

/* Seconds of a step with a newcomer in the stages from `first` to `last`; INFINITY where there can
 * be none. */
static strait_err predict_with(const strait_outlook_view *view, int first, int last,
                               const strait_outlook_newcomer *newcomer, double *seconds) {
    strait_run_plan plan = *view->plan;
    strait_limits_members members;
    strait_pipe_stage stages[STRAIT_RUN_STAGES];
    strait_pipe pipe = *view->pipe;
    strait_outlook_view wider = *view;
    *seconds = INFINITY;
    memcpy(stages, pipe.stages, (size_t)pipe.n_stages * sizeof *stages);
    for (int i = first; i <= last; i++)
        if (!strait_outlook_members_add(&plan, i, newcomer, stages, &plan)) return STRAIT_OK;
    pipe.stages = stages;
    wider.plan = &plan;
    wider.pipe = &pipe;
    describe(&wider, &members);
    if (!view->keeps_windows)
        STRAIT_TRY(strait_members_fit_windows(&members.spec, members.stages, NULL, slack));
    return simulate(&members, NULL, seconds);
}

strait_err strait_outlook_members_with(const strait_outlook_view *view, int stage,
                                       const strait_outlook_newcomer *newcomer, double *seconds) {
    return predict_with(view, stage, stage, newcomer, seconds);
}

/* All pipelines have all stages. */
static strait_err more_pipelines(const strait_outlook_view *view, double now_s,
                                 strait_outlook_more *out) {
    const strait_outlook_newcomer alike = {.speed = 1.0};
    const int n_stages = view->plan->n_stages;
    double seconds = INFINITY;
    STRAIT_TRY(predict_with(view, 0, n_stages - 1, &alike, &seconds));
    if (seconds < now_s)
        *out = (strait_outlook_more){.stage = -1, .gain = now_s / seconds, .n_machines = n_stages};
    return STRAIT_OK;
}

/* A stage that is not among the busiest gains nothing by another replica. */
strait_err strait_outlook_members_more(const strait_outlook_view *view, strait_outlook_more *out) {
    const strait_outlook_newcomer alike = {.speed = 1.0};
    strait_outlook_members now;
    const strait_run_plan *plan = view->plan;
    double best = INFINITY, most = 0.0;
    const int has_outer = strait_run_plan_has_outer(plan);
    *out = (strait_outlook_more){.stage = -1, .gain = 1.0};
    if (plan->staleness > 0) return STRAIT_OK; // the simulation of members knows no late updates
    if (plan->n_stages > 1 && !has_outer &&
        (strait_codec_traits(&plan->codec) & STRAIT_CODEC_CARRIES) != 0)
        return STRAIT_OK;
    STRAIT_TRY(strait_outlook_members_predict(view, &now));
    if (has_outer) return more_pipelines(view, now.seconds, out);
    for (int i = 0; i < plan->n_members; i++)
        most = fmax(most, load_of(&now.use[i]));
    for (int i = 0; i < plan->n_stages; i++) {
        double seconds;
        if (load_of(&now.use[strait_run_plan_member(plan, i, 0)]) < 0.7 * most) continue;
        STRAIT_TRY(strait_outlook_members_with(view, i, &alike, &seconds));
        if (seconds >= best) continue;
        best = seconds;
        *out = (strait_outlook_more){.stage = i, .gain = now.seconds / seconds, .n_machines = 1};
    }
    return STRAIT_OK;
}

int strait_outlook_members_worth(double now_s, const double *seconds, int n) {
    const double same = 1.02;
    double best = now_s;
    int n_worth = 0;
    for (int i = 0; i < n; i++)
        if (seconds[i] < best) best = seconds[i];
    for (int i = 0; i < n; i++)
        if (seconds[i] <= same * best) n_worth = i + 1;
    return n_worth;
}
