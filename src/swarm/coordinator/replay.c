/* replay.c - which stages keep their state in a new generation.
 *
 * An owner that was not lost has a live state, and has kept what it sent to its neighbours since
 * some step. The stages without one (`late`) restore a snapshot of one step and compute the steps
 * since alone, from the crossings of those that have one. Rolling all stages back needs no
 * crossings and no live state, so it is always possible: it is the fallback, also when values are
 * in doubt. */
#include "swarm/coordinator/state.h"

int strait_coordinator_is_replaying(const struct strait_coordinator *c) {
    return c->replay.until >= 0 && c->step < c->replay.until;
}

void strait_coordinator_block_replay(struct strait_coordinator *c) {
    c->is_replay_blocked = 1;
}

/* The step at which the trainer continues: it does not repeat an update that it has asked for. */
static int64_t goal_step(const struct strait_coordinator *c) {
    return c->updating >= c->committed ? c->updating + 1 : c->committed;
}

/* Fills in who is late if the generation continues at `until`. */
static void find_late(const struct strait_coordinator *c, int64_t until, strait_swarm_replay *out) {
    *out = (strait_swarm_replay){.until = until, .must_update = until > c->committed};
    for (int i = 0; i < c->config.n_stages; i++) {
        out->is_late[i] = !strait_coordinator_is_live(c, c->owner[i], i, until);
        out->n_late += out->is_late[i];
        if (!out->is_late[i] && c->workers[c->owner[i]].inventory.live.step != until)
            out->must_update = 1;
        for (int k = 0; k < c->n_helpers[i]; k++)
            if (c->workers[c->helper[i][k]].inventory.live.step + 1 == until) out->must_update = 1;
    }
}

/* Returns the oldest step that the stages beside late ones can send again from. */
static int64_t oldest_kept(const struct strait_coordinator *c, const strait_swarm_replay *r) {
    int64_t oldest = c->history_first;
    if (c->shared_until > oldest) oldest = c->shared_until;
    for (int i = 0; i < c->config.n_stages; i++) {
        const int is_beside = (i > 0 && r->is_late[i - 1]) ||
                              (i + 1 < c->config.n_stages && r->is_late[i + 1]);
        const int64_t kept = c->workers[c->owner[i]].inventory.live.first_kept;
        if (!r->is_late[i] && is_beside && kept > oldest) oldest = kept;
    }
    return oldest;
}

static int can_restore_late(const struct strait_coordinator *c, const strait_swarm_replay *r,
                            int64_t step) {
    for (int i = 0; i < c->config.n_stages; i++)
        if (r->is_late[i] && strait_coordinator_source(c, i, step) < 0) return 0;
    return 1;
}

/* Tries one step of the set; keeps the newest in *best. */
static void try_steps(const struct strait_coordinator *c, const strait_swarm_replay *r,
                      const strait_snapshot_set *set, int64_t *best) {
    for (int i = 0; i < set->n; i++)
        if (set->steps[i] > *best && set->steps[i] <= r->until &&
            can_restore_late(c, r, set->steps[i]))
            *best = set->steps[i];
}

/* Returns the newest step that all late stages can restore. Their own owners and those beside them
 * may hold it, and the checkpoint and the seed are candidates as always. */
static int64_t newest_source(const struct strait_coordinator *c, const strait_swarm_replay *r) {
    int64_t best = 0;
    if (r->n_late == 0) return r->until;
    if (c->checkpoint > best && c->checkpoint <= r->until && can_restore_late(c, r, c->checkpoint))
        best = c->checkpoint;
    for (int i = 0; i < c->config.n_stages; i++) {
        const strait_snapshot_inventory *inventory = &c->workers[c->owner[i]].inventory;
        try_steps(c, r, &inventory->own, &best);
        try_steps(c, r, &inventory->prev, &best);
        try_steps(c, r, &inventory->next, &best);
    }
    return best;
}

/* Returns whether the generation can continue at `until`, and how. */
static int plan_until(const struct strait_coordinator *c, int64_t until, strait_swarm_replay *out) {
    if (until < 0 || until > goal_step(c)) return 0;
    find_late(c, until, out);
    if (out->n_late == c->config.n_stages) return 0;
    /* Nor do averages cross boundaries, that a stage could compute them again alone. */
    if (out->n_late > 0 && (strait_coordinator_has_replicas(c) || c->config.has_pipelines))
        return 0;
    out->from = newest_source(c, out);
    /* Where nobody computes alone, nothing is sent again. */
    if (out->n_late > 0 && out->from < oldest_kept(c, out)) return 0;
    out->n_stage_steps = out->n_late * (until - out->from) +
                         c->config.n_stages * (goal_step(c) - until);
    return 1;
}

void strait_coordinator_plan_replay(const struct strait_coordinator *c, int64_t rollback,
                                    strait_swarm_replay *out) {
    const int64_t n_rolled_back = c->config.n_stages * (goal_step(c) - rollback);
    const int is_allowed = c->restore_limit < 0 && !c->is_replay_blocked && c->history_first >= 0 &&
                           c->n_replays < STRAIT_SWARM_REPLAYS;
    strait_swarm_replay best = {.from = rollback,
                                .until = -1,
                                .n_late = c->config.n_stages,
                                .n_stage_steps = n_rolled_back};
    for (int i = 0; i < c->config.n_stages && is_allowed; i++) {
        const strait_live_state *live = &c->workers[c->owner[i]].inventory.live;
        for (int k = 0; k <= live->is_pending; k++) {
            strait_swarm_replay other;
            if (!plan_until(c, live->step + k, &other)) continue;
            const int is_better = other.n_stage_steps < best.n_stage_steps ||
                                  (other.n_stage_steps == best.n_stage_steps &&
                                   other.n_late < best.n_late);
            if (is_better) best = other;
        }
    }
    best.n_rolled_back = n_rolled_back;
    *out = best;
}
