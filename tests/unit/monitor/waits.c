/* waits.c - who waits for whom and the queues of links, from spans written by hand. */
#include "monitor/waits.h"

#include "check.h"

/* Three stages and two microbatches. The link of boundary 0 is slow: the second activation waits
 * for it, and the third stage waits for the second. */
static void test_finds_who_waits_for_whom(void **state) {
    (void)state;
    const strait_trainer_span spans[] = {
        {STRAIT_SPAN_FORWARD, 0, 0, 0, 1},    {STRAIT_SPAN_ACTIVATION, 0, 0, 1, 4},
        {STRAIT_SPAN_FORWARD, 0, 1, 1, 2},    {STRAIT_SPAN_FORWARD, 1, 0, 4, 5},
        {STRAIT_SPAN_ACTIVATION, 0, 1, 4, 7}, {STRAIT_SPAN_ACTIVATION, 1, 0, 5, 6},
        {STRAIT_SPAN_FORWARD, 2, 0, 6, 7},    {STRAIT_SPAN_BACKWARD, 2, 0, 7, 8},
        {STRAIT_SPAN_FORWARD, 1, 1, 7, 8},    {STRAIT_SPAN_GRADIENT, 2, 0, 8, 9},
        {STRAIT_SPAN_ACTIVATION, 1, 1, 8, 9}, {STRAIT_SPAN_INPUT, 1, 0, 9, 10},
        {STRAIT_SPAN_FORWARD, 2, 1, 9, 10},   {STRAIT_SPAN_GRADIENT, 1, 0, 10, 11},
        {STRAIT_SPAN_WEIGHTS, 1, 0, 10, 11},  {STRAIT_SPAN_BACKWARD, 0, 0, 11, 12},
        {STRAIT_SPAN_UPDATE, 2, -1, 20, 21},
    };
    strait_waits waits;
    strait_waits_find(spans, (int)(sizeof spans / sizeof *spans), 3, &waits);
    CHECK(waits.prev[0] == 0.0 && waits.next[0] == 1.0);
    /* 4 s for the first input, 2 s for the second, 1 s for the gradient. */
    CHECK_NEAR(waits.prev[1], 6.0 / 7.0, 1e-12);
    CHECK_NEAR(waits.next[1], 1.0 / 7.0, 1e-12);
    CHECK(waits.prev[2] == 1.0 && waits.next[2] == 0.0);
    assert_int_equal(waits.forward_queue[0], 1);
    assert_int_equal(waits.forward_queue[1], 0);
    assert_int_equal(waits.backward_queue[0], 0);
    assert_int_equal(waits.backward_queue[1], 0);
}

/* A stage computes a microbatch per second, and its link sends one in three seconds. */
static void test_counts_the_longest_queue(void **state) {
    (void)state;
    strait_trainer_span spans[20];
    for (int i = 0; i < 10; i++) {
        spans[2 * i] = (strait_trainer_span){STRAIT_SPAN_BACKWARD, 1, i, i, i + 1};
        spans[2 * i + 1] = (strait_trainer_span){STRAIT_SPAN_GRADIENT, 1, i, 1 + 3 * i, 5 + 3 * i};
    }
    strait_waits waits;
    strait_waits_find(spans, 20, 2, &waits);
    assert_int_equal(waits.backward_queue[0], 6); // after 10 s ten are computed, and four were sent
    assert_int_equal(waits.forward_queue[0], 0);
    CHECK(waits.prev[1] == 0.0 && waits.next[1] == 0.0);
    strait_waits_find(spans, 0, 2, &waits);
    assert_int_equal(waits.backward_queue[0], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_who_waits_for_whom),
        cmocka_unit_test(test_counts_the_longest_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
