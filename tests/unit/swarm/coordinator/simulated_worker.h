/* simulated_worker.h - what the workers of a simulated swarm do when they are told to. */
#pragma once

#include "snapshot_model.h"
#include "world.h"

/* Returns the worker that owns the neighbouring stage. */
static inline struct worker *neighbour(const struct worker *w, int side) {
    const int stage = w->stage + side;
    if (stage < 0 || stage >= STAGES || world.coordinator.owner[stage] < 0) return NULL;
    return &world.workers[world.worker_of[world.coordinator.owner[stage]]];
}

static inline int is_running(const struct worker *w) {
    return w == NULL || (w->is_alive && w->stopped_until <= world.now);
}

static inline void take_snapshot(struct worker *w) {
    const int64_t at = w->inventory.live.step;
    add_snapshot(&w->inventory.own, w->stage, at, w->generation);
    struct worker *keeper = neighbour(w, w->stage + 1 < STAGES ? 1 : -1);
    /* The background copy arrives in 8 of 10 cases. */
    if (keeper != NULL && keeper->generation == w->generation && is_running(keeper) && draw(10) < 8)
        add_snapshot(keeper->stage > w->stage ? &keeper->inventory.prev : &keeper->inventory.next,
                     w->stage, at, w->generation);
}

/* A stage that keeps its state is at the step that it is told, or has the gradients for it. */
static inline strait_err keep_live(struct worker *w, const strait_swarm_action *a) {
    strait_live_state *live = &w->inventory.live;
    EXPECT(live->stage == w->stage);
    EXPECT(live->step == a->live_step || (live->is_pending && live->step + 1 == a->live_step));
    if (live->step == a->live_step) live->is_pending = 0;
    live->generation = w->generation;
    return STRAIT_OK;
}

static inline strait_err restore(struct worker *w, const strait_swarm_action *a) {
    const struct worker *sender = NULL;
    if (a->source == STRAIT_SWARM_FROM_LIVE) return keep_live(w, a);
    if (a->source == STRAIT_SWARM_FROM_PREV) sender = neighbour(w, -1);
    if (a->source == STRAIT_SWARM_FROM_NEXT) sender = neighbour(w, 1);
    if (!is_running(sender)) return STRAIT_ECLOSED;
    if (a->source == STRAIT_SWARM_FROM_SELF)
        EXPECT(strait_snapshot_set_has_digest(&w->inventory.own, w->stage, a->step, &a->digest));
    if (sender != NULL && sender->generation == w->generation)
        EXPECT(
            strait_snapshot_inventory_has_copy(&sender->inventory, w->stage, a->step, &a->digest));
    if (a->source == STRAIT_SWARM_FROM_SEED) EXPECT(a->step == 0);
    if (a->source == STRAIT_SWARM_FROM_HOST) EXPECT(a->step == world.saved);
    live_restore(&w->inventory.live, w->stage, a->step, w->generation);
    strait_snapshot_inventory_trim(&w->inventory, a->step);
    return STRAIT_OK;
}

/* In a replay the stages beside late ones send again what they have kept. */
static inline strait_err compute(struct worker *w, const pending *h) {
    const strait_swarm_replay *replay = &world.coordinator.replay;
    const int stage = w->stage;
    const int is_beside = (stage > 0 && replay->is_late[stage - 1]) ||
                          (stage + 1 < STAGES && replay->is_late[stage + 1]);
    if (h->generation != world.coordinator.generation) return STRAIT_ECLOSED;
    if (!is_running(neighbour(w, -1)) || !is_running(neighbour(w, 1))) return STRAIT_ECLOSED;
    if (h->goal.is_replay && !h->is_late) {
        EXPECT(!is_beside || w->inventory.live.first_kept <= h->goal.step);
        return STRAIT_OK;
    }
    EXPECT(w->inventory.live.step == h->goal.step);
    live_compute(&w->inventory.live, h->goal.step);
    return STRAIT_OK;
}

/* Never twice, never out of order: one that is sent again was applied before. */
static inline strait_err apply(struct worker *w, const pending *h) {
    strait_live_state *live = &w->inventory.live;
    if (h->goal.is_replay && !h->is_late) return STRAIT_OK;
    if (live->step == h->goal.step + 1 && h->goal.step + 1 == world.coordinator.replay.until)
        return STRAIT_OK;
    EXPECT(live->step == h->goal.step && live->is_pending);
    live->step++;
    live->is_pending = 0;
    if (live->step % KEEP_EVERY == 0 && !h->goal.is_replay) take_snapshot(w);
    return STRAIT_OK;
}

static inline strait_err execute(struct worker *w, const pending *h) {
    switch (h->phase) {
    case STRAIT_PHASE_ASSIGN:
        w->generation = h->generation;
        w->stage = h->action.stage;
        inventory_assign(&w->inventory, w->stage);
        return STRAIT_OK;
    case STRAIT_PHASE_LISTEN: return STRAIT_OK;
    case STRAIT_PHASE_CONNECT:
        return is_running(neighbour(w, -1)) && is_running(neighbour(w, 1)) ? STRAIT_OK
                                                                           : STRAIT_ETIMEDOUT;
    case STRAIT_PHASE_OPEN: return w->is_small ? STRAIT_ENOMEM : STRAIT_OK;
    case STRAIT_PHASE_RESTORE: return restore(w, &h->action);
    case STRAIT_PHASE_SNAPSHOT: take_snapshot(w); return STRAIT_OK;
    case STRAIT_PHASE_WORK: return h->goal.is_update ? apply(w, h) : compute(w, h);
    default: return STRAIT_EPROTO;
    }
}
