#include "config/microbatch.h"

#include "config/run_auto.h"
#include "config/run_plan.h"

#include <string.h>

enum {
    /* Tokens of a microbatch that the run file leaves open: enough for matrix products at full
     * speed, few enough for their activations to stay in the caches. */
    CPU_TOKENS = 2048,
    DEVICE_TOKENS = 16384,      // the same for a GPU, which needs more parallel work
    MICROBATCHES_PER_STAGE = 4, // keeps filling and draining a small part of a step
    /* What a microbatch costs a stage besides its tokens, on a GPU, in values of the stream:
     * kernels that are too small to fill the device. Measured on an H200 as 840 tokens of width
     * 1024 and 200 of width 4096. */
    DEVICE_OVERHEAD_VALUES = 860 << 10
};

/* With gradients of weights in the gaps, about a third of what a pipeline idles otherwise. */
static const double split_bubble = 1.0 / 3.0;

static int is_on_cpu(const strait_run *run) {
    return strcmp(run->device.kind, "cpu") == 0;
}

/* How many microbatches a step must have for every replica to get one. */
static int64_t replicas_max(const strait_run *run) {
    int64_t most = 1;
    for (int i = 0; i < run->stages.replicas.n; i++)
        if (run->stages.replicas.items[i] > most) most = run->stages.replicas.items[i];
    return most;
}

/* Replicas that the stage with the fewest has: it computes the most microbatches of a step. */
static int64_t replicas_min(const strait_run *run) {
    int64_t least = run->stages.replicas.n > 0 ? run->stages.replicas.items[0] : 1;
    for (int i = 1; i < run->stages.replicas.n; i++)
        if (run->stages.replicas.items[i] < least) least = run->stages.replicas.items[i];
    return least > 0 ? least : 1;
}

static int64_t sequences_of(const strait_run *run) {
    return run->train.batch_tokens / run->model.context;
}

int64_t strait_run_choose_microbatch_before(const strait_run *run) {
    const int64_t n_stages = run->stages.count, context = run->model.context;
    const int64_t sequences = sequences_of(run), of_replicas = replicas_max(run);
    const int64_t most = is_on_cpu(run) ? CPU_TOKENS : DEVICE_TOKENS;
    int64_t wanted = n_stages > 1 ? MICROBATCHES_PER_STAGE * n_stages : 1, best = 1;
    if (of_replicas > wanted) wanted = of_replicas;
    for (int64_t n = 1; n <= sequences && n * context <= most; n++)
        if (sequences % n == 0 && sequences / n >= wanted) best = n;
    return best;
}

/* Whether all stages are threads that share one device, without slow links between them: whichever
 * stage waits, another one keeps the device busy. */
static int shares_device(const strait_run *run) {
    if (run->link.transport != STRAIT_RUN_INPROC || strait_run_has_limits(run) ||
        run->link.emulate.delay > 0 || run->link.meter.rate > 0)
        return 0;
    for (int i = 1; i < run->stages.count; i++)
        if (strait_run_ordinal(run, i) != strait_run_ordinal(run, 0)) return 0;
    return 1;
}

/* Microbatches that a step lasts longer than it has, because stages wait at its ends. */
static double bubble_of(const strait_run *run) {
    const int can_split = run->stages.schedule == STRAIT_RUN_1F1B_SPLIT ||
                          (run->stages.schedule == STRAIT_RUN_PIPELINE_AUTO &&
                           !run->train.recompute);
    if (shares_device(run)) return 0.0;
    return (double)(run->stages.count - 1) * (can_split ? split_bubble : 1.0);
}

/* Microbatches of a step that a replica computes. On a device that all share, replicas take turns
 * like stages. */
static int64_t microbatches_of_replica(const strait_run *run, int64_t n_microbatches) {
    const int64_t n = shares_device(run) ? 1 : replicas_min(run);
    return (n_microbatches + n - 1) / n;
}

int64_t strait_run_choose_microbatch(const strait_run *run) {
    const int64_t sequences = sequences_of(run), context = run->model.context;
    if (!strait_run_records_microbatch(run)) return strait_run_choose_microbatch_before(run);
    const double bubble = bubble_of(run);
    const double overhead = (double)DEVICE_OVERHEAD_VALUES / (double)run->model.width;
    double least = 0.0;
    int64_t best = 1;
    for (int64_t n = 1; n <= sequences && (n == 1 || n * context <= DEVICE_TOKENS); n++) {
        if (sequences % n != 0 || (n > 1 && sequences / n < replicas_max(run))) continue;
        const int64_t n_microbatches = microbatches_of_replica(run, sequences / n);
        const double step = ((double)n_microbatches + bubble) * ((double)(n * context) + overhead);
        if (n > 1 && step >= least) continue;
        least = step;
        best = n;
    }
    return best;
}

int strait_run_records_microbatch(const strait_run *run) {
    return !is_on_cpu(run) && run->stages.count > 1;
}

int64_t strait_run_smaller_microbatch(const strait_run *run, int64_t microbatch) {
    const int64_t sequences = sequences_of(run);
    for (int64_t n = microbatch - 1; n > 0; n--)
        if (sequences % n == 0) return n;
    return 0;
}
