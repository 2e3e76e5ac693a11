/* suspects.c - which worker is at fault when values are invalid.
 *
 * The coordinator cannot see what passes between two neighbours. It only hears what workers report,
 * and any of them may be wrong or lying. The rules here therefore never ban an honest worker for
 * one report, and they let a dishonest one disturb only a bounded number of steps. */
#include "swarm/coordinator/state.h"

enum {
    UNVERIFIED_MAX = 3 // reports that no spare could verify, before stages are exchanged for it
};

/* ---- invalid values ---- */

/* Takes `key` off a list. */
static void drop_key(strait_fingerprint *keys, int *n, const strait_fingerprint *key) {
    for (int i = *n - 1; i >= 0; i--)
        if (strait_fingerprint_equal(&keys[i], key)) keys[i] = keys[--*n];
}

/* What a worker that was at fault said of others, and others of it, no longer counts against them.
 */
static void clear_marks(struct strait_coordinator *c, const strait_fingerprint *key) {
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++) {
        strait_swarm_worker *worker = &c->workers[i];
        drop_key(worker->disputes, &worker->n_disputes, key);
        if (strait_fingerprint_equal(&worker->beside, key)) worker->has_beside = 0;
    }
}

void strait_coordinator_ban(struct strait_coordinator *c, int slot, const char *reason,
                            strait_swarm_actions *out) {
    strait_swarm_worker *worker = &c->workers[slot];
    (void)strait_coordinator_log(c, out, slot, reason);
    strait_coordinator_act(out, STRAIT_SWARM_BAN, slot)->reason =
        "banned from this run: this key sent non-finite values or invalid snapshots, reported "
        "them falsely of others, or computed something else than it was asked to";
    clear_marks(c, &worker->key);
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++) // it was the one at fault
        drop_key(c->workers[i].returns, &c->workers[i].n_returns, &worker->key);
    strait_coordinator_end_help(c, slot);
    if (worker->stage >= 0) c->owner[worker->stage] = -1;
    worker->stage = -1;
    worker->is_connected = worker->is_known = 0;
}

/* The step is recomputed, by the same workers or, after the last violation, without this one. What
 * a spare does disturbs no step. */
static void count_violation(struct strait_coordinator *c, int slot, int64_t now,
                            strait_swarm_actions *out) {
    const int is_owner = strait_coordinator_stage_of(c, slot) >= 0;
    if (++c->workers[slot].n_violations >= STRAIT_SWARM_VIOLATIONS)
        strait_coordinator_ban(c, slot, "violation 2 of 2; banned from this run", out);
    else
        (void)strait_coordinator_log(
            c, out, slot, is_owner ? "violation 1 of 2; recomputing the step" : "violation 1 of 2");
    (void)strait_coordinator_act(out, STRAIT_SWARM_RECORD, slot); // also of a key that is banned
    if (!is_owner) return;
    strait_coordinator_block_replay(c);
    strait_coordinator_abandon(c, now, 0);
}

/* Moves the stage of a worker to a spare and logs why; returns whether there is one. Without one
 * the worker keeps its stage. */
static int move_to_spare(struct strait_coordinator *c, int slot, const char *reason,
                         strait_swarm_actions *out) {
    const int stage = c->workers[slot].stage;
    const int successor = strait_coordinator_spare_for(c, stage);
    if (successor < 0) return 0;
    strait_coordinator_log(c, out, slot, reason)->successor = successor;
    (void)strait_coordinator_act(out, STRAIT_SWARM_RELEASE, slot);
    strait_coordinator_assign(c, stage, successor, out);
    return 1;
}

static void add_dispute(struct strait_coordinator *c, int slot, int other) {
    strait_swarm_worker *worker = &c->workers[slot];
    const strait_fingerprint *key = &c->workers[other].key;
    worker->standing.marked_step = c->committed;
    for (int i = 0; i < worker->n_disputes; i++)
        if (strait_fingerprint_equal(&worker->disputes[i], key)) return;
    if (worker->n_disputes < STRAIT_SWARM_DISPUTES) worker->disputes[worker->n_disputes++] = *key;
}

int strait_coordinator_contradict(struct strait_coordinator *c, int slot, int other) {
    const int senior = strait_coordinator_senior(c, slot, other);
    if (senior != slot) add_dispute(c, slot, other);
    if (senior != other) add_dispute(c, other, slot);
    if (senior >= 0) strait_coordinator_isolate(c, senior);
    return senior;
}

/* Returns which of two workers that contradict each other is at fault: the one that others
 * contradict too. -1: there is no telling yet. */
static int find_liar(const struct strait_coordinator *c, int a, int b) {
    const int n_a = c->workers[a].n_disputes;
    const int n_b = c->workers[b].n_disputes;
    if (n_a == n_b || (n_a < STRAIT_SWARM_VIOLATIONS && n_b < STRAIT_SWARM_VIOLATIONS)) return -1;
    return n_a > n_b ? a : b;
}

/* One of the two is lying or broken, and the coordinator cannot tell which. It replaces the
 * accuser: if the accused is at fault, the spare will report it too. A worker that two others
 * contradict loses its stage. It is not banned: both may lie, and where one worker of ten does,
 * that would hit honest ones. Returns whether one of the two lost its stage. */
static int accuse(struct strait_coordinator *c, int accuser, int accused, int64_t now,
                  strait_swarm_actions *out) {
    add_dispute(c, accuser, accused); // in any case: the stage has no other owner meanwhile
    add_dispute(c, accused, accuser);
    (void)strait_coordinator_log(c, out, accused,
                                 "a neighbour rejected its values or snapshots; one of the two is "
                                 "at fault");
    const int first = c->workers[accuser].stage;
    const int second = c->workers[accused].stage;
    const int liar = find_liar(c, accuser, accused);
    int has_moved = 0;
    if (liar >= 0) {
        has_moved = move_to_spare(c, liar, "two workers contradict it", out);
        clear_marks(c, &c->workers[liar].key); // of those who were right
        strait_coordinator_penalise(c, liar, out);
    } else {
        has_moved = move_to_spare(c, accuser, "rejected values or snapshots of a neighbour", out);
    }
    /* Other neighbours can tell as well as a spare. */
    if (!has_moved) strait_coordinator_remember_pair(c, first < second ? first : second);
    if (!has_moved)
        (void)strait_coordinator_log(c, out, accuser,
                                     "rejected values or snapshots of a neighbour; recomputing "
                                     "the step. If this repeats, another worker must join to tell "
                                     "who is at fault");
    strait_coordinator_block_replay(c);
    strait_coordinator_abandon(c, now, 0);
    return has_moved;
}

/* Each of these costs the steps since a snapshot. Two accomplices can clear each other, since a
 * worker that both contradict counts as the liar. So this is kept apart from who contradicts whom:
 * of every such pair one is at fault, and nobody takes part in more of them than the limit. */
static void count_return(struct strait_coordinator *c, int slot, int other) {
    strait_swarm_worker *worker = &c->workers[slot];
    const strait_fingerprint *key = &c->workers[other].key;
    if (worker->n_returns < STRAIT_SWARM_RETURNS) worker->returns[worker->n_returns++] = *key;
}

/* Neither helps again while it is contradicted. One that two others contradict loses its stage: it
 * could otherwise drive all replicas of its stage away. */
void strait_coordinator_dispute(struct strait_coordinator *c, int a, int b,
                                strait_swarm_actions *out) {
    const int senior = strait_coordinator_contradict(c, a, b);
    if (senior != a) count_return(c, a, b);
    if (senior != b) count_return(c, b, a);
    (void)strait_coordinator_log(c, out, b,
                                 "contradicts another worker, and one of the two is at fault");
    const int liar = find_liar(c, a, b);
    if (liar < 0 || liar == senior) return;
    if (c->workers[liar].stage >= 0) (void)move_to_spare(c, liar, "two workers contradict it", out);
    clear_marks(c, &c->workers[liar].key); // of those who were right
    strait_coordinator_penalise(c, liar, out);
}

void strait_coordinator_blame(struct strait_coordinator *c, int accuser, int blamed, int64_t now,
                              strait_swarm_actions *out) {
    const int stage = c->workers[accuser].stage;
    const int is_neighbour = blamed == stage - 1 || blamed == stage + 1;
    /* The generation was abandoned: the stage may have another owner by now. */
    if (c->phase == STRAIT_PHASE_WAITING) return;
    if (is_neighbour && c->config.has_pipelines && strait_coordinator_has_replicas(c) &&
        strait_coordinator_leave_out(
            c, accuser, "rejected values of its own pipeline: left out for a while", now, out))
        return; // the others have nothing to do with it
    if (is_neighbour && strait_coordinator_has_replicas(c)) {
        strait_coordinator_in_doubt(c, now, out); // any replica may have sent them
        return;
    }
    if (is_neighbour && blamed >= 0 && blamed < c->config.n_stages) {
        (void)accuse(c, accuser, c->owner[blamed], now, out);
        return;
    }
    (void)strait_coordinator_log(c, out, accuser,
                                 "reported invalid values from a stage that is not its neighbour");
    count_violation(c, accuser, now, out);
}

/* The snapshot that `holder` has is not chosen again. */
static void give_up(struct strait_coordinator *c, int holder, const strait_digest *digest) {
    c->unusable[c->n_unusable++ % STRAIT_SWARM_UNUSABLE] = (strait_swarm_unusable){
        c->workers[holder].key, *digest};
}

/* Who restores a snapshot verifies it, but may lie about the result. The spare that takes over its
 * stage verifies it again, so a lie costs an honest giver nothing. Without a spare the snapshot is
 * given up: an older one, or the checkpoint, is restored instead. */
void strait_coordinator_reject(struct strait_coordinator *c, int slot, int giver,
                               const strait_digest *digest, int64_t now,
                               strait_swarm_actions *out) {
    static const char own[] = "its own snapshot is not what it took";
    int has_moved = 0;
    if (giver == slot) {
        has_moved = move_to_spare(c, slot, own, out);
        if (!has_moved) (void)strait_coordinator_log(c, out, slot, own);
        strait_coordinator_block_replay(c);
        strait_coordinator_abandon(c, now, 0);
    } else {
        (void)strait_coordinator_log(c, out, giver,
                                     "gave a neighbour a copy that is not what the stage's owner "
                                     "took, says the neighbour");
        has_moved = accuse(c, slot, giver, now, out);
    }
    if (!has_moved) give_up(c, giver, digest);
}

void strait_coordinator_invalid_data(struct strait_coordinator *c, int slot, int64_t now,
                                     strait_swarm_actions *out) {
    if (c->workers[slot].is_known && c->workers[slot].is_connected)
        count_violation(c, slot, now, out);
}

/* ---- replayed steps that differ ---- */

/* Returns who gave the stage the copy that it was restored from; -1: it was not a copy. */
static int giver_of(const struct strait_coordinator *c, int stage) {
    if (c->source[stage] == STRAIT_SWARM_FROM_PREV) return c->owner[stage - 1];
    if (c->source[stage] == STRAIT_SWARM_FROM_NEXT) return c->owner[stage + 1];
    return -1;
}

/* The worker that restored a copy may not have verified it, or computes something else: a spare
 * tells. If the spare's values differ too, the copy itself is given up. Returns whether the stage
 * or its source changes. */
static int replace_restored(struct strait_coordinator *c, int stage, int64_t start,
                            strait_swarm_actions *out) {
    static const char reason[] = "restored a neighbour's copy, and replayed steps differ from the "
                                 "first time";
    const int giver = giver_of(c, stage);
    const int slot = c->owner[stage];
    const strait_snapshot_record *record = strait_snapshot_records_find(&c->records[stage], start);
    if (giver < 0 || record == NULL) return 0;
    if (c->n_differing == 1 && move_to_spare(c, slot, reason, out)) {
        c->workers[slot].n_penalties++;
        return 1;
    }
    (void)strait_coordinator_log(c, out, slot, reason);
    (void)strait_coordinator_log(c, out, giver,
                                 "gave a copy after which replayed steps differ; it is not used "
                                 "again");
    give_up(c, giver, &record->digest);
    return 1;
}

void strait_coordinator_replay_differs(struct strait_coordinator *c, int64_t now,
                                       strait_swarm_actions *out) {
    const int64_t start = c->start_steps[c->generation % STRAIT_SWARM_GENERATIONS];
    int n_changed = 0;
    if (c->phase == STRAIT_PHASE_WAITING) return;
    /* A neighbour may have sent other crossings than the first time: rolling back needs none. Or
     * the worker that replayed computes something else, and would do so again: a spare tells. */
    if (c->replay.until >= 0) {
        strait_coordinator_block_replay(c);
        for (int i = 0; i < c->config.n_stages; i++)
            if (c->replay.is_late[i])
                (void)move_to_spare(c, c->owner[i],
                                    "restored its stage, and replayed steps differ from the first "
                                    "time",
                                    out);
        strait_coordinator_abandon(c, now, 0);
        return;
    }
    c->n_differing++;
    for (int i = 0; i < c->config.n_stages; i++)
        n_changed += replace_restored(c, i, start, out);
    if (n_changed == 0) c->restore_limit = start - 1 > 0 ? start - 1 : 0;
    if (c->n_differing > 2) c->restore_limit = 0; // the checkpoint, or the seed
    strait_coordinator_abandon(c, now, 0);
}

/* ---- reports that are verified by recomputing the step ---- */

/* Without a spare the worker itself computes the step again. If it goes on reporting such values,
 * it exchanges its stage with another owner, which can tell. That may cost the steps since the last
 * checkpoint, so it is not done for a single report. Returns whether another worker will compute
 * the stage. */
static int verify_by_exchange(struct strait_coordinator *c, int slot, strait_swarm_actions *out) {
    strait_swarm_worker *worker = &c->workers[slot];
    const int stage = worker->stage;
    if (c->committed - worker->unverified_step >= STRAIT_SWARM_CALM_STEPS) worker->n_unverified = 0;
    worker->unverified_step = c->committed;
    if (++worker->n_unverified < UNVERIFIED_MAX || !strait_coordinator_exchange_stage(c, stage))
        return 0;
    worker->n_unverified = 0;
    strait_swarm_action *line = strait_coordinator_log(
        c, out, slot,
        "non-finite or implausible values again, and no spare is available; another owner "
        "recomputes the step");
    line->stage = stage;
    line->successor = c->owner[stage];
    return 1;
}

/* Training may diverge on any worker, or this one may be broken or lie. */
void strait_coordinator_nonfinite(struct strait_coordinator *c, int slot, int64_t now,
                                  strait_swarm_actions *out) {
    strait_swarm_worker *worker = &c->workers[slot];
    if (!worker->is_connected || worker->stage < 0) return;
    worker->is_suspect = 1;
    if (!move_to_spare(c, slot, "non-finite or implausible values; recomputing the step on a spare",
                       out) &&
        !verify_by_exchange(c, slot, out))
        (void)strait_coordinator_log(c, out, slot,
                                     "non-finite or implausible values; recomputing the step, no "
                                     "spare is available");
    strait_coordinator_block_replay(c);
    strait_coordinator_abandon(c, now, 0);
}

/* Returns whether the worker was beside another one whose report was false, and remembers this one:
 * a worker that sends large values can make its neighbour's overflow. */
static int was_beside_another(strait_swarm_worker *worker, const strait_fingerprint *reporter) {
    const int was = worker->has_beside && !strait_fingerprint_equal(&worker->beside, reporter);
    worker->has_beside = 1;
    worker->beside = *reporter;
    return was;
}

void strait_coordinator_contradicted(struct strait_coordinator *c, int slot, int stage, int64_t now,
                                     strait_swarm_actions *out) {
    const strait_fingerprint key = c->workers[slot].key;
    int n_shared = 0;
    for (int i = stage - 1; i <= stage + 1; i += 2) {
        const int beside = i >= 0 && i < c->config.n_stages ? c->owner[i] : -1;
        if (beside < 0 || !was_beside_another(&c->workers[beside], &key)) continue;
        n_shared++;
        (void)strait_coordinator_log(c, out, beside,
                                     "a second worker beside it had values that a spare has not");
        count_violation(c, beside, now, out);
        if (c->workers[beside].stage >= 0) (void)move_to_spare(c, beside, "replaced for that", out);
    }
    if (n_shared > 0) return;
    (void)strait_coordinator_log(c, out, slot,
                                 "reported non-finite or implausible values, which the recomputed "
                                 "step does not have");
    count_violation(c, slot, now, out);
}

void strait_coordinator_confirmed(struct strait_coordinator *c, int slot) {
    c->workers[slot].is_suspect = 0;
}
