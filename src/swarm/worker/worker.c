#include "swarm/worker/worker.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "swarm/worker/capability.h"
#include "swarm/worker/state.h"

#include <stdio.h>
#include <string.h>

enum {
    IDLE_MS = 10, // between looks at the neighbours, without work
    PULSE_MS = 1000,
    DEAD_MS = 15000,  // silence of the coordinator's link
    DIAL_MS = 5000,   // for each of its addresses
    LEAVE_MS = 120000 // for a stage to be handed over
};

/* ---- what we hear ---- */

static strait_err on_down(struct lend *l, const struct strait_msg *msg) {
    if (l->down_ns == 0) {
        l->down_ns = strait_clock_ns();
        strait_worker_note(l, "lost the coordinator: %.*s", (int)msg->size,
                           (const char *)msg->body);
    }
    l->is_joined = 0;
    if (msg->why != STRAIT_EAUTH && msg->why != STRAIT_EPROTO) return STRAIT_OK;
    l->refusal = msg->why;
    (void)snprintf(l->refusal_words, sizeof l->refusal_words, "%.*s", (int)msg->size,
                   (const char *)msg->body);
    return STRAIT_FAIL(STRAIT_EINTERRUPTED, "refused");
}

static strait_err take_ids(struct lend *l, const struct strait_msg *msg) {
    strait_ids ids;
    if (l->ids == NULL) return STRAIT_OK; // of a stage we no longer have
    const int64_t n = l->server.plan.microbatch * l->server.plan.shape.context;
    STRAIT_TRY(strait_ids_unpack(msg, l->ids, n, &ids));
    if (ids.is_valid)
        return strait_loader_give_valid(l->server.loader, ids.batch, ids.tokens, ids.targets);
    return strait_loader_give(l->server.loader, ids.step, ids.batch, ids.tokens, ids.targets);
}

/* A message of the coordinator. Tasks and orders wait in l->next. */
static strait_err hear(struct lend *l, struct strait_msg **msg) {
    switch ((*msg)->type) {
    case STRAIT_MSG_UP:
        strait_worker_note(l, "reached the coordinator: asking to join");
        strait_worker_send_join(l);
        return STRAIT_OK;
    case STRAIT_MSG_DOWN: return on_down(l, *msg);
    case STRAIT_MSG_IDS: return take_ids(l, *msg);
    case STRAIT_MSG_SNAPSHOT: return strait_worker_piece(l, *msg, 1);
    case STRAIT_MSG_TASK:
    case STRAIT_MSG_COMMAND:
        strait_msg_close(&l->next); // only the newest counts
        l->next = *msg;
        *msg = NULL;
        return STRAIT_OK;
    default:
        return STRAIT_FAIL(STRAIT_EPROTO, "the coordinator sent a message of type %d",
                           (*msg)->type);
    }
}

/* A message of a neighbour that is no crossing. */
static strait_err on_other(void *user, struct strait_msg **msg) {
    struct lend *l = user;
    const struct strait_msg *m = *msg;
    if (m->type == STRAIT_MSG_UP) return STRAIT_OK;
    if (m->type == STRAIT_MSG_SNAPSHOT) return strait_worker_piece(l, m, 0);
    if (m->type != STRAIT_MSG_DOWN)
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: a message of type %d that nobody expects",
                           l->server.start.stage, m->type);
    l->is_broken = 1;
    return STRAIT_FAIL(STRAIT_ECLOSED, "stage %d lost its link to stage %d: %.*s",
                       l->server.start.stage,
                       l->server.start.stage + (m->peer == l->server.prev ? -1 : 1), (int)m->size,
                       (const char *)m->body);
}

static strait_err hear_control(struct lend *l, int timeout_ms) {
    for (;; timeout_ms = 0) {
        struct strait_msg *msg = NULL;
        if (strait_mesh_receive(l->control, timeout_ms, &msg) != STRAIT_OK) return STRAIT_OK;
        const strait_err err = hear(l, &msg);
        strait_msg_close(&msg);
        STRAIT_TRY(err);
        if (l->next != NULL) return STRAIT_OK;
    }
}

static strait_err hear_neighbours(struct lend *l) {
    while (l->server.mesh != NULL) {
        struct strait_msg *msg = NULL;
        if (strait_mesh_receive(l->server.mesh, 0, &msg) != STRAIT_OK) return STRAIT_OK;
        const strait_err err = l->server.worker != NULL
                                   ? strait_runner_route(l->server.worker, &msg)
                                   : on_other(l, &msg);
        strait_msg_close(&msg);
        STRAIT_TRY(err);
    }
    return STRAIT_OK;
}

static void leave_if_asked(struct lend *l) {
    struct strait_msg *msg = NULL;
    if (l->has_left || l->spec->events.must_stop(l->spec->events.user) == 0) return;
    l->has_left = 1;
    l->left_ns = strait_clock_ns();
    strait_worker_note(l, "leaving: handing over first (interrupt again to leave at once)");
    if (strait_msg_open(strait_mesh_pool(l->control), STRAIT_MSG_LEAVE, 0, &msg) == STRAIT_OK)
        strait_worker_send(l, &msg);
}

/* What is done at every look, busy or not. */
static strait_err keep_up(struct lend *l) {
    leave_if_asked(l);
    if (strait_clock_ns() - l->pulse_ns > PULSE_MS * INT64_C(1000000)) strait_worker_heartbeat(l);
    strait_worker_send_some(l);
    if (l->spec->events.must_stop(l->spec->events.user) > 1)
        return STRAIT_FAIL(STRAIT_EINTERRUPTED, "left at once");
    return STRAIT_OK;
}

/* While a stage computes: its neighbours' messages are taken by the worker itself. */
static strait_err on_look(void *user) {
    struct lend *l = user;
    const strait_schedule_action_kind moved = l->server.worker->moved;
    if (moved != STRAIT_ACTION_WAIT)
        strait_worker_pass(
            l, moved == STRAIT_ACTION_FORWARD ? STRAIT_WORKER_FORWARD : STRAIT_WORKER_BACKWARD,
            l->step);
    if (!l->server.worker->is_waiting) l->progress++;
    return strait_worker_lookup(l);
}

strait_err strait_worker_lookup(struct lend *l) {
    STRAIT_TRY(hear_control(l, 0));
    if (l->next != NULL) return STRAIT_FAIL(STRAIT_EINTERRUPTED, "there is something newer to do");
    return keep_up(l);
}

strait_err strait_worker_poll(struct lend *l) {
    STRAIT_TRY(hear_control(l, 0));
    if (l->next != NULL) return STRAIT_FAIL(STRAIT_EINTERRUPTED, "there is something newer to do");
    STRAIT_TRY(hear_neighbours(l));
    return keep_up(l);
}

/* ---- what we do ---- */

static void rest(struct lend *l) {
    strait_mesh_close(&l->server.mesh);
    l->sending = NULL;
    l->has_stage = 0;
}

/* Why it cannot is also said here: who sits at this machine can mend it. */
static strait_err take(struct lend *l, strait_reply *reply) {
    char address[STRAIT_ADDRESS_MAX] = "";
    const strait_err err = strait_worker_take(l, address);
    if (err != STRAIT_OK && err != STRAIT_EINTERRUPTED)
        strait_worker_note(l, "cannot serve stage %d: %s", l->task.stage, strait_err_detail());
    STRAIT_TRY(err);
    (void)snprintf(reply->text, sizeof reply->text, "%s", address);
    strait_worker_note(l, "epoch %u: stage %d of %d", l->generation, l->task.stage,
                       l->server.plan.n_stages);
    return STRAIT_OK;
}

static strait_err do_task(struct lend *l, strait_reply *reply) {
    switch (l->task.kind) {
    case STRAIT_TASK_TAKE: return take(l, reply);
    case STRAIT_TASK_MEET:
    case STRAIT_TASK_DIAL: {
        int missing = 0;
        const strait_err err = strait_worker_meet(l, &missing);
        reply->delay = (double)missing;
        return err;
    }
    case STRAIT_TASK_RESTORE:
        strait_worker_pass(l, STRAIT_WORKER_RESTORE, l->task.step);
        return strait_worker_restore(l, reply);
    case STRAIT_TASK_KEEP: return strait_worker_keep(l, 1);
    case STRAIT_TASK_REST:
    case STRAIT_TASK_REFUSE:
    case STRAIT_TASK_END: break;
    }
    return STRAIT_OK;
}

/* What was interrupted gave way to something newer, or to a refusal that check_link tells. */
static int may_go_on(const struct lend *l) {
    return l->next != NULL || l->refusal != STRAIT_OK;
}

static strait_err on_task(struct lend *l, const struct strait_msg *msg) {
    strait_reply reply = {0};
    STRAIT_TRY(strait_task_unpack(msg, &l->task));
    if (l->task.kind == STRAIT_TASK_REFUSE) {
        l->refusal = STRAIT_EAUTH;
        (void)snprintf(l->refusal_words, sizeof l->refusal_words, "%.255s", l->task.text);
        return STRAIT_OK;
    }
    if (l->task.generation < l->generation) return STRAIT_OK; // of the past
    if (l->task.kind == STRAIT_TASK_TAKE || l->task.kind == STRAIT_TASK_REST) {
        l->generation = l->task.generation;
        rest(l);
    }
    l->is_over = l->task.kind == STRAIT_TASK_END;
    if (l->task.kind == STRAIT_TASK_REST) strait_worker_note(l, "resting: a spare");
    if (l->is_over || l->task.kind == STRAIT_TASK_REST) return STRAIT_OK;
    if (l->task.generation != l->generation || !(l->has_stage || l->task.kind == STRAIT_TASK_TAKE))
        return STRAIT_OK;
    if (l->task.kind == STRAIT_TASK_TAKE) l->has_stage = 1;
    const strait_err err = do_task(l, &reply);
    if (err == STRAIT_EINTERRUPTED) return may_go_on(l) ? STRAIT_OK : err;
    return strait_worker_reply(l, (int)l->task.kind, l->task.sequence, err, &reply);
}

/* Rehearsals need ids, any; those of a step come with it. */
static strait_err rehearse(struct lend *l, const strait_stage_command *command,
                           strait_reply *reply) {
    STRAIT_TRY(strait_loader_give(l->server.loader, 0, 0, NULL, NULL));
    const strait_err err = strait_service_execute(&l->server, command, reply);
    (void)strait_loader_give(l->server.loader, -1, 0, NULL, NULL);
    return err;
}

static strait_err open_stage(struct lend *l, const strait_stage_command *command,
                             strait_reply *reply) {
    const struct strait_runner *worker = l->server.worker;
    if (worker == NULL || worker->n_slots != command->number)
        return strait_service_execute(&l->server, command, reply);
    (void)snprintf(reply->text, sizeof reply->text, "%s", strait_runner_device(worker));
    return STRAIT_OK;
}

static strait_err save(struct lend *l) {
    struct strait_snapshot *place = NULL;
    STRAIT_TRY(strait_worker_current_snapshot(l, &place));
    strait_worker_pass(l, STRAIT_WORKER_SAVE, l->step);
    return strait_worker_send_all(l, l->control, 0, place, STRAIT_PRIORITY_CONTROL);
}

static strait_err update(struct lend *l, const strait_stage_command *command, strait_reply *reply) {
    strait_worker_pass(l, STRAIT_WORKER_UPDATE, command->step);
    STRAIT_TRY(strait_service_execute(&l->server, command, reply));
    l->step = command->step + 1;
    strait_worker_pass(l, STRAIT_WORKER_APPLIED, command->step);
    if (command->number != 0) {
        STRAIT_TRY(strait_worker_keep(l, 0));
        strait_worker_pass(l, STRAIT_WORKER_SNAPSHOT, command->step);
        reply->times.wall = l->snapshot_s;
    }
    /* As the line is now, whether or not an image was made: one bad moment holds for one step. */
    reply->delay = strait_worker_copy_seconds(l, l->snapshot_bytes);
    return STRAIT_OK;
}

/* What needs the neighbours: forward and backward, or a validation. */
static strait_err work_together(struct lend *l, const strait_stage_command *command,
                                strait_reply *reply) {
    const int is_step = command->kind == STRAIT_COMMAND_GRADIENTS;
    if (l->is_broken) return STRAIT_FAIL(STRAIT_ECLOSED, "a neighbour was lost before the order");
    strait_worker_pass(l, is_step ? STRAIT_WORKER_BEGIN : STRAIT_WORKER_VALIDATE, command->step);
    STRAIT_TRY(strait_service_execute(&l->server, command, reply));
    if (is_step) strait_worker_pass(l, STRAIT_WORKER_NORM, command->step);
    return STRAIT_OK;
}

/* Only what names no file. */
static strait_err obey(struct lend *l, const strait_stage_command *command, strait_reply *reply) {
    if (command->kind != STRAIT_COMMAND_OPEN && l->server.worker == NULL)
        return STRAIT_FAIL(STRAIT_EPROTO, "an order before there is a stage");
    switch (command->kind) {
    case STRAIT_COMMAND_OPEN: return open_stage(l, command, reply);
    case STRAIT_COMMAND_TIME_PASSES: return rehearse(l, command, reply);
    case STRAIT_COMMAND_UPDATE: return update(l, command, reply);
    case STRAIT_COMMAND_SAVE: return save(l);
    case STRAIT_COMMAND_GRADIENTS:
    case STRAIT_COMMAND_VALIDATE: return work_together(l, command, reply);
    case STRAIT_COMMAND_PROPOSE_BASIS:
    case STRAIT_COMMAND_ADOPT_BASIS: return strait_service_execute(&l->server, command, reply);
    default:
        return STRAIT_FAIL(STRAIT_EPROTO, "an order of kind %d, which a worker does not take",
                           (int)command->kind);
    }
}

static strait_err on_order(struct lend *l, const struct strait_msg *msg) {
    static _Thread_local strait_stage_command command; // large
    strait_reply reply = {0};
    const uint16_t sequence = msg->microbatch;
    if (msg->step != l->generation || !l->has_stage) return STRAIT_OK; // of the past
    STRAIT_TRY(strait_stage_command_unpack(msg, l->server.basis, l->server.n_basis, &command));
    const strait_err err = obey(l, &command, &reply);
    l->progress++;
    if (err == STRAIT_EINTERRUPTED) return may_go_on(l) ? STRAIT_OK : err;
    STRAIT_TRY(strait_worker_reply(l, (int)command.kind, sequence, err, &reply));
    if (command.kind == STRAIT_COMMAND_UPDATE)
        strait_worker_pass(l, STRAIT_WORKER_COMMIT, command.step);
    return STRAIT_OK;
}

static strait_err do_next(struct lend *l) {
    struct strait_msg *msg = l->next;
    l->next = NULL;
    const strait_err err = msg->type == STRAIT_MSG_TASK ? on_task(l, msg) : on_order(l, msg);
    strait_msg_close(&msg);
    return err;
}

/* ---- life ---- */

static strait_err check_link(struct lend *l) {
    const int64_t limit = l->spec->give_up_ms;
    if (l->refusal != STRAIT_OK) return STRAIT_FAIL(l->refusal, "%s", l->refusal_words);
    if (l->has_left && !l->has_stage) return STRAIT_FAIL(STRAIT_EINTERRUPTED, "left the run");
    if (l->has_left && l->down_ns != 0) // dismissed, or nobody there to hand over to
        return STRAIT_FAIL(STRAIT_EINTERRUPTED, "left the run");
    if (l->has_left && strait_clock_ns() - l->left_ns > LEAVE_MS * INT64_C(1000000))
        return STRAIT_FAIL(STRAIT_EINTERRUPTED, "left the run: nobody took the stage over in time");
    if (l->down_ns == 0 || limit == 0 || strait_clock_ns() - l->down_ns < limit * 1000000)
        return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ETIMEDOUT, "the coordinator at %s has been gone for %lld s",
                       l->spec->invite.address, (long long)limit / 1000);
}

/* A neighbour that is lost while we have nothing to do is the coordinator's worry. */
static void look_idly(struct lend *l) {
    if (hear_neighbours(l) != STRAIT_OK) strait_worker_note(l, "%s", strait_err_detail());
}

static strait_err live(struct lend *l) {
    while (!l->is_over) {
        STRAIT_TRY(check_link(l));
        const strait_err err = l->next == NULL ? hear_control(l, IDLE_MS) : STRAIT_OK;
        if (err == STRAIT_EINTERRUPTED) continue;
        STRAIT_TRY(err);
        if (l->next != NULL) {
            STRAIT_TRY(do_next(l));
            continue;
        }
        look_idly(l);
        STRAIT_TRY(keep_up(l));
    }
    strait_worker_note(l, "the run is over");
    return STRAIT_OK;
}

static strait_err open_control(struct lend *l) {
    int peer = 0;
    strait_mesh_config config = {.scheme = "tls",
                                 .transport = {.identity = l->spec->identity,
                                               .n_streams = 1,
                                               .handshake_ms = DIAL_MS,
                                               .peer_timeout_ms = DEAD_MS}};
    memcpy(config.transport.run, l->spec->invite.run, STRAIT_RUN_BYTES);
    (void)snprintf(config.transport.name, sizeof config.transport.name, "%s", l->spec->name);
    STRAIT_TRY(strait_mesh_open(&config, &l->control));
    const strait_mesh_peer host = {
        .name = "coordinator", .key = l->spec->invite.key, .address = l->spec->invite.address};
    l->down_ns = strait_clock_ns();
    strait_worker_note(l, "dialling the coordinator at %s (\"strait doctor INVITE\" tries the way)",
                       host.address);
    return strait_mesh_add(l->control, &host, &peer);
}

strait_err strait_worker_run(const strait_worker_spec *spec) {
    struct lend *l = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *l, "worker", (void **)&l));
    l->spec = spec;
    l->server.prev = l->server.next = -1;
    l->server.on_other = on_other;
    l->server.on_look = on_look;
    (void)snprintf(l->report.name, sizeof l->report.name, "%s", spec->name);
    l->report.is_reachable = !spec->cannot_listen;
    strait_err err = strait_capability_measure(spec->device, spec->ordinal, spec->n_threads,
                                               &l->report);
    if (err == STRAIT_OK) err = open_control(l);
    if (err == STRAIT_OK) err = live(l);
    strait_mesh_close(&l->server.mesh);
    strait_worker_drop_stage(l);
    for (int i = 0; i < STRAIT_SWARM_SNAPSHOTS; i++)
        strait_snapshot_fini(&l->own[i]);
    for (int i = 0; i < 2 * STRAIT_WORKER_COPIES; i++)
        strait_snapshot_fini(&l->copies[i / STRAIT_WORKER_COPIES][i % STRAIT_WORKER_COPIES]);
    strait_snapshot_fini(&l->incoming);
    strait_msg_close(&l->next);
    strait_mesh_close(&l->control);
    strait_alloc_free(l);
    return err;
}
