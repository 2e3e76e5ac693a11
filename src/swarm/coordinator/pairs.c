/* pairs.c - which workers may be placed side by side.
 *
 * Two workers may each be fine and still unable to connect: both behind routers, an address that is
 * wrong, a link that loses one direction. Such a pair is remembered for some hours and kept apart
 * as long as there is another placement. */
#include "swarm/coordinator/state.h"

#define PAIR_NS INT64_C(14400000000000) // after which a pair is tried again: networks change

/* Returns the entry of two keys in any order; NULL: there is none. */
static const strait_swarm_pair *find_pair(const struct strait_coordinator *c,
                                          const strait_fingerprint *a,
                                          const strait_fingerprint *b) {
    for (int i = 0; i < c->n_pairs && i < STRAIT_SWARM_PAIRS; i++) {
        const strait_swarm_pair *pair = &c->pairs[i];
        for (int k = 0; k < 2; k++)
            /* Called for every spare and pair: the first bytes rule nearly all of them out. */
            if (pair->keys[k].bytes[0] == a->bytes[0] &&
                strait_fingerprint_equal(&pair->keys[k], a) &&
                strait_fingerprint_equal(&pair->keys[1 - k], b))
                return pair;
    }
    return NULL;
}

void strait_coordinator_remember_pair(struct strait_coordinator *c, int boundary) {
    const int first = c->owner[boundary];
    const int second = c->owner[boundary + 1];
    if (first < 0 || second < 0 || strait_coordinator_is_bad_pair(c, first, second)) return;
    c->pairs[c->n_pairs++ % STRAIT_SWARM_PAIRS] = (strait_swarm_pair){
        .keys = {c->workers[first].key, c->workers[second].key}, .until_ns = c->now_ns + PAIR_NS};
    if (c->n_pairs >= 2 * STRAIT_SWARM_PAIRS) c->n_pairs -= STRAIT_SWARM_PAIRS;
}

int strait_coordinator_is_bad_pair(const struct strait_coordinator *c, int slot, int other) {
    const strait_swarm_worker *a = &c->workers[slot];
    const strait_swarm_worker *b = &c->workers[other];
    if (!a->is_connected || !b->is_connected) return 0; // what it reports next time is unknown
    if (!a->report.is_reachable && !b->report.is_reachable && !c->config.has_relay)
        return 1; // neither can dial the other
    const strait_swarm_pair *pair = find_pair(c, &a->key, &b->key);
    return pair != NULL && c->now_ns < pair->until_ns;
}

int strait_coordinator_count_bad(const struct strait_coordinator *c, int slot, int stage) {
    int n = 0;
    for (int side = -1; side <= 1; side += 2) {
        const int at = stage + side;
        if (at < 0 || at >= c->config.n_stages || c->owner[at] < 0) continue;
        n += strait_coordinator_is_bad_pair(c, slot, c->owner[at]);
    }
    return n;
}

/* ---- separating ---- */

static int is_bad_boundary(const struct strait_coordinator *c, int i) {
    return c->owner[i] >= 0 && c->owner[i + 1] >= 0 &&
           strait_coordinator_is_bad_pair(c, c->owner[i], c->owner[i + 1]);
}

static int count_bad_boundaries(const struct strait_coordinator *c) {
    int n = 0;
    for (int i = 0; i + 1 < c->config.n_stages; i++)
        n += is_bad_boundary(c, i);
    return n;
}

static void exchange(struct strait_coordinator *c, int i, int k) {
    const int slot = c->owner[i];
    c->owner[i] = c->owner[k];
    c->owner[k] = slot;
    c->workers[c->owner[i]].stage = i;
    c->workers[c->owner[k]].stage = k;
}

/* Gives one end's stage to a spare that can connect to both of its neighbours. */
static int move_to_spare(struct strait_coordinator *c, int stage, strait_swarm_actions *out) {
    const int spare = strait_coordinator_spare_for(c, stage);
    const int old = c->owner[stage];
    if (spare < 0 || strait_coordinator_count_bad(c, spare, stage) > 0) return 0;
    strait_coordinator_log(c, out, old, "cannot connect to the worker of a neighbouring stage")
        ->successor = spare;
    (void)strait_coordinator_act(out, STRAIT_SWARM_RELEASE, old);
    strait_coordinator_assign(c, stage, spare, out);
    return 1;
}

/* Exchanges the two stages that leave the fewest pairs that cannot connect; of several such
 * exchanges the one that loses the fewest steps. Returns whether one helps. */
static int exchange_best(struct strait_coordinator *c, strait_swarm_actions *out) {
    int fewest = count_bad_boundaries(c);
    int best[2] = {-1, -1};
    int64_t step = -1;
    for (int i = 0; i < c->config.n_stages; i++)
        for (int k = i + 1; k < c->config.n_stages; k++) {
            exchange(c, i, k);
            const int n = count_bad_boundaries(c);
            const int64_t restored = n <= fewest ? strait_coordinator_best_step(c) : -1;
            exchange(c, i, k);
            if (n > fewest || (n == fewest && (best[0] < 0 || restored <= step))) continue;
            fewest = n;
            best[0] = i;
            best[1] = k;
            step = restored;
        }
    if (best[0] < 0) return 0;
    (void)strait_coordinator_log(c, out, c->owner[best[0]],
                                 "exchanges its stage with another worker: two workers cannot "
                                 "connect to each other and there is no spare");
    exchange(c, best[0], best[1]);
    c->n_failures = 0;
    return 1;
}

static int has_all_owners(const struct strait_coordinator *c) {
    for (int i = 0; i < c->config.n_stages; i++)
        if (c->owner[i] < 0 || !strait_coordinator_can_own(c, c->owner[i])) return 0;
    return 1;
}

static int fits(const struct strait_coordinator *c, int slot, int stage) {
    const double memory = c->workers[slot].report.memory_bytes;
    return memory <= 0.0 || memory >= c->config.need_bytes[stage];
}

int strait_coordinator_exchange_stage(struct strait_coordinator *c, int stage) {
    int best = -1;
    int fewest = 0;
    int64_t step = -1;
    for (int k = 0; k < c->config.n_stages && has_all_owners(c); k++) {
        if (k == stage || !fits(c, c->owner[k], stage) || !fits(c, c->owner[stage], k)) continue;
        exchange(c, stage, k);
        const int n = count_bad_boundaries(c);
        const int64_t restored = strait_coordinator_best_step(c);
        exchange(c, stage, k);
        if (best >= 0 && (n > fewest || (n == fewest && restored <= step))) continue;
        best = k;
        fewest = n;
        step = restored;
    }
    if (best < 0) return 0;
    exchange(c, stage, best);
    c->n_failures = 0;
    return 1;
}

void strait_coordinator_separate(struct strait_coordinator *c, strait_swarm_actions *out) {
    for (int i = 0; i + 1 < c->config.n_stages; i++)
        if (is_bad_boundary(c, i) && !move_to_spare(c, i + 1, out)) (void)move_to_spare(c, i, out);
    if (c->config.n_stages < 3 || count_bad_boundaries(c) == 0 || !has_all_owners(c)) return;
    (void)exchange_best(c, out);
}
