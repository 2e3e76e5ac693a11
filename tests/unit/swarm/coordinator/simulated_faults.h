/* simulated_faults.h - what happens to the workers and to the coordinator of a simulated swarm, and
 * at which point of a step. */
#pragma once

#include "simulated_host.h"

/* Where a fault strikes: at any time, or at the next worker that gets to a point. */
typedef enum point {
    ANY_TIME,
    BEGINS,    // before its microbatches
    COMPUTES,  // in the middle of them
    SUMS,      // it has passed its sum on, and has not replied
    UPDATES,   // before it applies the update
    APPLIED,   // after that, before it replies
    CONNECTS,  // to the other replicas
    SNAPSHOTS, // before others come
    RECEIVES,  // a newcomer gets the stage's state
    GIVES,     // the one that sends it
    POINTS
} point;

/* ---- links ---- */

static void connect_worker(struct worker *w) {
    const strait_swarm_report report = {.flops = 1e9 / (1 + w->batch_ms), .is_reachable = 1};
    strait_swarm_event e = {.kind = STRAIT_SWARM_JOIN,
                            .report = &report,
                            .inventory = w->inventory,
                            .generation = w->generation};
    if (!w->is_alive || w->has_link) return;
    e.key = key_of(w);
    w->has_link = 1;
    w->life++;
    w->slot = strait_coordinator_admit(&world.coordinator, &e.key);
    EXPECT(w->slot >= 0);
    feed(&e);
}

/* The link closes; the coordinator notices a little later, perhaps after the neighbours. */
static void close_link(struct worker *w) {
    if (!w->has_link) return;
    put((pending){.kind = LOSE, .worker = index_of(w)}, draw(300) * MS);
    unlink_worker(w);
}

static void lose_link(const pending *h) {
    const struct worker *w = &world.workers[h->worker];
    if (h->life == w->life && w->slot >= 0)
        feed(&(strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = w->slot});
}

/* ---- kinds ---- */

static void kill_worker(struct worker *w, int is_silent) {
    if (!w->is_alive) return;
    if (is_silent)
        unlink_worker(w);
    else
        close_link(w);
    w->is_alive = 0;
    w->is_silent = is_silent;
    w->inventory = strait_snapshot_inventory_empty();
    w->generation = 0;
    w->stage = -1;
    put((pending){.kind = WAKE, .worker = index_of(w)}, (int64_t)(1 + draw(60)) * S);
}

static void wake_worker(struct worker *w) {
    w->is_alive = 1;
    w->is_silent = 0;
    if (world.scenario.is_exact && draw(4) == 0) { // another key, as after a new installation
        w->identity++;
        w->n_penalties = 0;
    }
    connect_worker(w);
}

static void cut_worker(struct worker *w, int64_t away_ns) {
    if (!w->has_link) return;
    close_link(w);
    put((pending){.kind = CONNECT, .worker = index_of(w)}, away_ns);
}

/* The link to a worker beside it, or to another replica of its stage. */
static void cut_pair(const struct worker *w, int64_t until) {
    const int stage = w->stage + (int)draw(3) - 1;
    if (w->stage < 0 || stage < 0 || stage >= n_stages()) return;
    const int n = strait_coordinator_n_replicas(&world.coordinator, stage);
    const struct worker *other = member(stage, (int)draw((uint32_t)n));
    if (other == NULL || other == w) return;
    int at = 0;
    for (int i = 0; i < CUTS; i++)
        if (world.cuts[i].until < world.cuts[at].until) at = i;
    world.cuts[at].a = index_of(w);
    world.cuts[at].b = index_of(other);
    world.cuts[at].until = until;
}

static void wipe_stage(int stage) {
    struct worker *all[STRAIT_SWARM_REPLICAS + 1];
    const int n = strait_coordinator_n_replicas(&world.coordinator, stage);
    for (int k = 0; k < n; k++)
        all[k] = member(stage, k);
    for (int k = 0; k < n; k++)
        if (all[k] != NULL) kill_worker(all[k], 0);
}

/* A restarted coordinator knows what was persisted and recorded, and nothing else. */
static void restart_coordinator(void) {
    const strait_swarm_config config = world.coordinator.config;
    world.is_excused = 1;
    strait_coordinator_init(&world.coordinator, &config);
    strait_coordinator_resume(&world.coordinator, &world.durable, world.now);
    world.coordinator.checkpoint = world.saved;
    EXPECT(world.coordinator.committed == world.committed);
    for (int i = 0; i < world.scenario.n_workers; i++) {
        struct worker *w = &world.workers[i];
        const strait_fingerprint key = key_of(w);
        w->slot = -1;
        if (w->n_penalties > 0)
            strait_coordinator_remember(&world.coordinator, &key, 0, w->n_penalties);
        if (!w->has_link) continue;
        unlink_worker(w);
        put((pending){.kind = CONNECT, .worker = i}, 100 * MS + draw(3000) * MS);
    }
    feed(&(strait_swarm_event){.kind = STRAIT_SWARM_START});
}

static void doubt_values(void) {
    if (!strait_coordinator_has_replicas(&world.coordinator)) return;
    world.is_excused = 1;
    feed(&(strait_swarm_event){.kind = STRAIT_SWARM_IN_DOUBT});
}

static void strike(fault kind, struct worker *w) {
    world.n_faults++;
    world.n_struck[kind]++;
    if (prints_log)
        printf("%.3f s: fault %d at worker %d, stage %d, replica %d\n", (double)world.now * 1e-9,
               kind, index_of(w), w->stage, w->replica);
    switch (kind) {
    case KILL: kill_worker(w, 0); break;
    case VANISH: kill_worker(w, 1); break;
    case CUT: cut_worker(w, (int64_t)draw(60000) * MS); break;
    case STOP: w->stopped_until = world.now + (int64_t)(1 + draw(40)) * S; break;
    case HANG: w->hung_until = world.now + (int64_t)(1 + draw(120)) * S; break;
    case SLOW: w->slow_until = world.now + (int64_t)(1 + draw(60)) * S; break;
    case CUT_PAIR: cut_pair(w, world.now + (int64_t)(1 + draw(60)) * S); break;
    case ISOLATE: w->isolated_until = world.now + (int64_t)(1 + draw(60)) * S; break;
    case LEAVE:
        if (w->has_link) feed(&(strait_swarm_event){.kind = STRAIT_SWARM_LEAVE, .worker = w->slot});
        break;
    case WIPE: wipe_stage(w->stage >= 0 ? w->stage : (int)draw((uint32_t)n_stages())); break;
    case PARTITION:
        for (int i = 0; i < world.scenario.n_workers; i++)
            if (draw(3) == 0) cut_worker(&world.workers[i], (int64_t)draw(30000) * MS);
        break;
    case DOUBT: doubt_values(); break;
    case WITHHOLD:
        if (w->has_link)
            feed(&(strait_swarm_event){.kind = STRAIT_SWARM_WITHHELD, .worker = w->slot});
        break;
    default: restart_coordinator(); break;
    }
}

/* ---- when ---- */

static fault draw_fault(void) {
    uint32_t sum = 0;
    for (int i = 0; i < FAULT_KINDS; i++)
        sum += world.scenario.weights[i];
    uint32_t at = draw(sum);
    int kind = 0;
    while (at >= world.scenario.weights[kind])
        at -= world.scenario.weights[kind++];
    return (fault)kind;
}

/* Half of the faults that are not at a point of a step hit a replica of a stage. */
static struct worker *draw_victim(void) {
    const int stage = (int)draw((uint32_t)n_stages());
    const int n = strait_coordinator_n_replicas(&world.coordinator, stage);
    struct worker *hit = draw(2) == 0 ? member(stage, (int)draw((uint32_t)n)) : NULL;
    return hit != NULL ? hit : &world.workers[draw((uint32_t)world.scenario.n_workers)];
}

/* The fault that is due strikes at once, or waits for somebody to get to its point. One that has
 * waited until the next is due strikes anybody. */
static void inject_fault(void) {
    if (world.armed.is_set) {
        world.armed.is_set = 0;
        strike(world.armed.fault, draw_victim());
    }
    world.armed.fault = draw_fault();
    world.armed.point = world.scenario.is_exact ? (int)draw(POINTS) : ANY_TIME;
    world.armed.n_skipped = (int)draw(world.armed.point < RECEIVES ? 12 : 2);
    if (world.armed.point == ANY_TIME)
        strike(world.armed.fault, draw_victim());
    else
        world.armed.is_set = 1;
}

static void reach(struct worker *w, point at) {
    if (!world.armed.is_set || world.armed.point != (int)at || world.armed.n_skipped-- > 0) return;
    world.armed.is_set = 0;
    world.n_reached[at]++;
    strike(world.armed.fault, w);
}
