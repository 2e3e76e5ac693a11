/* runner_plan.c - how much memory a runner needs, before it allocates any. */
#include "config/dry_run.h"
#include "stage/runner.h"
#include "stage/staging.h"

/* Where replicas come and go, it has memory for as many as there may be. */
strait_outer_spec strait_runner_outer_spec(const strait_run_plan *plan, int stage,
                                           const strait_param *params, int n_params,
                                           const struct strait_optimizer *optimizer) {
    const int n = plan->replicas_limit > 0 ? plan->replicas_limit : plan->replicas[stage];
    return (strait_outer_spec){.stage = stage,
                               .n_replicas = n,
                               .is_wary = plan->replicas_limit > 0,
                               .params = plan->outer,
                               .weights = params,
                               .n_weights = strait_run_plan_has_outer(plan) ? n_params : 0,
                               .optimizer = optimizer};
}

/* Host memory, which a CPU counts as its own. */
static void plan_outer(const strait_run_plan *plan, int stage, const struct strait_dry_run *dry_run,
                       strait_runner_memory *m) {
    const strait_outer_spec spec = strait_runner_outer_spec(plan, stage, dry_run->params,
                                                            dry_run->n_params, dry_run->optimizer);
    if (!strait_run_plan_has_outer(plan)) return;
    m->outer = strait_outer_bytes(&spec);
    m->averaged = strait_outer_sent_bytes(&spec);
    m->exchanged = strait_outer_most_bytes(&spec);
    m->reduced = strait_outer_step_bytes(&plan->outer.schedule, m->averaged);
}

/* Asks a dry run, which lists the parameters without allocating them. */
static strait_err plan_optimizer(const strait_run_plan *plan, int stage, strait_runner_memory *m) {
    struct strait_dry_run dry_run;
    STRAIT_TRY(strait_dry_run_init(&dry_run, plan, stage));
    m->n_params = dry_run.n_params;
    m->optimizer = strait_optimizer_bytes(dry_run.optimizer);
    m->kept = strait_runner_kept_bytes(plan, stage, m, dry_run.receiver, dry_run.sender);
    int64_t n_values = 0;
    for (int i = 0; i < dry_run.n_params; i++)
        n_values += dry_run.params[i].value.rows * dry_run.params[i].value.cols;
    m->n_values = n_values;
    m->reduced = strait_reduction_sent_bytes(plan, stage, n_values);
    const strait_err err = strait_gradient_sums_bytes(
        dry_run.params, dry_run.n_params, strait_gradient_sums_buffers(plan, stage), &m->sums);
    m->sums += strait_reduction_residual_bytes(plan, stage, n_values);
    const strait_err late = strait_runner_late_memory(plan, stage, dry_run.params, dry_run.n_params,
                                                      m);
    plan_outer(plan, stage, &dry_run, m);
    strait_dry_run_fini(&dry_run);
    return err == STRAIT_OK ? late : err;
}

/* Adds up the codecs of a stage, and the staging buffers of their boundaries. */
static strait_err plan_codecs(const strait_run_plan *plan, int stage, int n_slots, size_t *out) {
    for (int side = 0; side < 2; side++) {
        const int boundary = side == STRAIT_SENDER ? stage : stage - 1;
        size_t bytes = 0;
        if (boundary < 0 || boundary >= plan->n_stages - 1) continue;
        const strait_codec_spec spec = strait_run_plan_codec(plan, boundary, n_slots);
        STRAIT_TRY(strait_codec_plan_bytes(&spec, (strait_codec_side)side, &bytes));
        *out += bytes;
        if (plan->scratch_bytes > 0) // set for devices other than the host
            *out += strait_staging_bytes(strait_codec_wire_bytes(&spec, STRAIT_FORWARD),
                                         strait_codec_wire_bytes(&spec, STRAIT_BACKWARD));
    }
    return STRAIT_OK;
}

strait_err strait_runner_plan(const strait_run_plan *plan, int stage, int n_slots,
                              strait_runner_memory *out) {
    const strait_stage_spec spec = strait_run_plan_stage(plan, stage, n_slots);
    strait_stage_memory model;
    STRAIT_TRY(strait_stage_plan(&spec, &model));
    strait_runner_memory memory = {.weights = model.weights,
                                   .gradients = model.gradients,
                                   .activations = model.activations + plan->scratch_bytes,
                                   .data = strait_loader_bytes(plan, n_slots)};
    STRAIT_TRY(plan_codecs(plan, stage, n_slots, &memory.codecs));
    STRAIT_TRY(plan_optimizer(plan, stage, &memory));
    /* Host buffers of the loader count as data, but not as device memory. */
    memory.device = memory.weights + memory.gradients + memory.sums + memory.optimizer +
                    memory.activations + memory.codecs + strait_loader_device_bytes(plan, n_slots);
    if (plan->scratch_bytes == 0) memory.device += memory.outer;
    *out = memory;
    return STRAIT_OK;
}
