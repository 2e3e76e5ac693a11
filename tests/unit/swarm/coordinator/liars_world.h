/* liars_world.h - the state of a simulated swarm with liars: workers, network, coordinator, clock.
 */
#pragma once

#include "agenda.h"
#include "base/rng/rng.h"
#include "check.h"
#include "snapshot_model.h"

enum {
    WORKERS = 1000,
    STAGES = 12,
    EVENTS = 100000, // besides heartbeats and ticks
    KEEP_EVERY = 3,
    SAVE_EVERY = 40,
    WINDOW_S = 240, // in which there must be a new step
    CALM_S = 600    // without faults at the end, after which no liar owns a stage
};

#define MS INT64_C(1000000)
#define S  INT64_C(1000000000)

typedef enum kind {
    HONEST,
    SILENT,      // never replies; its heartbeats show progress
    LATE,        // replies after half a minute
    MUTE,        // sends its neighbours nothing and claims to compute
    WAITER,      // sends nothing and claims to wait
    FALSE_ERROR, // replies with errors, about either neighbour or none
    FALSE_BLAME, // claims that a neighbour sent invalid values
    ODD_BLAME,   // claims that of stages that are not neighbours
    REFUSER,     // lets no neighbour connect
    DROPPER,     // accepts its neighbours and closes their links
    GARBLER,     // sends malformed crossings
    MOODY,       // closes links in every third step only
    BOASTER,     // lists snapshots, copies and a state that it does not have
    ALTERER,     // sends other crossings again than the first time
    FLAPPER,     // reconnects whenever it has to do something
    KINDS
} kind;

struct worker {
    kind kind;
    int has_link, is_banned, slot, life;
    int stage, waits_for;
    uint32_t generation, progress;
    strait_snapshot_inventory inventory;
    int n_violations, n_penalties; // as recorded
};

static struct {
    uint64_t seed, draws;
    agenda agenda;
    int64_t now;
    struct worker workers[WORKERS];
    struct strait_coordinator coordinator;
    strait_swarm_durable durable;
    int worker_of[STRAIT_SWARM_WORKERS];
    int64_t committed, saved, step, advanced_ns, longest_ns;
    int is_update, is_calm;
    int n_events, n_faults, n_restarts, n_banned, n_lost, n_replays, n_differing;
    int n_told[KINDS]; // commands that each kind got
} world;

#define EXPECT(condition)                                                               \
    do {                                                                                \
        if (!(condition))                                                               \
            fail_msg("seed %llu, event %d, %.3f s: %s", (unsigned long long)world.seed, \
                     world.n_events, (double)world.now / 1e9, #condition);              \
    } while (0)

static inline uint32_t draw(uint32_t below) {
    const strait_rng rng = {world.seed, 16};
    return (uint32_t)(strait_rng_u64(rng, world.draws++) % below);
}

static inline void put(pending h, int64_t delay) {
    if (h.worker >= 0) h.life = world.workers[h.worker].life;
    EXPECT(agenda_put(&world.agenda, h, world.now + delay));
}

/* ---- the network ---- */

static inline struct worker *owner_of(int stage) {
    if (stage < 0 || stage >= STAGES || world.coordinator.owner[stage] < 0) return NULL;
    const int i = world.worker_of[world.coordinator.owner[stage]];
    return i >= 0 ? &world.workers[i] : NULL;
}

/* Of a hundred pairs three cannot connect, whoever dials. */
static inline int can_reach(const struct worker *a, const struct worker *b) {
    const strait_rng rng = {world.seed, 17};
    const uint64_t i = (uint64_t)(a - world.workers), k = (uint64_t)(b - world.workers);
    return strait_rng_u64(rng, i < k ? i * WORKERS + k : k * WORKERS + i) % 100 >= 3;
}

static inline int is_absent(const struct worker *w) {
    return w == NULL || !w->has_link;
}

/* Whether the worker closes its links in this step. */
static inline int drops(const struct worker *w) {
    return w->kind == DROPPER || w->kind == FLAPPER || (w->kind == MOODY && world.step % 3 == 0);
}

static inline strait_fingerprint key_of(int i) {
    return (strait_fingerprint){{(unsigned char)i, (unsigned char)(1 + i / 256)}};
}

/* ---- what honest workers see ---- */

static inline strait_err connect_neighbours(const struct worker *w, int *side) {
    for (*side = -1; *side <= 1; *side += 2) {
        const struct worker *other = owner_of(w->stage + *side);
        if (w->stage + *side < 0 || w->stage + *side >= STAGES) continue;
        if (is_absent(other) || other->kind == REFUSER || !can_reach(w, other))
            return STRAIT_ETIMEDOUT;
    }
    *side = 0;
    return STRAIT_OK;
}

/* In a replay the stages without a state compute from what their neighbours send again. */
static inline strait_err compute_alone(struct worker *w, int is_late, int *side, int64_t *delay) {
    for (*side = -1; *side <= 1 && is_late; *side += 2) {
        const struct worker *other = owner_of(w->stage + *side);
        if (other == NULL || other->stage != w->stage + *side) continue;
        if (is_absent(other) || drops(other)) return STRAIT_ECLOSED;
        if (other->kind == GARBLER) return STRAIT_EPROTO;
        if (other->kind != BOASTER && other->kind != MUTE && other->kind != WAITER) continue;
        w->waits_for = *side;
        *delay = 2 * S;
        return STRAIT_ETIMEDOUT; // it has nothing to send, or does not
    }
    *side = 0;
    return STRAIT_OK;
}

/* Whether a stage that computes alone gets other crossings than the first time. */
static inline int is_altered(void) {
    const strait_swarm_replay *replay = &world.coordinator.replay;
    for (int i = 0; i < STAGES; i++) {
        const struct worker *w = owner_of(i);
        if (is_absent(w) || w->kind != ALTERER || replay->is_late[i]) continue;
        if ((i > 0 && replay->is_late[i - 1]) || (i + 1 < STAGES && replay->is_late[i + 1]))
            return 1;
    }
    return 0;
}

/* A neighbour that breaks the boundary is noticed at once, one that sends nothing after
 * link.deadline, by everyone who waits for it through others. */
static inline strait_err compute(struct worker *w, int *side, int64_t *delay) {
    for (*side = -1; *side <= 1; *side += 2) {
        const struct worker *other = owner_of(w->stage + *side);
        if (other == NULL || other->stage != w->stage + *side) continue;
        if (is_absent(other) || drops(other)) return STRAIT_ECLOSED;
        if (other->kind == GARBLER) return STRAIT_EPROTO;
    }
    for (int i = 0; i < STAGES; i++) {
        const struct worker *other = owner_of(i);
        const int breaks = is_absent(other) || drops(other) || other->kind == GARBLER;
        if (i == w->stage || (!breaks && other->kind != MUTE && other->kind != WAITER)) continue;
        *side = w->waits_for = i < w->stage ? -1 : 1;
        *delay = 2 * S + draw(200) * MS;
        return STRAIT_ETIMEDOUT;
    }
    *side = 0;
    return STRAIT_OK;
}

/* ---- what honest workers do ---- */

static inline void take_snapshot(struct worker *w) {
    const int64_t at = w->inventory.live.step;
    const strait_digest digest = digest_of(w->stage, at, w->generation, 0);
    add_snapshot(&w->inventory.own, at, w->generation, &digest);
    struct worker *keeper = owner_of(w->stage + 1 < STAGES ? w->stage + 1 : w->stage - 1);
    if (!is_absent(keeper) && keeper->generation == w->generation && draw(10) < 8)
        add_snapshot(keeper->stage > w->stage ? &keeper->inventory.prev : &keeper->inventory.next,
                     at, w->generation, &digest);
}

static inline strait_err restore(struct worker *w, const strait_swarm_action *a, int *side,
                                 int64_t *delay) {
    strait_live_state *live = &w->inventory.live;
    if (a->source == STRAIT_SWARM_FROM_LIVE) {
        const int is_live = live->stage == w->stage &&
                            (live->step == a->live_step ||
                             (live->is_pending && live->step + 1 == a->live_step));
        EXPECT(is_live || w->kind == BOASTER);
        if (!is_live || live->step == a->live_step) live->is_pending = 0;
        live->generation = w->generation;
        return STRAIT_OK;
    }
    if (a->source == STRAIT_SWARM_FROM_PREV) *side = -1;
    if (a->source == STRAIT_SWARM_FROM_NEXT) *side = 1;
    const struct worker *giver = *side != 0 ? owner_of(w->stage + *side) : NULL;
    if (*side != 0 && is_absent(giver)) return STRAIT_ECLOSED;
    if (giver != NULL && giver->kind == BOASTER) *delay = 3600 * S; // it sends nothing
    live_restore(live, w->stage, a->step, w->generation);
    strait_snapshot_inventory_trim(&w->inventory, a->step);
    return STRAIT_OK;
}

static inline strait_err step(struct worker *w, const pending *h, int *side, int64_t *delay) {
    strait_live_state *live = &w->inventory.live;
    const int is_idle = h->goal.is_replay && !h->is_late;
    if (h->goal.is_update) {
        if (is_idle) return STRAIT_OK;
        live->step = h->goal.step + 1;
        live->is_pending = 0;
        if (live->step % KEEP_EVERY == 0 && !h->goal.is_replay) take_snapshot(w);
        return STRAIT_OK;
    }
    const strait_err err = h->goal.is_replay ? compute_alone(w, h->is_late, side, delay)
                                             : compute(w, side, delay);
    if (err == STRAIT_OK && !is_idle) live_compute(live, h->goal.step);
    return err;
}

static inline strait_err execute(struct worker *w, const pending *h, int *side, int64_t *delay) {
    w->waits_for = 0;
    switch (h->phase) {
    case STRAIT_PHASE_ASSIGN:
        w->generation = h->generation;
        w->stage = h->action.stage;
        inventory_assign(&w->inventory, w->stage);
        return STRAIT_OK;
    case STRAIT_PHASE_CONNECT: {
        const strait_err err = connect_neighbours(w, side);
        if (err != STRAIT_OK) *delay = 3 * S;
        return err;
    }
    case STRAIT_PHASE_RESTORE: return restore(w, &h->action, side, delay);
    case STRAIT_PHASE_SNAPSHOT: take_snapshot(w); return STRAIT_OK;
    case STRAIT_PHASE_WORK: return step(w, h, side, delay);
    default: return STRAIT_OK;
    }
}
