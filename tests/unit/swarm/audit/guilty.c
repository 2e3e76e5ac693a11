/* What audits mean for the coordinator: who is banned, where the run returns to, who loses its
 * stage. */
#include "../coordinator/replicas_rig.h"
#include "swarm/coordinator/state.h"

static void convict(int worker, int64_t limit) {
    feed((strait_swarm_event){
        .kind = STRAIT_SWARM_GUILTY, .worker = worker, .goal = {.step = limit}});
}

/* Steps after the limit count as never committed, also when their snapshots are there. */
static void returns_to_before_the_lie(void **state) {
    (void)state;
    begin(3);
    run_step(0, 1); // the snapshots are of step 1
    run_step(1, 0);
    run_step(2, 0);
    assert_int_equal(c.committed, 3);
    const int owner = c.owner[0];
    convict(owner, 0);
    assert_non_null(find(STRAIT_SWARM_BAN, owner));
    assert_int_equal(c.committed, 0);
    recover();
    assert_int_equal(c.step, 0);
    assert_int_not_equal(c.owner[0], owner);
    assert_int_equal(c.restore_limit, -1); // only this once
}

/* A snapshot at the limit itself is from before the lie. */
static void keeps_what_was_computed_before(void **state) {
    (void)state;
    begin(3);
    run_step(0, 1);
    run_step(1, 0);
    run_step(2, 0);
    strait_snapshot_inventory held[2] = {own_snapshot(0, 1), own_snapshot(1, 1)};
    convict(2, 1); // a spare, and the run is affected
    now += 10 * S;
    for (int i = 0; i < 2; i++)
        heartbeat(c.owner[i] >= 0 ? c.owner[i] : i, held[i], 1, 0);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    get_ready();
    assert_int_equal(c.step, 1);
    assert_int_equal(c.committed, 1);
}

static void bans_a_spare_without_disturbing_the_stages(void **state) {
    (void)state;
    begin(3);
    run_step(0, 1);
    const uint32_t generation = c.generation;
    convict(2, -1);
    assert_non_null(find(STRAIT_SWARM_BAN, 2));
    assert_int_equal(c.phase, STRAIT_PHASE_READY);
    assert_int_equal(c.generation, generation);
    assert_int_equal(c.committed, 1);
}

/* Whoever was at fault may have left: the run returns all the same. */
static void returns_without_the_one_that_left(void **state) {
    (void)state;
    begin(2);
    run_step(0, 0);
    convict(-1, 0);
    assert_null(find(STRAIT_SWARM_BAN, -1));
    assert_int_equal(c.committed, 0);
    recover();
    assert_int_equal(c.step, 0);
}

/* The generation ends before the next step: the run goes back for what it did not give. */
static void moves_it_also_if_the_run_goes_back(void **state) {
    (void)state;
    begin(3);
    run_step(0, 1);
    const int owner = c.owner[1];
    feed((strait_swarm_event){.kind = STRAIT_SWARM_WITHHELD, .worker = owner});
    assert_null(find(STRAIT_SWARM_BAN, -1));
    convict(-1, 0);
    recover();
    assert_int_equal(c.owner[1], 2);
    assert_true(c.workers[owner].is_connected && !c.workers[owner].standing.withholds);
    assert_int_equal(c.workers[owner].n_penalties, 1);
}

/* Later, when somebody else has come. */
static void moves_it_when_there_is_a_spare(void **state) {
    (void)state;
    begin(2);
    run_step(0, 1);
    const int owner = c.owner[1];
    feed((strait_swarm_event){.kind = STRAIT_SWARM_WITHHELD, .worker = owner});
    convict(-1, 0);
    recover();
    assert_int_equal(c.owner[1], owner);
    join(2, strait_snapshot_inventory_empty());
    convict(-1, 0);
    recover();
    assert_int_equal(c.owner[1], 2);
}

static void keeps_it_where_there_is_no_spare(void **state) {
    (void)state;
    begin(2);
    run_step(0, 1);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_WITHHELD, .worker = c.owner[1]});
    goal(1, 0);
    assert_int_equal(c.phase, STRAIT_PHASE_WORK); // no handover
}

static void sends_a_replica_away_that_gives_nothing(void **state) {
    (void)state;
    begin_with_stages(STAGES, 3);
    c.config.replicas_limit = 8;
    applied = 0;
    step_once();
    feed((strait_swarm_event){.kind = STRAIT_SWARM_HELP, .worker = 2, .stage = 1});
    step_once();
    assert_int_equal(strait_coordinator_n_replicas(&c, 1), 2);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_WITHHELD, .worker = 2});
    settle();
    assert_int_equal(strait_coordinator_n_replicas(&c, 1), 1);
    assert_true(c.workers[2].is_known && !strait_coordinator_may_help(&c, 2, 1));
    step_once();
}

/* Neither is believed: the one that speaks gives way to a spare, as with values that it rejects. */
static void replaces_one_of_two_that_contradict_each_other(void **state) {
    (void)state;
    begin(3);
    run_step(0, 1);
    const int owner = c.owner[1];
    feed((strait_swarm_event){.kind = STRAIT_SWARM_DISPUTE, .worker = owner, .stage = 0});
    assert_null(find(STRAIT_SWARM_BAN, -1));
    recover();
    assert_int_equal(c.owner[1], 2);
}

/* A worker that two contradict counts as the liar, and what they said of it is forgotten. Two that
 * lie could do so to every owner: each time the run goes back. */
static void puts_accomplices_aside_that_clear_each_other(void **state) {
    (void)state;
    enum {
        N_WORKERS = 6
    };
    const int liars[2] = {2, 3};
    int n_returns = 0;
    begin_with_stages(STAGES, N_WORKERS);
    c.config.replicas_limit = 8;
    applied = 0;
    step_once();
    for (int i = 0; i < 20; i++) {
        const int liar = liars[i % 2], owner = c.owner[1];
        now += 10000 * S; // they are no longer away
        for (int slot = 0; slot < N_WORKERS; slot++)
            beat(slot, 0);
        if (liar == owner || !strait_coordinator_may_help(&c, liar, 1)) continue;
        feed((strait_swarm_event){
            .kind = STRAIT_SWARM_CONTRADICTION, .worker = owner, .successor = liar});
        n_returns++;
        settle();
        assert_true(c.workers[owner].is_known); // nobody is banned for it
        step_once();
    }
    assert_in_range(n_returns, 2, 2 * STRAIT_SWARM_RETURNS);
    for (int i = 0; i < 2; i++) {
        assert_false(strait_coordinator_may_help(&c, liars[i], 1));
        assert_int_equal(c.workers[liars[i]].n_returns, STRAIT_SWARM_RETURNS);
    }
    /* Those beside them are cleared when they are banned. */
    for (int i = 0; i < 2; i++)
        convict(liars[i], -1);
    for (int slot = 0; slot < N_WORKERS; slot++)
        assert_true(!c.workers[slot].is_known || c.workers[slot].n_returns == 0);
}

enum {
    MANY = 6 // workers
};

static void begin_working(int n_steps) {
    begin_with_stages(STAGES, MANY);
    c.config.replicas_limit = 8;
    applied = 0;
    for (int i = 0; i < n_steps; i++)
        step_once();
}

static void contradict(int a, int b) {
    feed((strait_swarm_event){.kind = STRAIT_SWARM_CONTRADICTION, .worker = a, .successor = b});
    settle();
    step_once(); // values are no longer in doubt
}

static void wait_for(int seconds) {
    now += seconds * S;
    for (int slot = 0; slot < MANY; slot++)
        beat(slot, 0);
}

/* Keys are cheap: each contradicts the owner once. */
static void new_keys_do_not_put_a_worker_aside(void **state) {
    (void)state;
    begin_working(300);
    const int owner = c.owner[1];
    for (int liar = STAGES; liar < MANY; liar++) {
        contradict(owner, liar);
        assert_int_equal(c.owner[1], owner);
        assert_true(c.workers[owner].n_returns == 0 && c.workers[owner].n_disputes == 0);
        assert_true(c.workers[owner].n_penalties == 0);
        assert_true(c.workers[liar].n_returns == 1 && c.workers[liar].n_disputes == 1);
    }
}

/* It may be the owner that lies, so it does not get one newcomer after the other. */
static void one_that_contradicts_newcomers_works_alone(void **state) {
    (void)state;
    begin_working(300);
    for (int i = 0; i < 3; i++) {
        contradict(c.owner[1], 2 + i);
        assert_false(strait_coordinator_may_help(&c, MANY - 1, 1));
        assert_false(strait_coordinator_may_help(&c, MANY - 1, 0)); // beside it
        wait_for((60 << i) - 10);
        assert_false(strait_coordinator_may_help(&c, MANY - 1, 1));
        wait_for(20);
        assert_true(strait_coordinator_may_help(&c, MANY - 1, 1));
    }
}

/* Nor does one with many steps that is itself a further replica come back to contradict a new owner
 * as soon as values are no longer in doubt. */
static void a_replica_that_contradicts_newcomers_stays_away(void **state) {
    (void)state;
    begin_working(1);
    const int replica = 2;
    c.workers[replica].standing.n_steps = 1000;
    for (int i = 0; i < 3; i++) {
        assert_true(strait_coordinator_may_help(&c, replica, 1));
        contradict(c.owner[1], replica);
        wait_for((60 << i) - 10);
        assert_false(strait_coordinator_may_help(&c, replica, 1));
        wait_for(20);
    }
}

/* Of two that have done as little, either may lie; neither is put aside for good. */
static void contradictions_are_forgotten_after_many_steps(void **state) {
    (void)state;
    begin_working(1);
    for (int again = 0; again < 2; again++) {
        const int n_steps = 1024 << again;
        contradict(c.owner[1], 2);
        wait_for(100000);
        for (int i = 0; i < n_steps - 64; i++)
            step_once();
        assert_false(strait_coordinator_may_help(&c, 2, 1));
        for (int i = 0; i < 128; i++)
            step_once();
        assert_true(strait_coordinator_may_help(&c, 2, 1));
        c.workers[c.owner[1]].standing.n_steps = 0; // it has no more standing than the other
    }
}

/* In the first steps of a run nobody has many, but some have four times as many as others. */
static void early_keys_do_not_put_an_early_worker_aside(void **state) {
    (void)state;
    for (int n_steps = 8; n_steps <= 40; n_steps += 32) {
        begin_working(n_steps);
        const int owner = c.owner[1], is_early = n_steps < 32;
        contradict(owner, STAGES);
        assert_int_equal(c.workers[owner].n_returns, is_early);
        contradict(owner, STAGES + 1);
        assert_int_equal(c.owner[1] == owner, !is_early);
    }
    /* One that came to a run of some steps has no more standing than those that come later. */
    begin_working(200);
    c.workers[2].standing.n_steps = 40;
    assert_int_equal(strait_coordinator_senior(&c, 2, 3), -1);
}

/* What new keys did to it is undone by many steps, one doubling after the other. */
static void works_alone_for_less_long_after_many_steps(void **state) {
    (void)state;
    begin_working(300);
    const int owner = c.owner[1];
    contradict(owner, 2);
    contradict(owner, 3);
    assert_int_equal(c.workers[owner].standing.n_alone, 2);
    for (int i = 0; i < 1024 - 64; i++)
        step_once();
    assert_int_equal(c.workers[owner].standing.n_alone, 2);
    for (int i = 0; i < 128; i++)
        step_once();
    assert_int_equal(c.workers[owner].standing.n_alone, 1);
    for (int i = 0; i < 2048 + 64; i++) // later each time
        step_once();
    assert_int_equal(c.workers[owner].standing.n_alone, 0);
    contradict(owner, 4);
    wait_for(70);
    assert_true(strait_coordinator_may_help(&c, MANY - 1, 1));
}

/* It kept its stage, because there was no spare, and has given much since. */
static void one_that_gives_again_keeps_its_stage(void **state) {
    (void)state;
    for (int has_given = 0; has_given < 2; has_given++) {
        begin(2);
        run_step(0, 1);
        const int owner = c.owner[1];
        feed((strait_swarm_event){.kind = STRAIT_SWARM_WITHHELD, .worker = owner});
        if (has_given) feed((strait_swarm_event){.kind = STRAIT_SWARM_GAVE, .worker = owner});
        join(2, strait_snapshot_inventory_empty());
        convict(-1, 0);
        recover();
        assert_int_equal(c.owner[1] == owner, has_given);
    }
}

/* A spare that does not reply as an auditor disturbs no step, but its word weighs nothing. */
static void a_silent_auditor_loses_its_standing(void **state) {
    (void)state;
    begin(4);
    run_step(0, 1);
    const uint32_t generation = c.generation;
    c.workers[2].standing.n_steps = 1000;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_SILENT_AUDITOR, .worker = 2});
    assert_true(c.phase == STRAIT_PHASE_READY && c.generation == generation);
    assert_true(c.workers[2].standing.n_steps == 0 && c.workers[2].n_penalties == 0);
}

/* One that gave nothing, and lost its stage since for another reason, was no auditor. */
static void a_former_owner_keeps_its_standing(void **state) {
    (void)state;
    begin(4);
    run_step(0, 1);
    c.workers[2].standing.n_steps = 1000;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_WITHHELD, .worker = 2});
    assert_true(c.workers[2].standing.n_steps == 1000 && c.workers[2].n_penalties == 0);
    assert_true(c.workers[2].standing.withholds);
}

/* A new key takes the slot of somebody of whom less is remembered. */
static void new_keys_do_not_displace_what_is_remembered(void **state) {
    (void)state;
    begin_working(1);
    for (int slot = STAGES; slot < STRAIT_SWARM_WORKERS; slot++) {
        strait_swarm_worker *worker = &c.workers[slot];
        *worker = (strait_swarm_worker){.is_known = 1, .stage = -1, .n_penalties = 3};
        worker->key.bytes[0] = (unsigned char)slot;
        worker->key.bytes[1] = (unsigned char)(slot >> 8);
        worker->key.bytes[2] = 1;
    }
    c.workers[7].n_penalties = c.workers[9].n_penalties = 0;
    c.workers[7].n_returns = 1;
    c.workers[9].n_disputes = 1;
    for (int i = 0; i < 50; i++) {
        const strait_fingerprint key = {{9, (unsigned char)i, 2}};
        const int slot = strait_coordinator_admit(&c, &key);
        assert_true(slot >= STAGES && slot != 7 && slot != 9);
        c.workers[slot].is_connected = 1;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(returns_to_before_the_lie),
        cmocka_unit_test(keeps_what_was_computed_before),
        cmocka_unit_test(bans_a_spare_without_disturbing_the_stages),
        cmocka_unit_test(returns_without_the_one_that_left),
        cmocka_unit_test(sends_a_replica_away_that_gives_nothing),
        cmocka_unit_test(keeps_it_where_there_is_no_spare),
        cmocka_unit_test(moves_it_also_if_the_run_goes_back),
        cmocka_unit_test(moves_it_when_there_is_a_spare),
        cmocka_unit_test(replaces_one_of_two_that_contradict_each_other),
        cmocka_unit_test(puts_accomplices_aside_that_clear_each_other),
        cmocka_unit_test(new_keys_do_not_put_a_worker_aside),
        cmocka_unit_test(one_that_contradicts_newcomers_works_alone),
        cmocka_unit_test(a_replica_that_contradicts_newcomers_stays_away),
        cmocka_unit_test(contradictions_are_forgotten_after_many_steps),
        cmocka_unit_test(early_keys_do_not_put_an_early_worker_aside),
        cmocka_unit_test(works_alone_for_less_long_after_many_steps),
        cmocka_unit_test(one_that_gives_again_keeps_its_stage),
        cmocka_unit_test(a_silent_auditor_loses_its_standing),
        cmocka_unit_test(a_former_owner_keeps_its_standing),
        cmocka_unit_test(new_keys_do_not_displace_what_is_remembered)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
