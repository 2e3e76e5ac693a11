/* Saving a run and setting it by keys: what was set stays set, the rest stays derived. */
#include "base/alloc.h"
#include "base/file.h"
#include "check.h"
#include "config/run.h"
#include "scratch.h"

#include <stdio.h>

static strait_run run;

static strait_err parse(const char *text) {
    return strait_run_init_text("R.yaml", text, strlen(text), NULL, 0, &run);
}

static void check_saves(const char *text) {
    scratch dir = scratch_open();
    strait_run again;
    memset(&run, 0, sizeof run);
    memset(&again, 0, sizeof again);
    CHECK_OK(strait_file_write(scratch_at(&dir, "r.yaml"), text, strlen(text)));
    CHECK_OK(strait_run_init_file(scratch_at(&dir, "r.yaml"), NULL, 0, &run));
    CHECK_OK(strait_file_make_folders(scratch_at(&dir, "out")));
    CHECK_OK(strait_run_save(&run, scratch_at(&dir, "out/run.yaml")));
    CHECK_OK(strait_run_init_file(scratch_at(&dir, "out/run.yaml"), NULL, 0, &again));
    assert_memory_equal(&run, &again, sizeof run);
    scratch_close(&dir);
}

static void test_saved_run_loads_to_the_same(void **state) {
    (void)state;
    check_saves("");
    check_saves(
        "model: {family: yardstick, width: 1024, heads: 8, softcap: 30}\ntrain: {optimizer: muon}");
    check_saves(
        "name: 'x: \"y\" # z'\nmodel: {width: 96, heads: 3, rope_theta: 123456.789}\n"
        "data: {train: a b/\xc3\xa9.bin}\ntrain: {learning_rate: 0.1, seed: 9007199254740992}\n");
    check_saves("link: {codec: {name: strait}}\ntrain: {optimizer: muon}\n");
    check_saves("model: {width: 65536, heads: 1}\ntrain: {optimizer: muon, learning_rate: 100}\n");
    CHECK_OK(parse(""));
    CHECK_FAILS(strait_run_save(&run, "/nowhere/at/all/run.yaml"), STRAIT_EIO,
                "/nowhere/at/all/run.yaml");
}

static char *rendered(void) {
    char *text = NULL;
    size_t bytes = 0;
    CHECK_OK(strait_run_render(&run, &text, &bytes));
    CHECK(strlen(text) == bytes);
    return text;
}

/* Only what the user set is written as set. The rest stays derived: raising the learning rate in
 * the saved file raises those that follow from it. */
static void test_saved_run_keeps_derived_values_derived(void **state) {
    (void)state;
    strait_run again;
    CHECK_OK(parse("train: {optimizer: muon, learning_rate: 0.02, momentum: 0.95}"));
    char *text = rendered();
    assert_non_null(strstr(text, "\nname: \"R\"\n"));
    assert_non_null(strstr(text, "\n  learning_rate: 0.02\n"));
    assert_non_null(strstr(text, "\n  momentum: 0.95\n")); // set, although it is the default
    assert_non_null(strstr(text, "\n  # embedding_learning_rate: 0.3\n"));
    assert_non_null(strstr(text, "\n  # schedule: linear\n"));
    assert_non_null(strstr(text, "\n  # ffn: 688\n"));
    const char *const set = "train.learning_rate=0.04";
    CHECK_OK(strait_run_init_text("S.yaml", text, strlen(text), &set, 1, &again));
    CHECK_NEAR(again.train.embedding_learning_rate, 0.6, 1e-15);
    assert_string_equal(again.name, "R");
    strait_alloc_free(text);
}

/* A field that code changed is written as set, also where that needs others; a value beyond its
 * bounds makes every value explicit. */
static void test_saves_fields_that_code_changed(void **state) {
    (void)state;
    strait_run again;
    CHECK_OK(parse(""));
    run.device.threads = 3;
    run.model.family = STRAIT_RUN_YARDSTICK;
    char *text = rendered();
    assert_non_null(strstr(text, "\n  threads: 3\n"));
    assert_non_null(strstr(text, "\n  activation: swiglu\n"));
    assert_non_null(strstr(text, "\n  # ordinal: 0\n"));
    CHECK_OK(strait_run_init_text("S.yaml", text, strlen(text), NULL, 0, &again));
    CHECK(again.device.threads == 3 && again.model.activation == STRAIT_SWIGLU);
    strait_alloc_free(text);
    run.train.head_learning_rate = 1e30;
    text = rendered();
    CHECK(strstr(text, "\n  # ") == NULL);
    strait_alloc_free(text);
}

static void test_handle_is_set_and_read_by_key(void **state) {
    (void)state;
    struct strait_run *handle = NULL;
    char text[STRAIT_RUN_VALUE_BYTES];
    int64_t whole = 0;
    double real = 0;
    CHECK_OK(strait_run_default(&handle));
    CHECK_OK(strait_run_set(handle, "train.optimizer", "muon"));
    CHECK_OK(strait_run_get_real(handle, "train.embedding_learning_rate", &real));
    CHECK_NEAR(real, 0.3, 1e-15);
    CHECK_OK(strait_run_set(handle, "train.learning_rate", "0.01"));
    CHECK_OK(strait_run_get_real(handle, "train.embedding_learning_rate", &real));
    CHECK_NEAR(real, 0.15, 1e-15);
    CHECK_OK(strait_run_get_text(handle, "train.schedule", text, sizeof text));
    assert_string_equal(text, "linear");
    CHECK_OK(strait_run_get_int(handle, "train.steps", &whole));
    assert_int_equal(whole, 1000);
    CHECK_OK(strait_run_get_int(handle, "train.recompute", &whole));
    assert_int_equal(whole, 0);
    CHECK_OK(strait_run_set(handle, "link.emulate.delay", "25ms"));
    CHECK_OK(strait_run_get_real(handle, "link.emulate.delay", &real));
    CHECK(real == 0.025);
    CHECK_FAILS(strait_run_set(handle, "train.steps", "0"), STRAIT_ECONFIG, "out of bounds");
    CHECK_FAILS(strait_run_set(handle, "train.rate", "1"), STRAIT_ECONFIG,
                "train.rate was renamed: use train.learning_rate");
    CHECK_FAILS(strait_run_get_int(handle, "train.stpes", &whole), STRAIT_ECONFIG,
                "did you mean train.steps?");
    CHECK_FAILS(strait_run_get_int(handle, "train.clip", &whole), STRAIT_EINVAL,
                "train.clip is not a whole number");
    CHECK_FAILS(strait_run_get_real(handle, "name", &real), STRAIT_EINVAL, "name is not a number");
    CHECK_FAILS(strait_run_get_text(handle, "train.schedule", text, 6), STRAIT_EINVAL,
                "train.schedule: its value has 7 bytes, the buffer holds 6");
    CHECK_OK(strait_run_get_int(handle, "train.steps", &whole)); // unchanged by the errors
    assert_int_equal(whole, 1000);
    strait_run_close(&handle);
    CHECK(handle == NULL);
    strait_run_close(&handle);
    CHECK_FAILS(strait_run_parse("R.yaml", "a: 1", 4, NULL, 0, &handle), STRAIT_ECONFIG, "a");
    CHECK(handle == NULL);
}

static void survives_failing_allocations(const char *text, int n_expected) {
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "r.yaml");
    const char *saved = scratch_at(&dir, "out.yaml");
    CHECK_OK(strait_file_write(path, text, strlen(text)));
    int n_failed = 0;
    for (int n = 1;; n++, n_failed++) {
        strait_alloc_fail_at(n);
        strait_err err = strait_run_init_file(path, NULL, 0, &run);
        if (err == STRAIT_OK) err = strait_run_save(&run, saved);
        strait_alloc_fail_at(0);
        if (err == STRAIT_OK) break;
        assert_int_equal(err, STRAIT_ENOMEM);
    }
    assert_int_equal(n_failed, n_expected);
    scratch_close(&dir);
}

static void test_survives_failing_allocations(void **state) {
    (void)state;
    survives_failing_allocations("train: {learning_rate: 0.1}\n", 10);
    survives_failing_allocations("link: {codec: {name: strait}}\n", 19);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_saved_run_loads_to_the_same),
        cmocka_unit_test(test_saved_run_keeps_derived_values_derived),
        cmocka_unit_test(test_saves_fields_that_code_changed),
        cmocka_unit_test(test_handle_is_set_and_read_by_key),
        cmocka_unit_test(test_survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
