/* away.c - further replicas that leave, are lost or are sent away, and for how long they stay away.
 *
 * Each time costs all others a generation, and so does taking the worker back. */
#include "swarm/coordinator/state.h"

#define AWAY_NS INT64_C(10000000000) // after the first failure, doubling

#define OUTAGE_NS INT64_C(2000000000) // within which an outage of the host's link takes workers

enum {
    AWAY_SHIFT_MAX = 9, // about an hour and a half
    OUTAGE_WORKERS = 3  // of which most are lost together
};

static int64_t away_ns(int n) {
    return AWAY_NS << (n < AWAY_SHIFT_MAX ? n : AWAY_SHIFT_MAX);
}

/* The first time may be bad luck. */
static int count_loss(struct strait_coordinator *c, int slot) {
    strait_swarm_worker *worker = &c->workers[slot];
    if (worker->replica == 0 || c->config.has_pipelines) return 0;
    if (worker->n_sent_away++ == 0) return 1;
    worker->away_until_ns = c->now_ns + away_ns(worker->n_sent_away - 2);
    return 1;
}

static int is_just_lost(const struct strait_coordinator *c, const strait_swarm_worker *worker) {
    return worker->is_known && worker->lost_ns != 0 && c->now_ns - worker->lost_ns <= OUTAGE_NS;
}

static void excuse_loss(struct strait_coordinator *c, int slot) {
    strait_swarm_worker *worker = &c->workers[slot];
    if (!worker->is_loss_counted) return;
    worker->is_loss_counted = 0;
    /* One is left, or the worker would be forgotten, and with it that it has the state of a stage
     * that nobody else may have now. */
    worker->n_sent_away -= worker->n_sent_away > 1;
    worker->away_until_ns = 0; // whatever it was before had passed: it was a replica again
}

/* Where most workers are lost together, the link of the host itself is at fault, and that is known
 * only when the last of them is lost. */
void strait_coordinator_count_loss(struct strait_coordinator *c, int slot) {
    int n_lost = 0, n_others = 0;
    c->workers[slot].is_loss_counted = count_loss(c, slot);
    c->workers[slot].lost_ns = c->now_ns;
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++) {
        const int is_lost = is_just_lost(c, &c->workers[i]);
        n_lost += is_lost;
        n_others += !is_lost && c->workers[i].is_known && c->workers[i].is_connected;
    }
    if (n_lost < OUTAGE_WORKERS || n_lost <= n_others) return;
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++)
        if (is_just_lost(c, &c->workers[i])) excuse_loss(c, i);
}

void strait_coordinator_let_leave(struct strait_coordinator *c, int slot, int replica,
                                  strait_swarm_actions *out) {
    c->workers[slot].replica = replica;
    (void)count_loss(c, slot);
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
