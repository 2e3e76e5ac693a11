/* What a coordinator that is started again may restore. */
#include "coordinator_rig.h"

/* The session of a restarted host begins at the restored step and cuts its metrics there. If that
 * host is lost too, the next one must not restore a later step, for which there are no metrics now.
 */
static void forgets_settled_steps_that_a_restart_goes_behind(void **state) {
    (void)state;
    begin(2);
    for (int64_t step = 0; step < 4; step++)
        run_step(step, 1);
    strait_swarm_durable durable;
    strait_coordinator_durable(&c, &durable);
    assert_int_equal(durable.settled, 3);
    const strait_swarm_config config = c.config;
    strait_coordinator_init(&c, &config);
    strait_coordinator_resume(&c, &durable, now);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_START});
    for (int i = 0; i < 2; i++) { // one of them has lost what it kept since step 2
        strait_snapshot_inventory inventory = strait_snapshot_inventory_empty();
        inventory.own = (strait_snapshot_set){
            .stage = i, .n = i + 1, .steps = {2, 3}, .generations = {1, 1}};
        join(i, inventory);
    }
    get_ready();
    assert_int_equal(c.step, 2);
    strait_coordinator_durable(&c, &durable);
    assert_int_equal(durable.settled, 2);
    run_step(2, 1);
    run_step(3, 1);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = c.owner[0]});
    join(0, c.workers[0].inventory);
    recover();
    strait_coordinator_durable(&c, &durable);
    assert_int_equal(durable.settled, 3); // without a restart, nothing is cut
}

static void waits_for_previous_owners_after_a_restart(void **state) {
    (void)state;
    begin(2);
    run_step(0, 1);
    run_step(1, 1);
    strait_swarm_durable durable;
    strait_coordinator_durable(&c, &durable);
    strait_snapshot_inventory inventory[2];
    for (int i = 0; i < 2; i++) {
        inventory[i] = strait_snapshot_inventory_empty();
        inventory[i].own = (strait_snapshot_set){
            .stage = i, .n = 2, .steps = {1, 2}, .generations = {1, 1}};
    }
    const strait_swarm_config config = c.config;
    strait_coordinator_init(&c, &config);
    strait_coordinator_resume(&c, &durable, now);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_START});
    join(5, strait_snapshot_inventory_empty()); // a spare joins first
    join(0, inventory[0]);
    assert_int_equal(c.phase, STRAIT_PHASE_WAITING);
    now += S;
    join(1, inventory[1]);
    get_ready();
    assert_int_equal(c.generation, 2);
    assert_int_equal(c.committed, 2);
    assert_int_equal(c.step, 1); // whether step 2 was settled is unknown
}

/* The durable state is that of a backup: workers have seen later generations, and would ignore the
 * tasks of earlier ones. One of them claims an absurd number. */
static void begins_above_the_generations_that_workers_have_seen(void **state) {
    (void)state;
    begin(2);
    run_step(0, 1);
    strait_swarm_durable durable;
    strait_coordinator_durable(&c, &durable);
    const strait_swarm_config config = c.config;
    strait_coordinator_init(&c, &config);
    strait_coordinator_resume(&c, &durable, now);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_START});
    const uint32_t seen[] = {7, 300, UINT32_MAX};
    for (int i = 2; i >= 0; i--)
        feed((strait_swarm_event){.kind = STRAIT_SWARM_JOIN,
                                  .key = key_of(i),
                                  .report = &report,
                                  .generation = seen[i],
                                  .inventory = strait_snapshot_inventory_empty()});
    get_ready();
    assert_int_equal(c.generation, 301);
    assert_int_equal(c.forgotten, durable.generation); // start steps of 64 generations are known
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forgets_settled_steps_that_a_restart_goes_behind),
        cmocka_unit_test(waits_for_previous_owners_after_a_restart),
        cmocka_unit_test(begins_above_the_generations_that_workers_have_seen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
