/* Workers that ask to leave and come back again and again, to have a stage each time: the others
 * make progress, and those that do so come after all other spares. */
#include "coordinator_rig.h"

enum {
    HONEST = 3, // workers, of which one is a spare; the accomplices after them claim to be faster
    ALL = HONEST + 2,
    ROUNDS = 64
};

static int has_joined(int i) {
    const strait_fingerprint key = key_of(i);
    const int slot = strait_coordinator_find(&c, &key);
    return slot >= 0 && c.workers[slot].is_connected;
}

static void join_as(int i) {
    const strait_swarm_report its = {
        .name = "worker", .flops = i < HONEST ? 1e9 : 1e12, .is_reachable = 1};
    feed((strait_swarm_event){.kind = STRAIT_SWARM_JOIN,
                              .key = key_of(i),
                              .report = &its,
                              .inventory = strait_snapshot_inventory_empty()});
}

static void come_back(void) {
    for (int i = 0; i < ALL; i++)
        if (!has_joined(i)) join_as(i);
}

/* An accomplice has one of the two stages. */
static void begin_with_accomplices(int n_honest) {
    begin_with_stages(2, 0);
    join_as(0);
    join_as(HONEST);
    for (int i = 1; i < n_honest; i++)
        join_as(i);
    join_as(HONEST + 1);
    get_ready();
}

/* Returns the accomplice that has a stage; -1: none. */
static int owning_accomplice(void) {
    for (int i = 0; i < 2; i++)
        if (c.owner[i] >= 0 && c.workers[c.owner[i]].report.flops > 1e10) return c.owner[i];
    return -1;
}

static void leave(int slot) {
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LEAVE, .worker = slot});
}

/* All owners have a snapshot of this step; honest neighbours report what they have a copy of. */
static void report_copies(void) {
    for (int i = 0; i < 2; i++) {
        strait_snapshot_inventory inventory = own_snapshot(i, c.step);
        inventory.live = (strait_live_state){i, c.step, c.generation, 0, 0};
        *(i == 1 ? &inventory.prev : &inventory.next) = own_snapshot(1 - i, c.step).own;
        heartbeat(c.owner[i], inventory, 0, 0);
    }
}

/* The trainer begins the step, whatever becomes of it. */
static void try_step(int64_t step) {
    goal(step, 0);
    if (c.phase != STRAIT_PHASE_SNAPSHOT) {
        get_ready();
        goal(step, 1);
        get_ready();
        return;
    }
    const int owners[] = {c.owner[0], c.owner[1]};
    report_copies();
    for (int i = 0; i < 2; i++)
        reply(owners[i], STRAIT_OK);
}

/* Each asks to leave as soon as it has the stage, and the other is back by then. */
static void steps_begin_although_owners_leave_at_once(void **state) {
    (void)state;
    begin_with_accomplices(1);
    for (int i = 0; i < ROUNDS && c.committed < 4; i++) {
        if (owning_accomplice() >= 0) leave(owning_accomplice());
        try_step(c.step);
        come_back();
        get_ready();
    }
    assert_int_equal(c.committed, 4);
}

/* Returns how often an accomplice leaves that has taken part in `n_steps` steps. */
static int count_leaves(int n_steps) {
    int n = 0;
    begin_with_accomplices(HONEST);
    for (int i = 0; i < ROUNDS; i++) {
        for (int k = 0; k < n_steps; k++)
            try_step(c.step);
        n += owning_accomplice() >= 0;
        if (owning_accomplice() >= 0) leave(owning_accomplice());
        try_step(c.step);
        come_back();
        get_ready();
    }
    return n;
}

/* There is another spare, which has the stage after them. */
static void one_that_left_soon_comes_after_others(void **state) {
    (void)state;
    assert_in_range(count_leaves(0), 1, 4);
    assert_in_range(count_leaves(1), 1, 4);
    assert_in_range(count_leaves(STRAIT_SWARM_CALM_STEPS - 1), 1, 4);
    assert_int_equal(count_leaves(STRAIT_SWARM_CALM_STEPS), ROUNDS); // they were of use
}

/* They ask to leave in the middle of a step, and cut their link. */
static void one_that_leaves_in_a_step_comes_after_others(void **state) {
    (void)state;
    begin_with_accomplices(HONEST);
    int n = 0;
    for (int i = 0; i < ROUNDS; i++) {
        const int slot = owning_accomplice();
        goal(c.step, 0);
        n += slot >= 0;
        if (slot >= 0) leave(slot);
        if (slot >= 0) feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = slot});
        now += 6 * S;
        come_back();
        for (int k = 0; k < STRAIT_SWARM_WORKERS; k++)
            if (c.workers[k].is_connected) heartbeat(k, strait_snapshot_inventory_empty(), 1, 0);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        get_ready();
    }
    assert_in_range(n, 1, 4);
}

/* ---- spares that stages move to ---- */

enum way {
    CUT,
    ASKS,
    WAYS
};

static void go(int slot, enum way way) {
    if (way == ASKS)
        leave(slot);
    else
        feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = slot});
}

/* A stage is to move to a faster spare, which is gone before that. It is remembered for it. */
static void one_that_a_stage_moves_to_does_not_go_unnoticed(void **state) {
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        begin(3);
        run_step(0, 1);
        const int owners[] = {c.owner[0], c.owner[1]}, spare = 3 - owners[0] - owners[1];
        feed((strait_swarm_event){
            .kind = STRAIT_SWARM_REASSIGN, .worker = owners[0], .successor = spare});
        goal(1, 0);
        for (int i = 0; i < 2; i++)
            reply(owners[i], STRAIT_OK);
        assert_int_equal(c.phase, STRAIT_PHASE_HANDOVER); // no copy has arrived
        go(spare, (enum way)way);
        assert_int_equal(c.workers[spare].n_penalties, 1);
        assert_int_equal(c.owner[0], owners[0]);
    }
}

/* Before that the step is not even put off. */
static void a_step_begins_if_nobody_is_there_to_move_to(void **state) {
    (void)state;
    begin(3);
    run_step(0, 1);
    const int spare = 3 - c.owner[0] - c.owner[1];
    feed((strait_swarm_event){
        .kind = STRAIT_SWARM_REASSIGN, .worker = c.owner[0], .successor = spare});
    go(spare, CUT);
    goal(1, 0);
    assert_int_equal(c.phase, STRAIT_PHASE_WORK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_begin_although_owners_leave_at_once),
        cmocka_unit_test(one_that_left_soon_comes_after_others),
        cmocka_unit_test(one_that_leaves_in_a_step_comes_after_others),
        cmocka_unit_test(one_that_a_stage_moves_to_does_not_go_unnoticed),
        cmocka_unit_test(a_step_begins_if_nobody_is_there_to_move_to)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
