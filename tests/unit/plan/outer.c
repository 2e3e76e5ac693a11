/* When replicas that train on their own average their weights. */
#include "plan/outer.h"

#include "check.h"

#include <math.h>

static void sends_every_fragment_once_per_interval(void **state) {
    (void)state;
    for (int sync_every = 1; sync_every <= 12; sync_every++)
        for (int fragments = 1; fragments <= sync_every; fragments++) {
            const strait_outer_schedule s = {sync_every, fragments, 0, 1000, 0, 0};
            for (int64_t from = 0; from < 3 * sync_every; from += sync_every) {
                int n_sent[12] = {0};
                for (int64_t done = from + 1; done <= from + sync_every; done++) {
                    const int f = strait_outer_sends(&s, done);
                    if (f >= 0) n_sent[f]++;
                }
                for (int f = 0; f < fragments; f++)
                    CHECK(n_sent[f] == 1);
            }
            CHECK(strait_outer_sends(&s, sync_every) == fragments - 1);
        }
}

static void never_sends_where_gradients_are_summed(void **state) {
    (void)state;
    const strait_outer_schedule s = {0, 1, 0, 1000, 0, 0};
    for (int64_t done = 0; done < 100; done++)
        CHECK(strait_outer_sends(&s, done) == -1);
}

/* One fragment at a time: applied no later than the next one is sent. */
static void knows_what_is_in_flight(void **state) {
    (void)state;
    const strait_outer_schedule s = {10, 2, 3, 40, 0, 0};
    int64_t at = -1;
    CHECK(strait_outer_in_flight(&s, 4, &at) == -1);
    for (int64_t done = 5; done < 8; done++) {
        CHECK(strait_outer_in_flight(&s, done, &at) == 0);
        CHECK(at == 5);
    }
    CHECK(strait_outer_in_flight(&s, 8, &at) == -1); // applied after step 8
    CHECK(strait_outer_in_flight(&s, 12, &at) == 1 && at == 10);
    CHECK(strait_outer_in_flight(&s, 40, &at) == -1); // the last step averages at once
}

static void knows_after_which_steps_something_happens(void **state) {
    (void)state;
    const strait_outer_schedule s = {10, 2, 3, 42, 0, 0}, off = {0, 1, 0, 42, 0, 0},
                                at_once = {10, 2, 0, 42, 0, 0};
    for (int64_t done = 1; done <= 42; done++) {
        const int is_sent = done % 5 == 0, is_applied = done % 5 == 3 && done > 5;
        CHECK(strait_outer_acts(&s, done) == (is_sent || is_applied || done == 42));
        CHECK(strait_outer_acts(&at_once, done) == (is_sent || done == 42));
        CHECK(!strait_outer_acts(&off, done));
    }
}

static void averages_everything_after_each_step_of_the_warmup(void **state) {
    (void)state;
    const strait_outer_schedule s = {10, 2, 3, 42, 7, 0};
    int64_t at = 0;
    for (int64_t done = 0; done <= 42; done++) {
        const int is_warm = done >= 1 && done <= 7;
        CHECK(strait_outer_is_whole(&s, done) == (is_warm || done == 42));
        CHECK(strait_outer_sends(&s, done) ==
              (done > 7 && (done - 7) % 5 == 0 ? ((done - 7) / 5 + 1) % 2 : -1));
        if (done <= 7) CHECK(strait_outer_in_flight(&s, done, &at) == -1);
        if (is_warm) CHECK(strait_outer_acts(&s, done));
    }
    CHECK(!strait_outer_acts(&s, 8) && !strait_outer_acts(&s, 10)); // nothing was sent before 12
    const strait_outer_bytes_sent half = {.fragment = 0.5};
    CHECK(fabs(strait_outer_step_bytes(&s, half) - (7.0 + 35.0 / 10.0) / 42.0) < 1e-12);
    const strait_outer_schedule plain = {10, 2, 3, 42, 0, 0};
    CHECK(strait_outer_step_bytes(&plain, half) == 1.0 / 10.0);
}

/* The matrices of attention are the part behind the two fragments. */
static void averages_attention_at_steps_of_its_own(void **state) {
    (void)state;
    const strait_outer_schedule s = {10, 2, 0, 42, 7, 3};
    const strait_outer_bytes_sent bytes = {.fragment = 5.0, .attention = 6.0};
    CHECK(strait_outer_n_parts(&s) == 3);
    for (int64_t done = 0; done <= 42; done++) {
        const int is_whole = (done >= 1 && done <= 7) || done == 42;
        const int is_own = done > 7 && (done - 7) % 3 == 0,
                  is_fragment = done > 7 && (done - 7) % 5 == 0;
        CHECK(strait_outer_is_sent(&s, 2, done) == (is_whole || is_own));
        CHECK(strait_outer_is_sent(&s, 0, done) ==
              (is_whole || (is_fragment && (done - 7) % 10 == 5)));
        CHECK(strait_outer_is_sent(&s, 1, done) ==
              (is_whole || (is_fragment && (done - 7) % 10 == 0)));
        CHECK(strait_outer_acts(&s, done) == (is_whole || is_own || is_fragment));
        const int last = is_whole || is_own ? 2 : is_fragment ? (done - 7) % 10 == 0 : -1;
        CHECK(strait_outer_last_sent(&s, done) == last);
    }
    CHECK(strait_outer_whole_bytes(&s, bytes) == 16.0);
    CHECK(fabs(strait_outer_step_bytes(&s, bytes) - (7.0 * 16.0 + 35.0 * (1.0 + 2.0)) / 42.0) <
          1e-12);
    const strait_outer_schedule off = {0, 1, 0, 42, 0, 0}, together = {10, 2, 0, 42, 7, 0};
    CHECK(strait_outer_last_sent(&off, 10) == -1 && strait_outer_n_parts(&together) == 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sends_every_fragment_once_per_interval),
        cmocka_unit_test(never_sends_where_gradients_are_summed),
        cmocka_unit_test(knows_what_is_in_flight),
        cmocka_unit_test(knows_after_which_steps_something_happens),
        cmocka_unit_test(averages_everything_after_each_step_of_the_warmup),
        cmocka_unit_test(averages_attention_at_steps_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
