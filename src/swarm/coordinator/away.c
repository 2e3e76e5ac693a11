/* away.c - further replicas that leave, are lost or are sent away, and for how long they stay away.
 *
 * Each time costs all others a generation, and so does taking the worker back. */
#include "swarm/coordinator/state.h"

#define AWAY_NS INT64_C(10000000000) // after the first failure, doubling

enum {
    AWAY_SHIFT_MAX = 9 // about an hour and a half
};

static int64_t away_ns(int n) {
    return AWAY_NS << (n < AWAY_SHIFT_MAX ? n : AWAY_SHIFT_MAX);
}

/* The first time may be bad luck. */
void strait_coordinator_count_loss(struct strait_coordinator *c, int slot) {
    strait_swarm_worker *worker = &c->workers[slot];
    if (worker->replica == 0 || c->config.has_pipelines) return;
    if (worker->n_sent_away++ == 0) return;
    worker->away_until_ns = c->now_ns + away_ns(worker->n_sent_away - 2);
}

void strait_coordinator_let_leave(struct strait_coordinator *c, int slot, int replica,
                                  strait_swarm_actions *out) {
    c->workers[slot].replica = replica;
    strait_coordinator_count_loss(c, slot);
    strait_coordinator_end_help(c, slot);
    if (!c->workers[slot].is_connected) return;
    (void)strait_coordinator_act(out, STRAIT_SWARM_DISCONNECT, slot);
    c->workers[slot].is_connected = 0;
    strait_coordinator_forget(c, slot);
}

void strait_coordinator_send_away(struct strait_coordinator *c, int slot, const char *reason,
                                  strait_swarm_actions *out) {
    strait_swarm_worker *worker = &c->workers[slot];
    (void)strait_coordinator_log(c, out, slot, reason);
    worker->away_until_ns = c->now_ns + away_ns(worker->n_sent_away++);
    if (worker->is_leaving) {
        strait_coordinator_let_leave(c, slot, 0, out); // it is counted here
        return;
    }
    strait_coordinator_end_help(c, slot);
    if (worker->is_connected) (void)strait_coordinator_act(out, STRAIT_SWARM_RELEASE, slot);
}

void strait_coordinator_forgive_replicas(struct strait_coordinator *c) {
    if (c->committed % STRAIT_SWARM_CALM_STEPS != 0) return;
    for (int i = 0; i < c->config.n_stages; i++)
        for (int k = 0; k < c->n_helpers[i]; k++)
            c->workers[c->helper[i][k]].n_sent_away -= c->workers[c->helper[i][k]].n_sent_away > 0;
}
