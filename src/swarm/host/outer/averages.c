#include "swarm/host/outer/averages.h"

#include "base/clock.h"
#include "swarm/host/replicas.h"
#include "train/pipeline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    UNUSABLE_MAX = 3, // steps that a pipeline skips for one worker's values
    START_MS = 30000, // for the workers of all pipelines to come, before the first step
    WAIT_MS = 100
};

/* ---- who is there ---- */

/* Returns which replica a pipeline was in the generation before; -1: none, or its workers were
 * restored since. A number that a lost pipeline had may be another's now, which is then new. */
static int find_before(const struct host *h, int replica) {
    const struct strait_coordinator *c = &h->coordinator;
    const int number = strait_coordinator_pipeline(c, replica);
    if (replica > 0 &&
        c->workers[strait_coordinator_replica(c, 0, replica)].source != STRAIT_SWARM_FROM_LIVE)
        return -1;
    for (int r = 0; r < h->averages.n_pipelines; r++)
        if (h->averages.pipelines[r] == number) return r;
    return -1;
}

void strait_host_adopt_pipelines(struct host *h) {
    const struct strait_coordinator *c = &h->coordinator;
    const int n = strait_coordinator_n_replicas(c, 0);
    int before[STRAIT_SWARM_REPLICAS];
    if (!c->config.has_pipelines) return;
    for (int r = 0; r < n; r++)
        before[r] = find_before(h, r);
    for (int r = 0; r < n; r++)
        h->averages.pipelines[r] = strait_coordinator_pipeline(c, r);
    h->averages.n_pipelines = n;
    if (h->pipeline == NULL) return;
    if (c->replay.until >= 0) {
        strait_pipeline_regroup_average(h->pipeline, before);
        return;
    }
    h->averages.noted_at = -1; // steps are computed again, perhaps by others
    strait_pipeline_restart_average(h->pipeline, c->step, c->step != h->averages.unsent_at);
}

/* Whether a spare can be connected with the other workers of a stage, and with that of the stage
 * before in its pipeline, `prev` (-1: it is the first). */
static int can_connect(struct host *h, int spare, int stage, int prev, int has_relay) {
    const struct strait_coordinator *c = &h->coordinator;
    if (has_relay) return 1;
    for (int r = 0; r < strait_coordinator_n_replicas(c, stage); r++)
        if (strait_host_needs_relay(h, spare, strait_coordinator_replica(c, stage, r))) return 0;
    return prev < 0 || !strait_host_needs_relay(h, spare, prev);
}

/* Returns the spare of a stage that failed least; -1: none. */
static int find_spare(struct host *h, int stage, int prev, const int *is_taken, int has_relay) {
    const struct strait_coordinator *c = &h->coordinator;
    int best = -1;
    for (int slot = 0; slot < STRAIT_SWARM_WORKERS; slot++)
        if (!is_taken[slot] && strait_coordinator_stage_of(c, slot) < 0 &&
            strait_coordinator_may_help(c, slot, stage) &&
            (best < 0 || c->workers[slot].n_penalties < c->workers[best].n_penalties) &&
            can_connect(h, slot, stage, prev, has_relay))
            best = slot;
    return best;
}

/* Finds a spare for every stage, preferably without the relay; returns 0 where there is none. */
static int find_pipeline(struct host *h, int *slots) {
    const struct strait_coordinator *c = &h->coordinator;
    int is_taken[STRAIT_SWARM_WORKERS] = {0};
    for (int i = 0; i < c->config.n_stages; i++) {
        slots[i] = -1;
        for (int has_relay = 0; has_relay <= (h->spec->relay != NULL) && slots[i] < 0; has_relay++)
            slots[i] = find_spare(h, i, i > 0 ? slots[i - 1] : -1, is_taken, has_relay);
        if (slots[i] < 0) return 0;
        is_taken[slots[i]] = 1;
    }
    return 1;
}

/* Whether the relay may carry the averages of one pipeline more, of these workers. */
static int fits_relay(struct host *h, int64_t step, const int *slots) {
    const double limit = h->spec->relay_bps;
    const double bps = h->spec->relay != NULL ? strait_host_relayed_bps(h, slots) : 0.0;
    if (limit > 0.0 && bps > limit) {
        if (isfinite(bps) && !h->averages.has_told_limit)
            strait_host_note(h,
                             "step %lld: a pipeline more would send %.3g Mb/s of averages through "
                             "the relay, and --relay-rate allows %.3g: its workers stay spares",
                             (long long)step, bps / 1e6, limit / 1e6);
        h->averages.has_told_limit |= isfinite(bps) != 0;
        return 0;
    }
    if (isfinite(bps) && bps > 0.0)
        strait_host_note(h, "step %lld: averages send %.3g Mb/s through the relay, as planned",
                         (long long)step, bps / 1e6);
    h->averages.has_told_limit = 0;
    return 1;
}

/* A run that names its replicas begins with all of them, if they come soon: which pipelines there
 * are decides what is computed. */
static strait_err wait_for_all(struct host *h) {
    const struct strait_coordinator *c = &h->coordinator;
    const int64_t until = strait_clock_ns() + START_MS * INT64_C(1000000);
    const int64_t n_wanted = (int64_t)(c->config.replicas_limit - 1) * c->config.n_stages +
                             h->spec->n_spares;
    h->averages.has_waited = 1;
    if (h->run.stages.replicas.items[0] <= 1 || strait_host_count_idle(h) >= n_wanted)
        return STRAIT_OK;
    strait_host_note(h, "waiting up to %d s for %lld more workers: the run has %d pipelines",
                     START_MS / 1000, (long long)n_wanted - strait_host_count_idle(h),
                     c->config.replicas_limit);
    while (strait_host_count_idle(h) < n_wanted && strait_clock_ns() < until &&
           !h->spec->session.must_stop(h->spec->session.user))
        STRAIT_TRY(strait_host_pump(h, WAIT_MS));
    return STRAIT_OK;
}

strait_err strait_host_recruit_pipelines(struct host *h, int64_t step) {
    const struct strait_coordinator *c = &h->coordinator;
    const int is_start = step == 0 && c->committed == 0 && c->config.replicas_limit >= 2;
    int slots[STRAIT_RUN_STAGES];
    if (is_start && !h->averages.has_waited) STRAIT_TRY(wait_for_all(h));
    if (c->phase != STRAIT_PHASE_READY || (!is_start && !strait_host_may_recruit(h, step)))
        return STRAIT_OK;
    int n_idle = strait_host_count_idle(h);
    for (int n = strait_coordinator_n_replicas(c, 0);
         n < c->config.replicas_limit && n_idle >= c->config.n_stages + h->spec->n_spares &&
         find_pipeline(h, slots) && fits_relay(h, step, slots);
         n++) {
        const int pipeline = strait_coordinator_free_pipeline(c);
        for (int i = 0; i < c->config.n_stages; i++)
            strait_host_feed_coordinator(h, &(strait_swarm_event){.kind = STRAIT_SWARM_HELP,
                                                                  .worker = slots[i],
                                                                  .stage = i,
                                                                  .pipeline = pipeline});
        n_idle -= c->config.n_stages;
    }
    return STRAIT_OK;
}

/* ---- averages ---- */

/* Adds the workers of a pipeline to a list: "2 (c, d)". */
static size_t list_pipeline(const struct host *h, int pipeline, char *out, size_t capacity) {
    const struct strait_coordinator *c = &h->coordinator;
    int replica = 0;
    size_t n = (size_t)snprintf(out, capacity, "%d (", pipeline);
    while (replica < strait_coordinator_n_replicas(c, 0) &&
           h->averages.pipelines[replica] != pipeline)
        replica++;
    if (replica == strait_coordinator_n_replicas(c, 0))
        return n < capacity ? n + (size_t)snprintf(out + n, capacity - n, "lost since)") : n;
    for (int i = 0; i < c->config.n_stages && n < capacity; i++) {
        const int worker = strait_coordinator_replica(c, i, replica);
        n += (size_t)snprintf(out + n, capacity - n, "%s%s%s", i > 0 ? ", " : "",
                              worker >= 0 ? c->workers[worker].report.name : "lost since",
                              i + 1 == c->config.n_stages ? ")" : "");
    }
    return n;
}

/* The metrics have the numbers of the pipelines; the log says who they are, when that changes. An
 * average that a request finds done was logged before. */
static void note_members(struct host *h, int64_t done, uint64_t members) {
    char line[sizeof h->averages.members] = "";
    size_t n = 0;
    if (members == 0 || h->averages.noted_at == done) return;
    h->averages.noted_at = done;
    for (int k = 0; k < 64 && n < sizeof line; k++) {
        if ((members >> k & 1) == 0) continue;
        if (n > 0) n += (size_t)snprintf(line + n, sizeof line - n, ", ");
        if (n < sizeof line) n += list_pipeline(h, k, line + n, sizeof line - n);
    }
    if (strcmp(line, h->averages.members) == 0) return;
    memcpy(h->averages.members, line, sizeof line);
    strait_host_note(h, "step %lld: averaged pipelines %s", (long long)done, line);
}

/* The metrics keep who took part the first time; the log has who took part now. */
strait_err strait_host_average_once(struct host *h, int64_t done) {
    strait_executor_report report = {0};
    STRAIT_TRY(strait_pipeline_average(h->pipeline, done, &report));
    note_members(h, done, report.average_members);
    return STRAIT_OK;
}

/* Stages that were restored have computed the steps since again, averages included; those that keep
 * their state repeat the one that was interrupted. */
strait_err strait_host_average(struct strait_executor *executor, int64_t done,
                               strait_executor_report *out) {
    struct host *h = executor->user;
    strait_err err = STRAIT_EAGAIN;
    if (!h->coordinator.config.has_pipelines) return STRAIT_OK;
    while (err == STRAIT_EAGAIN) {
        STRAIT_TRY(strait_host_replay_to(executor, done));
        err = strait_pipeline_average(h->pipeline, done, out);
    }
    executor->lost = ~UINT64_C(1); // checkpoints are of the first pipeline
    STRAIT_TRY(err);
    note_members(h, done, out->average_members);
    return STRAIT_OK;
}

/* ---- values that cannot be used ---- */

/* Counts a step that a worker spoiled; returns whether that were too many. */
static int count_unusable(struct host *h, int slot, int64_t step) {
    if (step - h->averages.unusable[slot].step >= STRAIT_SWARM_CALM_STEPS)
        h->averages.unusable[slot].n = 0;
    h->averages.unusable[slot].step = step;
    if (++h->averages.unusable[slot].n < UNUSABLE_MAX) return 0;
    h->averages.unusable[slot].n = 0;
    return 1;
}

strait_err strait_host_judge_pipelines(struct host *h, int64_t step, const int *stages,
                                       const int *is_nonfinite) {
    const struct strait_coordinator *c = &h->coordinator;
    const int n = h->executor->plan.replicas[0];
    int guilty[STRAIT_SWARM_REPLICAS];
    int n_guilty = 0;
    for (int r = 0; r < n; r++) {
        const int slot = stages[r] >= 0 ? strait_coordinator_replica(c, stages[r], r) : -1;
        if (slot < 0) continue;
        strait_host_note(h, "step %lld, pipeline %d: %s, stage %d reported %s", (long long)step,
                         h->averages.pipelines[r], c->workers[slot].report.name, stages[r],
                         is_nonfinite[r] ? "non-finite values; the pipeline skips the step"
                                         : "a loss or squares far from before, or from others");
        if (!is_nonfinite[r] || count_unusable(h, slot, step)) guilty[n_guilty++] = slot;
    }
    for (int i = 0; i < n_guilty; i++) // numbers of replicas change with the first
        strait_host_feed_coordinator(
            h, &(strait_swarm_event){.kind = STRAIT_SWARM_BAD_VALUES, .worker = guilty[i]});
    if (c->phase == STRAIT_PHASE_READY) return STRAIT_OK;
    STRAIT_TRY(strait_host_wait_ready(h));
    return STRAIT_EAGAIN;
}

/* ---- snapshots and updates ---- */

/* The snapshots of another pipeline are of no use to a new first one: it takes its own at once. The
 * checkpoint after the last step has its own. */
int strait_host_average_snapshot(const struct host *h, int64_t step) {
    if (step == h->run.train.steps) return 0;
    return h->averages.kept_generation != h->coordinator.generation ||
           step % h->pace.snapshot_every == 0;
}

void strait_host_note_update(struct host *h, int worker, const strait_stage_command *command) {
    h->averages.updates[worker].step = command->update.step;
    h->averages.updates[worker].factor = command->update.factor;
}

strait_err strait_host_repeat_updates(struct host *h, int64_t step) {
    struct strait_stage_channel *channel = &h->work.channel;
    for (int i = 0; i < channel->n_members; i++) {
        int stage, replica;
        strait_run_plan_locate(&h->executor->plan, i, &stage, &replica);
        const int slot = strait_coordinator_replica(&h->coordinator, stage, replica);
        /* Else it has the state after, or was banned since. */
        const int is_known = slot >= 0 && h->averages.updates[slot].step == step;
        const strait_stage_command command = {
            .kind = STRAIT_COMMAND_UPDATE,
            .update = {.step = step, .factor = is_known ? h->averages.updates[slot].factor : NAN}};
        STRAIT_TRY(channel->ops->send(channel, i, &command));
    }
    return channel->ops->gather(channel);
}
