/* placement.c - on which device of this machine each stage computes, and in which precision. */
#include "config/run_plan.h"

int strait_run_ordinal(const strait_run *run, int stage) {
    const strait_option_ints *list = &run->device.ordinal;
    if (list->n > 1) return (int)list->items[stage];
    if (list->n == 1) return (int)list->items[0];
    const int n = strait_backend_count(run->device.kind);
    return n > 0 ? stage % n : 0;
}

strait_dtype strait_run_choose_precision(const strait_run *run, const char **why) {
    *why = NULL;
    if (run->device.precision != STRAIT_RUN_PRECISION_AUTO)
        return run->device.precision == STRAIT_RUN_FP32 ? STRAIT_F32 : STRAIT_BF16;
    strait_dtype all = STRAIT_F32;
    for (int i = 0; i < run->stages.count; i++) {
        all = strait_backend_precision(run->device.kind, strait_run_ordinal(run, i), why);
        if (all == STRAIT_F32) break;
    }
    return all;
}

strait_backend_spec strait_run_plan_backend(const strait_run *run, int stage) {
    const char *why = NULL;
    return (strait_backend_spec){.name = run->device.kind,
                                 .ordinal = strait_run_ordinal(run, stage),
                                 .n_threads = (int)run->device.threads,
                                 .precision = strait_run_choose_precision(run, &why),
                                 .has_fp8 = run->device.precision == STRAIT_RUN_FP8};
}
