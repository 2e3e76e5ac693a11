/* Tests how fast a link is said to be: steady, bursty, slow and stalled ones. */
#include "swarm/worker/rate_meter.h"

#include "check.h"

static const int64_t s = 1000000000, ms = 1000000;
static strait_rate_meter meter;

/* Arrivals of `bytes` every `every_ns` from `from` to `until`; 0 is the beginning. */
static void arrive(double bytes, int64_t from, int64_t until, int64_t every_ns) {
    for (int64_t t = from; t < until; t += every_ns)
        strait_rate_meter_add(&meter, bytes, s + t);
}

static double rate_of(void) {
    return strait_rate_meter_bps(&meter, s + 4 * s);
}

static int begin(void **state) {
    (void)state;
    strait_rate_meter_init(&meter, s, s + 2 * s, 250 * ms);
    return 0;
}

static void steady_links_have_their_rate(void **state) {
    (void)state;
    arrive(4096, 0, 4 * s, 7 * ms);
    CHECK_NEAR(rate_of() / (4096 * 8 / 7e-3), 1.0, 1e-6);
}

/* A connection that speeds up, or a bucket that was full, is forgotten after the warm-up. */
static void warm_up_does_not_count(void **state) {
    (void)state;
    arrive(1e6, 0, s, ms);
    arrive(1000, s, 4 * s, 10 * ms);
    CHECK_NEAR(rate_of() / 8e5, 1.0, 1e-6);
}

/* One pause, or one burst of what a relay had kept, moves no median. */
static void median_ignores_single_slices(void **state) {
    (void)state;
    arrive(1000, 0, 5 * s / 2, 10 * ms);
    strait_rate_meter_add(&meter, 1e7, s + 5 * s / 2);
    arrive(1000, 3 * s, 4 * s, 10 * ms);
    CHECK_NEAR(rate_of() / 8e5, 1.0, 0.05);
}

/* 4 KiB in 3 s: no slice ends, and all of it counts. */
static void slowest_links_have_their_mean(void **state) {
    (void)state;
    strait_rate_meter_add(&meter, 4096, s + 3 * s);
    CHECK_NEAR(rate_of(), 4096 * 8 / 4.0, 1.0);
    begin(state);
    CHECK_NEAR(rate_of(), 0.0, 0.0);
}

static void stalled_links_are_slow(void **state) {
    (void)state;
    arrive(1000, 0, 2 * s + 300 * ms, 10 * ms);
    CHECK(rate_of() < 5e5); // it carried 800 kbit/s for 0.3 s, then nothing for 1.7 s
    CHECK(rate_of() > 0.0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(steady_links_have_their_rate, begin),
        cmocka_unit_test_setup(warm_up_does_not_count, begin),
        cmocka_unit_test_setup(median_ignores_single_slices, begin),
        cmocka_unit_test_setup(slowest_links_have_their_mean, begin),
        cmocka_unit_test_setup(stalled_links_are_slow, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
