/* averages.c - two workers of an average of which one says that the other does not send it what it
 * needs, while the other says that it has sent everything.
 *
 * A sender can let its results trickle to one victim and reply at once: the victim then has not
 * replied when its time is over. Or the victim lies. The coordinator sees nothing of what they
 * exchange, so both are noted, by key. One that was in such a dispute with two others, and the
 * other with fewer, is left out. Otherwise the one that complains is, and of two that are in
 * dispute again the one that was left out less often: neither can have the other left out at will.
 *
 * A worker with far more steps (standing.c) keeps its place when it is accused, and is not noted:
 * new keys are cheap. When it accuses it is treated like any other, or it could keep every newcomer
 * out; one that does so to several is isolated, and then its steps protect it no longer. */
#include "swarm/coordinator/state.h"

enum {
    SUM = 2,      // strait_swarm_goal.is_average: results are exchanged
    OPPONENTS = 2 // after which a worker is taken for the cause
};

static int is_opponent(const strait_swarm_worker *worker, const strait_fingerprint *key) {
    for (int i = 0; i < worker->standing.n_opponents; i++)
        if (strait_fingerprint_equal(&worker->standing.opponents[i], key)) return 1;
    return 0;
}

static void note(struct strait_coordinator *c, int slot, int other) {
    strait_swarm_standing *standing = &c->workers[slot].standing;
    const strait_fingerprint *key = &c->workers[other].key;
    standing->marked_step = c->committed;
    if (is_opponent(&c->workers[slot], key) || standing->n_opponents == STRAIT_SWARM_OPPONENTS)
        return;
    standing->opponents[standing->n_opponents++] = *key;
}

static int choose_loser(struct strait_coordinator *c, int accuser, int accused) {
    const strait_swarm_standing *a = &c->workers[accuser].standing;
    const strait_swarm_standing *b = &c->workers[accused].standing;
    const int senior = strait_coordinator_senior(c, accuser, accused);
    const int is_protected = senior == accused && b->n_opponents < OPPONENTS;
    const int is_repeated = is_opponent(&c->workers[accuser], &c->workers[accused].key);
    note(c, accuser, accused);
    if (is_protected) return accuser;
    note(c, accused, accuser);
    if (b->n_opponents >= OPPONENTS && b->n_opponents > a->n_opponents) return accused;
    if (a->n_opponents >= OPPONENTS && a->n_opponents > b->n_opponents) {
        if (senior == accuser) strait_coordinator_isolate(c, accuser);
        return accuser;
    }
    return is_repeated && b->n_lost < a->n_lost ? accused : accuser;
}

/* Returns the worker that `slot` says it waits for, or lacked when it replied; -1: none. */
static int named_by(const struct strait_coordinator *c, int slot, int stage) {
    const int replica = c->workers[slot].standing.awaited_replica - 1;
    if (replica < 0 || replica >= strait_coordinator_n_replicas(c, stage)) return -1;
    const int other = strait_coordinator_replica(c, stage, replica);
    return other != slot ? other : -1;
}

static int is_late(const struct strait_coordinator *c, int slot, int stage, int64_t now) {
    return strait_coordinator_awaits(c, slot) && strait_coordinator_is_late(c, slot, stage, now);
}

int strait_coordinator_names_nobody(const struct strait_coordinator *c, int slot) {
    return c->phase == STRAIT_PHASE_WORK && c->goal.is_average == SUM &&
           named_by(c, slot, strait_coordinator_stage_of(c, slot)) < 0;
}

/* Finds a worker that is late and says that another one, which has replied, does not send it what
 * it needs. One that itself lacks something of a third, whether it has replied or is late, too, may
 * have nothing to send: it takes the place of the one that waits, and the third its own. Those that
 * name each other in a circle are in dispute as well. Returns whether there is one. */
static int find_dispute(const struct strait_coordinator *c, int64_t now, int *accuser,
                        int *accused) {
    for (int i = 0; i < c->config.n_stages; i++) {
        const int n_replicas = strait_coordinator_n_replicas(c, i);
        for (int k = 0; k < n_replicas; k++) {
            *accuser = strait_coordinator_replica(c, i, k);
            if (!is_late(c, *accuser, i, now)) continue;
            *accused = named_by(c, *accuser, i);
            for (int n = 1; n < n_replicas && *accused >= 0; n++) {
                const int next = named_by(c, *accused, i);
                if (next < 0) break;
                *accuser = *accused;
                *accused = next;
            }
            if (*accused < 0) continue;
            if (!strait_coordinator_awaits(c, *accused) || named_by(c, *accused, i) >= 0) return 1;
        }
    }
    return 0;
}

/* Returns whether its pipeline was left out: the last one that is left cannot be. */
static int leave_out(struct strait_coordinator *c, int slot, int64_t now,
                     strait_swarm_actions *out) {
    static const char reason[] =
        "an average timed out, and two workers disagree whether the weights "
        "were sent: leaving out this pipeline for a while";
    if (!strait_coordinator_leave_out(c, slot, reason, now, out)) return 0;
    c->workers[slot].standing.n_lost++;
    return 1;
}

int strait_coordinator_settle_average(struct strait_coordinator *c, int64_t now,
                                      strait_swarm_actions *out) {
    int accuser = -1, accused = -1;
    if (c->phase != STRAIT_PHASE_WORK || c->goal.is_average != SUM ||
        !find_dispute(c, now, &accuser, &accused))
        return 0;
    const int loser = choose_loser(c, accuser, accused);
    const int winner = loser == accuser ? accused : accuser;
    (void)strait_coordinator_log(c, out, winner,
                                 "involved in a dispute about an average with another worker");
    return leave_out(c, loser, now, out) || leave_out(c, winner, now, out);
}
