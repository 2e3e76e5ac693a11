/* world.h - a simulated swarm: its workers, its coordinator, its time and its chances. */
#pragma once

#include "agenda.h"
#include "base/rng.h"
#include "check.h"

enum {
    WORKERS = 200,
    STAGES = 12,
    FAULTS = 10000,
    KEEP_EVERY = 3,
    SAVE_EVERY = 40,
    CALM_EVERY = 500 // faults between two pauses, in which there must be progress
};

#define MS INT64_C(1000000)
#define S  INT64_C(1000000000)

struct worker {
    int is_alive, has_link, node, life;
    int64_t stopped_until, sleeps; // SIGSTOP
    int stage;
    uint32_t epoch;
    int64_t at; // steps applied
    strait_swarm_held held;
    int is_small; // cannot make a stage
};

static struct {
    uint64_t seed, draws, n_happened;
    agenda agenda;
    int64_t now;
    struct worker workers[WORKERS];
    struct strait_coordinator machine;
    strait_swarm_facts facts;
    int worker_of[STRAIT_SWARM_NODES];
    int64_t committed, best_step, saved;
    int is_update; // the trainer's next half step
    int64_t step;
    int n_faults, is_calm;
    int n_deaths, n_restarts, n_commits, n_stalls, n_leaves, n_cuts, n_handed;
} world;

static inline uint32_t draw(uint32_t below) {
    const strait_rng rng = {world.seed, 16};
    return (uint32_t)(strait_rng_u64(rng, world.draws++) % below);
}

#define EXPECT(condition)                                                                        \
    do {                                                                                         \
        if (!(condition))                                                                        \
            fail_msg("seed %llu, event %llu, %.3f s: %s", (unsigned long long)world.seed,        \
                     (unsigned long long)world.n_happened, (double)world.now / 1e9, #condition); \
    } while (0)

static inline void put(happening h, int64_t delay) {
    if (h.worker >= 0) h.life = world.workers[h.worker].life;
    EXPECT(agenda_put(&world.agenda, h, world.now + delay));
}
