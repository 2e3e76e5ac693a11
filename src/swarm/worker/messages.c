/* messages.c - the messages that a worker sends to its coordinator, and its log. */
#include "base/clock.h"
#include "swarm/worker/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    SEND_MS = 60000 // for space in the send queue, after which a message is dropped
};

void strait_worker_note(struct worker *w, const char *format, ...) {
    char text[512];
    va_list args;
    if (w->spec->events.noted == NULL) return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    w->spec->events.noted(w->spec->events.user, text);
}

const char *strait_worker_point_name(strait_worker_point point) {
    static const char *const names[STRAIT_WORKER_POINTS] = {
        "begin",    "forward", "backward", "norm",     "update", "applied", "average",
        "snapshot", "copy",    "commit",   "validate", "save",   "restore"};
    return names[point];
}

void strait_worker_reach(const struct worker *w, strait_worker_point point, int64_t step) {
    const strait_worker_events *events = &w->spec->events;
    if (events->reached != NULL) events->reached(events->user, point, w->stage, step);
}

void strait_worker_send(struct worker *w, struct strait_msg **msg) {
    if (w->control.down_ns == 0) (void)strait_mesh_send_wait(w->control.mesh, 0, SEND_MS, msg);
    strait_msg_close(msg);
}

/* The inventory goes with the request: a coordinator that restarted chooses the step to restore
 * from what workers still hold. */
void strait_worker_send_join(struct worker *w) {
    struct strait_msg *msg = NULL;
    strait_join join = {.report = w->report, .generation = w->generation};
    memcpy(join.token, w->spec->invite.token, sizeof join.token);
    strait_worker_inventory(w, &join.inventory);
    w->control.down_ns = 0;
    if (strait_join_pack(strait_mesh_pool(w->control.mesh), &join, &msg) == STRAIT_OK)
        strait_worker_send(w, &msg);
    w->control.is_joined = 1;
}

void strait_worker_send_heartbeat(struct worker *w) {
    struct strait_msg *msg = NULL;
    const struct strait_runner *runner = w->service != NULL ? strait_service_runner(w->service)
                                                            : NULL;
    strait_heartbeat heartbeat = {.progress = w->progress};
    /* Whoever waits for no neighbour waits for the sums of another replica. */
    if (runner != NULL && runner->awaited_replica > 0)
        heartbeat.waits_for = STRAIT_SWARM_SAME_STAGE + runner->awaited_replica;
    else if (runner != NULL && runner->is_waiting)
        heartbeat.waits_for = runner->side != 0 ? runner->side : STRAIT_SWARM_SAME_STAGE;
    strait_worker_inventory(w, &heartbeat.inventory);
    heartbeat.arrived = strait_worker_arrived(w);
    if (!w->control.is_joined) return;
    if (strait_heartbeat_pack(strait_mesh_pool(w->control.mesh), &heartbeat, &msg) == STRAIT_OK)
        strait_worker_send(w, &msg);
    w->control.heartbeat_ns = strait_clock_ns();
}

/* Resets the counters, so that the coordinator counts each rejected copy once. */
static void report_rejected(struct worker *w, int *prev, int *next) {
    *prev = w->snapshots.rejected_prev;
    *next = w->snapshots.rejected_next;
    w->snapshots.rejected_prev = w->snapshots.rejected_next = 0;
}

/* The heartbeat goes first: on a reply the coordinator may choose a step to restore, and needs our
 * current inventory for that. */
strait_err strait_worker_send_reply(struct worker *w, strait_stage_reply *reply) {
    struct strait_msg *msg = NULL;
    if (reply->err != STRAIT_OK) strait_worker_note(w, "stage %d: %s", w->stage, reply->reason);
    reply->reason = NULL; // the coordinator is sent the code alone (protocol.h)
    report_rejected(w, &reply->rejected_copies_prev, &reply->rejected_copies_next);
    strait_worker_send_heartbeat(w);
    STRAIT_TRY(strait_stage_reply_pack(strait_mesh_pool(w->control.mesh), reply, &msg));
    strait_worker_send(w, &msg);
    return STRAIT_OK;
}

/* In the same order as above, for the same reason. */
strait_err strait_worker_send_task_reply(struct worker *w, strait_task_reply *reply) {
    struct strait_msg *msg = NULL;
    report_rejected(w, &reply->rejected_copies_prev, &reply->rejected_copies_next);
    strait_worker_send_heartbeat(w);
    STRAIT_TRY(strait_task_reply_pack(strait_mesh_pool(w->control.mesh), reply, &msg));
    strait_worker_send(w, &msg);
    return STRAIT_OK;
}
