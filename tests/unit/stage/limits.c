/* Windows, message memory, limits and metered times that follow from a plan and measured times. */
#include "stage/limits.h"

#include "../config/run_plan_rig.h"

/* Stages that take one millisecond for each pass. */
static void equal_times(strait_step_times times[8]) {
    for (int i = 0; i < 8; i++)
        times[i] = (strait_step_times){.forward = 1e-3, .input = 1e-3, .weights = 1e-3};
}

static void chooses_larger_windows_for_longer_delays(void **state) {
    (void)state;
    strait_step_times times[8];
    const double unmeasured[4] = {0.0};
    const double measured[4] = {5e-3, 5e-3, 5e-3, 0.0};
    int near[4];
    int far[4];
    int found[4];
    double fast = 0.0;
    double slow = 0.0;
    equal_times(times);
    CHECK_OK(make("stages.count=4", "stages.schedule=1f1b-window", "stages.microbatch=1"));
    CHECK_OK(strait_limits_windows(&plan, 0, times, unmeasured, NULL, near, &fast));
    CHECK_OK(strait_limits_windows(&plan, 0, times, measured, NULL, found, &slow));
    plan.emulate.delay_ns = 5000000;
    CHECK_OK(strait_limits_windows(&plan, 0, times, unmeasured, NULL, far, &slow));
    assert_true(far[0] > near[0] && near[0] >= near[3]);
    assert_memory_equal(far, found, sizeof far); // same result, measured or configured
    assert_true(slow < fast && slow > 0.0);
    plan.emulate.jitter_ns = 5000000; // not visible in the shortest round trip
    CHECK_OK(strait_limits_windows(&plan, 0, times, measured, NULL, far, &slow));
    assert_true(far[0] > found[0]);
    plan.emulate.jitter_ns = 0;
    plan.emulate.loss = 0.1;
    CHECK_OK(strait_limits_windows(&plan, 0, times, measured, NULL, far, &slow));
    assert_true(far[0] > found[0]);
    plan.emulate.loss = 0.0;
    CHECK_OK(strait_limits_windows(&plan, 3, times, unmeasured, NULL, far, &slow));
    for (int i = 0; i < 4; i++)
        assert_int_equal(far[i], 3);
    CHECK_OK(strait_limits_windows(&plan, 1000, times, unmeasured, NULL, far, &slow));
    assert_int_equal(far[0], 32); // capped by the number of microbatches
}

/* Messages pile up before the slow part, be it a stage or a link; in a validation no window limits
 * them. */
static void estimates_message_memory(void **state) {
    (void)state;
    strait_step_times times[8];
    const int narrow[2] = {1, 1}, wide[2] = {32, 32};
    size_t few[2], many[2];
    equal_times(times);
    CHECK_OK(make("stages.count=1", NULL, NULL));
    CHECK_OK(strait_limits_messages(&run, &plan, narrow, times, 100, few));
    assert_int_equal(few[0], 0);
    CHECK_OK(make("stages.count=2", "stages.microbatch=1", "stages.schedule=1f1b-window"));
    const size_t size = strait_codec_wire_bytes(&plan.codec, STRAIT_FORWARD);
    const size_t one = strait_msg_bytes(size);
    times[1].forward *= 10.0; // messages wait there
    CHECK_OK(strait_limits_messages(&run, &plan, narrow, times, 0, few));
    CHECK_OK(strait_limits_messages(&run, &plan, wide, times, 0, many));
    assert_true(many[1] > few[1] + 20 * one && many[0] < few[0] + 5 * one);
    plan.emulate.rate_bps = 8.0 * (double)size / 1e-1;
    CHECK_OK(strait_limits_messages(&run, &plan, narrow, times, 0, few));
    CHECK_OK(strait_limits_messages(&run, &plan, wide, times, 0, many));
    assert_true(many[0] > few[0] + 20 * one && many[1] < few[1] + 5 * one);
    CHECK_OK(strait_limits_messages(&run, &plan, narrow, times, 320, many));
    assert_true(many[0] > few[0] + 200 * one);
}

static const char *name_of(const int *windows, const strait_step_times *times, int knows_links,
                           double forward_bytes, double backward_bytes) {
    const strait_step_measure measure = {windows, times, knows_links, forward_bytes,
                                         backward_bytes};
    strait_step_limit limit;
    strait_limits_explain(&plan, &measure, NULL, 0, &limit);
    return limit.name;
}

static void names_what_limits_a_step(void **state) {
    (void)state;
    strait_step_times times[8];
    int windows[2] = {32, 32};
    equal_times(times);
    for (int i = 0; i < 2; i++) {
        times[i].forward *= 32.0;
        times[i].input *= 32.0;
        times[i].weights *= 32.0;
    }
    CHECK_OK(make("stages.count=2", "stages.microbatch=1", NULL));
    assert_string_equal(name_of(windows, times, 1, 1e4, 1e4), "compute");
    times[1].wall = 3.0 * (times[0].forward + times[0].input + times[0].weights);
    assert_string_equal(name_of(windows, times, 0, 1e4, 1e4), "links");
    assert_string_equal(name_of(windows, times, 1, 1e4, 1e4), "compute");
    times[1].wall /= 2.0;
    assert_string_equal(name_of(windows, times, 0, 1e4, 1e4), "compute");
    plan.emulate.rate_bps = 1e6;
    assert_string_equal(name_of(windows, times, 1, 1e6, 1e6), "serialisation");
    plan.emulate.rate_bps = 0.0;
    plan.emulate.delay_ns = 2000000000;
    assert_string_equal(name_of(windows, times, 1, 1e4, 1e4), "propagation");
    plan.emulate.delay_ns = 1000000;
    assert_string_equal(name_of(windows, times, 1, 1e4, 1e4), "compute");
    plan.emulate.jitter_ns = 2000000000;
    assert_string_equal(name_of(windows, times, 1, 1e4, 1e4), "propagation");
}

/* The costs of a slow wire, and the spans of 32 microbatches: forward, input and weights on two
 * stages, one message each way, and two updates. */
static void explains_a_step(void **state) {
    (void)state;
    strait_step_times times[8];
    int windows[2] = {32, 32};
    strait_simulate_span spans[32 * 8 + 2];
    strait_step_limit limit;
    equal_times(times);
    CHECK_OK(make("stages.count=2", "stages.microbatch=1", NULL));
    plan.emulate.rate_bps = 1e6;
    const strait_step_measure measure = {windows, times, 1, 1e6, 1e6};
    strait_limits_explain(&plan, &measure, spans, 32 * 8 + 2, &limit);
    assert_string_equal(limit.name, "serialisation");
    assert_int_equal(limit.where, 0);
    /* A megabyte takes 8 s each way, and the two ways overlap. */
    assert_true(limit.seconds[STRAIT_LIMIT_SERIALISATION] > 7.9 && limit.links_s == 0.0);
    assert_int_equal(limit.n_spans, 32 * 8 + 2);
    int n_messages = 0;
    for (int i = 0; i < limit.n_spans; i++)
        n_messages += spans[i].what == STRAIT_SIM_ACTIVATION ||
                      spans[i].what == STRAIT_SIM_GRADIENT;
    assert_int_equal(n_messages, 64);
    strait_limits_explain(&plan, &measure, spans, 5, &limit);
    assert_int_equal(limit.n_spans, 5);
}

/* Two stages, 32 microbatches of 250 bytes, 10 ms per message at 200 kb/s: each stage receives
 * 32 of them one after the other, and each one incurs the delay. */
static void metered_time_ignores_the_emulated_links(void **state) {
    (void)state;
    strait_step_times times[8];
    int windows[2] = {32, 32};
    memset(times, 0, sizeof times);
    CHECK_OK(make("stages.count=2", "stages.microbatch=1", "stages.schedule=fill-drain"));
    assert_true(strait_limits_metered(&plan, windows, times, 32 * 250, 32 * 250) == 0.0);
    CHECK_OK(make("stages.count=2", "stages.microbatch=1", "link.meter.rate=200kbit"));
    plan.schedule = STRAIT_SCHEDULE_FILL;
    plan.emulate.delay_ns = 7000000000; // of the emulated link; must not matter
    /* The last gradient overlaps with nothing, nor does the round trip of the gradient norm. */
    CHECK_NEAR(strait_limits_metered(&plan, windows, times, 32 * 250, 32 * 250),
               32 * (0.01 + 0.05) + (0.01 + 0.05) + 2 * 0.05, 1e-9);
}

/* Of 4 replicas each sends 3 others 1.5 MB in each of 2 parts per interval of 10 steps of 2 s. */
static void counts_what_a_pair_sends_for_averages(void **state) {
    (void)state;
    const strait_outer_bytes_sent bytes = {.fragment = 1.5e6};
    CHECK_OK(make("train.outer.sync_every=10", "train.outer.fragments=2", NULL));
    CHECK_NEAR(strait_limits_pair_bps(&plan, bytes, 4, 2.0), 8 * 1.5e6 * 2 / 3 / 20, 1e-6);
    assert_true(strait_limits_pair_bps(&plan, bytes, 1, 2.0) == 0.0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chooses_larger_windows_for_longer_delays),
        cmocka_unit_test(estimates_message_memory),
        cmocka_unit_test(names_what_limits_a_step),
        cmocka_unit_test(explains_a_step),
        cmocka_unit_test(metered_time_ignores_the_emulated_links),
        cmocka_unit_test(counts_what_a_pair_sends_for_averages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
