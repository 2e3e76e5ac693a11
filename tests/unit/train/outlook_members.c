/* What one more replica of a stage would bring, and where newcomers should go. */
#include "train/outlook/outlook_members.h"

#include "../config/run_plan_rig.h"

enum {
    STAGES = 2
};

static struct strait_limits_pipeline pipeline;
static int windows[STAGES];
static int64_t n_values[STAGES];
static const strait_outlook_newcomer alike = {.speed = 1.0};

/* Two stages of 32 microbatches; `times` are of one, in seconds. Each message is 1 s on a wire of
 * 8 kb/s, and gradients are half as long. */
static strait_outlook_view look(const double *times) {
    strait_step_times each[STAGES] = {{0}};
    CHECK_OK(make("stages.count=2", "stages.microbatch=1", "stages.groups=32"));
    for (int i = 0; i < STAGES; i++) {
        each[i].forward = each[i].input = each[i].weights = times[i] / 3.0;
        windows[i] = 32;
        n_values[i] = 1;
    }
    strait_limits_pipeline(&plan, each, 1.0, 1000.0, 500.0, &pipeline);
    return (strait_outlook_view){&plan, &pipeline.pipe, n_values, windows, 1, NULL};
}

static void set_homes(double up_bps, double down_bps) {
    for (int i = 0; i < plan.n_members; i++) {
        plan.up_bps[i] = up_bps;
        plan.down_bps[i] = down_bps;
    }
}

/* Places a newcomer where it brings most, and returns the stage. */
static int grow(const strait_outlook_view *view, double *gain) {
    strait_outlook_more more;
    CHECK_OK(strait_outlook_members_more(view, &more));
    *gain = more.gain;
    assert_true(strait_outlook_members_add(&plan, more.stage, &alike, pipeline.stages, &plan));
    return more.stage;
}

/* Stage 0 sends activations at 12 units and stage 1 receives them at 15: 1+1, 2+1, 2+2, 3+2 and 3+3
 * replicas carry 12, 15, 24, 30 and 36. */
static void newcomers_go_where_the_wire_is_full(void **state) {
    (void)state;
    static const int stages[] = {0, 1, 0, 1};
    const double times[STAGES] = {1e-3, 1e-3};
    const strait_outlook_view view = look(times);
    set_homes(12e3, 15e3);
    for (int i = 0; i < 4; i++) {
        double gain;
        assert_int_equal(grow(&view, &gain), stages[i]);
        assert_true(gain > 1.08); // the groups are not shared evenly by three
    }
    assert_int_equal(plan.n_members, 6);
    CHECK_NEAR(plan.up_bps[5], 12e3, 0.0);
}

/* Where sender and receiver are alike, one alone brings nothing and two bring twice the speed. */
static void a_third_equal_home_brings_nothing(void **state) {
    (void)state;
    const double times[STAGES] = {1e-3, 1e-3};
    const strait_outlook_view view = look(times);
    double now, seconds[STAGES];
    strait_outlook_members step;
    set_homes(12e3, 12e3);
    CHECK_OK(strait_outlook_members_predict(&view, &step));
    now = step.seconds;
    for (int i = 0; i < STAGES; i++) {
        CHECK_OK(strait_outlook_members_with(&view, i, &alike, &seconds[i]));
        CHECK_NEAR(now / seconds[i], 1.0, 0.05);
    }
    assert_true(strait_outlook_members_add(&plan, 0, &alike, pipeline.stages, &plan));
    CHECK_OK(strait_outlook_members_with(&view, 1, &alike, &seconds[1]));
    CHECK_NEAR(now / seconds[1], 2.0, 0.15);
}

/* Without wires that limit it, a run is as slow as the stage that computes longest; a newcomer that
 * is faster than the others brings more. */
static void newcomers_go_where_computing_takes_longest(void **state) {
    (void)state;
    const double times[STAGES] = {1.0, 2.5};
    const strait_outlook_view view = look(times);
    const strait_outlook_newcomer fast = {.speed = 2.0};
    double seconds, faster, gain;
    CHECK_OK(strait_outlook_members_with(&view, 1, &alike, &seconds));
    CHECK_OK(strait_outlook_members_with(&view, 1, &fast, &faster));
    assert_true(faster < 0.9 * seconds);
    assert_int_equal(grow(&view, &gain), 1);
    CHECK_NEAR(gain, 2.0, 0.1);
    assert_int_equal(grow(&view, &gain), 1);
    assert_int_equal(grow(&view, &gain), 0);
}

/* Of the slow wire of a newcomer its stage gains less than of one like the others. */
static void a_narrow_home_brings_less(void **state) {
    (void)state;
    const double times[STAGES] = {1e-3, 1e-3};
    const strait_outlook_newcomer narrow = {
        .speed = 1.0, .has_home = 1, .up_bps = 3e3, .down_bps = 15e3};
    const strait_outlook_view view = look(times);
    double seconds, slower;
    set_homes(12e3, 40e3);
    CHECK_OK(strait_outlook_members_with(&view, 0, &alike, &seconds));
    CHECK_OK(strait_outlook_members_with(&view, 0, &narrow, &slower));
    assert_true(slower > 1.3 * seconds);
    assert_true(strait_outlook_members_add(&plan, 0, &narrow, pipeline.stages, &plan));
    CHECK_NEAR(plan.up_bps[0], 12e3, 0.0);
    CHECK_NEAR(plan.up_bps[1], 3e3, 0.0);
    CHECK_NEAR(plan.up_bps[2], 12e3, 0.0);
}

/* A slow link that was measured limits the run, whatever its stages compute; two replicas have two
 * of them. */
static void measured_links_count(void **state) {
    (void)state;
    const double times[STAGES] = {1e-3, 1e-3}, bps[STAGES] = {8e3};
    strait_outlook_view view = look(times);
    strait_outlook_members step;
    double seconds;
    CHECK_OK(strait_outlook_members_predict(&view, &step));
    const double computing = step.seconds;
    view.link_bps = bps;
    CHECK_OK(strait_outlook_members_predict(&view, &step));
    assert_true(step.seconds > 32.0 && step.seconds > 100.0 * computing);
    CHECK_OK(strait_outlook_members_with(&view, 1, &alike, &seconds));
    CHECK_NEAR(step.seconds / seconds, 2.0, 0.2);
}

/* Three stages: the delay of the second link is what limits the step, and no stage has it, not even
 * the last, whose home is slow too. */
static void names_the_slowest_link(void **state) {
    (void)state;
    strait_step_times each[3] = {{.forward = 1e-3}, {.forward = 1e-3}, {.forward = 1e-3}};
    int slots[3] = {32, 32, 32};
    int64_t values[3] = {1, 1, 1};
    strait_limit limit;
    CHECK_OK(make("stages.count=3", "stages.microbatch=1", "stages.groups=32"));
    strait_limits_pipeline(&plan, each, 1.0, 1000.0, 500.0, &pipeline);
    const strait_outlook_view view = {&plan, &pipeline.pipe, values, slots, 1, NULL};
    set_homes(1e6, 1e6);
    plan.down_bps[2] = 5e5;
    for (int i = 0; i < 2; i++) {
        pipeline.links[0].delay_s = i == 0 ? 1.0 : 100.0;
        pipeline.links[1].delay_s = i == 0 ? 100.0 : 1.0;
        CHECK_OK(strait_outlook_members_limit(&view, &limit));
        assert_int_equal(limit.kind, STRAIT_LIMIT_PROPAGATION);
        assert_int_equal(limit.where, 1 - i);
    }
}

static void a_stage_has_no_more_replicas_than_groups(void **state) {
    (void)state;
    const double times[STAGES] = {1.0, 1.0};
    strait_outlook_view view = look(times);
    double seconds = 0.0;
    plan.groups = strait_groups_make(32, 1, 1);
    assert_false(strait_outlook_members_add(&plan, 0, &alike, pipeline.stages, &plan));
    assert_int_equal(plan.n_members, STAGES);
    CHECK_OK(strait_outlook_members_with(&view, 0, &alike, &seconds));
    assert_true(seconds > 1e300);
}

static void only_newcomers_that_cost_nothing_are_worth_it(void **state) {
    (void)state;
    static const double gains[] = {0.8, 0.5, 0.4}, loss[] = {1.35, 1.3}, none[] = {1.01, 1.0, 1.3};
    static const double pairs[] = {1.1, 0.6, 0.7, 0.605}, turns[] = {0.7, 0.8, 0.9};
    assert_int_equal(strait_outlook_members_worth(1.0, gains, 3), 3);
    assert_int_equal(strait_outlook_members_worth(1.0, loss, 2), 0); // 0.74 times the speed
    assert_int_equal(strait_outlook_members_worth(1.0, none, 3), 2); // everyone computes
    assert_int_equal(strait_outlook_members_worth(1.0, pairs, 1), 0);
    assert_int_equal(strait_outlook_members_worth(1.0, pairs, 2), 2); // the second completes it
    assert_int_equal(strait_outlook_members_worth(1.0, pairs, 4), 4);
    assert_int_equal(strait_outlook_members_worth(1.0, turns, 3), 1);
    assert_int_equal(strait_outlook_members_worth(1.0, turns, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(newcomers_go_where_the_wire_is_full),
        cmocka_unit_test(a_third_equal_home_brings_nothing),
        cmocka_unit_test(newcomers_go_where_computing_takes_longest),
        cmocka_unit_test(a_narrow_home_brings_less),
        cmocka_unit_test(measured_links_count),
        cmocka_unit_test(names_the_slowest_link),
        cmocka_unit_test(a_stage_has_no_more_replicas_than_groups),
        cmocka_unit_test(only_newcomers_that_cost_nothing_are_worth_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
