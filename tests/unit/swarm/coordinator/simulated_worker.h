/* simulated_worker.h - what the workers of a simulated swarm do when they are told to. A command
 * is begun when it arrives, and finished some time later, if those that it depends on are there. */
#pragma once

#include "snapshot_model.h"
#include "world.h"

#define DEADLINE_NS (60 * S) // link.deadline

/* ---- what a worker sees of others ---- */

static inline int n_stages(void) {
    return world.coordinator.config.n_stages;
}

/* Returns the worker that owns the neighbouring stage. */
static inline struct worker *neighbour(const struct worker *w, int side) {
    const int stage = w->stage + side;
    return stage < 0 || stage >= n_stages() ? NULL : member(stage, 0);
}

static inline int is_running(const struct worker *w) {
    return w->is_alive && w->stopped_until <= world.now && w->hung_until <= world.now;
}

static inline int is_cut(const struct worker *a, const struct worker *b) {
    const int i = index_of(a);
    const int k = index_of(b);
    if (a->isolated_until > world.now || b->isolated_until > world.now) return 1;
    for (int n = 0; n < CUTS; n++)
        if (world.cuts[n].until > world.now && ((world.cuts[n].a == i && world.cuts[n].b == k) ||
                                                (world.cuts[n].a == k && world.cuts[n].b == i)))
            return 1;
    return 0;
}

/* Whether the link of a worker to a replica of a stage beside it is closed. */
static inline int is_closed(const struct worker *w, const struct worker *other, int stage) {
    return other == NULL || (!other->is_alive && !other->is_silent) || is_cut(w, other) ||
           other->generation != w->generation || other->stage != stage;
}

/* Whether a worker still waits for another one before it has the gradients of a step. */
static inline int is_awaited(const struct worker *other) {
    if (other == NULL || other->begun != world.attempt.number) return 1;
    return other->finished != world.attempt.number && !is_running(other);
}

/* Looks at the replicas of one stage: STRAIT_ECLOSED, the link to one of them is closed;
 * STRAIT_EAGAIN, one is not well. If one of them has the sum of the stage's gradients, *is_over
 * says that they have sent their neighbours all that they send. */
static inline strait_err look_at(const struct worker *w, int stage, int is_computing,
                                 int *is_over) {
    const int is_beside = stage >= w->stage - 1 && stage <= w->stage + 1;
    strait_err err = STRAIT_OK;
    *is_over = 0;
    for (int k = 0; k < strait_coordinator_n_replicas(&world.coordinator, stage); k++) {
        const struct worker *other = member(stage, k);
        if (other == w) continue;
        if (is_beside && is_closed(w, other, stage)) return STRAIT_ECLOSED;
        *is_over |= is_computing && other != NULL && other->finished == world.attempt.number;
        if (is_computing ? is_awaited(other) : other == NULL || !is_running(other))
            err = STRAIT_EAGAIN;
    }
    return err;
}

/* The same for all stages up to `reach` away; *side is where. A worker waits for stages that are
 * further away only as long as those in between do. */
static inline strait_err look(const struct worker *w, int reach, int is_computing, int *side) {
    int is_summed = 0;
    strait_err first = look_at(w, w->stage, is_computing, &is_summed);
    *side = 0;
    for (int to = -1; to <= 1 && first != STRAIT_ECLOSED; to += 2) {
        int is_over = is_summed;
        for (int i = w->stage + to; i >= 0 && i < n_stages() && !is_over; i += to) {
            if (i < w->stage - reach || i > w->stage + reach) break;
            const strait_err err = look_at(w, i, is_computing, &is_over);
            if (err == STRAIT_OK || (first != STRAIT_OK && err != STRAIT_ECLOSED)) continue;
            *side = to;
            first = err;
        }
    }
    return first;
}

/* ---- snapshots ---- */

static inline void take_snapshot(struct worker *w) {
    const int64_t at = w->inventory.live.step;
    const uint32_t salt = world.scenario.is_exact ? 0 : w->generation;
    const strait_digest digest = digest_of(w->stage, at, salt, w->weights);
    add_snapshot(&w->inventory.own, at, w->generation, &digest);
    if (w->replica > 0) return; // the first replica has copies
    struct worker *keeper = neighbour(w, w->stage + 1 < n_stages() ? 1 : -1);
    /* The background copy arrives in 8 of 10 cases. */
    if (keeper != NULL && keeper->generation == w->generation && is_running(keeper) &&
        !is_cut(w, keeper) && draw(10) < 8)
        add_snapshot(keeper->stage > w->stage ? &keeper->inventory.prev : &keeper->inventory.next,
                     at, w->generation, &digest);
}

/* A stage that keeps its state is at the step that it is told, or has the gradients for it. */
static inline void keep_live(struct worker *w, const strait_swarm_action *a) {
    strait_live_state *live = &w->inventory.live;
    EXPECT(live->stage == w->stage);
    EXPECT(live->step == a->live_step || (live->is_pending && live->step + 1 == a->live_step));
    if (live->step == a->live_step) live->is_pending = 0;
    live->generation = w->generation;
}

/* Returns who sends the snapshot that a worker is to restore; NULL: nobody. */
static inline struct worker *giver_of(const struct worker *w, strait_swarm_source source) {
    if (source == STRAIT_SWARM_FROM_PREV) return neighbour(w, -1);
    if (source == STRAIT_SWARM_FROM_NEXT) return neighbour(w, 1);
    return source == STRAIT_SWARM_FROM_REPLICA ? member(w->stage, 0) : NULL;
}

static inline void begin_restore(struct worker *w, const strait_swarm_action *a) {
    const struct worker *giver = giver_of(w, a->source);
    const int gives = giver != NULL && giver->generation == w->generation;
    if (a->source == STRAIT_SWARM_FROM_LIVE) keep_live(w, a);
    if (a->source == STRAIT_SWARM_FROM_SELF)
        EXPECT(strait_snapshot_set_has_digest(&w->inventory.own, w->stage, a->step, &a->digest));
    if (gives && a->source == STRAIT_SWARM_FROM_REPLICA)
        EXPECT(
            strait_snapshot_set_has_digest(&giver->inventory.own, w->stage, a->step, &a->digest));
    else if (gives)
        EXPECT(
            strait_snapshot_inventory_has_copy(&giver->inventory, w->stage, a->step, &a->digest));
    if (a->source == STRAIT_SWARM_FROM_SEED) EXPECT(a->step == 0);
    if (a->source == STRAIT_SWARM_FROM_HOST) EXPECT(a->step == world.saved);
}

/* Returns whether the snapshot has arrived that a worker is to restore. */
static inline int has_arrived(struct worker *w, const pending *h) {
    const int64_t taken = world.now - h->since;
    const double bytes = world.coordinator.config.snapshot_bytes[w->stage];
    const int is_sent = h->action.source != STRAIT_SWARM_FROM_LIVE &&
                        h->action.source != STRAIT_SWARM_FROM_SELF &&
                        h->action.source != STRAIT_SWARM_FROM_SEED;
    if (!is_sent || taken >= world.scenario.send_ns) return 1;
    w->arrived = (uint64_t)(bytes * (double)taken / (double)world.scenario.send_ns);
    return 0;
}

/* All bytes have arrived. Checkpoints are written only when every stage has the right weights. */
static inline strait_err finish_restore(struct worker *w, const pending *h, int *side) {
    const strait_swarm_action *a = &h->action;
    const struct worker *giver = giver_of(w, a->source);
    if (a->source == STRAIT_SWARM_FROM_LIVE) return STRAIT_OK;
    *side = a->source == STRAIT_SWARM_FROM_PREV ? -1 : a->source == STRAIT_SWARM_FROM_NEXT;
    if (a->source == STRAIT_SWARM_FROM_REPLICA || *side != 0) {
        if (is_closed(w, giver, w->stage + *side)) return STRAIT_ECLOSED;
        if (!is_running(giver)) return STRAIT_EAGAIN;
    }
    if (!has_arrived(w, h)) return STRAIT_EAGAIN;
    live_restore(&w->inventory.live, w->stage, a->step, w->generation);
    strait_snapshot_inventory_trim(&w->inventory, a->step);
    w->weights = a->source == STRAIT_SWARM_FROM_SEED || a->source == STRAIT_SWARM_FROM_HOST
                     ? weights_at(w->stage, a->step)
                     : weights_in(&a->digest);
    return STRAIT_OK;
}

/* ---- steps ---- */

/* Whoever computes a group adds it to the sum of the stage. */
static inline void begin_gradients(struct worker *w, const pending *h) {
    attempt *now = &world.attempt;
    if (now->generation != h->generation || now->sequence != h->sequence)
        *now = (attempt){
            .generation = h->generation, .sequence = h->sequence, .number = now->number + 1};
    if (h->goal.is_replay && !h->is_late) return;
    EXPECT(w->inventory.live.step == h->goal.step);
    w->begun = now->number;
    for (int i = 0; i < GROUPS; i++)
        if (h->groups >> i & 1) now->counts[w->stage][i]++;
}

/* Nobody has the gradients of a step before all have begun it, and nobody waits longer for one of
 * them than for link.deadline. */
static inline strait_err compute_together(const struct worker *w, int *side) {
    attempt *now = &world.attempt;
    const int is_cut_off = w->isolated_until > world.now;
    if (!is_cut_off && now->sound_until == world.n_faults + 1) return STRAIT_OK;
    const strait_err err = look(w, n_stages(), 1, side);
    int has_cuts = 0;
    for (int i = 0; i < CUTS; i++)
        has_cuts |= world.cuts[i].until > world.now;
    if (err == STRAIT_OK && !has_cuts) now->sound_until = world.n_faults + 1;
    return err;
}

/* In a replay the stages beside late ones send again what they have kept. */
static inline strait_err compute_alone(const struct worker *w, const pending *h, int *side) {
    const strait_swarm_replay *replay = &world.coordinator.replay;
    const int stage = w->stage;
    const int is_beside = (stage > 0 && replay->is_late[stage - 1]) ||
                          (stage + 1 < n_stages() && replay->is_late[stage + 1]);
    EXPECT(h->is_late || !is_beside || w->inventory.live.first_kept <= h->goal.step);
    return h->is_late ? look(w, 1, 0, side) : STRAIT_OK;
}

static inline strait_err finish_gradients(struct worker *w, const pending *h, int *side) {
    const attempt *now = &world.attempt;
    const strait_err err = h->goal.is_replay ? compute_alone(w, h, side)
                                             : compute_together(w, side);
    if (err != STRAIT_OK || (h->goal.is_replay && !h->is_late)) return err;
    w->sum = 0;
    for (int i = 0; i < GROUPS; i++) {
        EXPECT(now->counts[w->stage][i] == 1); // every microbatch is in the sum exactly once
        w->sum |= (uint32_t)now->counts[w->stage][i] << 4 * i;
    }
    w->finished = now->number;
    live_compute(&w->inventory.live, h->goal.step);
    return STRAIT_OK;
}

/* Never twice, never out of order: one that is sent again was applied before. */
static inline void apply(struct worker *w, const pending *h) {
    strait_live_state *live = &w->inventory.live;
    if (h->goal.is_replay && !h->is_late) return;
    if (live->step == h->goal.step + 1 && h->goal.step + 1 == world.coordinator.replay.until)
        return;
    EXPECT(live->step == h->goal.step && live->is_pending);
    const int is_right = w->sum == UINT32_C(0x11111111) &&
                         w->weights == weights_at(w->stage, live->step);
    live->step++;
    live->is_pending = 0;
    w->weights = is_right ? weights_at(w->stage, live->step) : ~w->weights;
    if (live->step % KEEP_EVERY == 0 && !h->goal.is_replay) take_snapshot(w);
}

/* ---- commands ---- */

static inline strait_err begin_command(struct worker *w, const pending *h) {
    w->waits_for = 0;
    w->arrived = 0;
    switch (h->phase) {
    case STRAIT_PHASE_ASSIGN:
        w->generation = h->generation;
        w->stage = h->action.stage;
        w->replica = h->action.replica;
        inventory_assign(&w->inventory, w->stage);
        return STRAIT_OK;
    case STRAIT_PHASE_LISTEN:
    case STRAIT_PHASE_CONNECT: return STRAIT_OK;
    case STRAIT_PHASE_OPEN: return w->is_small ? STRAIT_ENOMEM : STRAIT_OK;
    case STRAIT_PHASE_RESTORE: begin_restore(w, &h->action); return STRAIT_OK;
    case STRAIT_PHASE_SNAPSHOT: take_snapshot(w); return STRAIT_OK;
    case STRAIT_PHASE_WORK:
        if (h->goal.is_update)
            apply(w, h);
        else
            begin_gradients(w, h);
        return STRAIT_OK;
    default: return STRAIT_EPROTO;
    }
}

/* STRAIT_EAGAIN: it waits for others. *side says for whom, or which link failed. */
static inline strait_err finish_command(struct worker *w, const pending *h, int *side) {
    const int is_gradients = h->phase == STRAIT_PHASE_WORK && !h->goal.is_update;
    int64_t limit = DEADLINE_NS;
    strait_err err = STRAIT_OK;
    if (h->phase == STRAIT_PHASE_CONNECT) {
        limit = strait_coordinator_connect_ns(&world.coordinator);
        err = look(w, 1, 0, side);
        if (err == STRAIT_ECLOSED) err = STRAIT_EAGAIN; // it dials until the time is over
    }
    if (h->phase == STRAIT_PHASE_RESTORE) {
        limit += world.scenario.send_ns;
        err = finish_restore(w, h, side);
    }
    if (is_gradients) err = finish_gradients(w, h, side);
    w->waits_for = 0;
    if (err == STRAIT_EAGAIN && is_gradients)
        w->waits_for = *side != 0 ? *side : STRAIT_SWARM_SAME_STAGE;
    return err == STRAIT_EAGAIN && world.now - h->since > limit ? STRAIT_ETIMEDOUT : err;
}
