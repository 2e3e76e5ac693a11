/* The digests of snapshots: who may report one, which snapshots are then restored, and what follows
 * when a worker rejects what it was given. */
#include "coordinator_rig.h"

#include <string.h>

/* Digest 0 is what the owners of the rig report. */
static strait_digest digest_of(int i) {
    return (strait_digest){{(unsigned char)i}};
}

static strait_snapshot_set one(int stage, int64_t step, int digest) {
    return (strait_snapshot_set){.stage = stage,
                                 .n = 1,
                                 .steps = {step},
                                 .generations = {c.generation},
                                 .digests = {digest_of(digest)}};
}

/* The owner of stage 1 reports a copy of stage 0, beside its own snapshot. */
static void report_copy(int64_t step, int digest) {
    strait_snapshot_inventory inventory = c.workers[c.owner[1]].inventory;
    inventory.prev = one(0, step, digest);
    heartbeat(c.owner[1], inventory, 0, 0);
}

static void lose(int worker) {
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = worker});
}

/* All owners reply until the stages are being restored. */
static void begin_restore(void) {
    now += S;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    for (int n = 0; n < 16 && c.phase != STRAIT_PHASE_RESTORE; n++)
        for (int i = 0; i < c.config.n_stages; i++)
            if (c.is_awaited[i] && c.phase != STRAIT_PHASE_RESTORE) reply(c.owner[i], STRAIT_OK);
    assert_int_equal(c.phase, STRAIT_PHASE_RESTORE);
}

/* The owner of a stage rejects the snapshot it was to restore. */
static void reject(int stage) {
    feed((strait_swarm_event){.kind = STRAIT_SWARM_REPLY,
                              .worker = c.owner[stage],
                              .generation = c.generation,
                              .sequence = c.sequence,
                              .err = STRAIT_EDATA,
                              .is_source_bad = 1});
}

static void restores_only_copies_with_the_recorded_digest(void **state) {
    (void)state;
    for (int digest = 0; digest < 2; digest++) {
        begin(3);
        run_step(0, 1);
        report_copy(1, digest);
        lose(c.owner[0]);
        begin_restore();
        assert_int_equal(c.step, digest == 0 ? 1 : 0); // else from the seed
        assert_int_equal(c.source[0],
                         digest == 0 ? STRAIT_SWARM_FROM_NEXT : STRAIT_SWARM_FROM_SEED);
    }
}

static void sends_the_digest_with_the_command(void **state) {
    (void)state;
    begin(3);
    goal(0, 0);
    get_ready();
    goal(0, 1);
    for (int i = 0; i < 2; i++) {
        strait_snapshot_inventory inventory = strait_snapshot_inventory_empty();
        inventory.own = one(i, 1, 7 + i);
        heartbeat(c.owner[i], inventory, 0, 0);
    }
    get_ready();
    report_copy(1, 7);
    lose(c.owner[0]);
    begin_restore();
    for (int i = 0; i < 2; i++) {
        const strait_digest wanted = digest_of(7 + i);
        const strait_swarm_action *command = find(STRAIT_SWARM_COMMAND, c.owner[i]);
        assert_true(strait_digest_equal(&command->digest, &wanted));
    }
}

/* A spare and a neighbour say nothing about a stage, nor does its owner about other steps. */
static void records_only_what_the_owner_reports(void **state) {
    (void)state;
    begin(3);
    run_step(0, 0);
    const int spare = 3 - c.owner[0] - c.owner[1];
    strait_snapshot_inventory inventory = strait_snapshot_inventory_empty();
    inventory.own = one(0, 1, 9);
    heartbeat(spare, inventory, 0, 0);
    heartbeat(c.owner[1], inventory, 0, 0);
    inventory.own = one(0, 5, 9);
    heartbeat(c.owner[0], inventory, 0, 0);
    inventory.own = one(0, 1, 9);
    inventory.own.generations[0] = c.generation - 1;
    heartbeat(c.owner[0], inventory, 0, 0);
    assert_int_equal(c.records[0].n, 0);
    inventory.own = one(0, 1, 9);
    heartbeat(c.owner[0], inventory, 0, 0);
    assert_int_equal(c.records[0].n, 1);
    assert_int_equal(c.records[1].n, 0);
}

static void counts_contradictory_digests_as_violations(void **state) {
    (void)state;
    begin(4);
    run_step(0, 1);
    const int liar = c.owner[0];
    strait_snapshot_inventory inventory = strait_snapshot_inventory_empty();
    inventory.own = one(0, 1, 1);
    heartbeat(liar, inventory, 0, 0);
    assert_string_equal(find(STRAIT_SWARM_LOG, liar)->reason,
                        "has another snapshot than it was given or reported before");
    assert_int_equal(c.workers[liar].n_violations, 1);
    const strait_digest first = digest_of(0);
    assert_true(strait_digest_equal(&c.records[0].items[0].digest, &first)); // the first counts
    now += S;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    get_ready();
    run_step(c.step, 1);
    inventory.own = one(0, c.step, 1);
    heartbeat(liar, inventory, 0, 0);
    assert_non_null(find(STRAIT_SWARM_BAN, liar));
}

/* After a restart and a rejoin an owner is bound by what it reported before. */
static void keeps_records_over_a_restart(void **state) {
    (void)state;
    for (int digest = 0; digest < 2; digest++) {
        begin(2);
        run_step(0, 1);
        run_step(1, 1);
        goal(2, 0); // step 2 is settled
        strait_swarm_durable durable;
        strait_coordinator_durable(&c, &durable);
        const strait_swarm_config config = c.config;
        const uint32_t generation = c.generation;
        strait_coordinator_init(&c, &config);
        strait_coordinator_resume(&c, &durable, now);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_START});
        c.generation = generation;
        for (int i = 0; i < 2; i++) {
            strait_snapshot_inventory inventory = strait_snapshot_inventory_empty();
            inventory.own = one(i, 2, i == 1 ? digest : 0);
            join(i, inventory);
        }
        get_ready();
        assert_int_equal(c.step, digest == 0 ? 2 : 0);
    }
}

static void forgets_records_of_steps_that_are_computed_again(void **state) {
    (void)state;
    begin(3);
    run_step(0, 1);
    report_copy(1, 0);
    run_step(1, 1);
    assert_int_equal(c.records[1].n, 2);
    report_copy(1, 0);
    strait_snapshot_inventory inventory = c.workers[c.owner[1]].inventory;
    inventory.own = one(1, 1, 0);
    heartbeat(c.owner[1], inventory, 0, 0);
    lose(c.owner[0]);
    begin_restore();
    assert_int_equal(c.step, 1);
    assert_int_equal(c.records[1].n, 1);
    get_ready();
    goal(1, 0);
    get_ready();
    goal(1, 1);
    inventory.own = one(1, 2, 5); // other bytes than the first time
    heartbeat(c.owner[1], inventory, 0, 0);
    assert_int_equal(c.workers[c.owner[1]].n_violations, 0);
    assert_int_equal(c.records[1].n, 2);
}

/* Until the driver's checkpoint of step 0 is announced, stages have the weights of the seed, and
 * afterwards nobody keeps them: not from a snapshot, and not because its state is that of step 0.
 */
static void gives_all_stages_the_first_checkpoint(void **state) {
    (void)state;
    begin(3);
    strait_snapshot_inventory inventory = strait_snapshot_inventory_empty();
    inventory.own = one(0, 0, 3); // of the seed
    inventory.live = (strait_live_state){.stage = 0, .generation = c.generation};
    heartbeat(c.owner[0], inventory, 0, 0);
    assert_int_equal(c.records[0].n, 1);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_FIRST});
    begin_restore();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(c.source[i], STRAIT_SWARM_FROM_HOST);
        const strait_digest digest = digest_of(5 + i);
        strait_coordinator_sent(&c, i, 0, &digest);
    }
    get_ready();
    for (int i = 0; i < 2; i++) {
        inventory.own = one(i, 0, 5 + i);
        inventory.live.stage = i;
        heartbeat(c.owner[i], inventory, 0, 0);
        assert_int_equal(c.workers[c.owner[i]].n_violations, 0);
    }
    const int liar = c.owner[0];
    inventory.own = one(0, 0, 7); // not what it was given
    heartbeat(liar, inventory, 0, 0);
    assert_int_equal(c.workers[liar].n_violations, 1);
    begin_restore();
    assert_int_equal(c.source[0], STRAIT_SWARM_FROM_HOST); // its own is not used
}

/* Stages that were built to be measured wait for START, and nobody keeps what it had. */
static void begins_anew_with_the_weights_of_another_run(void **state) {
    (void)state;
    begin(3);
    strait_snapshot_inventory inventory = strait_snapshot_inventory_empty();
    inventory.own = one(0, 0, 3);
    inventory.live = (strait_live_state){.stage = 0, .generation = c.generation};
    heartbeat(c.owner[0], inventory, 0, 0);
    const uint32_t measured = c.generation;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_ANEW});
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    assert_int_equal(c.phase, STRAIT_PHASE_WAITING);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_START});
    assert_int_equal(c.generation, measured + 1);
    begin_restore();
    for (int i = 0; i < 2; i++)
        assert_int_equal(c.source[i], STRAIT_SWARM_FROM_SEED);
}

/* A later checkpoint does not make step 0 that of the seed again. */
static void returns_to_the_first_checkpoint(void **state) {
    (void)state;
    begin(3);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_FIRST});
    get_ready();
    run_step(0, 1);
    c.checkpoint = 1;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_GUILTY, .worker = -1});
    c.checkpoint = -1; // it was distrusted
    begin_restore();
    assert_int_equal(c.step, 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(c.source[i], STRAIT_SWARM_FROM_HOST);
}

/* Stage 0 loses its owner; stage 1 holds a copy, which the next owner is to restore. */
static void lose_a_copied_owner(int n) {
    begin(n);
    run_step(0, 1);
    report_copy(1, 0);
    lose(c.owner[0]);
    begin_restore();
    assert_int_equal(c.step, 1);
    assert_int_equal(c.source[0], STRAIT_SWARM_FROM_NEXT);
}

/* Without a spare the copy is given up; its giver is named, and nothing else happens to it. */
static void never_chooses_a_rejected_copy_again(void **state) {
    (void)state;
    lose_a_copied_owner(3);
    const int giver = c.owner[1];
    reject(0);
    assert_non_null(strstr(find(STRAIT_SWARM_LOG, giver)->reason, "gave a neighbour a copy"));
    begin_restore();
    assert_int_equal(c.source[0], STRAIT_SWARM_FROM_SEED);
    assert_int_equal(c.step, 0);
    assert_int_equal(c.owner[1], giver);
    assert_true(c.workers[giver].n_violations == 0 && c.workers[giver].is_connected);
}

static void lets_a_spare_verify_a_rejected_copy(void **state) {
    (void)state;
    lose_a_copied_owner(4);
    const int liar = c.owner[0];
    reject(0);
    begin_restore();
    assert_int_not_equal(c.owner[0], liar);
    assert_int_equal(c.step, 1); // nothing was lost
    assert_int_equal(c.source[0], STRAIT_SWARM_FROM_NEXT);
    get_ready();
}

static void replaces_a_giver_that_two_workers_reject(void **state) {
    (void)state;
    lose_a_copied_owner(5);
    const int giver = c.owner[1];
    reject(0);
    begin_restore();
    reject(0);
    assert_int_equal(c.workers[giver].stage, -1);
    begin_restore();
    assert_int_equal(c.step, 0); // its copy is gone
}

/* Its memory is broken or it lies: another worker serves the stage, if there is one. */
static void replaces_a_worker_that_rejects_its_own_snapshot(void **state) {
    (void)state;
    for (int n = 2; n <= 3; n++) {
        begin(n);
        run_step(0, 1);
        const int owner = c.owner[0];
        reply(owner, STRAIT_OK);
        goal(1, 0);
        reply(c.owner[1], STRAIT_ECLOSED);
        begin_restore();
        assert_int_equal(c.source[0], STRAIT_SWARM_FROM_SELF);
        reject(0);
        begin_restore();
        assert_int_equal(c.owner[0] == owner, n == 2);
        assert_int_equal(c.step, 0);
    }
}

/* Who restored the copy is replaced; then the copy is given up; then older steps are restored. */
static void restores_otherwise_when_replays_differ(void **state) {
    (void)state;
    const strait_swarm_event differs = {.kind = STRAIT_SWARM_REPLAY_DIFFERS};
    lose_a_copied_owner(5);
    const int first = c.owner[0];
    const int giver = c.owner[1];
    get_ready();
    feed(differs);
    assert_non_null(strstr(find(STRAIT_SWARM_LOG, first)->reason, "restored a neighbour's copy"));
    begin_restore();
    assert_int_not_equal(c.owner[0], first);
    assert_int_equal(c.source[0], STRAIT_SWARM_FROM_NEXT);
    assert_int_equal(c.step, 1);
    get_ready();
    feed(differs);
    assert_non_null(strstr(find(STRAIT_SWARM_LOG, giver)->reason, "gave a copy"));
    begin_restore();
    assert_int_equal(c.step, 0);
    get_ready();
    assert_true(c.workers[giver].n_violations == 0 && c.owner[1] == giver);
}

/* All stages were restored from their own snapshots: an older step is tried, then the checkpoint.
 */
static void goes_back_further_when_replays_differ(void **state) {
    (void)state;
    const strait_swarm_event differs = {.kind = STRAIT_SWARM_REPLAY_DIFFERS};
    begin(2);
    for (int64_t step = 0; step < 3; step++)
        run_step(step, 1);
    for (int i = 0; i < 2; i++) {
        strait_snapshot_inventory inventory = strait_snapshot_inventory_empty();
        inventory.own = (strait_snapshot_set){
            .stage = i, .n = 3, .steps = {1, 2, 3}, .generations = {1, 1, 1}};
        heartbeat(c.owner[i], inventory, 0, 0);
    }
    c.checkpoint = 1;
    static const int64_t wanted[] = {3, 2, 1, 1};
    for (int i = 0; i < 4; i++) {
        if (i == 0) {
            goal(3, 0);
            reply(c.owner[1], STRAIT_ECLOSED);
        } else {
            feed(differs);
        }
        begin_restore();
        assert_int_equal(c.step, wanted[i]);
        get_ready();
    }
}

static void counts_a_false_rejection_as_a_violation(void **state) {
    (void)state;
    begin(3);
    lose(c.owner[0]);
    begin_restore();
    assert_int_equal(c.source[0], STRAIT_SWARM_FROM_SEED);
    const int liar = c.owner[0];
    reject(0);
    assert_int_equal(c.workers[liar].n_violations, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restores_only_copies_with_the_recorded_digest),
        cmocka_unit_test(sends_the_digest_with_the_command),
        cmocka_unit_test(records_only_what_the_owner_reports),
        cmocka_unit_test(gives_all_stages_the_first_checkpoint),
        cmocka_unit_test(begins_anew_with_the_weights_of_another_run),
        cmocka_unit_test(returns_to_the_first_checkpoint),
        cmocka_unit_test(counts_contradictory_digests_as_violations),
        cmocka_unit_test(keeps_records_over_a_restart),
        cmocka_unit_test(forgets_records_of_steps_that_are_computed_again),
        cmocka_unit_test(never_chooses_a_rejected_copy_again),
        cmocka_unit_test(lets_a_spare_verify_a_rejected_copy),
        cmocka_unit_test(replaces_a_giver_that_two_workers_reject),
        cmocka_unit_test(replaces_a_worker_that_rejects_its_own_snapshot),
        cmocka_unit_test(restores_otherwise_when_replays_differ),
        cmocka_unit_test(goes_back_further_when_replays_differ),
        cmocka_unit_test(counts_a_false_rejection_as_a_violation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
