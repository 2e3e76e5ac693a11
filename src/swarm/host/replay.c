/* replay.c - what the host does when a replayed step gives another loss or norm than before: the
 * stages go back once more, to other workers, other snapshots, and in the end to the checkpoint. */
#include "swarm/host/state.h"

#include <string.h>

enum {
    ATTEMPTS = 4 // after which the replayed values count
};

/* Names the kernels of all owners if they are CPUs that use the same ones. */
static void common_kernels(const struct host *h, char out[STRAIT_REPLAY_KERNELS]) {
    char kernels[STRAIT_REPLAY_KERNELS];
    const struct strait_coordinator *c = &h->coordinator;
    for (int i = 0; i < c->config.n_stages; i++) {
        strait_replay_kernels(c->workers[c->owner[i]].report.device, kernels);
        if (i == 0) memcpy(out, kernels, sizeof kernels);
        if (strcmp(out, kernels) != 0) out[0] = '\0';
    }
}

static strait_replay_result result_of(const struct host *h, int64_t step,
                                      const strait_executor_report *report) {
    strait_replay_result result = {
        .step = step, .loss_sum = report->loss_sum, .norm = report->norm};
    common_kernels(h, result.kernels);
    return result;
}

void strait_host_keep_result(struct host *h, int64_t step, const strait_executor_report *report) {
    const strait_replay_result result = result_of(h, step, report);
    strait_replay_check_keep(&h->replay, &result);
}

strait_err strait_host_check_replay(struct host *h, int64_t step,
                                    const strait_executor_report *report) {
    const strait_replay_result again = result_of(h, step, report);
    const strait_replay_result *first = strait_replay_check_compare(&h->replay, &again,
                                                                    h->replay.start);
    const double n_tokens = (double)h->run.train.batch_tokens;
    if (first == NULL) return STRAIT_OK;
    const int is_last = ++h->replay.n_differing > ATTEMPTS;
    strait_host_note(h,
                     "step %lld: replaying it gave loss %.9g and norm %.9g, the first time it was "
                     "%.9g and %.9g; %s",
                     (long long)step, again.loss_sum / n_tokens, again.norm,
                     first->loss_sum / n_tokens, first->norm,
                     is_last ? "continuing with the new values: no other workers and snapshots are "
                               "left to try. If you trust all workers, check their memory"
                             : "restoring again");
    if (is_last) {
        strait_host_keep_result(h, step, report);
        h->replay.n_differing = ATTEMPTS;
        return STRAIT_OK;
    }
    strait_host_feed_coordinator(h, &(strait_swarm_event){.kind = STRAIT_SWARM_REPLAY_DIFFERS});
    STRAIT_TRY(strait_host_wait_ready(h));
    return STRAIT_EAGAIN;
}
