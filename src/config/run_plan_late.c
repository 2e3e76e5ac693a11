/* run_plan_late.c - what late updates (train.staleness) can be combined with, and what a swarm
 * cannot compute. */
#include "config/run_plan.h"

/* A stage that updates at once does so before the first stages have their gradients, let alone the
 * norm of all. */
strait_err strait_run_plan_fit_late(const strait_run *run, strait_run_plan *plan) {
    const int wanted = (int)run->train.late_stages;
    if (plan->staleness == 0) return STRAIT_OK;
    plan->n_late = wanted > 0 && wanted < plan->n_stages ? wanted : plan->n_stages;
    if (plan->n_late < plan->n_stages && run->train.clip > 0.0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "train.late_stages %d: the other stages update before the norm of all "
                           "gradients is known; set train.clip or train.late_stages to 0",
                           wanted);
    return STRAIT_OK;
}

/* What each refusal is about would happen between two steps, and late updates leave no time
 * between them in which a stage has all updates and no crossing is under way. */
strait_err strait_run_plan_check_late(const strait_run_plan *plan) {
    const strait_codec_spec *codec = &plan->codec;
    if (plan->staleness == 0) return STRAIT_OK;
    if (strait_run_plan_replicas_max(plan) > 1)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "train.staleness 1: replicas of a stage sum their gradients between two "
                           "steps; set stages.replicas to 1");
    if (strait_run_plan_has_outer(plan))
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "train.staleness 1: weights are averaged between two steps; set "
                           "train.outer.sync_every or train.staleness to 0");
    if (plan->shape.lora_rank > 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "train.staleness 1: adapters are added to their matrices between two "
                           "steps; set train.lora.rank or train.staleness to 0");
    if (plan->n_stages == 1) return STRAIT_OK;
    if ((strait_codec_traits(codec) & STRAIT_CODEC_CONFINES) != 0 || codec->grassmann_every > 0)
        return STRAIT_FAIL(
            STRAIT_ECONFIG,
            "train.staleness 1: codec %s with these options rewrites weights between "
            "two steps; use a variant that does not, or set train.staleness to 0",
            codec->name);
    if (codec->has_feedback)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "train.staleness 1: error feedback is reset between two steps; set "
                           "link.codec.feedback to false or train.staleness to 0");
    return STRAIT_OK;
}

/* Moments have no bound like that of differences: a second moment that is negative or far too small
 * makes the next update of every pipeline useless. */
strait_err strait_run_plan_check_swarm(const strait_run_plan *plan) {
    if (strait_run_plan_has_outer(plan) && plan->outer.average_state != STRAIT_OUTER_NONE)
        return STRAIT_FAIL(
            STRAIT_ECONFIG,
            "train.outer.average_state: a worker of a swarm cannot check the moments that "
            "others send; use strait train, or set train.outer.average_state to none");
    if (plan->staleness == 0) return STRAIT_OK;
    return STRAIT_FAIL(
        STRAIT_ECONFIG,
        "train.staleness 1: the workers of a swarm compute one step at a time, so that "
        "a step can be repeated when one is lost; use strait train, or set "
        "train.staleness to 0");
}

int64_t strait_run_plan_slots_max(const strait_run_plan *plan) {
    return plan->n_microbatches * (1 + plan->staleness);
}
