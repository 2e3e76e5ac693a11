/* What an exchange of weights leaves for the next attempt and the next step: rejections, and what
 * was counted against a sender, are forgotten; messages that come late are dropped. And when it is
 * over: once everything has left, and nobody who may still send is given up. */
#include "outer_rig.h"
#include "stage/outer/outer_state.h"

enum {
    WHOLE = STRAIT_OUTER_CHUNK * sizeof(float),
    LAST = 77 * sizeof(float), // of chunk 3
    UNKNOWN = 3                // no message of an exchange holds that
};

static void begin_attempt(int attempt) {
    begin(0, (strait_outer_exchange){.step = 1, .attempt = attempt, .members = BOTH});
}

static void deliver_of(int attempt, int flags, int chunk, size_t bytes) {
    struct strait_msg *msg = make_message(flags, chunk, 1, bytes);
    msg->basis = (uint16_t)attempt;
    deliver(msg);
}

/* How often replica 1 will be told that it gets no results. */
static int count_told(void) {
    int n = 0;
    for (const struct strait_msg *m = sides[0].outer->outgoing[1].first; m != NULL; m = m->next)
        n += m->flags == HOLDS_NOTHING;
    return n;
}

/* However many bad messages one sends, it costs one answer in each attempt. */
static void a_rejection_ends_with_its_attempt(void **state) {
    (void)state;
    open_both(32, 1, 0);
    for (int attempt = 0; attempt < 3; attempt++) {
        begin_attempt(attempt);
        CHECK(strait_outer_rejected(sides[0].outer) == 0 && count_told() == 0);
        deliver_of(attempt, HOLDS_PART, 0, WHOLE);
        CHECK(strait_outer_delivered(sides[0].outer) == (uint64_t)attempt + 1);
        for (int i = 0; i < 3; i++) {
            deliver_of(attempt, UNKNOWN, 0, WHOLE);
            CHECK(strait_outer_rejected(sides[0].outer) == 2 && count_told() == 1);
        }
    }
    close_both();
}

/* That a replica has no results is news once in each attempt. */
static void a_replica_without_results_has_them_in_the_next_attempt(void **state) {
    (void)state;
    open_both(32, 1, 0);
    for (int attempt = 0; attempt < 2; attempt++) {
        begin_attempt(attempt);
        for (int i = 0; i < 3; i++)
            deliver_of(attempt, HOLDS_NOTHING, 0, 0);
        CHECK(strait_outer_delivered(sides[0].outer) == (uint64_t)attempt + 1);
    }
    close_both();
}

/* The limit of what one sender may send in all is one of an attempt. */
static void sizes_of_an_earlier_attempt_do_not_count(void **state) {
    (void)state;
    for (int is_result = 0; is_result < 2; is_result++) {
        open_both(32, 1, 0);
        train(0);
        for (int attempt = 0; attempt < 3; attempt++) {
            begin_attempt(attempt);
            const double most = STRAIT_OUTER_MOST * sides[0].outer->yardstick * (1 + is_result);
            struct strait_msg *msg = make_message(is_result, is_result, 1, WHOLE);
            msg->basis = (uint16_t)attempt;
            *(float *)(void *)msg->body = (float)(0.8 * most);
            deliver(msg);
            CHECK(strait_outer_rejected(sides[0].outer) == 0);
        }
        close_both();
    }
}

/* Its sender did nothing wrong. */
static void drops_a_message_of_the_exchange_that_was_applied(void **state) {
    (void)state;
    open_both(32, 1, 0);
    train(0);
    train(1);
    average(1, BOTH);
    const uint64_t n_delivered = strait_outer_delivered(sides[0].outer);
    deliver_of(0, HOLDS_PART, 0, WHOLE);
    CHECK(strait_outer_rejected(sides[0].outer) == 0);
    CHECK(strait_outer_delivered(sides[0].outer) == n_delivered);
    close_both();
}

/* A replica that is always one exchange ahead never uses up its share of the memory. */
static void counts_messages_ahead_of_time_anew(void **state) {
    (void)state;
    open_both(32, 1, 0);
    for (int step = 1; step <= 40; step++) {
        deliver(make_message(HOLDS_PART, 0, step, WHOLE));
        CHECK(strait_outer_rejected(sides[0].outer) == 0);
        begin(0, (strait_outer_exchange){.step = step, .members = BOTH});
        CHECK(strait_outer_delivered(sides[0].outer) == (uint64_t)step);
    }
    close_both();
}

/* They came from peers of a mesh that is gone, or belong to a run that was begun again. */
static void forgets_messages_ahead_of_time(void **state) {
    (void)state;
    for (int is_restart = 0; is_restart < 2; is_restart++) {
        open_both(32, 1, 0);
        deliver(make_message(HOLDS_PART, 0, 1, WHOLE));
        if (is_restart)
            CHECK_OK(strait_outer_restart(sides[0].outer, &sides[0].stream));
        else
            strait_outer_set_replica(sides[0].outer, 0);
        begin_attempt(0);
        CHECK(strait_outer_delivered(sides[0].outer) == 0);
        CHECK(strait_outer_missing(sides[0].outer) == 2);
        close_both();
    }
}

static void rejects_a_part_of_one_that_is_no_member(void **state) {
    (void)state;
    open_both(32, 1, 0);
    begin(0, (strait_outer_exchange){.step = 1, .members = 1});
    deliver(make_message(HOLDS_PART, 0, 1, WHOLE));
    CHECK(strait_outer_rejected(sides[0].outer) == 2);
    CHECK(strait_outer_delivered(sides[0].outer) == 0);
    close_both();
}

static void send_all(void) {
    int is_blocked = 1;
    while (sides[0].outer->outgoing[1].first != NULL || is_blocked)
        CHECK_OK(strait_outer_progress(sides[0].outer, &is_blocked));
}

/* All results are here, but the other replica waits for this one's. */
static void is_complete_once_everything_has_left(void **state) {
    (void)state;
    open_both(32, 1, 0);
    begin_attempt(0);
    for (int chunk = 0; chunk < 4; chunk++)
        deliver_of(0, chunk % 2, chunk, chunk == 3 ? LAST : WHOLE);
    deliver_of(0, HOLDS_NOTHING, 0, 0); // it cannot be waited for, but served
    CHECK_OK(strait_outer_sum_ready(sides[0].outer));
    CHECK(strait_outer_missing(sides[0].outer) == 0);
    CHECK(strait_outer_withheld(sides[0].outer) == 2);
    CHECK(!strait_outer_is_complete(sides[0].outer));
    CHECK(!strait_outer_is_settled(sides[0].outer));
    send_all();
    CHECK(strait_outer_withheld(sides[0].outer) == 0);
    CHECK(strait_outer_is_complete(sides[0].outer) && strait_outer_is_settled(sides[0].outer));
    close_both();
}

/* One that has no results for others may still send its parts. */
static void waits_for_parts_of_one_without_results(void **state) {
    (void)state;
    open_both(32, 1, 0);
    begin_attempt(0);
    deliver_of(0, HOLDS_NOTHING, 0, 0);
    send_all();
    CHECK(!strait_outer_is_settled(sides[0].outer));
    for (int chunk = 0; chunk < 4; chunk += 2)
        deliver_of(0, HOLDS_PART, chunk, WHOLE);
    send_all();
    CHECK(strait_outer_withheld(sides[0].outer) == 2);
    CHECK(strait_outer_is_settled(sides[0].outer) && !strait_outer_is_complete(sides[0].outer));
    close_both();
}

int main(void) {
    is_wary = 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rejection_ends_with_its_attempt),
        cmocka_unit_test(a_replica_without_results_has_them_in_the_next_attempt),
        cmocka_unit_test(sizes_of_an_earlier_attempt_do_not_count),
        cmocka_unit_test(drops_a_message_of_the_exchange_that_was_applied),
        cmocka_unit_test(counts_messages_ahead_of_time_anew),
        cmocka_unit_test(forgets_messages_ahead_of_time),
        cmocka_unit_test(rejects_a_part_of_one_that_is_no_member),
        cmocka_unit_test(is_complete_once_everything_has_left),
        cmocka_unit_test(waits_for_parts_of_one_without_results)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
