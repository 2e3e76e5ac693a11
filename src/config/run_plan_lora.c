#include "config/run_plan.h"
#include "model/parts/lora.h"

/* A codec that is part of the model has weights of its own, or changes those of the model: they are
 * not in the model that the adapters belong to, and could not be trained beside it. */
static strait_err check_codec(const strait_run_plan *plan) {
    const unsigned part_of_model = STRAIT_CODEC_TRAINED | STRAIT_CODEC_CONFINES |
                                   STRAIT_CODEC_TOKENS | STRAIT_CODEC_CODE;
    if (plan->n_stages == 1 || (strait_codec_traits(&plan->codec) & part_of_model) == 0)
        return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG,
                       "train.lora: codec %s is a part of the model and would have to be trained "
                       "with it; choose link.codec.name none, int8, int4, topk or lowrank",
                       plan->codec.name);
}

strait_err strait_run_plan_fit_lora(const strait_run *run, strait_run_plan *plan) {
    if (run->train.lora.rank == 0) return STRAIT_OK;
    plan->shape.lora_rank = (int)run->train.lora.rank;
    plan->shape.lora_alpha = (float)run->train.lora.alpha;
    STRAIT_TRY(strait_lora_parse_targets(run->train.lora.targets, &plan->shape.lora_targets));
    const int gate = 1 << 4; // of strait_lora_targets
    if ((plan->shape.lora_targets & gate) != 0 && plan->shape.activation != STRAIT_SWIGLU)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "train.lora.targets: a model with this model.activation has no gate");
    return check_codec(plan);
}
