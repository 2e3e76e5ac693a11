/* Counted allocation that can be made to fail. */
#include "base/alloc.h"

#include "check.h"

static void memory_is_zeroed_aligned_and_counted(void **state) {
    (void)state;
    static const size_t counts[] = {0, 1, 3, 64, 1000};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        unsigned char *memory = NULL;
        const int64_t before = strait_alloc_count();
        CHECK_OK(strait_alloc(counts[i], 7, "bytes", (void **)&memory));
        assert_int_equal(strait_alloc_count(), before + 1);
        assert_int_equal((uintptr_t)memory % 64, 0);
        for (size_t k = 0; k < 7 * counts[i]; k++)
            assert_int_equal(memory[k], 0);
        strait_alloc_free(memory);
    }
    strait_alloc_free(NULL);
}

static void unset_memory_is_aligned_counted_and_can_fail(void **state) {
    (void)state;
    unsigned char *memory = NULL;
    const int64_t made = strait_alloc_count(), live = strait_alloc_live();
    CHECK_OK(strait_alloc_unset(1000, 7, "bytes", (void **)&memory));
    assert_int_equal(strait_alloc_count(), made + 1);
    assert_int_equal(strait_alloc_live(), live + 1);
    assert_int_equal((uintptr_t)memory % 64, 0);
    memset(memory, 1, 7000);
    strait_alloc_free(memory);
    assert_int_equal(strait_alloc_live(), live);
    strait_alloc_fail_at(1);
    CHECK_FAILS(strait_alloc_unset(1, 1, "dreams", (void **)&memory), STRAIT_ENOMEM, "dreams");
    strait_alloc_fail_at(0);
}

static void rejects_sizes_that_overflow(void **state) {
    (void)state;
    void *memory = NULL;
    CHECK_FAILS(strait_alloc(SIZE_MAX / 4, 8, "dreams", &memory), STRAIT_ENOMEM, "dreams");
    CHECK_FAILS(strait_alloc(SIZE_MAX - 8, 1, "dreams", &memory), STRAIT_ENOMEM, "dreams");
    assert_null(memory);
}

static void growing_keeps_items_and_zeroes_new_ones(void **state) {
    (void)state;
    int32_t *numbers = NULL;
    CHECK_OK(strait_alloc_grow((void **)&numbers, 0, 3, sizeof *numbers, "numbers"));
    for (int i = 0; i < 3; i++)
        numbers[i] = 10 + i;
    CHECK_OK(strait_alloc_grow((void **)&numbers, 3, 100, sizeof *numbers, "numbers"));
    for (int i = 0; i < 100; i++)
        assert_int_equal(numbers[i], i < 3 ? 10 + i : 0);
    CHECK_OK(strait_alloc_grow((void **)&numbers, 100, 2, sizeof *numbers, "numbers"));
    assert_int_equal(numbers[1], 11);
    const int32_t *same = numbers;
    strait_alloc_fail_at(1);
    CHECK_FAILS(strait_alloc_grow((void **)&numbers, 2, 50, sizeof *numbers, "numbers"),
                STRAIT_ENOMEM, "numbers");
    assert_ptr_equal(numbers, same);
    assert_int_equal(numbers[0], 10);
    strait_alloc_free(numbers);
}

static void fails_exactly_the_nth_allocation(void **state) {
    (void)state;
    char *texts[4] = {NULL};
    strait_alloc_fail_at(3);
    for (int i = 0; i < 4; i++) {
        const strait_err err = strait_alloc_string("word", &texts[i]);
        assert_int_equal(err, i == 2 ? STRAIT_ENOMEM : STRAIT_OK);
    }
    assert_null(texts[2]);
    assert_string_equal(texts[3], "word");
    for (int i = 0; i < 4; i++)
        strait_alloc_free(texts[i]);
    strait_alloc_fail_at(1);
    strait_alloc_fail_at(0); // off again
    CHECK_OK(strait_alloc_string("", &texts[0]));
    assert_string_equal(texts[0], "");
    strait_alloc_free(texts[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_aligned_and_counted),
        cmocka_unit_test(unset_memory_is_aligned_counted_and_can_fail),
        cmocka_unit_test(rejects_sizes_that_overflow),
        cmocka_unit_test(growing_keeps_items_and_zeroes_new_ones),
        cmocka_unit_test(fails_exactly_the_nth_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
