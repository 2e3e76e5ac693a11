/* lend_say.c - what a worker says to its coordinator. */
#include "base/clock.h"
#include "swarm/lend_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    SEND_MS = 60000
};

void strait_lend_note(struct lend *l, const char *format, ...) {
    char text[512];
    va_list args;
    if (l->spec->events.noted == NULL) return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    l->spec->events.noted(l->spec->events.user, text);
}

const char *strait_lend_point_name(strait_lend_point point) {
    static const char *const names[STRAIT_LEND_POINTS] = {
        "begin", "forward", "backward", "norm",     "update", "applied",
        "image", "copy",    "commit",   "validate", "save",   "restore"};
    return names[point];
}

void strait_lend_pass(const struct lend *l, strait_lend_point point, int64_t step) {
    const strait_lend_events *events = &l->spec->events;
    if (events->passes != NULL) events->passes(events->user, point, l->server.start.stage, step);
}

/* What is said while the link is down would come too late. */
void strait_lend_post(struct lend *l, struct strait_msg **msg) {
    if (l->down_ns == 0) (void)strait_mesh_send_wait(l->control, 0, SEND_MS, msg);
    strait_msg_close(msg);
}

void strait_lend_ask_in(struct lend *l) {
    struct strait_msg *msg = NULL;
    strait_join join = {.report = l->report};
    memcpy(join.token, l->spec->invite.token, sizeof join.token);
    strait_lend_holdings(l, &join.held);
    l->down_ns = 0;
    if (strait_join_pack(strait_mesh_pool(l->control), &join, &msg) == STRAIT_OK)
        strait_lend_post(l, &msg);
    l->is_joined = 1;
}

void strait_lend_pulse(struct lend *l) {
    struct strait_msg *msg = NULL;
    const struct strait_worker *worker = l->server.worker;
    strait_pulse pulse = {.progress = l->progress,
                          .is_waiting = worker != NULL && worker->is_waiting};
    strait_lend_holdings(l, &pulse.held);
    if (!l->is_joined) return;
    if (strait_pulse_pack(strait_mesh_pool(l->control), &pulse, &msg) == STRAIT_OK)
        strait_lend_post(l, &msg);
    l->pulse_ns = strait_clock_ns();
}

strait_err strait_lend_answer(struct lend *l, int kind, uint16_t round, strait_err err,
                              strait_reply *reply) {
    struct strait_msg *msg = NULL;
    reply->kind = (strait_order_kind)kind;
    reply->err = err;
    if (err != STRAIT_OK)
        (void)snprintf(reply->text, sizeof reply->text, "%s", strait_err_detail());
    for (int half = 0; half < 2; half++) {
        reply->refused[half] += l->n_refused[half];
        l->n_refused[half] = 0;
    }
    strait_lend_pulse(l); // what we hold now, before the reply
    STRAIT_TRY(strait_reply_pack(strait_mesh_pool(l->control), reply, &msg));
    msg->step = l->epoch;
    msg->microbatch = round;
    strait_lend_post(l, &msg);
    return STRAIT_OK;
}
