#include "train/report/trainer_info.h"

#include "config/flops.h"
#include "stage/limits.h"
#include "train/memory_plan.h"

#include <stdio.h>
#include <string.h>

enum {
    /* The program, its libraries, thread stacks and matrix buffers, measured: 13 MiB with small
     * matrices, 19 with large ones. */
    PROGRAM_BYTES = 16 << 20
};

/* With precision auto the backend says why it chose, for example that the device has no bf16; else
 * it names its kernels. */
static void describe_precision(const strait_run *run, const strait_run_plan *plan, char *out,
                               size_t capacity) {
    const char *why = NULL;
    char kernels[STRAIT_BACKEND_KERNELS];
    (void)strait_run_choose_precision(run, &why);
    strait_backend_name_kernels(run->device.kind, plan->shape.precision, kernels, sizeof kernels);
    const char *half = plan->shape.has_fp8 ? "fp8" : "bf16";
    const char *name = plan->shape.precision == STRAIT_BF16 ? half : "fp32";
    if (why != NULL || kernels[0] == '\0')
        (void)snprintf(out, capacity, "%s%s%s", name, why != NULL ? ": " : "",
                       why != NULL ? why : "");
    else
        (void)snprintf(out, capacity, "%s (%s)", name, kernels);
}

strait_err strait_trainer_info_fill(const strait_run *run, const strait_run_plan *plan,
                                    const int *windows, const struct strait_loader *loader,
                                    strait_trainer_info *out) {
    strait_runner_memory memory;
    int64_t parameters = 0;
    double flops = 0;
    strait_trainer_stage stages[STRAIT_RUN_STAGES] = {0};
    size_t messages[STRAIT_RUN_STAGES], all_messages = 0;
    STRAIT_TRY(strait_limits_messages(run, plan, windows, NULL, strait_loader_valid_batches(loader),
                                      messages));
    STRAIT_TRY(strait_memory_plan(plan, windows, messages, stages, &memory));
    for (int i = 0; i < plan->n_stages; i++) {
        all_messages += messages[i] * (size_t)plan->replicas[i];
        stages[i].ordinal = strait_run_ordinal(run, i);
    }
    STRAIT_TRY(strait_run_plan_params(plan, &parameters));
    STRAIT_TRY(strait_flops_train(plan, &flops));
    memory.data += strait_memory_plan_shards(run, loader);
    *out = (strait_trainer_info){
        .n_stages = plan->n_stages,
        .staleness = plan->staleness,
        .n_late = plan->n_late,
        .parameters = parameters,
        .vocab = plan->shape.vocab,
        .table_rows = plan->shape.table_rows,
        .train_tokens = strait_loader_train_tokens(loader),
        .microbatch = plan->microbatch,
        .n_microbatches = plan->n_microbatches,
        .flops_per_token = flops,
        .memory = {.weights = memory.weights,
                   .gradients = memory.gradients,
                   .optimizer = memory.optimizer,
                   .activations = memory.activations,
                   .data = memory.data,
                   .cache = strait_memory_plan_shards(run, loader),
                   .codecs = memory.codecs,
                   .messages = all_messages,
                   .program = (size_t)(plan->n_members > 1 ? plan->n_members + 1 : 1) *
                              PROGRAM_BYTES},
    };
    out->memory.total = memory.weights + memory.gradients + memory.optimizer + memory.activations +
                        memory.data + memory.codecs + all_messages + out->memory.program;
    memcpy(out->stages, stages, sizeof out->stages);
    strait_loader_describe(loader, out->sources, sizeof out->sources);
    describe_precision(run, plan, out->precision, sizeof out->precision);
    return STRAIT_OK;
}
