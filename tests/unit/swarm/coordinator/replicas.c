/* Further replicas of stages: how they come and go, and that no applied step is repeated. */
#include "replicated_rig.h"

static void newcomers_get_the_owners_snapshot(void **state) {
    (void)state;
    begin_with_stages(STAGES, 3);
    c.config.replicas_limit = 8;
    applied = 0;
    step_once();
    const uint32_t generation = c.generation;
    help(2, 1);
    goal(applied, 0);
    assert_int_equal(c.phase, STRAIT_PHASE_SNAPSHOT); // before the step begins
    for (int n = 0; n < 8 && c.phase != STRAIT_PHASE_RESTORE; n++)
        for (int slot = 0; slot < 3; slot++)
            if (c.phase != STRAIT_PHASE_RESTORE && strait_coordinator_awaits(&c, slot)) {
                beat(slot, c.phase == STRAIT_PHASE_SNAPSHOT);
                reply(slot, STRAIT_OK);
            }
    assert_true(c.generation > generation);
    const strait_swarm_action *newcomer = find(STRAIT_SWARM_COMMAND, 2);
    const strait_swarm_action *owner = find(STRAIT_SWARM_COMMAND, c.owner[1]);
    assert_true(newcomer != NULL && owner != NULL);
    assert_true(newcomer->stage == 1 && newcomer->replica == 1);
    assert_int_equal(newcomer->source, STRAIT_SWARM_FROM_REPLICA);
    assert_int_equal(newcomer->step, applied);
    assert_int_equal(owner->source, STRAIT_SWARM_FROM_LIVE);
    assert_int_equal(owner->gives_replicas, 1 << 1);
    expect_no_step_back();
}

static void a_lost_replica_costs_no_step(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++)
        for (int slot = 0; slot < 4; slot++) { // owners and further replicas
            begin_replicated();
            const int stage = strait_coordinator_stage_of(&c, slot);
            if (i % 2 == 0) goal(applied, 0);
            const int kind = i < 2 ? STRAIT_SWARM_LOST : STRAIT_SWARM_GUILTY; // as an auditor
            feed((strait_swarm_event){.kind = kind, .worker = slot, .goal = {.step = -1}});
            expect_no_step_back();
            assert_int_equal(strait_coordinator_n_replicas(&c, stage), 1);
            assert_int_equal(strait_coordinator_n_replicas(&c, !stage), 2);
            assert_int_not_equal(c.owner[stage], slot);
        }
}

static void an_owner_that_comes_back_without_its_state_is_a_spare(void **state) {
    (void)state;
    begin_replicated();
    const int owner = c.owner[1];
    goal(applied, 0);
    reply_about(c.owner[0], STRAIT_ECLOSED, 1); // its neighbour notices first
    assert_int_equal(c.phase, STRAIT_PHASE_WAITING);
    lose(owner);
    join(owner, strait_snapshot_inventory_empty());
    now += S;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    assert_int_not_equal(c.owner[1], owner);
    assert_int_equal(c.failed_near, -1); // the loss explained it: nobody else was sent away
    expect_no_step_back();
    assert_int_equal(strait_coordinator_n_replicas(&c, 0), 2);
}

static void an_unexplained_failure_sends_replicas_away_first(void **state) {
    (void)state;
    begin_replicated();
    goal(applied, 0);
    reply_about(c.owner[0], STRAIT_ETIMEDOUT, 1);
    now += S;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    for (int i = 0; i < STAGES; i++) {
        assert_int_equal(strait_coordinator_n_replicas(&c, i), 1);
        assert_int_equal(c.workers[c.owner[i]].suspicion, 0);
    }
    expect_no_step_back();
    assert_false(strait_coordinator_may_help(&c, 2, 0)); // for a while
    now += 60 * S;
    beat(2, 0);
    assert_true(strait_coordinator_may_help(&c, 2, 0));
    /* What fails then is blamed on those who are left. */
    goal(applied, 0);
    reply_about(c.owner[0], STRAIT_ETIMEDOUT, 1);
    assert_true(c.workers[c.owner[1]].suspicion > 0);
}

/* Steps without a failure near it undo that a replica was sent away, one by one. */
static void calm_steps_undo_that_a_replica_was_sent_away(void **state) {
    (void)state;
    begin_replicated();
    const int slot = c.helper[0][0], first = (int)applied;
    c.workers[slot].n_sent_away = 2;
    c.workers[c.owner[0]].n_sent_away = 2; // it has been one: an owner is not forgiven
    while (c.workers[slot].n_sent_away > 0 && applied < first + 200)
        step_once();
    assert_int_equal(applied / STRAIT_SWARM_CALM_STEPS - first / STRAIT_SWARM_CALM_STEPS, 2);
    assert_int_equal(c.workers[c.owner[0]].n_sent_away, 2);
}

static void doubt_about_values_leaves_one_worker_per_stage(void **state) {
    (void)state;
    begin_replicated();
    feed((strait_swarm_event){.kind = STRAIT_SWARM_IN_DOUBT});
    for (int i = 0; i < STAGES; i++)
        assert_int_equal(strait_coordinator_n_replicas(&c, i), 1);
    settle();
    assert_int_equal(c.replay.until, -1); // rolled back: live states may hold such values
}

static void replicas_with_another_snapshot_are_found(void **state) {
    (void)state;
    begin_replicated();
    const int owner = c.owner[0];
    beat(owner, 1);
    strait_snapshot_inventory inventory = c.workers[2].inventory;
    inventory.own = (strait_snapshot_set){
        .stage = 0, .n = 1, .steps = {applied}, .generations = {c.generation}};
    inventory.own.digests[0].bytes[0] = 1;
    c.config.has_audits = 1; // which find out who it is
    heartbeat(2, inventory, 0, 0);
    assert_int_equal(c.workers[2].n_disputes, 0);
    c.config.has_audits = 0;
    heartbeat(2, inventory, 0, 0);
    assert_int_equal(c.workers[2].n_disputes, 1);
    assert_int_equal(c.workers[owner].n_disputes, 1);
    assert_int_equal(strait_coordinator_n_replicas(&c, 0), 1);
    assert_false(strait_coordinator_may_help(&c, 2, 0));
    settle();
    assert_true(c.step < applied); // what was computed since they agreed does not count
}

static void contradict(int a, int b) {
    feed((strait_swarm_event){.kind = STRAIT_SWARM_CONTRADICTION, .worker = a, .successor = b});
    settle();
}

/* Neither is banned, but one that contradicts two could drive all replicas of its stage away. */
static void who_contradicts_two_replicas_loses_its_stage(void **state) {
    (void)state;
    begin_replicated();
    const int owner = c.owner[1];
    contradict(owner, 3);
    assert_false(strait_coordinator_has_replicas(&c)); // one worker per stage computes it again
    assert_true(c.owner[1] == owner && c.workers[3].is_known && c.workers[3].n_violations == 0);
    step_once();
    now += 20 * S;
    beat(2, 0);
    assert_false(strait_coordinator_may_help(&c, 3, 1)); // while it is contradicted
    help(2, 1);
    step_once();
    contradict(owner, 2);
    assert_true(c.owner[1] != owner && c.workers[owner].is_known);
    assert_true(c.workers[2].n_disputes == 0 && c.workers[3].n_disputes == 0);
}

static void a_replica_that_leaves_does_so_before_a_step(void **state) {
    (void)state;
    for (int slot = 0; slot < 4; slot++) {
        begin_replicated();
        const int stage = strait_coordinator_stage_of(&c, slot);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_LEAVE, .worker = slot});
        assert_true(c.workers[slot].is_connected);
        step_once();
        assert_false(c.workers[slot].is_connected);
        assert_int_equal(strait_coordinator_n_replicas(&c, stage), 1);
    }
}

/* It is the only one left with the stage's state: it keeps the stage until a spare has a copy. */
static void a_replica_that_leaves_takes_over_first(void **state) {
    (void)state;
    begin_replicated();
    join(4, strait_snapshot_inventory_empty());
    const int leaver = 2;
    goal(applied, 0);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LEAVE, .worker = leaver});
    lose(c.owner[0]);
    settle();
    assert_int_equal(c.owner[0], leaver);
    assert_int_equal(c.step, applied);
    assert_int_equal(c.replay.n_stage_steps, 0);
    goal(applied, 0);
    assert_int_equal(c.phase, STRAIT_PHASE_SNAPSHOT);
    for (int slot = 0; slot < 5; slot++) {
        if (!c.workers[slot].is_connected || strait_coordinator_stage_of(&c, slot) < 0) continue;
        beat(slot, 1);
        reply(slot, STRAIT_OK);
    }
    assert_int_equal(c.phase, STRAIT_PHASE_HANDOVER);
    strait_snapshot_inventory inventory = c.workers[c.owner[1]].inventory;
    inventory.prev = c.workers[leaver].inventory.own;
    heartbeat(c.owner[1], inventory, 0, 0);
    assert_non_null(find(STRAIT_SWARM_DISCONNECT, leaver));
    settle();
    assert_int_equal(c.step, applied);
    step_once();
}

/* Another worker is lost first: the step begins again without either, and no worker waits for the
 * one that leaves. */
static void a_replica_that_leaves_does_so_in_a_new_generation(void **state) {
    (void)state;
    begin_replicated();
    const int leaver = 2;
    goal(applied, 0);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LEAVE, .worker = leaver});
    lose(3);
    assert_non_null(find(STRAIT_SWARM_DISCONNECT, leaver));
    assert_false(c.workers[leaver].is_connected);
    expect_no_step_back();
}

static void the_last_replica_lost_is_recovered_as_before(void **state) {
    (void)state;
    begin_replicated();
    lose(2);
    expect_no_step_back();
    lose(c.owner[0]);
    join(2, strait_snapshot_inventory_empty());
    now += S;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    settle();
    assert_int_equal(c.replay.until, -1);
}

static void a_replica_that_was_sent_away_takes_over_with_its_state(void **state) {
    (void)state;
    begin_replicated();
    goal(applied, 0);
    reply_about(c.owner[0], STRAIT_ETIMEDOUT, 1); // not explained: both helpers become spares
    now += S;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    assert_int_equal(c.workers[3].helps, -1);
    lose(c.owner[1]);
    join(9, strait_snapshot_inventory_empty()); // a spare without the state
    now += S;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    assert_int_equal(c.owner[1], 3);
    expect_no_step_back();
}

/* However often it lost other stages before: steps would be lost with any other spare. */
static void a_suspected_owner_is_replaced_by_one_that_was_a_replica(void **state) {
    (void)state;
    begin_replicated();
    join(9, strait_snapshot_inventory_empty());
    const int owners[STAGES] = {c.owner[0], c.owner[1]};
    c.workers[2].n_penalties = c.workers[3].n_penalties = 5;
    for (int i = 0; i < 6 && c.owner[0] == owners[0] && c.owner[1] == owners[1]; i++) {
        if (c.phase == STRAIT_PHASE_READY) goal(applied, 0);
        reply_about(c.owner[0], STRAIT_ECLOSED, 1);
        now += 6 * S;
        for (int slot = 0; slot < 5; slot++)
            beat(slot, 0);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    }
    assert_true(c.owner[0] == 2 || c.owner[1] == 3);
    expect_no_step_back();
}

static void all_that_have_their_state_continue_whatever_the_driver_has_kept(void **state) {
    (void)state;
    begin_replicated();
    c.history_first = applied + 10; // as after a restart, while lost steps are computed again
    lose(2);
    expect_no_step_back();
}

static void nobody_helps_while_values_are_in_doubt(void **state) {
    (void)state;
    begin_replicated();
    now += 3600 * S;
    for (int slot = 0; slot < 4; slot++)
        beat(slot, 0);
    join(9, strait_snapshot_inventory_empty());
    assert_true(strait_coordinator_may_help(&c, 4, 0));
    feed((strait_swarm_event){.kind = STRAIT_SWARM_IN_DOUBT});
    settle();
    assert_false(strait_coordinator_may_help(&c, 4, 0));
}

static void an_heir_reports_the_snapshot_that_the_owner_did_not(void **state) {
    (void)state;
    begin_replicated();
    strait_snapshot_inventory inventory = own_snapshot(1, applied);
    inventory.live = (strait_live_state){1, applied, c.generation, 0, 0};
    heartbeat(3, inventory, 0, 0);
    lose(c.owner[1]);
    settle();
    assert_int_equal(c.owner[1], 3);
    inventory.live.generation = c.generation;
    heartbeat(3, inventory, 0, 0);
    assert_non_null(strait_snapshot_records_find(&c.records[1], applied));
}

/* The driver does not count them when it chooses again. */
static void a_failure_ends_the_choice_of_newcomers(void **state) {
    (void)state;
    begin_replicated();
    join(9, strait_snapshot_inventory_empty());
    help(4, 1);
    assert_int_equal(c.workers[4].will_help, 1);
    goal(applied, 0);
    lose(2);
    settle();
    assert_int_equal(c.workers[4].will_help, -1);
    step_once();
    assert_int_equal(strait_coordinator_n_replicas(&c, 1), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(newcomers_get_the_owners_snapshot),
        cmocka_unit_test(a_lost_replica_costs_no_step),
        cmocka_unit_test(an_owner_that_comes_back_without_its_state_is_a_spare),
        cmocka_unit_test(an_unexplained_failure_sends_replicas_away_first),
        cmocka_unit_test(calm_steps_undo_that_a_replica_was_sent_away),
        cmocka_unit_test(doubt_about_values_leaves_one_worker_per_stage),
        cmocka_unit_test(replicas_with_another_snapshot_are_found),
        cmocka_unit_test(who_contradicts_two_replicas_loses_its_stage),
        cmocka_unit_test(a_replica_that_leaves_does_so_before_a_step),
        cmocka_unit_test(a_replica_that_leaves_takes_over_first),
        cmocka_unit_test(a_replica_that_leaves_does_so_in_a_new_generation),
        cmocka_unit_test(the_last_replica_lost_is_recovered_as_before),
        cmocka_unit_test(a_replica_that_was_sent_away_takes_over_with_its_state),
        cmocka_unit_test(a_suspected_owner_is_replaced_by_one_that_was_a_replica),
        cmocka_unit_test(all_that_have_their_state_continue_whatever_the_driver_has_kept),
        cmocka_unit_test(nobody_helps_while_values_are_in_doubt),
        cmocka_unit_test(an_heir_reports_the_snapshot_that_the_owner_did_not),
        cmocka_unit_test(a_failure_ends_the_choice_of_newcomers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
