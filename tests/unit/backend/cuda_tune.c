/* The record of timed matrix products. */
#include "backend/cuda/tune.h"
#include "base/alloc.h"
#include "check.h"
#include "scratch.h"

#include <stdio.h>

static const int64_t first[] = {64, 128, 4096, 1, 0, 0, 1, 0, 1, 16, 16, 8};
static const int64_t second[] = {64, 128, 4096, 1, 0, 0, 1, 1, 1, 16, 16, 8};

static void keeps_choices(void **state) {
    (void)state;
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "record");
    struct strait_cuda_tune *tune = NULL;
    CHECK_OK(strait_cuda_tune_open(path, &tune));
    assert_int_equal(strait_cuda_tune_find(tune, first), -1);
    CHECK_OK(strait_cuda_tune_note(tune, first, 5));
    assert_int_equal(strait_cuda_tune_find(tune, first), 5);
    assert_int_equal(strait_cuda_tune_find(tune, second), -1);
    strait_cuda_tune_close(&tune);
    assert_null(tune);
    CHECK_OK(strait_cuda_tune_open(path, &tune));
    assert_int_equal(strait_cuda_tune_find(tune, first), 5);
    CHECK_OK(strait_cuda_tune_note(tune, second, 0));
    strait_cuda_tune_close(&tune);
    CHECK_OK(strait_cuda_tune_open(path, &tune));
    assert_int_equal(strait_cuda_tune_find(tune, second), 0);
    assert_int_equal(tune->n_known, 2);
    strait_cuda_tune_close(&tune);
    scratch_close(&dir);
}

static void append(const char *path, const char *text) {
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    CHECK(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void names_invalid_lines(void **state) {
    static const char *const wrong[] = {
        "1 2 3\n", "1 2 3 4 5 6 7 8 9 10 11 12 13",     // truncated
        "a b\n",   "1 2 3 4 5 6 7 8 9 10 11 12 -1\n",   // invalid choice
        "\n",      "1 2 3 4 5 6 7 8 9 10 11 12 13 4\n", // one number too many
    };
    (void)state;
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "record");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct strait_cuda_tune *tune = NULL;
        (void)remove(path);
        append(path, "1 2 3 4 5 6 7 8 9 10 11 12 3\n");
        append(path, wrong[i]);
        CHECK_FAILS(strait_cuda_tune_open(path, &tune), STRAIT_EDATA, ":2: expected 13 numbers");
        assert_null(tune);
    }
    scratch_close(&dir);
}

static void names_unwritable_records(void **state) {
    (void)state;
    struct strait_cuda_tune *tune = NULL;
    CHECK_OK(strait_cuda_tune_open("/nowhere/record", &tune));
    CHECK_FAILS(strait_cuda_tune_note(tune, first, 1), STRAIT_EIO, "/nowhere/record");
    strait_cuda_tune_close(&tune);
    strait_alloc_fail_at(1);
    CHECK_FAILS(strait_cuda_tune_open("/nowhere/record", &tune), STRAIT_ENOMEM, "record");
    strait_alloc_fail_at(0);
    assert_null(tune);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_choices),
        cmocka_unit_test(names_invalid_lines),
        cmocka_unit_test(names_unwritable_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
