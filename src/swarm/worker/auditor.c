/* auditor.c - a spare computes an interval of a stage once more, from what the coordinator sends
 * it: a snapshot, crossings and token ids. It sends nothing to other workers, and learns nothing of
 * what is expected of it.
 *
 * The stage takes the place of one that this worker served before, within the same limits
 * (join --memory). A task that assigns a stage interrupts an audit. */
#include "swarm/worker/state.h"

/* Everything that the boundaries of the stage need arrives before the step does. */
strait_err strait_worker_audit_crossing(struct worker *w, struct strait_msg **msg) {
    struct strait_runner *runner = w->service != NULL ? strait_service_runner(w->service) : NULL;
    if (w->has_stage || runner == NULL) return STRAIT_OK; // late: of an audit that was interrupted
    struct strait_boundary *boundary = (*msg)->boundary + 1 == w->stage ? runner->receiver
                                                                        : runner->sender;
    return boundary != NULL ? strait_boundary_deliver(boundary, msg) : STRAIT_OK;
}

static strait_err open_stage(struct worker *w, const strait_task *task) {
    const strait_task assign = {.kind = STRAIT_TASK_ASSIGN,
                                .assign = {.stage = task->audit.stage,
                                           .valid_windows = task->audit.valid_windows,
                                           .commits = 1,
                                           .run_text = task->audit.run_text}};
    const strait_stage_command open = {
        .kind = STRAIT_COMMAND_OPEN,
        .open = {.n_slots = task->audit.n_slots, .may_reuse = !task->audit.from_seed}};
    strait_stage_reply reply;
    w->replicas = (strait_stage_replicas){.n = {1, 1, 1}, .most = 1};
    STRAIT_TRY(strait_worker_build_stage(w, &assign));
    STRAIT_TRY(strait_service_set_replicas(w->service, &w->replicas));
    STRAIT_TRY(strait_worker_expect_copies(w));
    strait_service_set_links(w->service, NULL, -1, -1);
    return strait_service_execute(w->service, &open, &reply);
}

static strait_err restore(struct worker *w, const strait_task *task) {
    struct strait_snapshot *incoming = &w->snapshots.incoming;
    struct strait_runner *runner = strait_service_runner(w->service);
    const int64_t step = task->audit.step;
    if (!task->audit.from_seed) {
        STRAIT_TRY(strait_worker_wait_for_snapshot(w, step));
        STRAIT_TRY(strait_snapshot_check_digest(incoming, &task->audit.digest));
        STRAIT_TRY(strait_snapshot_restore(incoming, runner));
    }
    w->step = step;
    strait_worker_begin_interval(w, step);
    return strait_runner_reset(runner, step);
}

/* The pieces of the snapshot follow the task at once, so they are expected before the stage is
 * built, which takes a while. */
static strait_err begin(struct worker *w, const strait_task *task) {
    w->prev = w->next_peer = -1;
    w->broken_side = 0;
    w->interval.is_on = 1;
    strait_worker_expect_snapshot(
        w, task->audit.from_seed ? STRAIT_WORKER_FROM_NONE : STRAIT_WORKER_FROM_HOST,
        task->audit.step);
    strait_worker_note(w, "auditing stage %d from step %lld on", task->audit.stage,
                       (long long)task->audit.step);
    STRAIT_TRY(open_stage(w, task));
    w->interval.n_audited = task->audit.n_replicas;
    STRAIT_TRY(strait_runner_hash_work(strait_service_runner(w->service), task->audit.n_replicas));
    const strait_err err = restore(w, task);
    w->snapshots.giver = STRAIT_WORKER_FROM_NONE;
    return err;
}

/* Which of several replicas computed each group. */
static strait_err take_owners(struct worker *w, const strait_view *owners) {
    struct strait_runner *runner = strait_service_runner(w->service);
    const size_t n = w->interval.n_audited > 1 ? (size_t)runner->plan.groups.n_groups : 0;
    if (owners->bytes != n)
        return STRAIT_FAIL(STRAIT_EPROTO, "a step to be audited with %zu groups, not %zu",
                           owners->bytes, n);
    for (size_t i = 0; i < n; i++) {
        if (owners->data[i] >= w->interval.n_audited)
            return STRAIT_FAIL(STRAIT_EPROTO, "a group of a replica that the stage does not have");
        runner->audited.replica[i] = owners->data[i];
    }
    return STRAIT_OK;
}

static strait_err compute(struct worker *w, const strait_task *task) {
    const int64_t step = task->audit_step.step;
    const strait_stage_command gradients = {
        .kind = STRAIT_COMMAND_GRADIENTS,
        .gradients = {.step = step, .mute_prev = 1, .mute_next = 1}};
    const strait_stage_command update = {.kind = STRAIT_COMMAND_UPDATE,
                                         .update = {step, task->audit_step.factor, 0}};
    strait_stage_reply reply;
    STRAIT_TRY(take_owners(w, &task->audit_step.owners));
    STRAIT_TRY(strait_service_execute(w->service, &gradients, &reply));
    w->progress++;
    return task->audit_step.is_skipped ? STRAIT_OK
                                       : strait_service_execute(w->service, &update, &reply);
}

/* The snapshot itself is sent where devices round differently. */
static strait_err end(struct worker *w, const strait_task *task, strait_audit_result *out) {
    struct strait_snapshot *snapshot = &w->snapshots.incoming; // memory that is not needed any more
    strait_commitment sum;
    STRAIT_TRY(strait_worker_end_interval(w, &sum, &out->reports));
    /* If the stage is assigned to us later, it is restored from what others have. */
    strait_service_runner(w->service)->live.applied = -1;
    STRAIT_TRY(strait_snapshot_capture(strait_service_runner(w->service), w->step, w->generation,
                                       snapshot));
    out->sent_prev = sum.sent_prev;
    out->sent_next = sum.sent_next;
    out->snapshot = snapshot->digest;
    strait_err err = STRAIT_OK;
    if (task->audit_end.sends_snapshot)
        err = strait_worker_send_snapshot(w, w->control.mesh, 0, snapshot, STRAIT_PRIORITY_CONTROL);
    strait_worker_drop_snapshot(snapshot);
    return err;
}

/* What each replica should have done in the step. */
static void describe(const struct worker *w, strait_digest row[STRAIT_WORK_MAX], strait_view *out) {
    const strait_work_shape shape = strait_worker_work_shape(w, w->interval.n_audited);
    if (shape.n_replicas <= 1) return;
    strait_worker_describe_work(w, shape, row);
    *out = (strait_view){(const unsigned char *)row,
                         (size_t)strait_work_digests(shape) * sizeof *row};
}

static strait_err execute(struct worker *w, const strait_task *task,
                          strait_digest row[STRAIT_WORK_MAX], strait_task_reply *reply) {
    if (task->kind == STRAIT_TASK_AUDIT) return begin(w, task);
    if (w->service == NULL || strait_service_runner(w->service) == NULL)
        return STRAIT_FAIL(STRAIT_EPROTO, "a task of an audit that was not begun");
    if (task->kind == STRAIT_TASK_AUDIT_END) return end(w, task, &reply->audit_end);
    STRAIT_TRY(compute(w, task));
    describe(w, row, &reply->audit_step.work);
    return STRAIT_OK;
}

strait_err strait_worker_audit(struct worker *w, const strait_task *task) {
    strait_task_reply reply = {
        .kind = task->kind, .generation = task->generation, .sequence = task->sequence};
    strait_digest row[STRAIT_WORK_MAX];
    if (w->has_stage) return STRAIT_OK; // late
    reply.err = execute(w, task, row, &reply);
    if (reply.err == STRAIT_EINTERRUPTED)
        return w->next != NULL || w->control.refusal != STRAIT_OK ? STRAIT_OK : reply.err;
    if (reply.err != STRAIT_OK) strait_worker_note(w, "audit: %s", strait_err_detail());
    w->account.n_audits += reply.err == STRAIT_OK && task->kind == STRAIT_TASK_AUDIT_END;
    return strait_worker_send_task_reply(w, &reply);
}
