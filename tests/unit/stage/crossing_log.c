/* The log of crossings that were sent: a bounded ring over steps. */
#include "stage/boundary/crossing_log.h"

#include "base/alloc.h"
#include "check.h"

#include <string.h>

enum {
    BYTES = 24,
    MICROBATCHES = 3,
    STEPS = 4
};

static struct strait_crossing_log *log_of(int n_steps) {
    struct strait_crossing_log *log = NULL;
    const strait_crossing_log_spec spec = {BYTES, MICROBATCHES,
                                           (size_t)n_steps * BYTES * MICROBATCHES};
    CHECK_OK(strait_crossing_log_open(&spec, &log));
    return log;
}

static void put(struct strait_crossing_log *log, int64_t step, int microbatch) {
    unsigned char data[BYTES];
    memset(data, (int)(16 * step + microbatch), sizeof data);
    strait_crossing_log_put(log, step, microbatch, (uint16_t)(100 + step), data);
}

static void put_step(struct strait_crossing_log *log, int64_t step) {
    strait_crossing_log_begin(log, step);
    for (int m = 0; m < MICROBATCHES; m++)
        put(log, step, m);
}

static void gives_back_what_was_put(void **state) {
    (void)state;
    struct strait_crossing_log *log = log_of(STEPS);
    for (int64_t step = 0; step < 3; step++)
        put_step(log, step);
    for (int64_t step = 0; step < 3; step++) {
        for (int m = 0; m < MICROBATCHES; m++) {
            const strait_crossing_view view = strait_crossing_log_find(log, step, m);
            assert_non_null(view.data);
            assert_int_equal(view.bytes, BYTES);
            assert_int_equal(view.basis, 100 + step);
            assert_int_equal(view.data[0], 16 * step + m);
            assert_int_equal(view.data[BYTES - 1], 16 * step + m);
        }
    }
    assert_null(strait_crossing_log_find(log, 3, 0).data);
    assert_null(strait_crossing_log_find(log, 0, MICROBATCHES).data);
    assert_null(strait_crossing_log_find(log, 0, -1).data);
    assert_null(strait_crossing_log_find(log, -1, 0).data);
    strait_crossing_log_close(&log);
    assert_null(log);
}

static void drops_the_oldest_step_when_full(void **state) {
    (void)state;
    struct strait_crossing_log *log = log_of(STEPS);
    const int64_t n_allocations = strait_alloc_count();
    for (int64_t step = 0; step < 11; step++)
        put_step(log, step);
    assert_int_equal(strait_alloc_count(), n_allocations);
    for (int64_t step = 0; step < 11; step++)
        assert_int_equal(strait_crossing_log_has(log, step), step >= 11 - STEPS);
    assert_int_equal(strait_crossing_log_first(log, 11), 11 - STEPS);
    strait_crossing_log_close(&log);
}

/* A step that was interrupted ends what can be replayed, and is complete when computed again. */
static void knows_which_steps_are_complete(void **state) {
    (void)state;
    struct strait_crossing_log *log = log_of(STEPS);
    put_step(log, 0);
    put_step(log, 1);
    strait_crossing_log_begin(log, 2);
    put(log, 2, 1);
    assert_false(strait_crossing_log_has(log, 2));
    assert_int_equal(strait_crossing_log_first(log, 2), 0);
    assert_int_equal(strait_crossing_log_first(log, 3), 3);
    put(log, 2, 1); // twice is once
    put(log, 2, 0);
    assert_false(strait_crossing_log_has(log, 2));
    put(log, 2, 2);
    assert_true(strait_crossing_log_has(log, 2));
    assert_int_equal(strait_crossing_log_first(log, 3), 0);
    strait_crossing_log_begin(log, 2);
    assert_null(strait_crossing_log_find(log, 2, 1).data);
    strait_crossing_log_close(&log);
}

/* A stage that goes back computes later steps again: what it sent in them is not replayed. */
static void forgets_later_steps_when_it_goes_back(void **state) {
    (void)state;
    struct strait_crossing_log *log = log_of(STEPS);
    for (int64_t step = 0; step < 4; step++)
        put_step(log, step);
    put_step(log, 1);
    assert_true(strait_crossing_log_has(log, 0) && strait_crossing_log_has(log, 1));
    assert_false(strait_crossing_log_has(log, 2) || strait_crossing_log_has(log, 3));
    put(log, 3, 0); // of a step that was not begun
    assert_null(strait_crossing_log_find(log, 3, 0).data);
    strait_crossing_log_clear(log);
    assert_false(strait_crossing_log_has(log, 0));
    strait_crossing_log_close(&log);
}

static void stays_within_its_bytes(void **state) {
    (void)state;
    const size_t step = (size_t)BYTES * MICROBATCHES;
    const strait_crossing_log_spec cases[] = {{BYTES, MICROBATCHES, step - 1},
                                              {BYTES, MICROBATCHES, step},
                                              {BYTES, MICROBATCHES, 3 * step - 1},
                                              {BYTES, MICROBATCHES, (size_t)1 << 40},
                                              {0, MICROBATCHES, 1000}};
    static const int n_steps[] = {0, 1, 2, STRAIT_CROSSING_STEPS_MAX, 0};
    struct strait_crossing_log *log = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(strait_crossing_log_steps(&cases[i]), n_steps[i]);
        assert_int_equal(strait_crossing_log_bytes(&cases[i]), (size_t)n_steps[i] * step);
        assert_true(strait_crossing_log_bytes(&cases[i]) <= cases[i].bytes_max);
    }
    CHECK_FAILS(strait_crossing_log_open(&cases[0], &log), STRAIT_EINVAL, "at least one step");
    assert_null(log);
}

static void hashes_a_step_in_the_order_of_microbatches(void **state) {
    (void)state;
    struct strait_crossing_log *log = log_of(STEPS);
    unsigned char all[MICROBATCHES][BYTES];
    strait_digest expected;
    strait_digest got;
    strait_crossing_log_begin(log, 5);
    for (int m = MICROBATCHES - 1; m >= 0; m--) { // put in another order
        memset(all[m], 16 * 5 + m, BYTES);
        put(log, 5, m);
    }
    CHECK_OK(strait_sha256(all, sizeof all, &expected));
    CHECK_OK(strait_crossing_log_hash(log, 5, &got));
    assert_true(strait_digest_equal(&expected, &got));
    strait_crossing_log_begin(log, 6);
    CHECK_FAILS(strait_crossing_log_hash(log, 6, &got), STRAIT_EPROTO, "no longer kept");
    strait_crossing_log_close(&log);
}

static void frees_all_memory_when_opening_fails(void **state) {
    (void)state;
    const strait_crossing_log_spec spec = {BYTES, MICROBATCHES, (size_t)4 * BYTES * MICROBATCHES};
    for (int n = 1; n < 6; n++) {
        struct strait_crossing_log *log = NULL;
        strait_alloc_fail_at(n);
        assert_int_equal(strait_crossing_log_open(&spec, &log), STRAIT_ENOMEM);
        assert_null(log);
    }
    strait_alloc_fail_at(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_back_what_was_put),
        cmocka_unit_test(drops_the_oldest_step_when_full),
        cmocka_unit_test(knows_which_steps_are_complete),
        cmocka_unit_test(forgets_later_steps_when_it_goes_back),
        cmocka_unit_test(stays_within_its_bytes),
        cmocka_unit_test(hashes_a_step_in_the_order_of_microbatches),
        cmocka_unit_test(frees_all_memory_when_opening_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
