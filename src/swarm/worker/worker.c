#include "swarm/worker/worker.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "net/core/frame.h"
#include "swarm/worker/capability.h"
#include "swarm/worker/state.h"

#include <stdio.h>
#include <string.h>

enum {
    IDLE_MS = 10, // between two polls of the neighbours' links while idle
    HEARTBEAT_MS = 1000,
    SILENCE_MS = 15000, // after which the link to the coordinator counts as lost
    DIAL_MS = 5000      // for each of its addresses
};

/* ---- receiving ---- */

/* The mesh dials again by itself, unless the coordinator refused us. */
static strait_err on_down(struct worker *w, const struct strait_msg *msg) {
    struct worker_control *c = &w->control;
    if (c->down_ns == 0) {
        c->down_ns = strait_clock_ns();
        strait_worker_say_held(w, 1);
        strait_worker_say_lost(w, msg);
    }
    c->is_joined = 0;
    if (msg->why != STRAIT_EAUTH && msg->why != STRAIT_EPROTO) return STRAIT_OK;
    c->refusal = msg->why;
    (void)snprintf(c->refusal_reason, sizeof c->refusal_reason, "%.*s", (int)msg->size,
                   (const char *)msg->body);
    return STRAIT_FAIL(STRAIT_EINTERRUPTED, "refused by the coordinator");
}

static strait_err take_ids(struct worker *w, const struct strait_msg *msg) {
    strait_batch_ids ids;
    if (w->service == NULL) return STRAIT_OK; // late: for a stage that we no longer have
    const strait_run_plan *plan = strait_service_plan(w->service);
    struct strait_loader *loader = strait_service_loader(w->service);
    STRAIT_TRY(strait_batch_ids_unpack(msg, w->ids, plan->microbatch * plan->shape.context, &ids));
    if (ids.is_valid) return strait_loader_put_valid(loader, ids.batch, ids.tokens, ids.targets);
    if (strait_service_runner(w->service) != NULL)
        strait_runner_count_ids(strait_service_runner(w->service), STRAIT_FRAME_HEADER + msg->size);
    return strait_loader_put(loader, ids.step, ids.batch, ids.tokens, ids.targets);
}

/* Handles a message from the coordinator. Tasks and commands are stored in w->next. A newer one
 * replaces it, because the coordinator sends one only after a reply or after abandoning the last.
 */
static strait_err dispatch(struct worker *w, struct strait_msg **msg) {
    switch ((*msg)->type) {
    case STRAIT_MSG_UP:
        strait_worker_say_reached(w);
        strait_worker_send_join(w);
        return STRAIT_OK;
    case STRAIT_MSG_DOWN: return on_down(w, *msg);
    case STRAIT_MSG_IDS: return take_ids(w, *msg);
    case STRAIT_MSG_SNAPSHOT: return strait_worker_receive_piece(w, *msg, 1);
    case STRAIT_MSG_CROSSING: return strait_worker_audit_crossing(w, msg);
    case STRAIT_MSG_GIVE: return strait_worker_give(w, *msg);
    case STRAIT_MSG_RUN_STATUS: return strait_worker_take_run_status(w, *msg);
    case STRAIT_MSG_TASK:
    case STRAIT_MSG_COMMAND:
        strait_msg_close(&w->next);
        w->next = *msg;
        *msg = NULL;
        return STRAIT_OK;
    default:
        return STRAIT_FAIL(STRAIT_EPROTO, "the coordinator sent an unknown message of type %d",
                           (*msg)->type);
    }
}

/* Stops at a task or command, so that it is executed before more is read. */
static strait_err receive_control(struct worker *w, int timeout_ms) {
    for (;; timeout_ms = 0) {
        struct strait_msg *msg = NULL;
        if (strait_mesh_receive(w->control.mesh, timeout_ms, &msg) != STRAIT_OK) return STRAIT_OK;
        const strait_err err = dispatch(w, &msg);
        strait_msg_close(&msg);
        STRAIT_TRY(err);
        if (w->next != NULL) return STRAIT_OK;
    }
}

static strait_err receive_neighbours(struct worker *w) {
    while (w->mesh != NULL && w->service != NULL) {
        struct strait_msg *msg = NULL;
        if (strait_mesh_receive(w->mesh, 0, &msg) != STRAIT_OK) return STRAIT_OK;
        const int side = strait_worker_side_of(w, msg->peer);
        const strait_err err = strait_service_route(w->service, &msg);
        strait_msg_close(&msg);
        if (err != STRAIT_OK) w->broken_side = side;
        if (err != STRAIT_OK) w->failed_side = side == STRAIT_WORKER_BROKEN_SAME ? 0 : side;
        STRAIT_TRY(err);
    }
    return STRAIT_OK;
}

/* Part of every poll, whether a command is being executed or not. */
static strait_err keep_alive(struct worker *w) {
    strait_worker_leave_if_asked(w);
    if (strait_clock_ns() - w->control.heartbeat_ns > HEARTBEAT_MS * INT64_C(1000000))
        strait_worker_send_heartbeat(w);
    strait_worker_send_copy(w);
    strait_worker_continue_giving(w);
    strait_worker_tell_status(w, 0);
    strait_worker_say_held(w, 0);
    if (w->spec->events.must_stop(w->spec->events.user) > 1)
        return STRAIT_FAIL(STRAIT_EINTERRUPTED, "left at once");
    return STRAIT_OK;
}

strait_err strait_worker_poll_control(struct worker *w) {
    STRAIT_TRY(receive_control(w, 0));
    if (w->next != NULL)
        return STRAIT_FAIL(STRAIT_EINTERRUPTED, "the coordinator sent a newer command");
    return keep_alive(w);
}

strait_err strait_worker_poll(struct worker *w) {
    STRAIT_TRY(receive_control(w, 0));
    if (w->next != NULL)
        return STRAIT_FAIL(STRAIT_EINTERRUPTED, "the coordinator sent a newer command");
    STRAIT_TRY(receive_neighbours(w));
    return keep_alive(w);
}

/* ---- tasks ---- */

/* Closes the links to the neighbours. The stage and its snapshots stay, in case it is assigned to
 * us again. */
static void release_stage(struct worker *w) {
    strait_worker_count_traffic(w);
    if (w->service != NULL) strait_service_set_links(w->service, NULL, -1, -1);
    strait_mesh_close(&w->mesh);
    w->snapshots.sending = NULL;
    w->has_stage = 0;
}

/* A failure is also logged here, since only the user of this machine may be able to fix it. */
static strait_err assign(struct worker *w, const strait_task *task,
                         char address[STRAIT_ADDRESS_MAX]) {
    const strait_err err = strait_worker_assign(w, task, address);
    if (err != STRAIT_OK && err != STRAIT_EINTERRUPTED)
        strait_worker_note(w, "cannot serve stage %d: %s", task->assign.stage, strait_err_detail());
    STRAIT_TRY(err);
    strait_worker_note_stage(w);
    strait_worker_tell_status(w, 1);
    return STRAIT_OK;
}

static strait_err execute_task(struct worker *w, const strait_task *task,
                               char address[STRAIT_ADDRESS_MAX], strait_task_reply *reply) {
    switch (task->kind) {
    case STRAIT_TASK_ASSIGN: reply->assign.address = address; return assign(w, task, address);
    case STRAIT_TASK_LISTEN:
    case STRAIT_TASK_CONNECT: return strait_worker_connect(w, task);
    case STRAIT_TASK_RESTORE:
        strait_worker_reach(w, STRAIT_WORKER_RESTORE, task->restore.step);
        return strait_worker_restore(w, task, reply);
    case STRAIT_TASK_SNAPSHOT: return strait_worker_keep_snapshot(w, 1);
    default: return STRAIT_OK;
    }
}

/* Returns whether the interrupted work was replaced by a newer task or by a refusal, which
 * check_link reports. Otherwise must_stop interrupted it. */
static int is_superseded(const struct worker *w) {
    return w->next != NULL || w->control.refusal != STRAIT_OK;
}

/* Executes a task that has no reply. Returns whether `task` is one. */
static int execute_unanswered(struct worker *w, const strait_task *task) {
    switch (task->kind) {
    case STRAIT_TASK_REFUSE:
        w->control.refusal = STRAIT_EAUTH;
        (void)snprintf(w->control.refusal_reason, sizeof w->control.refusal_reason, "%.255s",
                       task->refuse.reason);
        return 1;
    case STRAIT_TASK_RELEASE:
        w->generation = task->generation;
        release_stage(w);
        strait_worker_note(w, "waiting as a spare: no stage is free");
        strait_worker_tell_status(w, 1);
        return 1;
    case STRAIT_TASK_STAY:
        strait_worker_note(w, "leaving: this worker %.255s", task->stay.reason);
        return 1;
    case STRAIT_TASK_END: w->is_over = 1; return 1;
    default: return 0;
    }
}

static strait_err on_task(struct worker *w, struct strait_msg *msg) {
    strait_task task;
    char address[STRAIT_ADDRESS_MAX] = "";
    STRAIT_TRY(strait_task_unpack(msg, &task));
    if (task.kind != STRAIT_TASK_END) strait_worker_say_held(w, 1);
    const int is_late = task.generation < w->generation;
    if (is_late && task.kind != STRAIT_TASK_REFUSE) return STRAIT_OK;
    if (execute_unanswered(w, &task)) return STRAIT_OK;
    if (task.kind >= STRAIT_TASK_AUDIT) return strait_worker_audit(w, &task);
    if (task.kind == STRAIT_TASK_ASSIGN) {
        w->interval.is_on = task.assign.commits;
        w->generation = task.generation;
        release_stage(w);
        w->has_stage = 1;
    }
    if (task.generation != w->generation || !w->has_stage) return STRAIT_OK;
    strait_task_reply reply = {
        .kind = task.kind, .generation = task.generation, .sequence = task.sequence};
    w->failed_side = 0;
    reply.err = execute_task(w, &task, address, &reply);
    if (reply.err != STRAIT_OK) reply.failed_side = w->failed_side;
    if (reply.err == STRAIT_EINTERRUPTED) return is_superseded(w) ? STRAIT_OK : reply.err;
    if (reply.err != STRAIT_OK && task.kind != STRAIT_TASK_ASSIGN) // whose failure assign() notes
        strait_worker_note(w, "stage %d: %s", w->stage, strait_err_detail());
    return strait_worker_send_task_reply(w, &reply);
}

/* ---- commands ---- */

/* Commands of another generation are ignored: their sender has abandoned it. */
static strait_err on_command(struct worker *w, struct strait_msg *msg) {
    strait_stage_command command;
    strait_stage_reply reply;
    strait_worker_say_held(w, 1);
    if (w->service == NULL || !w->has_stage) return STRAIT_OK; // late
    STRAIT_TRY(strait_stage_command_unpack(msg, strait_service_floats(w->service), &command));
    if (command.generation != w->generation) return STRAIT_OK;
    const strait_err err = strait_service_execute(w->service, &command, &reply);
    w->progress++;
    if (err == STRAIT_EINTERRUPTED) return is_superseded(w) ? STRAIT_OK : err;
    reply.generation = command.generation;
    reply.sequence = command.sequence;
    STRAIT_TRY(strait_worker_send_reply(w, &reply));
    if (command.kind == STRAIT_COMMAND_UPDATE)
        strait_worker_reach(w, STRAIT_WORKER_COMMIT, command.update.step);
    return STRAIT_OK;
}

static strait_err execute_next(struct worker *w) {
    struct strait_msg *msg = w->next;
    w->next = NULL;
    const strait_err err = msg->type == STRAIT_MSG_TASK ? on_task(w, msg) : on_command(w, msg);
    strait_msg_close(&msg);
    w->served_ns = strait_clock_ns();
    return err;
}

/* ---- the event loop ---- */

static strait_err check_link(struct worker *w) {
    const struct worker_control *c = &w->control;
    const int64_t limit = w->spec->give_up_ms;
    if (c->refusal != STRAIT_OK) return STRAIT_FAIL(c->refusal, "%s", c->refusal_reason);
    STRAIT_TRY(strait_worker_check_leaving(w));
    if (c->down_ns == 0 || limit == 0 || strait_clock_ns() - c->down_ns < limit * 1000000)
        return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ETIMEDOUT, "the coordinator at %s has been unreachable for %lld s",
                       w->spec->invite.address, (long long)limit / 1000);
}

/* If a neighbour is lost or breaks the protocol while no command is being executed, the next
 * command reports it. Before the task to restore has arrived, nothing is read: a neighbour may have
 * begun to send the snapshot that the task will ask for. */
static void receive_without_command(struct worker *w) {
    if (w->has_stage && w->awaits_restore) return;
    if (receive_neighbours(w) != STRAIT_OK) strait_worker_hold_note(w, strait_err_detail());
}

static strait_err run_loop(struct worker *w) {
    while (!w->is_over) {
        STRAIT_TRY(check_link(w));
        const strait_err err = w->next == NULL ? receive_control(w, IDLE_MS) : STRAIT_OK;
        if (err == STRAIT_EINTERRUPTED) continue;
        STRAIT_TRY(err);
        if (w->next != NULL) {
            STRAIT_TRY(execute_next(w));
            continue;
        }
        receive_without_command(w);
        STRAIT_TRY(keep_alive(w));
    }
    strait_worker_note(w, "the run has ended");
    return STRAIT_OK;
}

/* One stream: control messages are small, and every stream costs the coordinator a connection. */
static strait_err open_control(struct worker *w) {
    int peer = 0;
    /* Replies and snapshots of an earlier link are late by then, and the coordinator accepts only
     * small messages before the request to join. */
    strait_mesh_config config = {.scheme = "tls",
                                 .drops_unsent = 1,
                                 .transport = {.identity = w->spec->identity,
                                               .n_streams = 1,
                                               .handshake_ms = DIAL_MS,
                                               .peer_timeout_ms = SILENCE_MS,
                                               .up = w->up,
                                               .down = w->down}};
    memcpy(config.transport.run, w->spec->invite.run, STRAIT_RUN_BYTES);
    (void)snprintf(config.transport.name, sizeof config.transport.name, "%s", w->spec->name);
    STRAIT_TRY(strait_mesh_open(&config, &w->control.mesh));
    const strait_mesh_peer host = {
        .name = "coordinator", .key = w->spec->invite.key, .address = w->spec->invite.address};
    w->control.down_ns = strait_clock_ns();
    strait_worker_note(
        w, "connecting to the coordinator at %s (if this fails, run \"strait doctor INVITE\")",
        host.address);
    return strait_mesh_add(w->control.mesh, &host, &peer);
}

static void close_worker(struct worker *w) {
    struct worker_snapshots *s = &w->snapshots;
    release_stage(w);
    strait_worker_drop_stage(w);
    for (int i = 0; i < STRAIT_SWARM_SNAPSHOTS; i++)
        strait_snapshot_fini(&s->own[i]);
    for (int i = 0; i < 2 * STRAIT_WORKER_COPIES; i++)
        strait_snapshot_fini(&s->copies[i / STRAIT_WORKER_COPIES][i % STRAIT_WORKER_COPIES]);
    strait_snapshot_fini(&s->incoming);
    strait_msg_close(&w->next);
    strait_mesh_close(&w->control.mesh);
    if (w->up != NULL) strait_bandwidth_fini(w->up);
    if (w->down != NULL) strait_bandwidth_fini(w->down);
    strait_alloc_free(w);
}

static struct strait_bandwidth *limit_bandwidth(struct strait_bandwidth *limit, double bps) {
    if (bps <= 0.0) return NULL;
    strait_bandwidth_init(limit, bps);
    return limit;
}

/* Reports what is free, but no more than our owner lends. */
static strait_err measure(struct worker *w) {
    const strait_worker_spec *spec = w->spec;
    STRAIT_TRY(strait_capability_measure(spec->device, spec->ordinal, spec->n_threads, &w->report));
    const double lent = spec->memory_bytes;
    if (lent > 0.0 && (w->report.memory_bytes <= 0.0 || w->report.memory_bytes > lent))
        w->report.memory_bytes = lent;
    if (spec->is_forced) w->report.memory_bytes = 0.0; // "unknown", which the coordinator trusts
    return strait_backend_free_bytes(
        &(strait_backend_spec){.name = spec->device, .ordinal = spec->ordinal}, &w->device_bytes);
}

strait_err strait_worker_run(const strait_worker_spec *spec) {
    struct worker *w = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *w, "worker", (void **)&w));
    w->spec = spec;
    w->prev = w->next_peer = w->own_first = -1;
    (void)snprintf(w->report.name, sizeof w->report.name, "%s", spec->name);
    w->report.is_reachable = !spec->cannot_listen;
    w->report.up_bps = spec->up_bps;
    w->report.down_bps = spec->down_bps;
    w->up = limit_bandwidth(&w->limits[0], spec->up_bps);
    w->down = limit_bandwidth(&w->limits[1], spec->down_bps);
    strait_err err = measure(w);
    if (err == STRAIT_OK) err = open_control(w);
    if (err == STRAIT_OK) err = run_loop(w);
    char reason[512]; // copied, because closing may overwrite the error detail
    (void)snprintf(reason, sizeof reason, "%s", strait_err_detail());
    strait_worker_tell_status(w, 1);
    close_worker(w);
    return err == STRAIT_OK ? STRAIT_OK : STRAIT_FAIL(err, "%s", reason);
}
