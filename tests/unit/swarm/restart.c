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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forgets_settled_steps_that_a_restart_goes_behind)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
