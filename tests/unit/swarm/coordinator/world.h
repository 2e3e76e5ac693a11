/* world.h - the state of a simulated swarm: workers, links, coordinator, clock and random numbers,
 * and what must be true of it at any time. */
#pragma once

#include "agenda.h"
#include "base/rng/rng.h"
#include "check.h"
#include "config/run_plan.h"

enum {
    WORKERS = 1000, // at most
    KEEP_EVERY = 3,
    SAVE_EVERY = 40,
    GROUPS = 8, // of the microbatches of a step
    CUTS = 64,  // links between two workers that are cut at one time
};

#define MS INT64_C(1000000)
#define S  INT64_C(1000000000)

/* What may happen to a worker, to several or to the coordinator. */
typedef enum fault {
    KILL,      // its process ends; the links close
    VANISH,    // its machine is gone, and no link closes
    CUT,       // its link to the coordinator closes; it keeps its state and comes back
    STOP,      // it does nothing for a while, as after SIGSTOP
    HANG,      // it computes nothing for a while, and its heartbeats go on
    SLOW,      // it computes twenty times as slowly for a while
    CUT_PAIR,  // its link to one other worker is cut for a while
    ISOLATE,   // its links to all other workers are, while the coordinator hears it
    LEAVE,     // it asks to leave, and comes back later
    WIPE,      // all replicas of a stage are killed at once
    PARTITION, // a third of all workers are cut off from the coordinator
    DOUBT,     // the values of a step are implausible
    WITHHOLD,  // it gives nothing to audits
    RESTART,   // the coordinator is started again
    FAULT_KINDS
} fault;

struct worker {
    int is_alive, has_link, slot, life;
    int is_silent; // it vanished: its links are not closed
    int identity;  // of its key: some come back as somebody else
    int64_t stopped_until, hung_until, slow_until, isolated_until, unlinked_ns;
    int stage, replica;
    uint32_t generation;
    strait_snapshot_inventory inventory;
    uint64_t weights; // of its live state: see weights_at
    uint32_t sum;     // of the groups of its pending step: how often each is in it, in 4 bits
    uint64_t begun, finished; // attempts to compute gradients
    int ready_life, ready_stage,
        ready_penalties; // number of its link when all stages were ready last with it
    uint32_t ready_generation;
    uint32_t moved_generation; // in which its stage moved without loss
    uint64_t arrived;          // bytes of the snapshot that it restores
    uint32_t progress;
    int waits_for;
    int n_penalties; // on record
    int is_small;    // has too little memory for a stage
    int batch_ms;    // to compute a group
};

/* The stages compute the gradients of a step, in one generation. */
typedef struct attempt {
    uint32_t generation, sequence;
    uint64_t number;
    unsigned char counts[STRAIT_RUN_STAGES][GROUPS]; // replicas that computed each group
    int sound_until; // faults, up to which all workers that take part were found to be well
} attempt;

typedef struct scenario {
    int n_workers, n_stages;
    uint32_t pace, fault_ms;       // factor on the time of work; longest time between two faults
    const uint32_t *weights;       // of the kinds of faults
    int limits[STRAIT_RUN_STAGES]; // replicas of each stage; 0: no stage has further ones
    int n_spares;                  // that are kept
    int is_steady;                 // no spare is faster than an owner
    int is_exact;                  // a step that is computed again has the same bits
    int64_t send_ns;               // for a snapshot to arrive where it is restored
} scenario;

static struct {
    uint64_t seed, draws, n_events;
    scenario scenario;
    agenda agenda;
    int64_t now;
    int n_ahead; // the most events that were pending
    struct worker workers[WORKERS];
    struct {
        int a, b;
        int64_t until;
    } cuts[CUTS];
    struct strait_coordinator coordinator;
    strait_swarm_durable durable;
    strait_run run;
    strait_run_plan plan;
    strait_group_owners owners[STRAIT_RUN_STAGES];
    attempt attempt;
    int64_t committed, best_step, saved;
    int64_t advanced_ns, longest_ns; // of the latest new step; between two
    int64_t restored_ns;
    uint32_t ready_generation; // in which all stages were ready last
    int n_steps_since;         // since then
    int is_choosing;           // the trainer prepares its next goal
    int is_update;             // whether that is the update
    int64_t step;
    int is_excused; // a step may be repeated: the coordinator was restarted, or values are in doubt
    int n_faults, is_calm;
    struct {
        int is_set, point, n_skipped;
        fault fault;
    } armed;
    int n_struck[FAULT_KINDS], n_reached[16]; // faults by kind, and by the point where they struck
    int n_withheld; // stages that moved because their owners gave nothing to audits
    int n_taken;    // stages that were taken from the last worker with their state, for failures
    int n_commits, n_moves, n_handed, n_recruited, n_members_most;
    int n_replays, n_rollbacks, n_lossless; // generations after a failure, by how they continued
    int64_t n_alone, n_spared; // stage-steps that replays computed, and that they spared
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

/* ---- who is who ---- */

static inline int index_of(const struct worker *w) {
    return (int)(w - world.workers);
}

static inline strait_fingerprint key_of(const struct worker *w) {
    const int i = index_of(w);
    return (strait_fingerprint){
        {(unsigned char)i, (unsigned char)(i >> 8), 1, (unsigned char)w->identity}};
}

/* Returns the worker that has, or had, the key in a slot. */
static inline struct worker *worker_in(int slot) {
    const unsigned char *key = world.coordinator.workers[slot].key.bytes;
    return &world.workers[key[0] | key[1] << 8];
}

/* Returns a replica of a stage in this generation; NULL: it is gone. */
static inline struct worker *member(int stage, int replica) {
    const int slot = strait_coordinator_replica(&world.coordinator, stage, replica);
    if (slot < 0) return NULL;
    struct worker *w = worker_in(slot);
    return w->slot == slot ? w : NULL;
}

/* The weights of a stage after so many steps, of which each had every microbatch once. */
static inline uint64_t weights_at(int stage, int64_t step) {
    return (uint64_t)(stage + 1) << 48 | (uint64_t)step;
}

/* ---- invariants ---- */

static inline void check_owners(const struct strait_coordinator *c) {
    int n_owned = 0;
    for (int i = 0; i < c->config.n_stages; i++) {
        if (c->owner[i] < 0) continue;
        EXPECT(c->workers[c->owner[i]].stage == i && c->workers[c->owner[i]].is_known);
        n_owned++;
    }
    if (world.n_events % 16 != 0) return;
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++)
        n_owned -= c->workers[i].is_known && c->workers[i].stage >= 0;
    EXPECT(n_owned == 0); // one owner per stage, one stage per owner
}

/* Within a generation, replica k of a stage is one worker, which owns no stage. */
static inline void check_replicas(const struct strait_coordinator *c) {
    if (c->phase == STRAIT_PHASE_WAITING) return;
    for (int i = 0; i < c->config.n_stages; i++) {
        EXPECT(c->n_helpers[i] == 0 || c->n_helpers[i] < world.scenario.limits[i]);
        for (int k = 0; k < c->n_helpers[i]; k++) {
            const strait_swarm_worker *worker = &c->workers[c->helper[i][k]];
            EXPECT(worker->is_known && worker->is_connected && worker->stage < 0);
            EXPECT(worker->helps == i && worker->replica == k + 1);
        }
    }
}

/* Who is gone is not counted as connected for ever, and the lists of the coordinator stay within
 * their bounds. Every worker that has a link has a slot. */
static inline void check_tables(const struct strait_coordinator *c) {
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++) {
        if (!c->workers[i].is_known || !c->workers[i].is_connected) continue;
        const struct worker *w = worker_in(i);
        EXPECT((w->slot == i && w->has_link && w->is_alive) ||
               world.now - w->unlinked_ns < c->config.lease_max_ns + 60 * S);
    }
    for (int i = 0; i < world.scenario.n_workers; i++) {
        const struct worker *w = &world.workers[i];
        EXPECT(!w->has_link || worker_in(w->slot) == w);
    }
    EXPECT(c->n_pairs < 2 * STRAIT_SWARM_PAIRS);
    EXPECT(world.agenda.n <= 4 * world.scenario.n_workers + 64);
}

static inline void check_world(void) {
    const struct strait_coordinator *c = &world.coordinator;
    check_owners(c);
    if (world.n_events % 8 == 0) check_replicas(c);
    if (world.n_events % 1024 == 0) check_tables(c);
    EXPECT(c->committed >= world.committed);
    world.committed = c->committed;
    EXPECT(world.durable.generation >= c->generation || c->phase == STRAIT_PHASE_WAITING);
}

/* Every replica has applied the step, and each microbatch is in its weights once. */
static inline void check_member(int stage, int replica, int64_t step) {
    const struct worker *w = member(stage, replica);
    const strait_swarm_replay *replay = &world.coordinator.replay;
    if (w == NULL || !w->has_link) return; // it was lost after its reply, which nobody knows yet
    EXPECT(w->stage == stage && w->replica == replica);
    EXPECT(w->generation == world.coordinator.generation);
    const int64_t at = w->inventory.live.step;
    if (step < replay->until && !replay->is_late[stage])
        EXPECT(at >= replay->until - 1); // it keeps its state
    else
        EXPECT(at == step);
    EXPECT(w->weights == weights_at(stage, at));
}

static inline void check_commit(int64_t step) {
    for (int i = 0; i < world.coordinator.config.n_stages; i++)
        for (int k = 0; k < strait_coordinator_n_replicas(&world.coordinator, i); k++)
            check_member(i, k, step);
    if (step < world.coordinator.replay.until) return;
    EXPECT(world.durable.committed >= step); // recorded before anyone is notified
    if (step <= world.best_step) return;
    EXPECT(step == world.best_step + 1);
    world.best_step = step;
    world.n_commits++;
    world.is_excused = 0;
    if (world.now - world.advanced_ns > world.longest_ns)
        world.longest_ns = world.now - world.advanced_ns;
    world.advanced_ns = world.now;
}
