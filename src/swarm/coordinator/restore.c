/* restore.c - which step the stages are restored to, where each gets its snapshot, and
 * which snapshots are known to be what their owner took.
 *
 * Only the owner of a stage can say what its snapshot is, unless the driver gave it one. Its first
 * report of a digest is recorded; everyone else who holds the same snapshot, the owner itself after
 * it was away included, is asked for it only if its digest is the recorded one, and who restores it
 * verifies the bytes. */
#include "swarm/coordinator/state.h"

/* ---- records ---- */

struct holders {
    const struct strait_coordinator *c;
    int stage;
};

/* Returns whether the owner of the stage or of a neighbouring one lists a snapshot of this step. */
static int is_held(const void *user, int64_t step) {
    const struct holders *h = user;
    for (int i = h->stage - 1; i <= h->stage + 1; i++) {
        if (i < 0 || i >= h->c->config.n_stages || h->c->owner[i] < 0) continue;
        const strait_snapshot_inventory *inventory = &h->c->workers[h->c->owner[i]].inventory;
        if (strait_snapshot_set_has(&inventory->own, h->stage, step) ||
            strait_snapshot_set_has(&inventory->prev, h->stage, step) ||
            strait_snapshot_set_has(&inventory->next, h->stage, step))
            return 1;
    }
    return 0;
}

/* Returns whether the stages can be at this step now. An owner that reports other steps cannot push
 * true records out. */
static int is_current(const struct strait_coordinator *c, int64_t step) {
    return step == c->step ||
           (c->phase == STRAIT_PHASE_WORK && c->goal.is_update && step == c->goal.step + 1);
}

static void add_record(struct strait_coordinator *c, int stage, int64_t step,
                       const strait_digest *digest) {
    const strait_snapshot_record record = {step, c->generation, *digest};
    const struct holders holders = {c, stage};
    strait_snapshot_records_add(&c->records[stage], &record, is_held, &holders);
    c->has_new_records = 1;
}

void strait_coordinator_sent(struct strait_coordinator *c, int stage, int64_t step,
                             const strait_digest *digest) {
    if (step == c->step && strait_snapshot_records_find(&c->records[stage], step) == NULL)
        add_record(c, stage, step, digest);
}

void strait_coordinator_record(struct strait_coordinator *c, int slot,
                               const strait_snapshot_set *own, int64_t now,
                               strait_swarm_actions *out) {
    const int stage = c->workers[slot].stage;
    if (stage < 0 || own->stage != stage || c->phase < STRAIT_PHASE_RESTORE) return;
    for (int i = 0; i < own->n; i++) {
        /* What it took in an earlier generation was recorded then, unless it was a further replica
         * of an owner that was lost before it had reported the same. */
        const int is_kept = c->source[stage] == STRAIT_SWARM_FROM_LIVE && own->steps[i] == c->step;
        if (own->generations[i] != c->generation && !is_kept) continue;
        const strait_snapshot_record *known = strait_snapshot_records_find(&c->records[stage],
                                                                           own->steps[i]);
        if (known == NULL && is_current(c, own->steps[i]))
            add_record(c, stage, own->steps[i], &own->digests[i]);
        if (known == NULL || known->generation != c->generation ||
            strait_digest_equal(&known->digest, &own->digests[i]))
            continue;
        (void)strait_coordinator_log(c, out, slot,
                                     "has another snapshot than it was given or reported before");
        strait_coordinator_invalid_data(c, slot, now, out);
        return;
    }
}

/* ---- sources ---- */

static int is_usable(const struct strait_coordinator *c, int slot, const strait_digest *digest) {
    for (int i = 0; i < c->n_unusable && i < STRAIT_SWARM_UNUSABLE; i++)
        if (strait_fingerprint_equal(&c->unusable[i].holder, &c->workers[slot].key) &&
            strait_digest_equal(&c->unusable[i].digest, digest))
            return 0;
    return 1;
}

int strait_coordinator_can_give(const struct strait_coordinator *c, int giver, int stage,
                                int64_t step) {
    const int slot = giver >= 0 && giver < c->config.n_stages ? c->owner[giver] : -1;
    const strait_snapshot_record *record = strait_snapshot_records_find(&c->records[stage], step);
    return slot >= 0 && c->workers[slot].is_connected && record != NULL &&
           is_usable(c, slot, &record->digest) &&
           strait_snapshot_inventory_has_copy(&c->workers[slot].inventory, stage, step,
                                              &record->digest);
}

/* A suspect's own snapshots may hold the non-finite values it reported, so it gets a copy that was
 * checked on arrival. */
static int can_use_own(const struct strait_coordinator *c, int stage, int64_t step) {
    const strait_swarm_worker *owner = &c->workers[c->owner[stage]];
    const strait_snapshot_record *record = strait_snapshot_records_find(&c->records[stage], step);
    return !owner->is_suspect && record != NULL && is_usable(c, c->owner[stage], &record->digest) &&
           strait_snapshot_set_has_digest(&owner->inventory.own, stage, step, &record->digest);
}

int strait_coordinator_source(const struct strait_coordinator *c, int stage, int64_t step) {
    if (can_use_own(c, stage, step)) return STRAIT_SWARM_FROM_SELF;
    if (step == 0 && !c->has_first) return STRAIT_SWARM_FROM_SEED;
    if (strait_coordinator_can_give(c, stage + 1, stage, step)) return STRAIT_SWARM_FROM_NEXT;
    if (strait_coordinator_can_give(c, stage - 1, stage, step)) return STRAIT_SWARM_FROM_PREV;
    return strait_coordinator_is_saved(c, step) ? STRAIT_SWARM_FROM_HOST : -1;
}

int strait_coordinator_is_saved(const struct strait_coordinator *c, int64_t step) {
    return step == c->checkpoint || (step == 0 && c->has_first);
}

/* A step that was not committed is not restored, even if all owners have applied it: the
 * coordinator never recorded that they had. */
static int can_restore(const struct strait_coordinator *c, int64_t step) {
    if (step > c->committed) return 0;
    if (c->restore_limit >= 0 && step > c->restore_limit && step != c->checkpoint) return 0;
    for (int i = 0; i < c->config.n_stages; i++)
        if (strait_coordinator_source(c, i, step) < 0) return 0;
    return 1;
}

/* Chooses the newest step that every stage can restore. The first stage needs a snapshot too, so
 * only steps that its owner or the next one holds are candidates. */
int64_t strait_coordinator_best_step(const struct strait_coordinator *c) {
    int64_t best = 0;
    if (c->checkpoint > best) best = c->checkpoint;
    for (int i = 0; i < c->config.n_stages && i < 2; i++) {
        const strait_swarm_worker *worker = &c->workers[c->owner[i]];
        const strait_snapshot_set *all[] = {&worker->inventory.own, &worker->inventory.prev,
                                            &worker->inventory.next};
        for (int h = 0; h < 3; h++)
            for (int k = 0; k < all[h]->n; k++)
                if (all[h]->steps[k] > best && can_restore(c, all[h]->steps[k]))
                    best = all[h]->steps[k];
    }
    return best;
}

/* ---- the phase ---- */

/* Records of later steps belong to values that are computed again. A checkpoint may be older than a
 * replay of its step, whose values can differ in rounding: the new owner reports its digest anew.
 */
static void roll_back(struct strait_coordinator *c) {
    c->step = c->replay.from;
    /* After a restart the session begins at this step and cuts its metrics there. If the host is
     * lost before they have grown again, the next one must not restore a later step. */
    if (c->restore_limit >= 0 && c->step < c->settled) c->settled = c->step;
    c->start_steps[c->generation % STRAIT_SWARM_GENERATIONS] = c->step;
    for (int i = 0; i < c->config.n_stages; i++) {
        c->source[i] = (strait_swarm_source)strait_coordinator_source(c, i, c->step);
        strait_snapshot_records_trim(&c->records[i], c->step);
        if (c->source[i] == STRAIT_SWARM_FROM_HOST)
            strait_snapshot_records_remove(&c->records[i], c->step);
    }
}

/* Nothing is rolled back: records of later steps stay, and live states up to `until` stay valid. */
static void continue_live(struct strait_coordinator *c) {
    c->step = c->replay.from;
    /* Replicas that come and go repeat the step that was begun, and no other. */
    c->n_replays += c->replay.n_late > 0 || !c->had_replicas;
    c->start_steps[c->generation % STRAIT_SWARM_GENERATIONS] = c->replay.until;
    for (int i = 0; i < c->config.n_stages; i++) {
        c->source[i] = STRAIT_SWARM_FROM_LIVE;
        if (!c->replay.is_late[i]) continue;
        c->source[i] = (strait_swarm_source)strait_coordinator_source(c, i, c->step);
        if (c->source[i] == STRAIT_SWARM_FROM_HOST)
            strait_snapshot_records_remove(&c->records[i], c->step);
    }
}

void strait_coordinator_begin_restore(struct strait_coordinator *c, int64_t now,
                                      strait_swarm_actions *out) {
    strait_coordinator_plan_replay(c, strait_coordinator_best_step(c), &c->replay);
    if (c->replay.until < 0)
        roll_back(c);
    else
        continue_live(c);
    (void)strait_coordinator_act(out, STRAIT_SWARM_PERSIST, -1);
    if (strait_coordinator_restore_replicas(c, now, out))
        strait_coordinator_enter(c, STRAIT_PHASE_RESTORE, now, out);
}

/* What is known of step 0 is of other weights than those that the next generation begins with. */
static void forget_first(struct strait_coordinator *c, int64_t now) {
    for (int i = 0; i < c->config.n_stages; i++)
        strait_snapshot_records_remove(&c->records[i], 0);
    c->restore_limit = 0; // no state is kept; afterwards nothing is in doubt, and replicas may come
    strait_coordinator_abandon(c, now, 0);
}

/* Until now the stages had the weights of the seed, to be timed with. */
void strait_coordinator_restore_first(struct strait_coordinator *c, int64_t now) {
    c->has_first = 1;
    forget_first(c, now);
}

/* The stages were built to be measured. Until START they stay as they are. */
void strait_coordinator_begin_anew(struct strait_coordinator *c, int64_t now) {
    c->has_started = 0;
    forget_first(c, now);
    c->n_failures = 0; // it was no failure
}

void strait_coordinator_fill_restore(const struct strait_coordinator *c, int stage,
                                     strait_swarm_action *action) {
    const strait_snapshot_record *record = strait_snapshot_records_find(&c->records[stage],
                                                                        c->step);
    action->step = c->step;
    action->source = c->source[stage];
    if (c->replay.until >= 0) action->live_step = c->replay.until;
    if (record != NULL) action->digest = record->digest;
    action->gives_prev = stage > 0 && c->source[stage - 1] == STRAIT_SWARM_FROM_NEXT;
    action->gives_next = stage + 1 < c->config.n_stages &&
                         c->source[stage + 1] == STRAIT_SWARM_FROM_PREV;
    action->gives_replicas = strait_coordinator_given_replicas(c, stage);
}

void strait_coordinator_finish_restore(struct strait_coordinator *c, int64_t now,
                                       strait_swarm_actions *out) {
    for (int i = 0; i < c->config.n_stages; i++) {
        if (c->source[i] != STRAIT_SWARM_FROM_LIVE)
            strait_snapshot_inventory_trim(&c->workers[c->owner[i]].inventory, c->step);
        for (int k = 0; k < strait_coordinator_n_replicas(c, i); k++)
            c->workers[strait_coordinator_replica(c, i, k)].keeps_state = 1;
    }
    if (c->history_first < 0) c->history_first = c->step; // earlier steps were another driver's
    strait_coordinator_note_served(c);
    c->restore_limit = -1;
    c->owners_until_ns = 0;
    c->phase = STRAIT_PHASE_READY;
    c->phase_began_ns = now;
    strait_coordinator_act(out, STRAIT_SWARM_RESTORED, -1)->step = c->step;
}

/* The seed and the checkpoint come from us, so a worker that rejects them reports falsely. */
void strait_coordinator_bad_source(struct strait_coordinator *c, int slot, int64_t now,
                                   strait_swarm_actions *out) {
    const int stage = c->workers[slot].stage;
    const strait_snapshot_record *record = strait_snapshot_records_find(&c->records[stage],
                                                                        c->step);
    const strait_swarm_source source = c->source[stage];
    if (record == NULL || source == STRAIT_SWARM_FROM_SEED || source == STRAIT_SWARM_FROM_HOST ||
        source == STRAIT_SWARM_FROM_LIVE) {
        (void)strait_coordinator_log(c, out, slot,
                                     "rejected a snapshot that it was not to restore");
        strait_coordinator_invalid_data(c, slot, now, out);
        return;
    }
    const int giver = source == STRAIT_SWARM_FROM_SELF
                          ? slot
                          : c->owner[source == STRAIT_SWARM_FROM_NEXT ? stage + 1 : stage - 1];
    strait_coordinator_reject(c, slot, giver, &record->digest, now, out);
}
