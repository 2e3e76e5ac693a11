#include "train/memory_plan.h"

/* A run shorter than the data touches only a part of it. */
static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

size_t strait_memory_plan_shards(const strait_run *run, const struct strait_loader *loader) {
    const size_t whole = (size_t)strait_loader_train_tokens(loader) * sizeof(uint16_t);
    const size_t valid = (size_t)strait_loader_valid_tokens(loader) * sizeof(uint16_t);
    return valid +
           smaller(whole, (size_t)(run->train.steps * run->train.batch_tokens) * sizeof(uint16_t));
}

strait_err strait_memory_plan(const strait_run_plan *plan, const int *windows,
                              const size_t *messages, strait_trainer_stage *stages,
                              strait_runner_memory *out) {
    strait_runner_memory sum = {0};
    for (int i = 0; i < plan->n_stages; i++) {
        strait_runner_memory stage;
        STRAIT_TRY(strait_runner_plan(plan, i, windows[i], &stage));
        stages[i] = (strait_trainer_stage){.layers = plan->stage_layers[i].last -
                                                     plan->stage_layers[i].first,
                                           .slots = windows[i],
                                           .planned = stage.device};
        if (plan->scratch_bytes == 0) stages[i].planned += messages[i];
        const size_t n = (size_t)plan->replicas[i];
        stages[i].replicas = plan->replicas[i];
        stages[i].reduced = stage.reduced;
        stages[i].averaged = strait_outer_whole_bytes(&plan->outer.schedule, stage.averaged);
        sum.weights += n * stage.weights;
        sum.gradients += n * (stage.gradients + stage.sums);
        sum.optimizer += n * (stage.optimizer + stage.outer);
        sum.activations += n * stage.activations;
        sum.codecs += n * stage.codecs;
        sum.data += n * stage.data;
    }
    *out = sum;
    return STRAIT_OK;
}
