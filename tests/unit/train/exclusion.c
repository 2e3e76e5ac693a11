/* Who is left out of an average when replicas report that it is not complete: nobody for the word
 * of one, the cause where two agree, and never everybody. */
#include "train/pipeline/exclusion.h"

#include "check.h"

enum {
    A = 1,
    B = 2,
    C = 4,
    D = 8,
    ALL = A | B | C
};

static struct strait_exclusion x;
static strait_exclusion_report reports[STRAIT_RUN_REPLICAS];

static void begin(void) {
    strait_exclusion_begin(&x, NULL, 4);
}

static void restart(int is_trusting) {
    x = (struct strait_exclusion){.is_trusting = is_trusting};
    begin();
}

/* All replicas are complete but those that the test names next. */
static void all_complete(void) {
    for (int r = 0; r < STRAIT_RUN_REPLICAS; r++)
        reports[r] = (strait_exclusion_report){.is_complete = 1};
}

static void lacks(int replica, uint64_t missing, uint64_t withheld, uint64_t rejected) {
    reports[replica] = (strait_exclusion_report){0, missing, withheld, rejected};
}

static uint64_t attempt(uint64_t members, uint64_t alive) {
    strait_exclusion_note(&x, reports, members, alive, 1);
    all_complete();
    return strait_exclusion_members(&x, NULL, alive, alive);
}

static void one_report_costs_the_reporter(void **state) {
    (void)state;
    for (int is_result = 0; is_result < 2; is_result++) {
        restart(0);
        all_complete();
        lacks(2, is_result ? 0 : A | B, is_result ? A | B : 0, 0);
        assert_int_equal(attempt(ALL, ALL), A | B);
        assert_int_equal(strait_exclusion_gone(&x, ALL, ALL, 0), 0);
        /* It goes on saying so: in the end it goes, not those that it names. */
        lacks(2, 0, A | B, 0);
        assert_int_equal(attempt(A | B, ALL), A | B);
        assert_int_equal(strait_exclusion_gone(&x, A | B, ALL, 1), C);
    }
}

static void two_reports_leave_out_the_accused(void **state) {
    (void)state;
    restart(0);
    all_complete();
    lacks(0, B, 0, 0);
    lacks(2, B, 0, 0);
    lacks(1, A | C, 0, 0); // which is why it does not send
    assert_int_equal(attempt(ALL, ALL), A | C);
}

/* The chunk of the reporter gets another owner, which finds the same. The reporter is back. */
static void another_owner_confirms(void **state) {
    (void)state;
    restart(0);
    all_complete();
    lacks(0, B, 0, B);
    lacks(1, 0, A, 0); // they wait for the results of replica 0, which has none
    lacks(2, 0, A, 0);
    assert_int_equal(attempt(ALL, ALL), B | C);
    assert_int_equal(strait_exclusion_gone(&x, ALL, ALL, 0), 0);
    lacks(2, B, 0, B);
    assert_int_equal(attempt(B | C, ALL), A | C);
    assert_int_equal(strait_exclusion_gone(&x, B | C, ALL, 0), B); // two rejected its values
}

/* A replica that withholds from one other at a time is found at the second one. */
static void remembers_disputes_over_averages(void **state) {
    (void)state;
    restart(0);
    all_complete();
    lacks(0, B, 0, 0);
    assert_int_equal(attempt(ALL | D, ALL | D), B | C | D);
    begin();
    lacks(2, B, 0, 0);
    assert_int_equal(attempt(ALL | D, ALL | D), A | C | D);
    begin();
    lacks(0, C, 0, 0); // replica 0 was in dispute with one only, C with one as well
    assert_int_equal(attempt(ALL | D, ALL | D), B | C | D);
    /* What was held against a number is forgotten when others get it. */
    strait_exclusion_begin(&x, NULL, 1);
    begin();
    lacks(3, B, 0, 0);
    assert_int_equal(attempt(ALL | D, ALL | D), ALL);
}

/* One that withholds from a single other one, or accuses a single one: each of the two is left out
 * of every second average, whatever the others say in further attempts. */
static void the_same_two_are_left_out_in_turn(void **state) {
    (void)state;
    restart(0);
    all_complete();
    for (int i = 0; i < 6; i++) {
        const uint64_t expected = i % 2 == 0 ? B | C | D : A | C | D;
        begin();
        for (int again = 0; again < 3; again++) {
            lacks(0, B, 0, 0);
            assert_int_equal(attempt(ALL | D, ALL | D), expected);
        }
    }
    begin(); // one that accuses a third as well is not believed
    lacks(0, C, 0, 0);
    assert_int_equal(attempt(ALL | D, ALL | D), B | C | D);
    begin();
    lacks(0, B, 0, 0);
    assert_int_equal(attempt(ALL | D, ALL | D), B | C | D);
    begin();
    lacks(0, B, 0, 0);
    assert_int_equal(attempt(ALL | D, ALL | D), B | C | D);
}

/* Another pipeline with the label of one that is gone does not take the turn of that one. */
static void turns_end_with_a_pipeline(void **state) {
    (void)state;
    const int others[] = {1, 2, 3};
    restart(0);
    all_complete();
    lacks(0, B, 0, 0);
    assert_int_equal(attempt(ALL | D, ALL | D), B | C | D);
    strait_exclusion_begin(&x, others, 3);
    begin();
    lacks(0, B, 0, 0);
    assert_int_equal(attempt(ALL | D, ALL | D), B | C | D);
}

static void a_broken_link_costs_one_of_two(void **state) {
    (void)state;
    restart(0);
    all_complete();
    lacks(0, C, 0, 0);
    lacks(2, A, 0, 0);
    assert_int_equal(attempt(ALL, ALL), A | B);
}

/* One that withholds from a single other one and says the same of it, which the victim cannot
 * refute, has it left out of every second average; with a second victim it is found. */
static void two_that_accuse_each_other_are_left_out_in_turn(void **state) {
    (void)state;
    restart(0);
    all_complete();
    for (int i = 0; i < 6; i++) {
        const uint64_t expected = i % 2 == 0 ? A | B | D : B | C | D;
        begin();
        for (int again = 0; again < 3; again++) {
            lacks(0, 0, C, 0);
            lacks(2, 0, A, 0);
            assert_int_equal(attempt(ALL | D, ALL | D), expected);
        }
    }
    for (int i = 0; i < 2; i++) {
        begin();
        lacks(0, 0, D, 0);
        lacks(3, 0, A, 0);
        assert_int_equal(attempt(ALL | D, ALL | D), B | C | D);
    }
}

/* Of two, the accused is left out. In the third average in a row the later one goes for a while,
 * whether it accuses or is accused; also where it only goes on saying that it has nothing. */
static void of_two_the_later_goes_in_the_end(void **state) {
    (void)state;
    for (int accuser = 0; accuser < 2; accuser++) {
        const uint64_t accused = accuser == 0 ? B : A;
        restart(0);
        all_complete();
        for (int i = 0; i < 7; i++) {
            begin();
            if (i == 3) { // an average without a dispute: it begins anew
                (void)attempt(A | B, A | B);
                continue;
            }
            lacks(accuser, accused, 0, accused);
            assert_int_equal(attempt(A | B, A | B), (A | B) & ~accused);
            assert_int_equal(strait_exclusion_gone(&x, A | B, A | B, 0), i % 4 == 2 ? B : 0);
        }
        restart(0);
        lacks(accuser, 0, accused, 0);
        (void)attempt(A | B, A | B);
        assert_int_equal(strait_exclusion_gone(&x, A | B, A | B, 1), B);
    }
    restart(0); // a link that is down both ways
    lacks(0, B, 0, 0);
    lacks(1, A, 0, 0);
    assert_int_equal(attempt(A | B, A | B), A);
}

/* One that takes no results keeps all others from ending: it goes, however it answers itself. */
static void who_blocks_others_goes(void **state) {
    (void)state;
    for (int says_complete = 0; says_complete < 2; says_complete++) {
        restart(0);
        all_complete();
        lacks(0, 0, B, 0);
        lacks(2, 0, B, 0);
        if (!says_complete) lacks(1, A, 0, 0); // an excuse
        const uint64_t members = attempt(ALL, ALL);
        assert_int_equal(members, A | C);
        lacks(0, 0, B, 0);
        lacks(2, 0, B, 0);
        if (!says_complete) lacks(1, 0, A | C, 0);
        (void)attempt(members, ALL);
        assert_int_equal(strait_exclusion_gone(&x, members, ALL, 0), B);
    }
    restart(0);
    lacks(0, 0, B, 0);
    assert_int_equal(attempt(A | B, A | B), A);
    lacks(0, 0, B, 0);
    (void)attempt(A, A | B);
    assert_int_equal(strait_exclusion_gone(&x, A, A | B, 0), 0);
    assert_int_equal(strait_exclusion_gone(&x, A, A | B, 1), B);
}

/* Nobody has an average, and nobody says why: one goes on. A local run ends instead. */
static void never_leaves_out_everybody(void **state) {
    (void)state;
    for (int is_trusting = 0; is_trusting < 2; is_trusting++) {
        restart(is_trusting);
        for (int r = 0; r < 3; r++)
            lacks(r, 0, 0, 0);
        assert_int_equal(attempt(ALL, ALL), ALL);
        for (int r = 0; r < 3; r++)
            lacks(r, 0, 0, 0);
        (void)attempt(ALL, ALL);
        assert_int_equal(strait_exclusion_gone(&x, ALL, ALL, 1), is_trusting ? 0 : B | C);
        restart(is_trusting);
        lacks(0, 0, 0, 0);
        (void)attempt(A, A);
        assert_int_equal(strait_exclusion_gone(&x, A, A, 1), 0);
    }
}

static void a_local_run_believes_one(void **state) {
    (void)state;
    restart(1);
    all_complete();
    lacks(0, B, 0, 0);
    assert_int_equal(attempt(ALL, ALL), A | C);
    for (int i = 0; i < 2; i++) {
        begin();
        lacks(0, B, 0, 0);
        assert_int_equal(attempt(A | B, A | B), A);
    }
    lacks(1, A, 0, 0);
    assert_int_equal(attempt(A | B, A | B), A);
}

/* Bits of replicas that are not there mean nothing. */
static void ignores_numbers_that_nobody_has(void **state) {
    (void)state;
    restart(0);
    all_complete();
    lacks(0, UINT64_MAX, UINT64_MAX, UINT64_MAX);
    lacks(1, ~(uint64_t)ALL, ~(uint64_t)ALL, UINT64_MAX);
    assert_int_equal(attempt(ALL, ALL), B | C);
    assert_int_equal(strait_exclusion_gone(&x, ALL, ALL, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_report_costs_the_reporter),
        cmocka_unit_test(two_reports_leave_out_the_accused),
        cmocka_unit_test(another_owner_confirms),
        cmocka_unit_test(remembers_disputes_over_averages),
        cmocka_unit_test(the_same_two_are_left_out_in_turn),
        cmocka_unit_test(turns_end_with_a_pipeline),
        cmocka_unit_test(a_broken_link_costs_one_of_two),
        cmocka_unit_test(two_that_accuse_each_other_are_left_out_in_turn),
        cmocka_unit_test(of_two_the_later_goes_in_the_end),
        cmocka_unit_test(who_blocks_others_goes),
        cmocka_unit_test(never_leaves_out_everybody),
        cmocka_unit_test(a_local_run_believes_one),
        cmocka_unit_test(ignores_numbers_that_nobody_has)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
