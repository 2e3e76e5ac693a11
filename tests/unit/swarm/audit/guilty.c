/* What audits mean for the coordinator: who is banned, where the run returns to, who loses its
 * stage. */
#include "../coordinator/replicas_rig.h"

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

static void moves_a_stage_whose_owner_gives_nothing(void **state) {
    (void)state;
    begin(3);
    run_step(0, 1);
    const int owner = c.owner[1];
    feed((strait_swarm_event){.kind = STRAIT_SWARM_WITHHELD, .worker = owner});
    assert_true(c.workers[owner].has_successor);
    assert_int_equal(c.workers[owner].successor, 2);
    assert_int_equal(c.workers[owner].n_penalties, 1);
    assert_null(find(STRAIT_SWARM_BAN, -1));
}

static void keeps_it_where_there_is_no_spare(void **state) {
    (void)state;
    begin(2);
    run_step(0, 1);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_WITHHELD, .worker = c.owner[1]});
    assert_false(c.workers[c.owner[1]].has_successor);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(returns_to_before_the_lie),
        cmocka_unit_test(keeps_what_was_computed_before),
        cmocka_unit_test(bans_a_spare_without_disturbing_the_stages),
        cmocka_unit_test(returns_without_the_one_that_left),
        cmocka_unit_test(moves_a_stage_whose_owner_gives_nothing),
        cmocka_unit_test(sends_a_replica_away_that_gives_nothing),
        cmocka_unit_test(keeps_it_where_there_is_no_spare),
        cmocka_unit_test(replaces_one_of_two_that_contradict_each_other),
        cmocka_unit_test(puts_accomplices_aside_that_clear_each_other)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
