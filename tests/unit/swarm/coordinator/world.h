/* world.h - the state of a simulated swarm: workers, coordinator, clock and random numbers. */
#pragma once

#include "agenda.h"
#include "base/rng/rng.h"
#include "check.h"

enum {
    WORKERS = 200,
    STAGES = 12,
    FAULTS = 10000,
    KEEP_EVERY = 3,
    SAVE_EVERY = 40,
    CALM_EVERY = 500 // faults between two calm periods, in which there must be progress
};

#define MS INT64_C(1000000)
#define S  INT64_C(1000000000)

struct worker {
    int is_alive, has_link, slot, life;
    int64_t stopped_until, sleeps; // SIGSTOP
    int stage;
    uint32_t generation;
    strait_snapshot_inventory inventory;
    int is_small; // has too little memory for a stage
};

static struct {
    uint64_t seed, draws, n_events;
    agenda agenda;
    int64_t now;
    int n_workers;
    uint32_t pace, fault_ms; // factor on the time of work; longest time between two faults
    int n_ahead;             // the most events that were pending
    struct worker workers[WORKERS];
    struct strait_coordinator coordinator;
    strait_swarm_durable durable;
    int worker_of[STRAIT_SWARM_WORKERS];
    int64_t committed, best_step, saved;
    int is_update; // whether the trainer's next goal is the update
    int64_t step;
    int n_faults, is_calm;
    int n_deaths, n_restarts, n_commits, n_stalls, n_leaves, n_moves, n_cuts, n_handed;
    int n_replays, n_rollbacks; // generations after a failure, by how they continued
    int64_t n_alone, n_saved;   // stage-steps that replays computed, and that they spared
} world;

static inline uint32_t draw(uint32_t below) {
    const strait_rng rng = {world.seed, 16};
    return (uint32_t)(strait_rng_u64(rng, world.draws++) % below);
}

#define EXPECT(condition)                                                                      \
    do {                                                                                       \
        if (!(condition))                                                                      \
            fail_msg("seed %llu, event %llu, %.3f s: %s", (unsigned long long)world.seed,      \
                     (unsigned long long)world.n_events, (double)world.now / 1e9, #condition); \
    } while (0)

static inline void put(pending h, int64_t delay) {
    if (h.worker >= 0) h.life = world.workers[h.worker].life;
    EXPECT(agenda_put(&world.agenda, h, world.now + delay));
}

/* ---- invariants ---- */

static inline void check_world(void) {
    const struct strait_coordinator *m = &world.coordinator;
    int owned = 0;
    for (int i = 0; i < STAGES; i++) {
        if (m->owner[i] < 0) continue;
        EXPECT(m->workers[m->owner[i]].stage == i);
        EXPECT(m->workers[m->owner[i]].is_known);
        owned++;
    }
    for (int i = 0; i < STRAIT_SWARM_WORKERS && world.n_events % 16 == 0; i++)
        owned -= m->workers[i].is_known && m->workers[i].stage >= 0;
    EXPECT(owned == 0 || world.n_events % 16 != 0); // one owner per stage, one stage per owner
    EXPECT(m->committed >= world.committed);
    world.committed = m->committed;
    EXPECT(world.durable.generation >= m->generation || m->phase == STRAIT_PHASE_WAITING);
}

static inline void check_commit(int64_t step) {
    for (int i = 0; i < STAGES; i++) {
        const struct worker *w = &world.workers[world.worker_of[world.coordinator.owner[i]]];
        const int64_t at = w->inventory.live.step;
        const strait_swarm_replay *replay = &world.coordinator.replay;
        EXPECT(w->stage == i && w->generation == world.coordinator.generation);
        if (step < replay->until && !replay->is_late[i])
            EXPECT(at >= replay->until - 1); // it keeps its state
        else
            EXPECT(at == step);
    }
    if (step < world.coordinator.replay.until) return;
    EXPECT(world.durable.committed >= step); // recorded before anyone is notified
    if (step > world.best_step) {
        EXPECT(step == world.best_step + 1);
        world.best_step = step;
        world.n_commits++;
    }
}
