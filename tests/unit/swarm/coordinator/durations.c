/* The coordinator: workers that take almost all the time they have, each time a little more. */
#include "coordinator_rig.h"

/* All reply to the goal within a second but the owner of stage 1, which does after so many. Returns
 * whether it is still connected. */
static int is_reached(int64_t seconds) {
    const int slow = c.owner[1];
    now += S;
    reply(c.owner[0], STRAIT_OK);
    for (int64_t s = 1; s < seconds && c.workers[slow].is_connected; s++) {
        now += S;
        for (int slot = 0; slot < STRAIT_SWARM_WORKERS; slot++)
            if (c.workers[slot].is_connected)
                heartbeat(slot, strait_snapshot_inventory_empty(), (uint32_t)s, 0);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    }
    get_ready();
    return c.workers[slow].is_connected;
}

static void take_step(int64_t step, int64_t seconds) {
    goal(step, 0);
    if (!is_reached(seconds)) return;
    goal(step, 1);
    get_ready();
}

static void validate(int64_t step, int64_t seconds) {
    feed((strait_swarm_event){.kind = STRAIT_SWARM_GOAL,
                              .goal = {.stage = -1, .step = step, .is_validation = 1}});
    (void)is_reached(seconds);
}

/* A validation after a step of two seconds. */
static void step_and_validate(int64_t step, int64_t seconds) {
    take_step(step, 2);
    validate(step + 1, seconds);
}

/* Stage 1's owner replies just within the limit each time, which follows from the time before; the
 * first one takes as many seconds. Returns after how many it is disconnected. */
static int64_t take_ever_longer(void (*take)(int64_t step, int64_t seconds), int64_t seconds) {
    begin(3);
    const int slow = c.owner[1];
    const int64_t began = now;
    for (int64_t step = 0; step < 6 && c.workers[slow].is_connected; step++) {
        take(step, seconds);
        seconds = 9 + 8 * seconds;
    }
    assert_false(c.workers[slow].is_connected);
    return (now - began) / S;
}

static void ends_what_takes_longer_with_every_step(void **state) {
    (void)state;
    assert_in_range(take_ever_longer(take_step, 1), 74, 120);
}

static void ends_what_takes_longer_with_every_validation(void **state) {
    (void)state;
    assert_in_range(take_ever_longer(step_and_validate, 3), 200, 300);
}

/* Some take eight times as long as the first one, as on a machine that does something else. */
static void long_validations_go_on(void **state) {
    (void)state;
    begin(3);
    const int owner = c.owner[1];
    for (int64_t step = 0; step < 4; step++) {
        take_step(step, 1);
        validate(step + 1, step == 0 ? 9 : 70);
    }
    assert_int_equal(c.owner[1], owner);
}

/* A faster worker was lost, and no other one is faster than those that are left. */
static void slow_steps_go_on_where_nobody_is_faster(void **state) {
    (void)state;
    begin(2);
    take_step(0, 1);
    for (int64_t step = 1; step < 4; step++)
        take_step(step, 9 << (3 * (step - 1)));
    assert_int_equal(c.committed, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_what_takes_longer_with_every_step),
        cmocka_unit_test(slow_steps_go_on_where_nobody_is_faster),
        cmocka_unit_test(ends_what_takes_longer_with_every_validation),
        cmocka_unit_test(long_validations_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
