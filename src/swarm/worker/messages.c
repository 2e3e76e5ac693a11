/* lend_say.c - what a worker says to its coordinator. */
#include "base/clock.h"
#include "swarm/worker/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    SEND_MS = 60000
};

void strait_worker_note(struct lend *l, const char *format, ...) {
    char text[512];
    va_list args;
    if (l->spec->events.noted == NULL) return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    l->spec->events.noted(l->spec->events.user, text);
}

const char *strait_worker_point_name(strait_worker_point point) {
    static const char *const names[STRAIT_WORKER_POINTS] = {
        "begin", "forward", "backward", "norm",     "update", "applied",
        "image", "copy",    "commit",   "validate", "save",   "restore"};
    return names[point];
}

void strait_worker_pass(const struct lend *l, strait_worker_point point, int64_t step) {
    const strait_worker_events *events = &l->spec->events;
    if (events->passes != NULL) events->passes(events->user, point, l->server.start.stage, step);
}

/* What is said while the link is down would come too late. */
void strait_worker_send(struct lend *l, struct strait_msg **msg) {
    if (l->down_ns == 0) (void)strait_mesh_send_wait(l->control, 0, SEND_MS, msg);
    strait_msg_close(msg);
}

void strait_worker_send_join(struct lend *l) {
    struct strait_msg *msg = NULL;
    strait_join join = {.report = l->report};
    memcpy(join.token, l->spec->invite.token, sizeof join.token);
    strait_worker_inventory(l, &join.inventory);
    l->down_ns = 0;
    if (strait_join_pack(strait_mesh_pool(l->control), &join, &msg) == STRAIT_OK)
        strait_worker_send(l, &msg);
    l->is_joined = 1;
}

void strait_worker_heartbeat(struct lend *l) {
    struct strait_msg *msg = NULL;
    const struct strait_runner *worker = l->server.worker;
    strait_heartbeat pulse = {.progress = l->progress,
                              .is_waiting = worker != NULL && worker->is_waiting};
    strait_worker_inventory(l, &pulse.inventory);
    if (!l->is_joined) return;
    if (strait_heartbeat_pack(strait_mesh_pool(l->control), &pulse, &msg) == STRAIT_OK)
        strait_worker_send(l, &msg);
    l->pulse_ns = strait_clock_ns();
}

strait_err strait_worker_reply(struct lend *l, int kind, uint16_t sequence, strait_err err,
                               strait_reply *reply) {
    struct strait_msg *msg = NULL;
    reply->kind = (strait_stage_command_kind)kind;
    reply->err = err;
    if (err != STRAIT_OK)
        (void)snprintf(reply->text, sizeof reply->text, "%s", strait_err_detail());
    for (int half = 0; half < 2; half++) {
        reply->refused[half] += l->n_refused[half];
        l->n_refused[half] = 0;
    }
    strait_worker_heartbeat(l); // what we hold now, before the reply
    STRAIT_TRY(strait_reply_pack(strait_mesh_pool(l->control), reply, &msg));
    msg->step = l->generation;
    msg->microbatch = sequence;
    strait_worker_send(l, &msg);
    return STRAIT_OK;
}
