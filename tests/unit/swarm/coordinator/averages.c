/* How long an average of pipelines may take, and who is left out if one worker says that another
 * does not send it what it needs. */
#include "averages_rig.h"

/* Its phases send nothing, or all weights: the time of one is no limit for the next. */
static void an_average_may_take_as_long_as_its_bytes(void **state) {
    (void)state;
    begin_pipelines();
    for (int i = 0; i < STAGES; i++)
        c.config.snapshot_bytes[i] = 50e6; // 50 s at the slowest rate
    for (int phase = 0; phase < 2; phase++) {
        feed((strait_swarm_event){.kind = STRAIT_SWARM_GOAL,
                                  .goal = {.stage = -1, .is_average = 1}});
        for (int s = 0; s < phase * 60; s += 5) {
            now += 5 * S;
            for (int slot = 0; slot < 6; slot++) // messages arrive
                heartbeat(slot, c.workers[slot].inventory, (uint32_t)s + 1, 0);
            feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        }
        settle();
        for (int slot = 0; slot < 6; slot++)
            assert_true(c.workers[slot].is_connected);
    }
}

/* At 32 bits over slow links the workers wait for each other for longer than a snapshot takes, at 2
 * bits not so long, and then say who is late: until then, and no longer, the coordinator waits. */
static void an_average_may_take_as_long_as_its_workers_wait(void **state) {
    (void)state;
    for (int is_over = 0; is_over < 2; is_over++) {
        begin_pipelines();
        for (int i = 0; i < STAGES; i++) {
            c.config.snapshot_bytes[i] = is_over ? 500e6 : 1e6;
            c.config.average_ns[i] = 300 * S;
        }
        feed((strait_swarm_event){.kind = STRAIT_SWARM_GOAL,
                                  .goal = {.stage = -1, .is_average = 1}});
        for (int s = 0; s < 300 + 20 * is_over; s += 5) {
            now += 5 * S;
            for (int slot = 0; slot < 6; slot++) // messages arrive
                heartbeat(slot, c.workers[slot].inventory, (uint32_t)s + 1, 0);
            feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        }
        int n_connected = 0;
        for (int slot = 0; slot < 6; slot++)
            n_connected += c.workers[slot].is_connected;
        assert_int_equal(n_connected == 6, !is_over);
    }
}

/* Heartbeats with progress come from all workers for so many seconds. */
static void beat_for(int seconds) {
    for (int s = 0; s < seconds; s += 5) {
        now += 5 * S;
        for (int slot = 0; slot < 6; slot++)
            heartbeat(slot, c.workers[slot].inventory, (uint32_t)s + 1, 0);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    }
}

/* Large weights may take hours over a slow link. One worker that never replies, and sends
 * heartbeats with progress, does not take so long once it is the only one. */
static void an_average_does_not_wait_for_one_silent_worker(void **state) {
    (void)state;
    for (int silent = 0; silent < 6; silent++) {
        begin_pipelines();
        for (int i = 0; i < STAGES; i++)
            c.config.average_ns[i] = 9720 * S; // 600 MB
        c.config.deadline_ns = 60 * S;
        feed((strait_swarm_event){.kind = STRAIT_SWARM_GOAL,
                                  .goal = {.stage = -1, .is_average = 2}});
        beat_for(600); // two of them may exchange something
        for (int slot = 0; slot < 6; slot++)
            if (slot != silent) reply(slot, STRAIT_OK);
        beat_for(60);
        assert_true(c.workers[silent].is_connected);
        beat_for(60);
        assert_false(c.workers[silent].is_connected);
    }
}

/* Nor does one that sends as slowly as a slow link would make all averages as slow. */
static void an_average_takes_little_longer_than_recent_ones(void **state) {
    (void)state;
    begin_pipelines();
    for (int i = 0; i < STAGES; i++)
        c.config.average_ns[i] = 9720 * S;
    c.config.deadline_ns = 60 * S;
    for (int again = 0; again < 2; again++) {
        feed((strait_swarm_event){.kind = STRAIT_SWARM_GOAL,
                                  .goal = {.stage = -1, .is_average = 1}});
        settle(); // at once: that is no measure for what follows
        feed((strait_swarm_event){.kind = STRAIT_SWARM_GOAL,
                                  .goal = {.stage = -1, .is_average = 2}});
        beat_for(again ? 800 : 1000);
        for (int slot = 0; slot < 6; slot++)
            assert_true(c.workers[slot].is_connected);
        if (!again) c.phase_began_ns = now - 20 * S; // it took 20 seconds
        if (!again) settle();
    }
    beat_for(120);
    int n_connected = 0;
    for (int slot = 0; slot < 6; slot++)
        n_connected += c.workers[slot].is_connected;
    assert_true(n_connected < 6);
}

/* Of two replicas the one that has replied may have done so too early: however many stages there
 * are, the other one has all the time of the average. */
static void the_last_of_two_is_not_hurried(void **state) {
    (void)state;
    const int lacked[6] = {-1, -1, -1, 1, -1, -1}, late[6] = {0, 0, 0, 1, 0, 0};
    begin_pipelines();
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = 4});
    now += S;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    settle();
    step_once();
    assert_int_equal(strait_coordinator_n_replicas(&c, 1), 2);
    for (int i = 0; i < STAGES; i++)
        c.config.average_ns[i] = 2000 * S;
    c.config.deadline_ns = 60 * S;
    begin_average(lacked, late, 150);
    assert_int_equal(c.phase, STRAIT_PHASE_WORK);
    assert_true(c.workers[3].is_connected && c.workers[3].standing.n_opponents == 0);
    wait_for_late(lacked, late, 2000);
    assert_true(c.phase != STRAIT_PHASE_WORK && c.workers[3].is_connected);
}

/* A worker replies when its results are queued. They may take long to cross a slow link. */
static void the_last_one_waits_for_what_others_have_queued(void **state) {
    (void)state;
    const int lacked[6] = {-1, -1, -1, 1, -1, -1}, late[6] = {0, 0, 0, 1, 0, 0};
    begin_pipelines();
    for (int i = 0; i < STAGES; i++)
        c.config.average_ns[i] = 2000 * S;
    c.config.queue_ns = 100 * S;
    begin_average(lacked, late, 220);
    assert_int_equal(c.phase, STRAIT_PHASE_WORK);
    wait_for_late(lacked, late, 20);
    assert_int_equal(c.workers[3].standing.n_opponents, 1);
}

/* The same, after which two pipelines are left. */
static void average(const int *lacked, const int *late, int seconds) {
    begin_average(lacked, late, seconds);
    settle();
    for (int i = 0; i < 6; i++)
        assert_true(c.workers[i].is_connected && c.workers[i].n_penalties == 0);
    assert_int_equal(strait_coordinator_n_replicas(&c, 0), 2);
}

/* Everybody replies to an average but the worker `slot`, which waits for what `other` sends. */
static void dispute(int slot, int other) {
    int lacked[6] = {-1, -1, -1, -1, -1, -1}, late[6] = {0};
    lacked[slot] = other;
    late[slot] = 1;
    average(lacked, late, 60);
}

/* The pipeline that was left out comes back. */
static void take_back(int first, int second) {
    now += 10000 * S;
    for (int slot = 0; slot < 6; slot++)
        beat(slot, 0);
    complete(first, second);
    step_once();
    assert_int_equal(strait_coordinator_n_replicas(&c, 0), 3);
}

/* A worker lets its results trickle to one victim and says that it is done. The victim keeps its
 * link; of the two each is left out in turn, and one that does it to two others each time. */
static void one_that_sends_to_all_but_one_is_found(void **state) {
    (void)state;
    begin_pipelines();
    dispute(3, 5);
    assert_int_equal(strait_coordinator_stage_of(&c, 3), -1);
    take_back(2, 3);
    dispute(3, 5);
    assert_true(strait_coordinator_stage_of(&c, 3) == 1 && c.workers[5].replica == 0);
    take_back(4, 5);
    dispute(3, 5);
    assert_int_equal(strait_coordinator_stage_of(&c, 3), -1);
    take_back(2, 3);
    for (int i = 0; i < 3; i++) {
        dispute(1, 5); // an owner, which has not been in dispute with another
        assert_true(c.owner[1] == 1 && c.workers[5].replica == 0);
        take_back(4, 5);
    }
}

/* One that says so of two others, falsely, is left out itself each time. */
static void one_that_accuses_two_others_is_left_out(void **state) {
    (void)state;
    begin_pipelines();
    for (int i = 0; i < 6; i++) {
        const int other = i % 2 == 0 ? 1 : 3;
        if (i == 2) assert_int_equal(c.workers[5].standing.n_opponents, 2);
        dispute(5, other);
        if (i > 1 || i == 0) assert_int_equal(strait_coordinator_stage_of(&c, 5), -1);
        assert_int_equal(strait_coordinator_stage_of(&c, other), 1);
        take_back(4, 5);
    }
    /* A replica that there is not is nobody: the worker itself is late. */
    feed((strait_swarm_event){.kind = STRAIT_SWARM_GOAL, .goal = {.stage = -1, .is_average = 2}});
    for (int i = 0; i < 5; i++)
        reply(i, STRAIT_OK);
    for (int s = 0; s < 60 && c.workers[5].is_connected; s += 5) {
        now += 5 * S;
        for (int i = 0; i < 6; i++)
            heartbeat(i, c.workers[i].inventory, (uint32_t)s, i == 5 ? INT32_MAX : 0);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    }
    assert_false(c.workers[5].is_connected);
}

/* New keys that accuse one with far more steps are left out, and it is not noted. */
static void many_steps_protect_the_accused(void **state) {
    (void)state;
    begin_pipelines();
    c.workers[5].standing.n_steps = 1000;
    for (int i = 0; i < 3; i++) {
        dispute(3, 5);
        assert_true(is_left_out(3) && !is_left_out(5));
        assert_int_equal(c.workers[5].standing.n_opponents, 0);
        take_back(2, 3);
    }
}

/* Otherwise one with many steps would keep every newcomer out. */
static void many_steps_do_not_help_an_accuser(void **state) {
    (void)state;
    begin_pipelines();
    c.workers[5].standing.n_steps = 1000;
    dispute(5, 3);
    assert_true(is_left_out(5) && c.workers[5].standing.n_opponents == 1);
    take_back(4, 5);
    dispute(5, 3);
    assert_true(is_left_out(3) && c.workers[5].standing.alone_until_ns == 0);
    take_back(2, 3);
    dispute(5, 1); // another one
    assert_true(is_left_out(5) && c.workers[5].standing.alone_until_ns > now);
    take_back(4, 5);
    dispute(3, 5); // nor does its standing protect it any longer
    assert_true(is_left_out(5));
}

/* Two that are starved are not to blame either, whatever stages they have. */
static void two_that_wait_for_others_stay_connected(void **state) {
    (void)state;
    const struct {
        int victims[2], named[2];
    } cases[] = {{{2, 3}, {4, 5}}, {{0, 3}, {4, 5}}, {{1, 3}, {5, 5}}};
    for (int i = 0; i < 3; i++) {
        int lacked[6] = {-1, -1, -1, -1, -1, -1}, late[6] = {0};
        begin_pipelines();
        for (int k = 0; k < 2; k++) {
            lacked[cases[i].victims[k]] = cases[i].named[k];
            late[cases[i].victims[k]] = 1;
        }
        average(lacked, late, 2000);
    }
}

/* An owner that was not sent all parts has no results to send: the dispute is between it and the
 * one that it lacks them from. */
static void an_owner_that_lacks_parts_names_another(void **state) {
    (void)state;
    const int lacked[6] = {-1, -1, -1, 1, -1, 3}, late[6] = {0, 0, 0, 0, 0, 1};
    begin_pipelines();
    average(lacked, late, 60);
    assert_true(is_left_out(3) && !is_left_out(5));
    assert_int_equal(c.workers[5].standing.n_opponents, 0);
    assert_true(c.workers[3].standing.n_opponents == 1 && c.workers[1].standing.n_opponents == 1);
    take_back(2, 3);
    dispute(5, 3); // what was said in an earlier average counts no longer
    assert_int_equal(c.workers[5].standing.n_opponents, 1);
}

/* What a worker said counts in that phase alone. */
static void forgets_whom_a_worker_named(void **state) {
    (void)state;
    const int lacked[6] = {-1, -1, -1, 1, -1, -1}, late[6] = {0};
    begin_pipelines();
    begin_average(lacked, late, 5);
    assert_int_equal(c.workers[3].standing.awaited_replica, 1);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_GOAL, .goal = {.stage = -1, .is_average = 2}});
    assert_int_equal(c.workers[3].standing.awaited_replica, 0);
}

/* Two that lack parts of each other. */
static void owners_that_name_each_other_are_in_dispute(void **state) {
    (void)state;
    const int lacked[6] = {-1, 3, -1, 1, -1, 3}, late[6] = {0, 0, 0, 0, 0, 1};
    begin_pipelines();
    average(lacked, late, 60);
    assert_true(!is_left_out(5) && c.workers[5].standing.n_opponents == 0);
}

/* Only the one that was left out counts as such. */
static void counts_those_that_were_left_out(void **state) {
    (void)state;
    const int lacked[6] = {-1, 3, -1, -1, -1, -1}, late[6] = {0, 1, 0, 0, 0, 0};
    begin_pipelines();
    for (int i = 2; i < 6; i++)
        c.workers[i].keeps_state = 0; // nobody can take the place of the owners
    begin_average(lacked, late, 60);
    assert_true(!is_left_out(1) && is_left_out(3));
    assert_int_equal(c.workers[1].standing.n_lost, 0);
    assert_int_equal(c.workers[3].standing.n_lost, 1);
}

/* Reconnecting does not clear it; many steps do. */
static void remembers_disputes_of_those_that_come_back(void **state) {
    (void)state;
    begin_pipelines();
    dispute(3, 5);
    for (int slot = 3; slot < 6; slot += 2) {
        c.workers[slot].n_sent_away = 0; // which would be a reason of its own
        feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = slot});
        assert_true(c.workers[slot].is_known && c.workers[slot].standing.n_opponents == 1);
    }
    settle();
    for (int i = 0; i < 1024 + 2 * STRAIT_SWARM_CALM_STEPS; i++) {
        beat(0, 0);
        beat(1, 0);
        step_once();
    }
    assert_false(c.workers[3].is_known || c.workers[5].is_known);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_average_may_take_as_long_as_its_bytes),
        cmocka_unit_test(an_average_may_take_as_long_as_its_workers_wait),
        cmocka_unit_test(an_average_does_not_wait_for_one_silent_worker),
        cmocka_unit_test(an_average_takes_little_longer_than_recent_ones),
        cmocka_unit_test(the_last_of_two_is_not_hurried),
        cmocka_unit_test(the_last_one_waits_for_what_others_have_queued),
        cmocka_unit_test(one_that_sends_to_all_but_one_is_found),
        cmocka_unit_test(one_that_accuses_two_others_is_left_out),
        cmocka_unit_test(many_steps_protect_the_accused),
        cmocka_unit_test(many_steps_do_not_help_an_accuser),
        cmocka_unit_test(two_that_wait_for_others_stay_connected),
        cmocka_unit_test(an_owner_that_lacks_parts_names_another),
        cmocka_unit_test(forgets_whom_a_worker_named),
        cmocka_unit_test(owners_that_name_each_other_are_in_dispute),
        cmocka_unit_test(counts_those_that_were_left_out),
        cmocka_unit_test(remembers_disputes_of_those_that_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
