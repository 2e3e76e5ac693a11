/* stage.c - builds the stage that the coordinator assigns and restores it to a step. */
#include "base/alloc.h"
#include "base/clock.h"
#include "stage/outer/outer_command.h"
#include "swarm/budget.h"
#include "swarm/worker/state.h"

#include <stdio.h>
#include <string.h>

enum {
    RESTORE_MS = 600000, // without a piece of the snapshot to restore
    POLL_MS = 20
};

void strait_worker_drop_stage(struct worker *w) {
    strait_service_close(&w->service);
    strait_alloc_free(w->ids);
    strait_alloc_free(w->run_text);
    w->ids = NULL;
    w->run_text = NULL;
}

/* Parses the run that the coordinator describes. The device is our own choice, and paths are
 * cleared: a coordinator must not be able to make us read files. */
static strait_err read_run(struct worker *w, const strait_task *task) {
    strait_run *run = &w->run;
    const char *text = task->assign.run_text;
    STRAIT_TRY(strait_run_init_text("the run", text, strlen(text), NULL, 0, run));
    run->data.train[0] = run->data.valid[0] = run->data.tokenizer[0] = '\0';
    run->stages.launch[0] = '\0';
    (void)snprintf(run->device.kind, sizeof run->device.kind, "%s", w->spec->device);
    run->device.ordinal = (strait_option_ints){.items = {w->spec->ordinal}, .n = 1};
    run->device.threads = w->spec->n_threads;
    run->link.transport = STRAIT_RUN_TLS;
    if (task->assign.stage >= run->stages.count || task->assign.valid_windows > STRAIT_VALID_MAX ||
        run->model.vocab < 1)
        return STRAIT_FAIL(STRAIT_EPROTO,
                           "the coordinator described a run without stage %d, or with impossible "
                           "sizes",
                           task->assign.stage);
    return STRAIT_OK;
}

/* The device holds the stage alone: snapshots and messages are kept by the host. */
static strait_err check_device(const struct worker *w, const strait_run_plan *plan, int stage,
                               int n_slots) {
    strait_runner_memory memory;
    if (w->device_bytes <= 0.0) return STRAIT_OK;
    STRAIT_TRY(strait_runner_plan(plan, stage, n_slots, &memory));
    if ((double)memory.device <= w->device_bytes) return STRAIT_OK;
    return STRAIT_FAIL(
        STRAIT_ENOMEM,
        "stage %d with %d microbatches in flight needs %.0f MB of device memory, and "
        "%.0f MB are free",
        stage, n_slots, (double)memory.device / 1e6, w->device_bytes / 1e6);
}

/* Refuses a stage that takes more memory than this machine lends, before anything is allocated for
 * it. */
static strait_err check_memory(const struct worker *w, const strait_run_plan *plan, int stage,
                               int n_slots) {
    const double lent = w->report.memory_bytes;
    strait_budget budget;
    if (w->spec->is_forced) return STRAIT_OK;
    STRAIT_TRY(check_device(w, plan, stage, n_slots));
    STRAIT_TRY(strait_budget_plan(plan, stage, n_slots, w->valid_windows, &budget));
    const double need = strait_budget_sum(&budget);
    if (lent <= 0.0 || need <= lent) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ENOMEM,
                       "stage %d with %d microbatches in flight needs %.0f MB (%.0f of them for "
                       "snapshots, %.0f for token ids, %.0f for messages), and this machine %s "
                       "%.0f MB",
                       stage, n_slots, need / 1e6, budget.snapshots / 1e6, budget.ids / 1e6,
                       budget.messages / 1e6, w->spec->memory_bytes > 0.0 ? "lends" : "has",
                       lent / 1e6);
}

/* More slots than microbatches are refused by the service. To plan them would itself take the
 * memory that is to be saved. */
strait_err strait_worker_check_slots(const struct worker *w, int n_slots) {
    const strait_run_plan *plan = strait_service_plan(w->service);
    if (n_slots < 1 || n_slots > plan->n_microbatches) return STRAIT_OK;
    return check_memory(w, plan, w->stage, n_slots);
}

/* Checked with the fewest slots that a pipeline of this length uses; how many more the coordinator
 * wants is known when it opens the stage. */
static strait_err check_stage(struct worker *w, const strait_task *task) {
    strait_run_plan plan;
    w->valid_windows = task->assign.valid_windows;
    STRAIT_TRY(strait_run_plan_init(&w->run, w->run.model.vocab, &plan));
    strait_run_plan_make_elastic(&plan);
    return check_memory(w, &plan, task->assign.stage,
                        strait_budget_least_slots(&plan, task->assign.stage));
}

static strait_err copy_text(struct worker *w, const char *text) {
    const size_t bytes = strlen(text) + 1;
    STRAIT_TRY(strait_alloc(1, bytes, "run file", (void **)&w->run_text));
    memcpy(w->run_text, text, bytes);
    return STRAIT_OK;
}

static strait_err open_service(struct worker *w, const strait_task *task) {
    struct strait_loader *loader = NULL;
    STRAIT_TRY(read_run(w, task));
    STRAIT_TRY(check_stage(w, task));
    w->stage = task->assign.stage;
    STRAIT_TRY(strait_loader_open_remote(w->run.model.vocab, task->assign.valid_windows, &loader));
    const strait_service_spec spec = {.run = &w->run,
                                      .stage = w->stage,
                                      .counts_frames = 1,
                                      .keeps_crossings = 1,
                                      .is_elastic = 1,
                                      .hooks = strait_worker_hooks(w)};
    STRAIT_TRY(strait_service_open(&spec, &loader, &w->service));
    const strait_run_plan *plan = strait_service_plan(w->service);
    const size_t n = (size_t)(plan->microbatch * plan->shape.context);
    STRAIT_TRY(strait_alloc(2 * n, sizeof *w->ids, "ids", (void **)&w->ids));
    return copy_text(w, task->assign.run_text);
}

/* Keeps the service if it is of the same stage and run: its weights and snapshots may save a
 * transfer. */
strait_err strait_worker_build_stage(struct worker *w, const strait_task *task) {
    struct worker_snapshots *s = &w->snapshots;
    const int is_same_run = w->run_text != NULL && strcmp(w->run_text, task->assign.run_text) == 0;
    if (is_same_run && w->stage == task->assign.stage) return STRAIT_OK;
    strait_worker_drop_stage(w);
    for (int i = 0; i < STRAIT_SWARM_SNAPSHOTS; i++)
        s->own[i].bytes = s->own[i].filled = 0;
    for (int i = 0; i < 2 * STRAIT_WORKER_COPIES && !is_same_run; i++) {
        struct strait_snapshot
            *copy = &s->copies[i / STRAIT_WORKER_COPIES][i % STRAIT_WORKER_COPIES];
        copy->bytes = copy->filled = 0;
    }
    const strait_err err = open_service(w, task);
    if (err != STRAIT_OK) strait_worker_drop_stage(w);
    return err;
}

/* Replicas that train on their own (train.outer) differ: what a further one restored, or took, is
 * not what the first replica of the stage has. */
static int trains_alone(const struct worker *w) {
    return strait_run_plan_has_outer(strait_service_plan(w->service));
}

static void drop_own(struct worker *w) {
    for (int i = 0; i < STRAIT_SWARM_SNAPSHOTS; i++)
        strait_worker_drop_snapshot(&w->snapshots.own[i]);
}

strait_err strait_worker_assign(struct worker *w, const strait_task *task,
                                char address[STRAIT_ADDRESS_MAX]) {
    w->prev = w->next_peer = w->own_first = -1;
    w->broken_side = 0;
    w->snapshots.rejected_prev = w->snapshots.rejected_next = 0;
    w->snapshots.sending = NULL;
    w->snapshots.has_ignored = w->snapshots.is_due = 0;
    memset(w->stray, 0, sizeof w->stray);
    w->awaits_restore = 1;
    strait_worker_expect_snapshot(w, STRAIT_WORKER_FROM_NONE, 0);
    STRAIT_TRY(strait_worker_build_stage(w, task));
    STRAIT_TRY(strait_service_set_replicas(w->service, &task->assign.replicas));
    const int had_replica = w->replicas.replica;
    w->replicas = task->assign.replicas;
    if (trains_alone(w) && had_replica > 0 && w->replicas.replica == 0) drop_own(w);
    STRAIT_TRY(strait_worker_expect_copies(w));
    STRAIT_TRY(strait_worker_open_mesh(w, address));
    strait_service_set_links(w->service, w->mesh, -1, -1);
    return STRAIT_OK;
}

/* ---- restoring ---- */

/* Initialises the weights again, unless the stage still has the initial ones. */
static strait_err restore_initial(struct worker *w) {
    const struct strait_runner *runner = strait_service_runner(w->service);
    const strait_stage_command command = {.kind = STRAIT_COMMAND_OPEN,
                                          .open = {.n_slots = runner->n_slots}};
    strait_stage_reply reply;
    return runner->has_initial_weights ? STRAIT_OK
                                       : strait_service_execute(w->service, &command, &reply);
}

/* Sends the owner of the neighbouring `stage` our copy of its snapshot. */
static strait_err return_copy(struct worker *w, int peer, int stage, int64_t step) {
    const struct strait_snapshot *copy = NULL;
    for (int side = 0; side < 2 && copy == NULL; side++)
        copy = strait_worker_find_snapshot(w->snapshots.copies[side], STRAIT_WORKER_COPIES, stage,
                                           step);
    if (copy == NULL || peer < 0)
        return STRAIT_FAIL(STRAIT_EPROTO, "this worker has no copy of stage %d at step %lld", stage,
                           (long long)step);
    w->snapshots.is_returning_copy = 1;
    const strait_err err = strait_worker_send_snapshot(w, w->mesh, peer, copy,
                                                       STRAIT_PRIORITY_GRADIENT);
    w->snapshots.is_returning_copy = 0;
    return err;
}

/* Sends other replicas of our stage the snapshot of `step` that we took. */
static strait_err give_replicas(struct worker *w, unsigned replicas, int64_t step) {
    const strait_stage_links *links = strait_service_links(w->service);
    struct strait_snapshot *own = strait_worker_find_snapshot(
        w->snapshots.own, STRAIT_SWARM_SNAPSHOTS, w->stage, step);
    for (int i = 0; i < links->n[STRAIT_SIDE_SAME]; i++) {
        const int peer = links->peers[STRAIT_SIDE_SAME][i];
        if ((replicas >> i & 1u) == 0) continue;
        if (own == NULL || peer < 0)
            return STRAIT_FAIL(STRAIT_EPROTO,
                               "this worker has no snapshot of stage %d at step %lld for replica "
                               "%d",
                               w->stage, (long long)step, i);
        w->snapshots.is_returning_copy = 1;
        const strait_err err = strait_worker_send_snapshot(w, w->mesh, peer, own,
                                                           STRAIT_PRIORITY_GRADIENT);
        w->snapshots.is_returning_copy = 0;
        STRAIT_TRY(err);
    }
    return STRAIT_OK;
}

/* Asks the coordinator for the tensors of our stage in the checkpoint. */
static strait_err request_checkpoint(struct worker *w) {
    struct strait_snapshot header = {0};
    struct strait_msg *msg = NULL;
    size_t total_bytes = 0;
    strait_err err = strait_snapshot_header(strait_service_runner(w->service), &header,
                                            &total_bytes);
    const strait_snapshot_request request = {w->generation, {header.data, header.bytes}};
    if (err == STRAIT_OK)
        err = strait_snapshot_request_pack(strait_mesh_pool(w->control.mesh), &request, &msg);
    if (err == STRAIT_OK) err = strait_mesh_send(w->control.mesh, 0, &msg);
    strait_msg_close(&msg);
    strait_snapshot_fini(&header);
    return err;
}

strait_err strait_worker_wait_for_snapshot(struct worker *w, int64_t step) {
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L / 4};
    const struct strait_snapshot *incoming = &w->snapshots.incoming;
    int64_t received_ns = strait_clock_ns(); // the latest piece
    size_t filled = 0;
    while (!strait_snapshot_is_complete(incoming)) {
        if (incoming->filled != filled) received_ns = strait_clock_ns();
        filled = incoming->filled;
        if (w->snapshots.is_incoming_bad)
            return STRAIT_FAIL(STRAIT_EDATA,
                               "snapshot of stage %d at step %lld: its pieces do not fit together",
                               w->stage, (long long)step);
        if (strait_clock_ns() - received_ns > RESTORE_MS * INT64_C(1000000))
            return STRAIT_FAIL(STRAIT_ETIMEDOUT,
                               "stage %d: no more of its snapshot of step %lld arrived for %d s",
                               w->stage, (long long)step, RESTORE_MS / 1000);
        STRAIT_TRY(strait_worker_poll(w));
        if (!strait_snapshot_is_complete(incoming)) (void)nanosleep(&pause, NULL);
    }
    return STRAIT_OK;
}

/* Keeps the snapshot just restored as our own. The memory of the one it replaces is used for the
 * next incoming snapshot, so that nothing is allocated. */
static void keep_incoming(struct worker *w, int64_t step) {
    struct worker_snapshots *s = &w->snapshots;
    struct strait_snapshot *slot = strait_worker_find_snapshot(s->own, STRAIT_SWARM_SNAPSHOTS,
                                                               w->stage, step);
    if (slot == NULL)
        slot = strait_worker_free_snapshot(w); // else: replace our own, which was not trusted
    const struct strait_snapshot memory = *slot;
    *slot = s->incoming;
    slot->stage = w->stage;
    slot->step = step;
    slot->generation = w->generation;
    s->incoming = memory;
    s->incoming.bytes = s->incoming.filled = 0;
}

/* Restores a snapshot that a neighbour or the coordinator sends. A neighbour's must be what the
 * owner of the stage took, which the coordinator recorded; its own is from a checkpoint whose hash
 * it has verified. Nothing of the stage is changed before that. */
static strait_err restore_incoming(struct worker *w, const strait_task *task) {
    struct strait_snapshot *incoming = &w->snapshots.incoming;
    STRAIT_TRY(strait_worker_wait_for_snapshot(w, task->restore.step));
    if (task->restore.source == STRAIT_SWARM_FROM_HOST) {
        STRAIT_TRY(strait_snapshot_hash(incoming)); // the first to report it: us
    } else {
        STRAIT_TRY(strait_snapshot_check_digest(incoming, &task->restore.digest));
        STRAIT_TRY(strait_snapshot_check_finite(incoming));
    }
    STRAIT_TRY(strait_snapshot_restore(incoming, strait_service_runner(w->service)));
    keep_incoming(w, task->restore.step);
    return STRAIT_OK;
}

/* Bytes that changed in memory, and non-finite weights, are not restored: the coordinator then
 * chooses an older snapshot or a copy. */
static strait_err restore_own(struct worker *w, const strait_task *task) {
    struct strait_snapshot *own = strait_worker_find_snapshot(
        w->snapshots.own, STRAIT_SWARM_SNAPSHOTS, w->stage, task->restore.step);
    if (own == NULL)
        return STRAIT_FAIL(STRAIT_EPROTO, "this worker has no snapshot of stage %d at step %lld",
                           w->stage, (long long)task->restore.step);
    strait_err err = strait_snapshot_check_digest(own, &task->restore.digest);
    if (err == STRAIT_OK) err = strait_snapshot_check_finite(own);
    if (err != STRAIT_OK) own->bytes = own->filled = 0;
    return err == STRAIT_OK ? strait_snapshot_restore(own, strait_service_runner(w->service)) : err;
}

/* Returns who sends the snapshot that the task names. */
static int giver_of(const struct worker *w, strait_swarm_source source) {
    switch (source) {
    case STRAIT_SWARM_FROM_PREV: return w->prev;
    case STRAIT_SWARM_FROM_NEXT: return w->next_peer;
    case STRAIT_SWARM_FROM_HOST: return STRAIT_WORKER_FROM_HOST;
    case STRAIT_SWARM_FROM_REPLICA:
        return w->own_first >= 0 ? w->own_first : STRAIT_WORKER_FROM_NONE;
    default: return STRAIT_WORKER_FROM_NONE;
    }
}

static strait_err restore_from(struct worker *w, const strait_task *task) {
    switch (task->restore.source) {
    case STRAIT_SWARM_FROM_SEED: return restore_initial(w);
    case STRAIT_SWARM_FROM_SELF: return restore_own(w, task);
    case STRAIT_SWARM_FROM_HOST: STRAIT_TRY(request_checkpoint(w)); break;
    case STRAIT_SWARM_FROM_PREV:
    case STRAIT_SWARM_FROM_NEXT:
    case STRAIT_SWARM_FROM_REPLICA:
    case STRAIT_SWARM_FROM_LIVE: break;
    }
    return restore_incoming(w, task);
}

/* Continues with the state that the stage has. The newest snapshot is copied once more: the
 * neighbour that keeps our copies may be a new one. */
static strait_err keep_live(struct worker *w, const strait_task *task) {
    struct worker_snapshots *s = &w->snapshots;
    struct strait_snapshot *newest = NULL;
    STRAIT_TRY(strait_runner_keep_live(strait_service_runner(w->service), task->restore.live_step));
    for (int i = 0; i < STRAIT_SWARM_SNAPSHOTS; i++) {
        if (!strait_snapshot_is_complete(&s->own[i])) continue;
        if (newest == NULL || s->own[i].step > newest->step) newest = &s->own[i];
        /* Taken of this state, perhaps too late for the coordinator to record it. */
        if (s->own[i].step == task->restore.live_step) s->own[i].generation = w->generation;
    }
    s->sending = w->replicas.replica == 0 ? newest : NULL; // of replicas the first has copies
    s->sent = 0;
    s->is_urgent = 0;
    w->live_generation = w->generation;
    strait_worker_begin_interval(w, task->restore.live_step);
    return STRAIT_OK;
}

/* The stage has gone back to a step, and everything after it. */
static strait_err end_restore(struct worker *w, int64_t step) {
    strait_worker_trim_snapshots(w, step);
    w->step = step;
    strait_worker_begin_interval(w, step);
    STRAIT_TRY(strait_runner_reset(strait_service_runner(w->service), step));
    w->live_generation = w->generation;
    return STRAIT_OK;
}

strait_err strait_worker_restore(struct worker *w, const strait_task *task,
                                 strait_task_reply *reply) {
    const int64_t step = task->restore.step;
    if (w->service == NULL || strait_service_runner(w->service) == NULL)
        return STRAIT_FAIL(STRAIT_EPROTO, "task to restore before the stage was opened");
    w->snapshots.sending = NULL; // its snapshot may be dropped or replaced below
    w->failed_side = -1;
    w->awaits_restore = 0;
    strait_worker_expect_snapshot(w, giver_of(w, task->restore.source), step);
    if (task->restore.gives_prev) STRAIT_TRY(return_copy(w, w->prev, w->stage - 1, step));
    w->failed_side = 1;
    if (task->restore.gives_next) STRAIT_TRY(return_copy(w, w->next_peer, w->stage + 1, step));
    w->failed_side = 0;
    if (task->restore.gives_replicas != 0)
        STRAIT_TRY(give_replicas(w, (unsigned)task->restore.gives_replicas, step));
    w->failed_side = task->restore.source == STRAIT_SWARM_FROM_PREV
                         ? -1
                         : task->restore.source == STRAIT_SWARM_FROM_NEXT;
    if (task->restore.source == STRAIT_SWARM_FROM_LIVE) return keep_live(w, task);
    const strait_err err = restore_from(w, task);
    w->snapshots.giver = STRAIT_WORKER_FROM_NONE;
    /* The neighbour checked the copy when it arrived, so it is at fault now. */
    reply->restore.is_source_bad = (err == STRAIT_ENONFINITE || err == STRAIT_EDATA) &&
                                   task->restore.source != STRAIT_SWARM_FROM_HOST;
    STRAIT_TRY(err);
    if (w->replicas.replica > 0)
        STRAIT_TRY(strait_runner_catch_up(strait_service_runner(w->service)));
    return end_restore(w, step);
}
