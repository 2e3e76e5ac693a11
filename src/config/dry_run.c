#include "config/dry_run.h"

#include "base/alloc.h"

static void add(struct strait_dry_run *dry_run, const strait_param *params, int n) {
    for (int i = 0; i < n; i++)
        dry_run->params[dry_run->n_params++] = params[i];
}

/* The first and last stage have one codec side only. */
static void add_codec(struct strait_dry_run *dry_run, const struct strait_codec *codec) {
    if (codec != NULL) add(dry_run, codec->params, codec->n_params);
}

/* Lists the parameters in the order of a real stage: receiver, weights, sender. */
static strait_err describe_stage(struct strait_dry_run *dry_run, const strait_run_plan *plan,
                                 int stage) {
    const strait_optim_spec optim = strait_run_plan_optim(plan, stage);
    STRAIT_TRY(strait_weights_plan(&plan->shape, plan->stage_layers[stage], 1, &dry_run->weights));
    STRAIT_TRY(strait_run_plan_codec_dry(plan, stage, STRAIT_RECEIVER, &dry_run->receiver));
    STRAIT_TRY(strait_run_plan_codec_dry(plan, stage, STRAIT_SENDER, &dry_run->sender));
    STRAIT_TRY(strait_alloc((size_t)dry_run->weights.n_params + (size_t)2 * STRAIT_CODEC_PARAMS,
                            sizeof *dry_run->params, "parameter list", (void **)&dry_run->params));
    add_codec(dry_run, dry_run->receiver);
    add(dry_run, dry_run->weights.params, dry_run->weights.n_params);
    add_codec(dry_run, dry_run->sender);
    return strait_optimizer_open_dry(&optim, dry_run->params, dry_run->n_params,
                                     &dry_run->optimizer);
}

/* Answers what a stage would hold on a machine that could not hold it. */
strait_err strait_dry_run_init(struct strait_dry_run *dry_run, const strait_run_plan *plan,
                               int stage) {
    *dry_run = (struct strait_dry_run){0};
    const strait_err err = describe_stage(dry_run, plan, stage);
    if (err != STRAIT_OK) strait_dry_run_fini(dry_run);
    return err;
}

/* The optimizer goes first: it refers to the parameters. */
void strait_dry_run_fini(struct strait_dry_run *dry_run) {
    strait_optimizer_close(&dry_run->optimizer);
    strait_alloc_free(dry_run->params);
    strait_codec_close(&dry_run->receiver);
    strait_codec_close(&dry_run->sender);
    strait_weights_fini(&dry_run->weights);
    *dry_run = (struct strait_dry_run){0};
}
