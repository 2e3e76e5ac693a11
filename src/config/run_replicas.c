/* run_replicas.c - how many replicas the stages of a plan have, and the groups that they share. */
#include "config/run_plan.h"
#include "optim/optimizer_ops.h"

#include <stdio.h>
#include <string.h>

/* One number is for every stage. */
static int replicas_of(const strait_run *run, int stage) {
    const strait_option_ints *list = &run->stages.replicas;
    return list->n == 0 ? 1 : (int)list->items[list->n > 1 ? stage : 0];
}

int strait_run_members(const strait_run *run) {
    int sum = 0;
    for (int i = 0; i < run->stages.count; i++)
        sum += replicas_of(run, i);
    return sum;
}

static void name_member(int stage, int replica, int n_replicas, char *out, size_t size) {
    if (n_replicas > 1)
        (void)snprintf(out, size, "stage %d, replica %d", stage, replica);
    else
        (void)snprintf(out, size, "stage %d", stage);
}

void strait_run_member_name(const strait_run *run, int member, char *out, size_t size) {
    int stage = 0;
    for (; stage + 1 < run->stages.count && member >= replicas_of(run, stage); stage++)
        member -= replicas_of(run, stage);
    name_member(stage, member, replicas_of(run, stage), out, size);
}

int strait_run_plan_member(const strait_run_plan *plan, int stage, int replica) {
    for (int i = 0; i < stage; i++)
        replica += plan->replicas[i];
    return replica;
}

void strait_run_plan_locate(const strait_run_plan *plan, int member, int *stage, int *replica) {
    for (*stage = 0; member >= plan->replicas[*stage]; (*stage)++)
        member -= plan->replicas[*stage];
    *replica = member;
}

void strait_run_plan_member_name(const strait_run_plan *plan, int member, char *out, size_t size) {
    int stage, replica;
    strait_run_plan_locate(plan, member, &stage, &replica);
    name_member(stage, replica, plan->replicas[stage], out, size);
}

int strait_run_plan_replicas_max(const strait_run_plan *plan) {
    int most = 1;
    for (int i = 0; i < plan->n_stages; i++)
        if (plan->replicas[i] > most) most = plan->replicas[i];
    return most;
}

int strait_run_plan_has_outer(const strait_run_plan *plan) {
    return plan->outer.schedule.sync_every > 0;
}

static int is_width(int bits) {
    return bits == 32 || bits == 8 || bits == 4 || bits == 2;
}

/* A second moment that is rounded to 0 would make an update of any size. */
static strait_err check_outer_bits(const strait_outer_params *outer) {
    if (!is_width(outer->bits))
        return STRAIT_FAIL(STRAIT_ECONFIG, "train.outer.bits is %d: expected 32, 8, 4 or 2",
                           outer->bits);
    if (!is_width(outer->state_bits))
        return STRAIT_FAIL(STRAIT_ECONFIG, "train.outer.state_bits is %d: expected 32, 8, 4 or 2",
                           outer->state_bits);
    if (outer->state_bits < 32 && outer->average_state == STRAIT_OUTER_NONE)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "train.outer.state_bits: no state of the optimizer is averaged; set "
                           "train.outer.average_state to momentum, or state_bits to 32");
    if (outer->state_bits < 32 && outer->average_state == STRAIT_OUTER_MOMENTS)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "train.outer.state_bits: %d are too few for second moments; set "
                           "train.outer.average_state to momentum, or state_bits to 32",
                           outer->state_bits);
    return STRAIT_OK;
}

static strait_err check_attention(const strait_outer_schedule *s) {
    if (s->attention_every > s->sync_every)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "train.outer.attention_every: %lld are more than the %lld steps of "
                           "train.outer.sync_every",
                           (long long)s->attention_every, (long long)s->sync_every);
    if (s->attention_every > 0 && s->overlap > 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "train.outer.attention_every: only with train.outer.overlap 0, since "
                           "one part is under way at a time");
    return STRAIT_OK;
}

/* Replicas that train on their own form pipelines of one replica of each stage. */
static strait_err check_outer(const strait_run_plan *plan) {
    const strait_outer_schedule *s = &plan->outer.schedule;
    if (s->warmup > 0 && s->sync_every == 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "train.outer.warmup: there are no local steps after it; set "
                           "train.outer.sync_every, or train.outer.warmup to 0");
    if (s->sync_every == 0) return STRAIT_OK;
    STRAIT_TRY(check_outer_bits(&plan->outer));
    STRAIT_TRY(check_attention(s));
    if (plan->outer.average_state == STRAIT_OUTER_MOMENTUM_ONLY &&
        strcmp(plan->optim.ops->name, "muon") != 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "train.outer.average_state momentum: optimizer %s has second moments "
                           "everywhere; use moments, or train.optimizer muon",
                           plan->optim.ops->name);
    for (int i = 1; i < plan->n_stages; i++)
        if (plan->replicas[i] != plan->replicas[0])
            return STRAIT_FAIL(STRAIT_ECONFIG,
                               "train.outer.sync_every: stage 0 has %d replicas and stage %d has "
                               "%d; local steps need as many of each stage, because every replica "
                               "is part of a pipeline of its own",
                               plan->replicas[0], i, plan->replicas[i]);
    if (s->fragments > s->sync_every)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "train.outer.fragments: %d are more than the %lld steps of "
                           "train.outer.sync_every",
                           s->fragments, (long long)s->sync_every);
    if (s->warmup > s->steps)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "train.outer.warmup: %lld steps are more than the %lld of train.steps",
                           (long long)s->warmup, (long long)s->steps);
    if (s->overlap > s->sync_every / s->fragments)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "train.outer.overlap: %d steps are more than the %lld between two "
                           "fragments (sync_every / fragments)",
                           s->overlap, (long long)(s->sync_every / s->fragments));
    if (s->overlap > 0 && plan->outer.average_state != STRAIT_OUTER_NONE)
        return STRAIT_FAIL(
            STRAIT_ECONFIG,
            "train.outer.average_state: moments are averaged with train.outer.overlap "
            "0 only");
    if (plan->n_stages > 1 && plan->codec.grassmann_every > 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "train.outer.sync_every: updates of the basis "
                           "(link.codec.grassmann_every) would leave the averaged weights in the "
                           "old one; set it to 0");
    return STRAIT_OK;
}

static strait_outer_params make_outer(const strait_run *run) {
    return (strait_outer_params){.schedule = {.sync_every = run->train.outer.sync_every,
                                              .fragments = (int)run->train.outer.fragments,
                                              .overlap = (int)run->train.outer.overlap,
                                              .steps = run->train.steps,
                                              .warmup = run->train.outer.warmup,
                                              .attention_every = run->train.outer.attention_every},
                                 .bits = (int)run->train.outer.bits,
                                 .has_feedback = run->train.outer.feedback,
                                 .keeps_norm = run->train.outer.keep_norm,
                                 .learning_rate = (float)run->train.outer.learning_rate,
                                 .momentum = (float)run->train.outer.momentum,
                                 .average_state = run->train.outer.average_state,
                                 .state_bits = (int)run->train.outer.state_bits};
}

/* A codec that carries something from one crossing to the next would carry other things if the
 * crossings were shared among replicas. */
static strait_err check_replicas(const strait_run *run, const strait_run_plan *plan) {
    const int most = strait_run_plan_replicas_max(plan);
    if (plan->n_members > STRAIT_RUN_MEMBERS)
        return STRAIT_FAIL(STRAIT_ECONFIG, "stages.replicas: %d in all are more than %d",
                           plan->n_members, STRAIT_RUN_MEMBERS);
    if (plan->reduce_bits != 32 && plan->reduce_bits != 8 && plan->reduce_bits != 4)
        return STRAIT_FAIL(STRAIT_ECONFIG, "stages.reduce_bits is %d: expected 32, 8 or 4",
                           plan->reduce_bits);
    if (most > plan->groups.n_groups)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "stages.replicas: %d replicas of a stage cannot share %d group%s (the "
                           "smaller of stages.groups and the %lld microbatch%s of a step): %s",
                           most, plan->groups.n_groups, plan->groups.n_groups == 1 ? "" : "s",
                           (long long)plan->n_microbatches, plan->n_microbatches == 1 ? "" : "es",
                           plan->n_microbatches < most
                               ? "lower stages.microbatch or raise train.batch_tokens"
                               : "raise stages.groups");
    if (run->stages.speeds.n > 0 && run->stages.speeds.n != plan->n_members)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "stages.speeds has %d numbers for %d replicas: give one for each",
                           run->stages.speeds.n, plan->n_members);
    /* Pipelines of their own have codecs of their own. */
    if (most > 1 && plan->n_stages > 1 && !strait_run_plan_has_outer(plan) &&
        (strait_codec_traits(&plan->codec) & STRAIT_CODEC_CARRIES) != 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "stages.replicas: codec %s carries state from one microbatch to the "
                           "next, which replicas do not share; choose another codec or turn off "
                           "link.codec.feedback",
                           plan->codec.name);
    return check_outer(plan);
}

strait_err strait_run_plan_fit_replicas(const strait_run *run, strait_run_plan *plan) {
    const strait_option_ints *list = &run->stages.replicas;
    if (list->n > 1 && list->n != plan->n_stages)
        return STRAIT_FAIL(
            STRAIT_ECONFIG,
            "stages.replicas has %d numbers for %d stages: give one for each, or one "
            "for all",
            list->n, plan->n_stages);
    for (int i = 0; i < plan->n_stages; i++) {
        plan->replicas[i] = replicas_of(run, i);
        plan->n_members += plan->replicas[i];
    }
    plan->groups = strait_groups_make((int)plan->n_microbatches, (int)run->stages.groups,
                                      strait_run_plan_replicas_max(plan));
    /* What is rounded is not exact, and replicas on their own have no sum in common: groups are
     * then added in order, in one buffer. */
    plan->reduce_bits = (int)run->stages.reduce_bits;
    plan->outer = make_outer(run);
    if ((plan->reduce_bits < 32 || strait_run_plan_has_outer(plan)) &&
        strait_run_plan_replicas_max(plan) > 1)
        plan->sums_pairwise = 0;
    return check_replicas(run, plan);
}

/* Replicas that come have the home of the last one that the stage had. */
static void move_homes(strait_run_plan *plan, const int *replicas,
                       double rates[STRAIT_RUN_MEMBERS]) {
    double moved[STRAIT_RUN_MEMBERS];
    int n = 0;
    for (int i = 0; i < plan->n_stages; i++)
        for (int k = 0; k < replicas[i]; k++) {
            const int last = plan->replicas[i] - 1;
            moved[n++] = rates[strait_run_plan_member(plan, i, k < last ? k : last)];
        }
    memcpy(rates, moved, (size_t)n * sizeof *rates);
}

void strait_run_plan_set_replicas(strait_run_plan *plan, const int *replicas) {
    move_homes(plan, replicas, plan->up_bps);
    move_homes(plan, replicas, plan->down_bps);
    plan->n_members = 0;
    for (int i = 0; i < plan->n_stages; i++) {
        plan->replicas[i] = replicas[i];
        plan->n_members += replicas[i];
    }
    plan->groups = strait_groups_make(plan->groups.n_microbatches, plan->groups.n_groups,
                                      strait_run_plan_replicas_max(plan));
}

void strait_run_plan_make_elastic(strait_run_plan *plan) {
    int one[STRAIT_RUN_STAGES] = {0};
    plan->replicas_limit = strait_run_plan_replicas_max(plan);
    for (int i = 0; i < plan->n_stages; i++)
        one[i] = 1;
    strait_run_plan_set_replicas(plan, one);
}
