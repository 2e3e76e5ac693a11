/* executor.c - the executor of a swarm. The trainer does not notice when stages are restored from a
 * snapshot: the executor replays the steps since and repeats the request. */
#include "base/alloc.h"
#include "base/clock.h"
#include "config/run.h"
#include "swarm/budget.h"
#include "swarm/host/checkpoint/first.h"
#include "swarm/host/codec/codec.h"
#include "swarm/host/replicas.h"
#include "train/pipeline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    INTERVAL_MAX = 1000000 // steps between snapshots
};

/* Share of the run time that taking snapshots, hashing them and the copies of a neighbour's, and
 * encrypting may cost a worker. */
static const double snapshot_share = 0.01;

struct swarm {
    struct strait_pipeline *pipeline; // over the host's channel
};

static struct host *host_of(struct strait_executor *executor) {
    return executor->user;
}

static struct strait_pipeline *pipeline_of(struct strait_executor *executor) {
    return ((struct swarm *)executor->state)->pipeline;
}

/* Keeps what the last step cost, for rebalancing, placing and for the snapshot interval. */
static void note_times(struct strait_executor *executor, double began,
                       const strait_executor_report *report) {
    struct host *h = host_of(executor);
    h->pace.step_s = strait_clock_seconds() - began;
    for (int i = 0; i < executor->plan.n_stages; i++)
        h->pace.busy_s[i] = strait_pipeline_busy_seconds(pipeline_of(executor), i);
    strait_host_note_speeds(h, report);
}

/* Notes how long the copies of the latest snapshot took: until a neighbour reported to have them.
 */
static void note_copies(struct host *h) {
    const struct strait_coordinator *c = &h->coordinator;
    if (h->pace.kept_step == 0) return;
    const double since_s = (double)(strait_clock_ns() - h->pace.kept_ns) * 1e-9;
    for (int i = 0; i < c->config.n_stages; i++) {
        const int holder = i + 1 < c->config.n_stages ? i + 1 : i - 1;
        if (!h->pace.is_copied[i] && strait_coordinator_can_give(c, holder, i, h->pace.kept_step)) {
            h->pace.is_copied[i] = 1;
            h->pace.copied_s[i] = since_s;
        }
    }
}

/* Returns how long the slowest copy takes. A worker estimates it for its own stage, and snapshots
 * are the rarer the longer it is: an estimate counts no more than twice what the last copy took. */
static double copy_seconds(const struct host *h) {
    double longest = 0.0;
    for (int i = 0; i < h->coordinator.config.n_stages; i++) {
        double copy_s = strait_pipeline_copy_seconds(pipeline_of(h->executor), i);
        const double took_s = h->pace.copied_s[i];
        if (took_s > 0.0) copy_s = fmin(copy_s, 2.0 * took_s);
        longest = fmax(longest, copy_s);
    }
    return longest;
}

/* Follows what a snapshot costs, down at once and up slowly: a snapshot that was interrupted must
 * not put the next ones off. Returns 0 for the first, whose memory was new: it says little. */
static int note_cost(struct host_pace *pace, double cost_s) {
    const int is_first = cost_s > 0.0 && pace->snapshot_s <= 0.0;
    if (is_first || (cost_s > 0.0 && cost_s < pace->snapshot_s))
        pace->snapshot_s = cost_s;
    else if (cost_s > 0.0)
        pace->snapshot_s += (cost_s - pace->snapshot_s) / 8.0;
    return !is_first;
}

/* Chooses the steps between snapshots: as many as make their cost a small share of the time, but no
 * more than the work that may be lost, and at least as many as a copy takes. A copy that arrives
 * after all workers hold newer snapshots could never be restored from. */
static void choose_interval(struct host *h) {
    const struct strait_pipeline *pipeline = pipeline_of(h->executor);
    note_copies(h);
    const strait_stage_command *ended = &h->work.queue[0]; // a basis may have followed the update
    const double copy_s = copy_seconds(h);
    const int is_known = note_cost(&h->pace, strait_pipeline_snapshot_seconds(pipeline));
    if (copy_s > 0.0) h->pace.copy_s = copy_s; // 0 before the first snapshot
    if (ended->kind == STRAIT_COMMAND_UPDATE && ended->update.keep_snapshot) {
        h->averages.kept_generation = h->coordinator.generation;
        h->pace.kept_step = h->work.step;
        h->pace.kept_ns = strait_clock_ns();
        memset(h->pace.is_copied, 0, sizeof h->pace.is_copied);
    }
    if (h->pace.step_s <= 0.0 || !is_known) return;
    const double least = ceil(h->pace.snapshot_s / snapshot_share / h->pace.step_s);
    const double most = floor(h->spec->max_lost_work_s / h->pace.step_s);
    double every = least < most ? least : most;
    if (every < 1.0) every = 1.0;
    if (every < ceil(h->pace.copy_s / h->pace.step_s))
        every = ceil(h->pace.copy_s / h->pace.step_s);
    h->pace.snapshot_every = every > INTERVAL_MAX ? INTERVAL_MAX : (int)every;
}

static strait_err replay_step(struct strait_executor *executor, int64_t step);

/* A step has ended; the command that ended it is still in the queue. */
static void note_audit(struct host *h, int64_t step, float factor, int is_skipped) {
    const strait_stage_command *last = &h->work.queue[0];
    strait_host_audit_step(h, step, factor, is_skipped,
                           !is_skipped && last->kind == STRAIT_COMMAND_UPDATE &&
                               last->update.keep_snapshot);
}

/* Computes a step again: by the stages that lost their state, or by all of them. */
static strait_err next_step(struct strait_executor *executor) {
    struct host *h = host_of(executor);
    const int64_t until = h->coordinator.replay.until;
    if (h->work.step < until) return strait_host_replay_alone(h, h->work.step);
    if (!h->work.must_finish) return replay_step(executor, h->work.step);
    h->work.must_finish = 0;
    if (until > 0) STRAIT_TRY(strait_host_finish_step(h, until - 1));
    return strait_host_average_once(h, until > 0 ? until : h->work.step);
}

strait_err strait_host_replay_to(struct strait_executor *executor, int64_t step) {
    struct host *h = host_of(executor);
    do {
        STRAIT_TRY(strait_host_wait_ready(h));
        h->work.has_rolled_back = 0;
        while ((h->work.step < step || h->work.must_finish) && !h->work.has_rolled_back) {
            const strait_err err = next_step(executor);
            if (err != STRAIT_OK && err != STRAIT_EAGAIN) return err;
        }
    } while (h->work.has_rolled_back);
    return STRAIT_OK;
}

static strait_err verify(struct strait_executor *executor, int64_t step, int is_replay) {
    return strait_host_verify_step(
        host_of(executor), step, strait_pipeline_nonfinite_stage(pipeline_of(executor)), is_replay);
}

/* Recomputes a step whose losses the trainer already has: same data, same bits. */
static strait_err replay_step(struct strait_executor *executor, int64_t step) {
    struct host *h = host_of(executor);
    strait_executor_report report;
    STRAIT_TRY(strait_host_recruit(h, step)); // many steps may have to be computed again
    const double began = strait_clock_seconds();
    STRAIT_TRY(strait_pipeline_gradients(pipeline_of(executor), step, &report));
    note_times(executor, began, &report);
    STRAIT_TRY(verify(executor, step, 1));
    STRAIT_TRY(strait_host_audit_compare(h, step));
    STRAIT_TRY(strait_host_check_replay(h, step, &report));
    strait_host_note_step(h, step, &report);
    STRAIT_TRY(strait_host_audit_gradients(h, step));
    const int is_skipped = !isfinite(report.loss_sum) || !isfinite(report.norm);
    const float factor = strait_executor_factor(executor->run.train.clip, report.norm);
    strait_host_note_factor(h, step, factor);
    if (!is_skipped) STRAIT_TRY(strait_pipeline_update(pipeline_of(executor), step, factor));
    h->work.step = step + 1;
    note_audit(h, step, factor, is_skipped);
    return strait_host_average_once(h, step + 1);
}

static strait_err gradients(struct strait_executor *executor, int64_t step,
                            strait_executor_report *out) {
    struct host *h = host_of(executor);
    strait_err err = STRAIT_EAGAIN;
    strait_host_adopt_checkpoint(h);
    STRAIT_TRY(strait_host_audit_check(h));
    while (err == STRAIT_EAGAIN) {
        STRAIT_TRY(strait_host_replay_to(executor, step));
        strait_host_rebalance(h, step);
        STRAIT_TRY(strait_host_tell_outlook(h, step));
        STRAIT_TRY(strait_host_recruit(h, step));
        err = strait_host_check_links(h);
        if (err == STRAIT_EAGAIN) continue;
        STRAIT_TRY(err);
        const double began = strait_clock_seconds();
        err = strait_pipeline_gradients(pipeline_of(executor), step, out);
        if (err == STRAIT_OK) note_times(executor, began, out);
        if (err == STRAIT_OK) err = verify(executor, step, 0);
        if (err == STRAIT_OK) err = strait_host_audit_compare(h, step);
    }
    if (err == STRAIT_OK)
        strait_host_note_progress(h, step + 1,
                                  out->loss_sum / (double)executor->run.train.batch_tokens);
    if (err == STRAIT_OK) strait_host_keep_result(h, step, out);
    if (err == STRAIT_OK) strait_host_note_step(h, step, out);
    if (err == STRAIT_OK) err = strait_host_audit_gradients(h, step);
    /* The trainer skips the update of a non-finite step, so the step ends here. */
    if (err == STRAIT_OK && !(isfinite(out->loss_sum) && isfinite(out->norm))) {
        h->work.step = step + 1;
        note_audit(h, step, 0.0f, 1);
    }
    return err;
}

static strait_err update(struct strait_executor *executor, int64_t step, float factor) {
    struct host *h = host_of(executor);
    strait_host_note_factor(h, step, factor);
    strait_err err = strait_pipeline_update(pipeline_of(executor), step, factor);
    if (err == STRAIT_EAGAIN)
        return strait_host_replay_to(executor, step + 1); // the restored stages replay it
    if (err != STRAIT_OK) return err;
    h->work.step = step + 1;
    for (int i = 0; i < executor->plan.n_stages; i++)
        h->pace.link_bps[i] = strait_pipeline_link_bps(pipeline_of(executor), i);
    choose_interval(h);
    note_audit(h, step, factor, 0);
    return STRAIT_OK;
}

static strait_err validate(struct strait_executor *executor, int64_t step, double *loss_sum) {
    for (;;) {
        STRAIT_TRY(strait_host_replay_to(executor, step));
        strait_err err = strait_pipeline_validate(pipeline_of(executor), step, loss_sum);
        if (err == STRAIT_OK)
            err = strait_host_verify_validation(host_of(executor), step, *loss_sum);
        if (err != STRAIT_EAGAIN) return err;
    }
}

/* Nothing to do: the coordinator restored the stages from the checkpoint, or from something newer.
 */
static strait_err read_files(struct strait_executor *executor,
                             struct strait_checkpoint *checkpoint) {
    (void)executor;
    (void)checkpoint;
    return STRAIT_OK;
}

static strait_err trace(struct strait_executor *executor, const char *path) {
    (void)executor;
    (void)path;
    return STRAIT_FAIL(STRAIT_ENOTSUP, "a swarm does not write traces: use strait train");
}

/* ---- opening ---- */

/* Renders the run file that workers get: every option resolved, without our paths and devices. */
static strait_err describe_run(struct host *h, const struct strait_executor *executor) {
    static _Thread_local strait_run run; // too large for the stack
    run = executor->run;
    run.data.train[0] = run.data.valid[0] = run.data.tokenizer[0] = '\0';
    run.stages.launch[0] = '\0';
    /* Workers get the first weights from a checkpoint, and not our path. */
    if (run.train.init_from[0] != '\0' || strait_host_has_first(h))
        (void)snprintf(run.train.init_from, sizeof run.train.init_from, "checkpoint");
    (void)snprintf(run.device.kind, sizeof run.device.kind, "cpu");
    run.device.ordinal = (strait_option_ints){.n = 1};
    run.device.threads = 0;
    run.model.vocab = executor->plan.shape.vocab;
    run.stages.microbatch = executor->plan.microbatch;
    run.stages.replicas = (strait_option_ints){.items = {executor->plan.replicas_limit}, .n = 1};
    run.stages.split.n = executor->plan.n_stages;
    for (int i = 0; i < executor->plan.n_stages; i++)
        run.stages.split.items[i] = executor->plan.stage_layers[i].last -
                                    executor->plan.stage_layers[i].first;
    const size_t bytes = strait_options_render(strait_run_options(), &run, NULL, h->task_text,
                                               sizeof h->task_text);
    return bytes < sizeof h->task_text
               ? STRAIT_OK
               : STRAIT_FAIL(STRAIT_EINVAL, "the run file has %zu bytes, more than workers accept",
                             bytes);
}

/* Stages are timed with one slot, since an earlier attempt may have left them more. */
static strait_err time_and_open(struct strait_executor *executor) {
    int one[STRAIT_RUN_STAGES];
    for (int i = 0; i < STRAIT_RUN_STAGES; i++)
        one[i] = 1;
    STRAIT_TRY(strait_pipeline_open_stages(pipeline_of(executor), one, 1));
    STRAIT_TRY(strait_pipeline_choose_windows(pipeline_of(executor)));
    strait_host_correct_speeds(host_of(executor));
    STRAIT_TRY(strait_host_fit_windows(host_of(executor), executor));
    return strait_pipeline_open_stages(pipeline_of(executor), executor->windows, 1);
}

/* Chooses the windows of a new run from timed passes; starts over if workers change meanwhile. */
static strait_err choose_windows(struct strait_executor *executor) {
    struct host *h = host_of(executor);
    strait_err err = STRAIT_EAGAIN;
    while (err == STRAIT_EAGAIN) {
        STRAIT_TRY(strait_host_replay_to(executor, 0));
        err = time_and_open(executor);
    }
    STRAIT_TRY(err);
    memcpy(h->windows, executor->windows, sizeof h->windows);
    STRAIT_TRY(strait_host_plan_memory(h, executor));
    return strait_host_save_run(h);
}

/* Stages whose window was not chosen get the fewest slots that keep a 1F1B pipeline full. */
static void default_windows(struct host *h, const struct strait_executor *executor) {
    for (int i = 0; i < executor->plan.n_stages; i++) {
        if (h->windows[i] == 0) h->windows[i] = strait_budget_least_slots(&executor->plan, i);
    }
}

static strait_err open_swarm(struct strait_executor *executor) {
    struct host *h = host_of(executor);
    struct swarm *swarm = executor->state;
    const size_t n = (size_t)(executor->plan.microbatch * executor->plan.shape.context);
    h->executor = executor;
    executor->lost = ~UINT64_C(1); // checkpoints are of the first pipeline alone (train.outer)
    strait_host_plan_replicas(h, &executor->plan);
    STRAIT_TRY(strait_host_channel_open(h, &executor->plan));
    STRAIT_TRY(strait_pipeline_open(executor, &h->work.channel, &swarm->pipeline));
    h->pipeline = swarm->pipeline;
    STRAIT_TRY(strait_alloc(2 * n, sizeof *h->ids, "ids", (void **)&h->ids));
    STRAIT_TRY(strait_host_open_claims(h));
    STRAIT_TRY(describe_run(h, executor));
    STRAIT_TRY(strait_host_plan_memory(h, executor));
    STRAIT_TRY(strait_host_find_checkpoint(h));
    const int is_new = h->coordinator.committed == 0 && executor->plan.n_stages > 1;
    if (!is_new) default_windows(h, executor);
    strait_host_announce_first(h, is_new && h->windows[0] == 0);
    strait_host_feed_coordinator(h,
                                 &(strait_swarm_event){.kind = STRAIT_SWARM_START,
                                                       .owners = h->has_chosen ? h->chosen : NULL});
    STRAIT_TRY(strait_host_wait_ready(h));
    if (h->probes.is_measuring) return strait_host_measure(h);
    if (is_new && h->work.step == 0 && h->windows[0] == 0) STRAIT_TRY(choose_windows(executor));
    STRAIT_TRY(strait_host_restore_first(h));
    memcpy(executor->windows, h->windows, sizeof executor->windows);
    (void)snprintf(executor->device, sizeof executor->device, "%d workers",
                   executor->plan.n_stages);
    executor->step = h->work.step;
    h->work.has_rolled_back = 0;
    return STRAIT_OK;
}

static void close_swarm(struct strait_executor *executor) {
    struct host *h = host_of(executor);
    struct swarm *swarm = executor->state;
    h->executor = NULL;
    h->pipeline = NULL;
    strait_alloc_free(h->ids);
    h->ids = NULL;
    strait_pipeline_close(&swarm->pipeline);
    strait_stage_channel_close(&h->work.channel);
}

static strait_err run_async(struct strait_executor *executor, strait_err (*run)(void *arg),
                            void *arg) {
    return strait_host_run_async(executor->user, run, arg, strait_host_keep_alive);
}

const struct strait_executor_ops strait_swarm_executor = {
    .state_size = sizeof(struct swarm),
    .open = open_swarm,
    .close = close_swarm,
    .gradients = gradients,
    .update = update,
    .average = strait_host_average,
    .validate = validate,
    .write = strait_host_write,
    .read = read_files,
    .trace = trace,
    .run_async = run_async,
};
