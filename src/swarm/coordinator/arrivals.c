/* arrivals.c - see arrivals.h.
 *
 * A slow link takes hours for what a fast one sends in seconds, so what arrives is waited for. Who
 * receives it says how much that is, and may lie, as may the sender, who can send a byte now and
 * then. So only whole parts of a snapshot extend the time that it may take: each by a fixed time,
 * which follows from a rate, and no more parts than the snapshot has. */
#include "swarm/coordinator/arrivals.h"

#include "stage/outer/outer.h"
#include "swarm/coordinator/state.h"

#define SECOND_NS  INT64_C(1000000000)
#define ARRIVAL_NS (30 * SECOND_NS) // for the next part to arrive

enum {
    /* What arrives in most of that time at the slowest rate that a swarm waits for. */
    PART_BYTES = 20 * STRAIT_OUTER_SLOWEST
};

static const double slowest_load = 5e7; // bytes per second of verifying and loading a snapshot

/* The first byte extends the time, too: it may have waited for what others were sent before. */
static void count(strait_swarm_arrival *arrival, uint64_t bytes, double all, int64_t now_ns) {
    const uint64_t most = all > 0.0 ? (uint64_t)all : 0;
    if (bytes > most) bytes = most;
    if (bytes <= arrival->counted) return;
    if (arrival->since_ns != 0 && bytes < most && bytes - arrival->counted < PART_BYTES) return;
    if (arrival->since_ns == 0) arrival->began_ns = now_ns;
    arrival->counted = bytes;
    arrival->since_ns = now_ns;
}

static double size_of(const struct strait_coordinator *c, int stage) {
    return stage >= 0 && stage < c->config.n_stages ? c->config.snapshot_bytes[stage] : 0.0;
}

/* Returns whether others still send the worker the snapshot that it restores: what it says is
 * believed only then. One that has it already could otherwise keep all waiting. */
static int is_sent_its_own(const struct strait_coordinator *c, int slot, int stage) {
    const strait_swarm_worker *worker = &c->workers[slot];
    const strait_swarm_source source = worker->stage >= 0 ? c->source[stage] : worker->source;
    return strait_coordinator_awaits(c, slot) && source != STRAIT_SWARM_FROM_SEED &&
           source != STRAIT_SWARM_FROM_SELF && source != STRAIT_SWARM_FROM_LIVE;
}

void strait_coordinator_note_arrived(struct strait_coordinator *c, int slot,
                                     const strait_snapshot_arrivals *arrived) {
    strait_swarm_receiving *receiving = &c->workers[slot].receiving;
    const int stage = strait_coordinator_stage_of(c, slot);
    if (stage < 0) return;
    if (is_sent_its_own(c, slot, stage))
        count(&receiving->own, arrived->own, size_of(c, stage), c->now_ns);
    count(&receiving->prev, arrived->prev, size_of(c, stage - 1), c->now_ns);
    count(&receiving->next, arrived->next, size_of(c, stage + 1), c->now_ns);
}

void strait_coordinator_forget_arrivals(struct strait_coordinator *c) {
    for (int slot = 0; slot < STRAIT_SWARM_WORKERS; slot++)
        c->workers[slot].receiving = (strait_swarm_receiving){0};
}

/* When the last part has arrived, all of the snapshot is verified and loaded, and which part was
 * the last is not always reported before that. So the time to load follows any part, but only once:
 * all parts together have no more than their own times and that. */
static int is_arriving(const struct strait_coordinator *c, const strait_swarm_arrival *arrival,
                       int stage, int64_t now_ns) {
    const int64_t load_ns = (int64_t)(size_of(c, stage) / slowest_load * (double)SECOND_NS);
    const int64_t n_parts = 1 + (int64_t)(arrival->counted / PART_BYTES);
    return arrival->since_ns != 0 && now_ns - arrival->since_ns <= ARRIVAL_NS + load_ns &&
           now_ns - arrival->began_ns <= n_parts * ARRIVAL_NS + load_ns;
}

int strait_coordinator_is_restoring(const struct strait_coordinator *c, int64_t now_ns) {
    for (int i = 0; i < c->config.n_stages; i++)
        for (int k = 0; k < strait_coordinator_n_replicas(c, i); k++) {
            const int slot = strait_coordinator_replica(c, i, k);
            if (slot >= 0 && is_arriving(c, &c->workers[slot].receiving.own, i, now_ns)) return 1;
        }
    return 0;
}

int strait_coordinator_is_copied(const struct strait_coordinator *c, int stage, int64_t now_ns) {
    const int next = stage + 1 < c->config.n_stages ? c->owner[stage + 1] : -1;
    const int prev = stage > 0 ? c->owner[stage - 1] : -1;
    return (next >= 0 && is_arriving(c, &c->workers[next].receiving.prev, stage, now_ns)) ||
           (prev >= 0 && is_arriving(c, &c->workers[prev].receiving.next, stage, now_ns));
}
