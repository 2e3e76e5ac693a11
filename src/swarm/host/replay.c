/* replay.c - steps that are computed again: by stages that lost their state, alone, or by all.
 *
 * When a step that all have computed again gives another loss or norm than before, the stages go
 * back once more, to other workers, other snapshots, and in the end to the checkpoint. When a stage
 * that computes alone gives something else, all stages are rolled back. */
#include "swarm/host/replicas.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    ATTEMPTS = 4 // after which the replayed values count
};

/* Names the kernels of all owners if they are CPUs that use the same ones. */
static void common_kernels(const struct host *h, char out[STRAIT_REPLAY_KERNELS]) {
    char kernels[STRAIT_REPLAY_KERNELS];
    for (int i = 0; i < h->coordinator.config.n_stages; i++) {
        strait_replay_kernels(strait_host_owner(h, i)->report.device, kernels);
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
    /* Pipelines that train on their own give what they give: others may be there than before. */
    if (first == NULL || strait_run_plan_has_outer(&h->executor->plan)) return STRAIT_OK;
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

/* ---- stages that compute alone ---- */

static int is_late(const struct host *h, int stage) {
    return stage >= 0 && stage < h->coordinator.config.n_stages &&
           h->coordinator.replay.is_late[stage];
}

/* A late stage computes, muted towards neighbours that have its crossings; those send it theirs. */
static strait_stage_command replay_command(const struct host *h, int stage, int64_t step) {
    const int n = h->coordinator.config.n_stages;
    if (!is_late(h, stage))
        return (strait_stage_command){
            .kind = STRAIT_COMMAND_RESEND,
            .resend = {step, is_late(h, stage - 1), is_late(h, stage + 1)}};
    return (strait_stage_command){
        .kind = STRAIT_COMMAND_GRADIENTS,
        .gradients = {.step = step,
                      .mute_prev = stage > 0 && !is_late(h, stage - 1),
                      .mute_next = stage + 1 < n && !is_late(h, stage + 1)}};
}

/* Sends a command to the late stages, or to all. The others take part in the barrier by sending
 * nothing again. */
static strait_err command_late(struct host *h, const strait_stage_command *command, int64_t step,
                               int is_for_all) {
    struct strait_stage_channel *channel = &h->work.channel;
    const strait_stage_command nothing = {.kind = STRAIT_COMMAND_RESEND, .resend = {step, 0, 0}};
    for (int i = 0; i < channel->n_members; i++) {
        int stage, replica;
        strait_run_plan_locate(&h->executor->plan, i, &stage, &replica);
        STRAIT_TRY(
            channel->ops->send(channel, i, is_for_all || is_late(h, stage) ? command : &nothing));
    }
    return channel->ops->gather(channel);
}

/* A neighbour may have sent other crossings than the first time, or the snapshot or the device is
 * another: rolling all stages back depends on none of them. */
static strait_err fall_back(struct host *h, int64_t step, int stage, const char *reason) {
    strait_host_note(h, "step %lld, stage %d: %s; rolling all stages back", (long long)step, stage,
                     reason);
    strait_host_feed_coordinator(h, &(strait_swarm_event){.kind = STRAIT_SWARM_REPLAY_DIFFERS});
    STRAIT_TRY(strait_host_wait_ready(h));
    return STRAIT_EAGAIN;
}

/* The last stage proposes a basis from the gradients that it has seen, and forgets them: when it
 * computes steps again it does so, too, and its proposal is the one that all have adopted. */
static strait_err propose(struct host *h, int64_t step) {
    const int last = h->coordinator.config.n_stages - 1;
    const int member = strait_run_plan_member(&h->executor->plan, last, 0);
    const strait_stage_command command = {.kind = STRAIT_COMMAND_PROPOSE_BASIS};
    const struct host_basis *known = strait_host_find_basis(h, (uint32_t)step);
    const struct host_step *first = strait_host_find_step(h, step - 1);
    char kernels[STRAIT_REPLAY_KERNELS];
    STRAIT_TRY(strait_stage_channel_command_one(&h->work.channel, member, &command));
    const strait_floats *basis = &h->work.channel.replies.items[member].propose_basis.basis;
    if (known == NULL) return strait_host_note_basis(h, (uint32_t)step, basis);
    strait_replay_kernels(strait_host_owner(h, last)->report.device, kernels);
    const int is_exact = kernels[0] != '\0' && first != NULL &&
                         strcmp(kernels, first->kernels[last]) == 0;
    if (!is_exact || (known->n == basis->n &&
                      memcmp(known->values, basis->data, (size_t)basis->n * sizeof(float)) == 0))
        return STRAIT_OK;
    return fall_back(h, step, last, "proposed another basis than the first time");
}

/* `step` steps were applied; the basis that follows them, if one is due. */
static strait_err end_basis(struct host *h, int64_t step, int is_for_all) {
    const int last = h->coordinator.config.n_stages - 1;
    if (!strait_run_plan_updates_basis(&h->executor->plan, step)) return STRAIT_OK;
    /* A stage that restored this very step has adopted it before. */
    const int computes_again = is_late(h, last) && h->coordinator.replay.from < step;
    if (computes_again || strait_host_find_basis(h, (uint32_t)step) == NULL)
        STRAIT_TRY(propose(h, step));
    const struct host_basis *basis = strait_host_find_basis(h, (uint32_t)step);
    const strait_stage_command adopt = {.kind = STRAIT_COMMAND_ADOPT_BASIS,
                                        .adopt_basis = {(uint32_t)step, {basis->values, basis->n}}};
    return command_late(h, &adopt, step, is_for_all);
}

strait_err strait_host_replay_alone(struct host *h, int64_t step) {
    struct strait_stage_channel *channel = &h->work.channel;
    const struct host_step *first = strait_host_find_step(h, step);
    const int is_last = step + 1 == h->coordinator.replay.until;
    if (first == NULL || (!first->is_skipped && isnan(first->factor)))
        return fall_back(h, step, 0, "how the step ended is not known any more");
    /* No stage has further replicas while others compute alone. */
    for (int i = 0; i < channel->n_members; i++) {
        const strait_stage_command command = replay_command(h, i, step);
        STRAIT_TRY(channel->ops->send(channel, i, &command));
    }
    STRAIT_TRY(channel->ops->gather(channel));
    const int differing = strait_host_find_difference(h, step, h->replay.start);
    if (differing >= 0)
        return fall_back(h, step, differing,
                         "computed other values than the first time from the crossings that its "
                         "neighbours sent again");
    if (!first->is_skipped) {
        const strait_stage_command update = {.kind = STRAIT_COMMAND_UPDATE,
                                             .update = {.step = step, .factor = first->factor}};
        STRAIT_TRY(command_late(h, &update, step, is_last));
        STRAIT_TRY(end_basis(h, step + 1, is_last));
    }
    h->work.step = step + 1;
    if (is_last) h->work.must_finish = 0;
    return STRAIT_OK;
}

strait_err strait_host_finish_step(struct host *h, int64_t step) {
    const struct host_step *first = strait_host_find_step(h, step);
    if (first == NULL || first->is_skipped || isnan(first->factor)) return STRAIT_OK;
    const strait_stage_command update = {.kind = STRAIT_COMMAND_UPDATE,
                                         .update = {.step = step, .factor = first->factor}};
    if (h->coordinator.replay.must_update)
        STRAIT_TRY(strait_run_plan_has_outer(&h->executor->plan)
                       ? strait_host_repeat_updates(h, step)
                       : command_late(h, &update, step, 1));
    return end_basis(h, step + 1, 1);
}

/* Lists the late stages as "1, 2". */
static void list_late(const struct host *h, char *out, size_t capacity) {
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; i < h->coordinator.config.n_stages && n < capacity; i++)
        if (is_late(h, i))
            n += (size_t)snprintf(out + n, capacity - n, "%s%d", n > 0 ? ", " : "", i);
}

void strait_host_note_restored(struct host *h) {
    const struct strait_coordinator *c = &h->coordinator;
    const strait_swarm_replay *r = &c->replay;
    char how[256] = "";
    char late[128];
    if (r->until < 0 && r->n_stage_steps > 0)
        (void)snprintf(how, sizeof how, " (rollback: %lld stage-steps are recomputed)",
                       (long long)r->n_stage_steps);
    list_late(h, late, sizeof late);
    if (r->until >= 0)
        (void)snprintf(how, sizeof how,
                       " (replay: stage %s restored step %lld, the others keep their state; %lld "
                       "stage-steps are recomputed, %lld by a rollback)",
                       r->n_late > 0 ? late : "none", (long long)r->from,
                       (long long)r->n_stage_steps, (long long)r->n_rolled_back);
    strait_host_note(h, "generation %u: all stages ready at step %lld%s", c->generation,
                     (long long)(r->until >= 0 ? r->until : c->step), how);
}
