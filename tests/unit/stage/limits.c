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
    assert_true(strait_limits_pair_bps(&plan, bytes, 4, 0.0) == 0.0); // no step was predicted
}

/* Three replicas average two fragments of 2 MB, each over two links of 8 Mbit/s: 1 s, and a delay
 * of 10 ms to the owner and back. */
static void averages_take_what_their_bytes_take(void **state) {
    (void)state;
    const strait_outer_bytes_sent bytes = {.fragment = 2e6, .attention = 1e6};
    const double once = 1.0 + 0.02, attention = 0.5 + 0.02;
    CHECK_OK(make("stages.count=2", NULL, NULL));
    plan.replicas[0] = 1;
    plan.replicas[1] = 3;
    plan.emulate.rate_bps = 8e6;
    plan.emulate.delay_ns = 10000000;
    strait_outer_schedule *s = &plan.outer.schedule;
    *s = (strait_outer_schedule){.sync_every = 10, .fragments = 2, .steps = 100};
    assert_true(strait_limits_average_s(&plan, 0, bytes, 0.5) == 0.0); // it has no other replica
    CHECK_NEAR(strait_limits_average_s(&plan, 1, bytes, 0.5), 2 * once / 10, 1e-12);
    s->attention_every = 5;
    CHECK_NEAR(strait_limits_average_s(&plan, 1, bytes, 0.5), 2 * once / 10 + attention / 5, 1e-12);
    s->overlap = 1; // with a step of each fragment
    const double later = (2 * once - 2 * 0.5) / 10 + attention / 5;
    CHECK_NEAR(strait_limits_average_s(&plan, 1, bytes, 0.5), later, 1e-12);
    CHECK_NEAR(strait_limits_average_s(&plan, 1, bytes, 5.0), attention / 5, 1e-12);
    s->warmup = 25; // steps, each of which averages everything
    CHECK_NEAR(strait_limits_average_s(&plan, 1, bytes, 0.5),
               0.25 * (2 * once + attention) + 0.75 * later, 1e-12);
}

/* What the narrowest replica sends or receives takes longer than the links do. */
static void the_narrowest_replica_limits_averages(void **state) {
    (void)state;
    const strait_outer_bytes_sent bytes = {.fragment = 2e6};
    double up[4] = {1e3, 8e6, 0, 0}, down[4] = {1e3, 0, 0, 4e6}; // the first is of stage 0
    CHECK_OK(make("stages.count=2", NULL, NULL));
    plan.replicas[0] = 1;
    plan.replicas[1] = 3;
    memcpy(plan.up_bps, up, sizeof up);
    memcpy(plan.down_bps, down, sizeof down);
    plan.emulate.rate_bps = 8e6;
    plan.outer.schedule = (strait_outer_schedule){.sync_every = 10, .fragments = 1, .steps = 100};
    CHECK_NEAR(strait_limits_average_s(&plan, 1, bytes, 0.5), 4.0 / 10, 1e-12);
    plan.down_bps[3] = 0;
    CHECK_NEAR(strait_limits_average_s(&plan, 1, bytes, 0.5), 2.0 / 10, 1e-12);
    plan.up_bps[1] = 1e9;
    CHECK_NEAR(strait_limits_average_s(&plan, 1, bytes, 0.5), 1.0 / 10, 1e-12);
}

/* A window is divided among the replicas of its stage, and none of them gets nothing. */
static void divides_windows_among_replicas(void **state) {
    (void)state;
    int windows[3] = {7, 8, 1};
    CHECK_OK(make("stages.count=3", NULL, NULL));
    plan.replicas[0] = 2;
    plan.replicas[1] = 4;
    plan.replicas[2] = 3;
    strait_limits_divide_windows(&plan, windows);
    assert_true(windows[0] == 4 && windows[1] == 2 && windows[2] == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chooses_larger_windows_for_longer_delays),
        cmocka_unit_test(estimates_message_memory),
        cmocka_unit_test(names_what_limits_a_step),
        cmocka_unit_test(explains_a_step),
        cmocka_unit_test(metered_time_ignores_the_emulated_links),
        cmocka_unit_test(counts_what_a_pair_sends_for_averages),
        cmocka_unit_test(averages_take_what_their_bytes_take),
        cmocka_unit_test(the_narrowest_replica_limits_averages),
        cmocka_unit_test(divides_windows_among_replicas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
