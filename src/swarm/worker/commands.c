/* commands.c - the callbacks of the stage service: refuses commands that name files, feeds the
 * loader, keeps snapshots, and sends heartbeats while the stage computes. */
#include "swarm/worker/state.h"

/* Handles a message from a neighbour other than activations and gradients. */
static strait_err on_message(void *user, struct strait_msg **msg) {
    struct worker *w = user;
    const struct strait_msg *m = *msg;
    if (m->type == STRAIT_MSG_UP) return STRAIT_OK;
    if (m->type == STRAIT_MSG_SNAPSHOT) return strait_worker_receive_piece(w, m, 0);
    if (m->type == STRAIT_MSG_PROBE) return strait_worker_stray_probe(w, m);
    if (m->type != STRAIT_MSG_DOWN)
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: unexpected message of type %d", w->stage,
                           m->type);
    w->broken_side = strait_worker_side_of(w, m->peer);
    if (w->broken_side == STRAIT_WORKER_BROKEN_SAME)
        return STRAIT_FAIL(STRAIT_ECLOSED, "stage %d lost its link to another replica: %.*s",
                           w->stage, (int)m->size, (const char *)m->body);
    return STRAIT_FAIL(STRAIT_ECLOSED, "stage %d lost its link to stage %d: %.*s", w->stage,
                       w->stage + w->broken_side, (int)m->size, (const char *)m->body);
}

/* Called while the stage computes or waits; the runner receives the neighbours' messages itself. */
static strait_err on_poll(void *user) {
    struct worker *w = user;
    const struct strait_runner *runner = strait_service_runner(w->service);
    if (runner->last_action != STRAIT_ACTION_WAIT)
        strait_worker_reach(w,
                            runner->last_action == STRAIT_ACTION_FORWARD ? STRAIT_WORKER_FORWARD
                                                                         : STRAIT_WORKER_BACKWARD,
                            w->step);
    if (!runner->is_waiting) w->progress++;
    return strait_worker_poll_control(w);
}

static strait_err refuse(const struct worker *w, const strait_stage_command *command) {
    return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: a worker does not execute command %s", w->stage,
                       strait_stage_command_name(command->kind));
}

/* Whether a command needs the links to other replicas: the last phase of an average does not. */
static int must_exchange(const strait_stage_command *command) {
    return command->kind == STRAIT_COMMAND_OUTER && command->outer.phase != STRAIT_OUTER_APPLY;
}

static strait_err before(void *user, const strait_stage_command *command) {
    struct worker *w = user;
    if (command->kind != STRAIT_COMMAND_OPEN && strait_service_runner(w->service) == NULL)
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: command %s before open", w->stage,
                           strait_stage_command_name(command->kind));
    if ((command->kind == STRAIT_COMMAND_GRADIENTS || command->kind == STRAIT_COMMAND_VALIDATE ||
         command->kind == STRAIT_COMMAND_RESEND || command->kind == STRAIT_COMMAND_PROBE ||
         must_exchange(command)) &&
        w->broken_side != 0) {
        const int side = w->broken_side == STRAIT_WORKER_BROKEN_SAME ? 0 : w->broken_side;
        strait_service_runner(w->service)->side = side;
        return STRAIT_FAIL(
            STRAIT_ECLOSED, "stage %d: the link to %s stage %d failed before the command began",
            w->stage, side == 0 ? "another replica of" : "a worker of", w->stage + side);
    }
    switch (command->kind) {
    case STRAIT_COMMAND_OPEN: return strait_worker_check_slots(w, command->open.n_slots);
    case STRAIT_COMMAND_GRADIENTS:
        strait_worker_reach(w, STRAIT_WORKER_BEGIN, command->gradients.step);
        return STRAIT_OK;
    case STRAIT_COMMAND_VALIDATE:
        strait_worker_reach(w, STRAIT_WORKER_VALIDATE, command->validate.step);
        return STRAIT_OK;
    case STRAIT_COMMAND_UPDATE:
        strait_worker_reach(w, STRAIT_WORKER_UPDATE, command->update.step);
        return STRAIT_OK;
    case STRAIT_COMMAND_TIME_PASSES: // the values do not matter: only the time is measured
        return strait_loader_put(strait_service_loader(w->service), 0, 0, NULL, NULL);
    case STRAIT_COMMAND_OUTER:
        if (command->outer.phase == STRAIT_OUTER_APPLY)
            strait_worker_reach(w, STRAIT_WORKER_AVERAGE, command->outer.step);
        return STRAIT_OK;
    case STRAIT_COMMAND_SEND_SNAPSHOT:
    case STRAIT_COMMAND_RESEND:
    case STRAIT_COMMAND_PROBE:
    case STRAIT_COMMAND_PROPOSE_BASIS:
    case STRAIT_COMMAND_ADOPT_BASIS: return STRAIT_OK;
    default: return refuse(w, command); // it names a file or a peer of a local run
    }
}

/* An average changes the weights after an update, or notes them: a snapshot of the step is taken
 * behind the last command of the averages that follow it. */
static int ends_averages(const struct worker *w, const strait_stage_command *command) {
    const strait_outer_schedule *s = &strait_service_plan(w->service)->outer.schedule;
    if (command->kind != STRAIT_COMMAND_OUTER) return 0;
    const int last = strait_outer_last_sent(s, w->step);
    if (s->overlap == 0 || strait_outer_is_whole(s, w->step))
        return command->outer.phase == STRAIT_OUTER_APPLY && command->outer.fragment == last;
    if (last < 0) return command->outer.phase == STRAIT_OUTER_APPLY;
    return command->outer.phase == STRAIT_OUTER_BEGIN && command->outer.step == w->step;
}

static strait_err take_snapshot(struct worker *w) {
    STRAIT_TRY(strait_worker_keep_snapshot(w, 0));
    STRAIT_TRY(strait_worker_commit(
        w,
        strait_worker_find_snapshot(w->snapshots.own, STRAIT_SWARM_SNAPSHOTS, w->stage, w->step)));
    strait_worker_reach(w, STRAIT_WORKER_SNAPSHOT, w->step - 1);
    return STRAIT_OK;
}

static strait_err after_average(struct worker *w) {
    w->snapshots.is_due = 0;
    STRAIT_TRY(take_snapshot(w));
    w->snapshots.late_s = w->snapshots.cost_s;
    return STRAIT_OK;
}

static strait_err after_update(struct worker *w, const strait_stage_command *command,
                               strait_stage_reply *reply) {
    const strait_outer_schedule *outer = &strait_service_plan(w->service)->outer.schedule;
    w->step = command->update.step + 1;
    strait_worker_count_step(w);
    strait_worker_reach(w, STRAIT_WORKER_APPLIED, command->update.step);
    reply->update.snapshot_s = w->snapshots.late_s;
    w->snapshots.late_s = 0.0;
    w->snapshots.is_due = command->update.keep_snapshot && strait_outer_acts(outer, w->step);
    if (command->update.keep_snapshot && !w->snapshots.is_due) {
        STRAIT_TRY(take_snapshot(w));
        reply->update.snapshot_s = w->snapshots.cost_s;
    }
    /* Measured at every update, whether or not a snapshot was kept: one slow moment of the link
     * then counts for one step only. */
    reply->update.copy_s = strait_worker_copy_seconds(w, w->snapshots.bytes);
    reply->update.link_bps = w->snapshots.rate_bps;
    return STRAIT_OK;
}

static strait_err after(void *user, const strait_stage_command *command, strait_err err,
                        strait_stage_reply *reply) {
    struct worker *w = user;
    if (command->kind == STRAIT_COMMAND_TIME_PASSES)
        (void)strait_loader_put(strait_service_loader(w->service), -1, 0, NULL, NULL);
    STRAIT_TRY(err);
    if (command->kind == STRAIT_COMMAND_OPEN) STRAIT_TRY(strait_worker_hash_work(w));
    if (command->kind == STRAIT_COMMAND_GRADIENTS)
        STRAIT_TRY(strait_worker_add_step(w, command->gradients.step, reply));
    if (command->kind == STRAIT_COMMAND_GRADIENTS)
        strait_worker_reach(w, STRAIT_WORKER_NORM, command->gradients.step);
    if (w->snapshots.is_due && ends_averages(w, command)) STRAIT_TRY(after_average(w));
    return command->kind == STRAIT_COMMAND_UPDATE ? after_update(w, command, reply) : STRAIT_OK;
}

/* The coordinator writes checkpoints; a worker only sends what is to be written. */
static strait_err send_snapshot(void *user, int64_t step) {
    struct worker *w = user;
    struct strait_snapshot *snapshot = NULL;
    (void)step; // always the current step: the coordinator restores the stage to it first
    STRAIT_TRY(strait_worker_current_snapshot(w, &snapshot));
    strait_worker_reach(w, STRAIT_WORKER_SAVE, w->step);
    return strait_worker_send_snapshot(w, w->control.mesh, 0, snapshot, STRAIT_PRIORITY_CONTROL);
}

static strait_err probe(void *user, const strait_stage_command *command,
                        strait_stage_reply *reply) {
    return strait_worker_probe(user, command, reply);
}

strait_service_hooks strait_worker_hooks(struct worker *w) {
    return (strait_service_hooks){.user = w,
                                  .on_message = on_message,
                                  .on_poll = on_poll,
                                  .before = before,
                                  .after = after,
                                  .send_snapshot = send_snapshot,
                                  .probe = probe};
}
