/* averages.c - two workers of an average of which one says that the other does not send it what it
 * needs, while the other says that it has done everything.
 *
 * A sender can let its results trickle to one victim and reply at once: the victim is then the only
 * one that has not replied. Or the victim lies. The coordinator sees nothing of what they exchange,
 * so both are noted, by key. One that was in such a dispute with two others, and the other with
 * fewer, is left out. Otherwise the one that complains is, and of two that are in dispute again the
 * one that was left out less often: neither can have the other left out at will. A worker with far
 * more steps keeps its place, and is not noted (standing.c). */
#include "swarm/coordinator/state.h"

enum {
    SUM = 2,     // strait_swarm_goal.is_average: results are exchanged
    PARTNERS = 2 // after which a worker is taken for the cause
};

/* Returns the only worker whose reply is outstanding; -1: there are more, or none. */
static int find_last(const struct strait_coordinator *c) {
    int last = -1;
    for (int i = 0; i < c->config.n_stages; i++)
        for (int k = 0; k < strait_coordinator_n_replicas(c, i); k++) {
            const int slot = strait_coordinator_replica(c, i, k);
            if (!strait_coordinator_awaits(c, slot)) continue;
            if (last >= 0) return -1;
            last = slot;
        }
    return last;
}

static int is_partner(const strait_swarm_worker *worker, const strait_fingerprint *key) {
    for (int i = 0; i < worker->standing.n_partners; i++)
        if (strait_fingerprint_equal(&worker->standing.partners[i], key)) return 1;
    return 0;
}

static void note(struct strait_coordinator *c, int slot, int other) {
    strait_swarm_standing *standing = &c->workers[slot].standing;
    const strait_fingerprint *key = &c->workers[other].key;
    standing->marked_step = c->committed;
    if (is_partner(&c->workers[slot], key) || standing->n_partners == STRAIT_SWARM_PARTNERS) return;
    standing->partners[standing->n_partners++] = *key;
}

static int choose_loser(struct strait_coordinator *c, int accuser, int accused) {
    const strait_swarm_standing *a = &c->workers[accuser].standing;
    const strait_swarm_standing *b = &c->workers[accused].standing;
    const int senior = strait_coordinator_senior(c, accuser, accused);
    const int is_repeated = is_partner(&c->workers[accuser], &c->workers[accused].key);
    if (senior != accuser) note(c, accuser, accused);
    if (senior != accused) note(c, accused, accuser);
    if (senior >= 0) return senior == accuser ? accused : accuser;
    if (b->n_partners >= PARTNERS && b->n_partners > a->n_partners) return accused;
    if (a->n_partners >= PARTNERS && a->n_partners > b->n_partners) return accuser;
    return is_repeated && b->n_lost < a->n_lost ? accused : accuser;
}

int strait_coordinator_settle_average(struct strait_coordinator *c, int64_t now,
                                      strait_swarm_actions *out) {
    static const char reason[] = "in an average one worker lacks what the other says that it sent: "
                                 "its pipeline is left out for a while";
    const int slot = c->phase == STRAIT_PHASE_WORK && c->goal.is_average == SUM ? find_last(c) : -1;
    const int stage = slot >= 0 ? strait_coordinator_stage_of(c, slot) : -1;
    if (slot < 0 || !strait_coordinator_is_late(c, slot, stage, now)) return 0;
    const int lacks = c->workers[slot].standing.lacks - 1;
    if (lacks < 0 || lacks >= strait_coordinator_n_replicas(c, stage)) return 0;
    const int other = strait_coordinator_replica(c, stage, lacks);
    if (other == slot) return 0;
    const int loser = choose_loser(c, slot, other), winner = loser == slot ? other : slot;
    c->workers[loser].standing.n_lost++;
    (void)strait_coordinator_log(c, out, winner, "is in dispute with another about an average");
    /* The last pipeline that is left cannot be; then the other goes. */
    return strait_coordinator_leave_out(c, loser, reason, now, out) ||
           strait_coordinator_leave_out(c, winner, reason, now, out);
}
