#include "swarm/budget.h"

#include "swarm/protocol.h"
#include "swarm/snapshot/snapshot.h"

enum {
    QUEUE_MIN = 4 * 1024 * 1024,
    N_NEIGHBOURS = 2,
    HEADER_MAX = 4096 // of a message that is not a crossing, besides its data
};

int strait_budget_least_slots(const strait_run_plan *plan, int stage) {
    const int64_t ahead = plan->n_stages - stage;
    return (int)(ahead < plan->n_microbatches ? ahead : plan->n_microbatches);
}

size_t strait_budget_message(const strait_run_plan *plan) {
    size_t most = STRAIT_PIECE_BYTES;
    for (int k = 0; k < 2 && plan->n_stages > 1; k++) {
        const size_t bytes = strait_codec_wire_bytes(&plan->codec, (strait_direction)k);
        if (bytes > most) most = bytes;
    }
    return most + HEADER_MAX;
}

size_t strait_budget_queue(const strait_run_plan *plan) {
    const double wanted = 2.0 * (double)plan->n_microbatches * (double)strait_budget_message(plan);
    if (wanted < QUEUE_MIN) return QUEUE_MIN;
    return wanted > STRAIT_MESH_QUEUE ? STRAIT_MESH_QUEUE : (size_t)wanted;
}

/* What a loader without shards holds (stage/loader.c), and the worker's copy of one message. */
static double ids_bytes(const strait_run_plan *plan, int64_t valid_windows) {
    const double each = (double)plan->microbatch * (double)plan->shape.context;
    const int64_t n_valid = (valid_windows + plan->microbatch - 1) / plan->microbatch;
    return 2.0 * sizeof(int32_t) * each * (double)(plan->n_microbatches + n_valid + 1);
}

strait_err strait_budget_plan(const strait_run_plan *plan, int stage, int n_slots,
                              int64_t valid_windows, strait_budget *out) {
    strait_runner_memory m;
    STRAIT_TRY(strait_runner_plan(plan, stage, n_slots, &m));
    const double stage_bytes = (double)(m.weights + m.gradients + m.sums + m.optimizer +
                                        m.activations + m.codecs + m.data + m.outer);
    const double restored = (double)(m.weights + m.optimizer + m.outer);
    *out = (strait_budget){.stage = stage_bytes,
                           .snapshots = strait_snapshot_memory_bytes(&m) - stage_bytes + restored,
                           .ids = ids_bytes(plan, valid_windows)};
    out->crossings = (double)m.kept;
    if (plan->n_stages > 1) out->messages = (N_NEIGHBOURS + 1) * (double)strait_budget_queue(plan);
    /* Gradients on their way to other replicas, and from them. */
    if (plan->replicas_limit > 1) out->messages += 2.0 * (double)m.gradients;
    return STRAIT_OK;
}

double strait_budget_sum(const strait_budget *budget) {
    return budget->stage + budget->snapshots + budget->ids + budget->messages + budget->crossings;
}
