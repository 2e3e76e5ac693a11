/* actions.c - the list of actions of one event, and the log lines among them. */
#include "swarm/coordinator/state.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

const char *strait_coordinator_phase_name(strait_swarm_phase phase) {
    static const char *const names[] = {"waiting",      "assigning",   "listening", "connecting",
                                        "opening",      "restoring",   "ready",     "working",
                                        "snapshotting", "handing over"};
    return names[phase];
}

strait_swarm_action *strait_coordinator_act(strait_swarm_actions *out,
                                            strait_swarm_action_kind kind, int worker) {
    assert(out->n < STRAIT_SWARM_ACTIONS);
    strait_swarm_action *action = &out->items[out->n++];
    *action = (strait_swarm_action){
        .kind = kind, .worker = worker, .stage = -1, .reason = "", .successor = -1};
    return action;
}

strait_swarm_action *strait_coordinator_log(const struct strait_coordinator *c,
                                            strait_swarm_actions *out, int worker,
                                            const char *reason) {
    strait_swarm_action *action = strait_coordinator_act(out, STRAIT_SWARM_LOG, worker);
    action->stage = worker >= 0 ? strait_coordinator_stage_of(c, worker) : -1;
    action->replica = worker >= 0 ? c->workers[worker].replica : 0;
    action->reason = reason;
    return action;
}

/* Appends to a line of STRAIT_SWARM_LINE bytes; what does not fit is cut off. */
#define APPEND(...) \
    ((void)snprintf(line + strlen(line), STRAIT_SWARM_LINE - strlen(line), __VA_ARGS__))

/* Names are not unique, so the first digits of the key go with them. */
static void append_worker(const strait_swarm_worker *worker, char line[STRAIT_SWARM_LINE]) {
    char key[STRAIT_FINGERPRINT_TEXT];
    strait_fingerprint_text(&worker->key, key);
    APPEND("%s (%.8s)", worker->report.name, key);
}

void strait_coordinator_describe(const struct strait_coordinator *c, const strait_swarm_action *a,
                                 char line[STRAIT_SWARM_LINE]) {
    line[0] = '\0';
    if (a->worker >= 0) {
        APPEND("worker ");
        append_worker(&c->workers[a->worker], line);
        if (a->stage >= 0) APPEND(", stage %d", a->stage);
        if (a->stage >= 0 && a->replica > 0) APPEND(", replica %d", a->replica);
        APPEND(": ");
    }
    APPEND("%s", a->reason);
    if (a->successor < 0) return;
    APPEND("; moving the stage to ");
    append_worker(&c->workers[a->successor], line);
}
