/* When replicas that train on their own average their weights. */
#include "plan/outer.h"

#include "check.h"

static void sends_every_fragment_once_per_interval(void **state) {
    (void)state;
    for (int sync_every = 1; sync_every <= 12; sync_every++)
        for (int fragments = 1; fragments <= sync_every; fragments++) {
            const strait_outer_schedule s = {sync_every, fragments, 0, 1000};
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
    const strait_outer_schedule s = {0, 1, 0, 1000};
    for (int64_t done = 0; done < 100; done++)
        CHECK(strait_outer_sends(&s, done) == -1);
}

/* One fragment at a time: applied no later than the next one is sent. */
static void knows_what_is_in_flight(void **state) {
    (void)state;
    const strait_outer_schedule s = {10, 2, 3, 40};
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
    const strait_outer_schedule s = {10, 2, 3, 42}, off = {0, 1, 0, 42}, at_once = {10, 2, 0, 42};
    for (int64_t done = 1; done <= 42; done++) {
        const int is_sent = done % 5 == 0, is_applied = done % 5 == 3 && done > 5;
        CHECK(strait_outer_acts(&s, done) == (is_sent || is_applied || done == 42));
        CHECK(strait_outer_acts(&at_once, done) == (is_sent || done == 42));
        CHECK(!strait_outer_acts(&off, done));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sends_every_fragment_once_per_interval),
        cmocka_unit_test(never_sends_where_gradients_are_summed),
        cmocka_unit_test(knows_what_is_in_flight),
        cmocka_unit_test(knows_after_which_steps_something_happens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
