/* The hours of the day in which a machine is lent. */
#include "swarm/worker/hours.h"

#include "check.h"

static strait_hours parse(const char *text) {
    strait_hours hours = {-1, -1};
    CHECK_OK(strait_hours_parse(text, &hours));
    return hours;
}

static void a_range_contains_its_begin_and_not_its_end(void **state) {
    const strait_hours day = parse("9:30-17");
    (void)state;
    CHECK(!strait_hours_contains(&day, 9 * 60 + 29) && strait_hours_contains(&day, 9 * 60 + 30));
    CHECK(strait_hours_contains(&day, 16 * 60 + 59) && !strait_hours_contains(&day, 17 * 60));
    CHECK(!strait_hours_contains(&day, 0));
}

static void a_range_may_span_midnight(void **state) {
    const strait_hours night = parse("22-7");
    const strait_hours evening = parse("18-24");
    (void)state;
    CHECK(strait_hours_contains(&night, 22 * 60) && strait_hours_contains(&night, 0));
    CHECK(strait_hours_contains(&night, 6 * 60 + 59) && !strait_hours_contains(&night, 7 * 60));
    CHECK(!strait_hours_contains(&night, 12 * 60));
    CHECK(strait_hours_contains(&evening, 23 * 60 + 59) && !strait_hours_contains(&evening, 0));
}

static void refuses_what_is_no_range(void **state) {
    static const char *const bad[] = {"",        "22",       "22-",   "-7",   "22-7 ",
                                      "25-7",    "22-24:01", "7-7",   "0-24", "9:5-17",
                                      "9:60-17", "a-b",      "22 - 7"};
    strait_hours hours;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_FAILS(strait_hours_parse(bad[i], &hours), STRAIT_ECONFIG, "such as 22-7");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_range_contains_its_begin_and_not_its_end),
                                       cmocka_unit_test(a_range_may_span_midnight),
                                       cmocka_unit_test(refuses_what_is_no_range)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
