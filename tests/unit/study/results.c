#include "study/results.h"

#include "base/file.h"
#include "check.h"
#include "scratch.h"

#include <math.h>

static json_t *record(const char *key, double loss) {
    return json_pack("{s:s,s:f}", "key", key, "valid_loss", loss);
}

static void add(struct strait_results *results, const char *key, double loss) {
    json_t *r = record(key, loss);
    CHECK_OK(strait_results_add(results, r));
    json_decref(r);
}

static double loss_of(const struct strait_results *results, const char *key) {
    const json_t *r = strait_results_find(results, key);
    return r != NULL ? json_number_value(json_object_get(r, "valid_loss")) : -1.0;
}

static void test_results_survive_and_ignore_a_truncated_last_line(void **state) {
    (void)state;
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "results.jsonl");
    struct strait_results *results = NULL;
    CHECK_OK(strait_results_open(path, &results));
    add(results, "a", 1.5);
    add(results, "b", 2.5);
    strait_results_close(&results);
    FILE *file = fopen(path, "a");
    CHECK(file != NULL);
    fputs("{\"key\":\"c\",\"valid", file); // a kill in the middle of a write
    (void)fclose(file);
    CHECK_OK(strait_results_open(path, &results));
    CHECK_NEAR(loss_of(results, "b"), 2.5, 0);
    CHECK(strait_results_find(results, "c") == NULL);
    add(results, "d", 4.5); // replaces the truncated line
    strait_results_close(&results);
    CHECK_OK(strait_results_open(path, &results));
    CHECK_NEAR(loss_of(results, "a"), 1.5, 0);
    CHECK_NEAR(loss_of(results, "d"), 4.5, 0);
    strait_results_close(&results);
    scratch_close(&dir);
}

static void test_failures_are_not_results(void **state) {
    (void)state;
    scratch dir = scratch_open();
    struct strait_results *results = NULL;
    CHECK_OK(strait_results_open(scratch_at(&dir, "r.jsonl"), &results));
    json_t *failed = json_pack("{s:s,s:s}", "key", "a", "error", "out of memory");
    CHECK_OK(strait_results_add(results, failed));
    CHECK(strait_results_find(results, "a") == NULL);
    add(results, "a", 3.0);
    CHECK_OK(strait_results_add(results, failed)); // a later failure does not hide the result
    CHECK_NEAR(loss_of(results, "a"), 3.0, 0);
    json_decref(failed);
    strait_results_close(&results);
    scratch_close(&dir);
}

static json_t *tested(const char *key, const char *text, double loss) {
    return json_pack("{s:s,s:f,s:f,s:s}", "key", key, "valid_loss", 1.0, "test_loss", loss,
                     "test_text", text);
}

static double test_loss(const struct strait_results *results, const char *text) {
    return strait_results_test_loss(strait_results_find(results, "a"), text);
}

static void test_a_run_keeps_its_losses_on_earlier_texts(void **state) {
    (void)state;
    static const char *const texts[] = {"one", "two", "one", "three"};
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "results.jsonl");
    struct strait_results *results = NULL;
    CHECK_OK(strait_results_open(path, &results));
    for (int i = 0; i < 4; i++) {
        json_t *r = tested("a", texts[i], 2.0 + i);
        CHECK_OK(strait_results_add(results, r));
        json_decref(r);
    }
    add(results, "a", 1.0); // without a test
    for (int opened = 0; opened < 2; opened++) {
        CHECK_NEAR(test_loss(results, "one"), 4.0, 0);
        CHECK_NEAR(test_loss(results, "two"), 3.0, 0);
        CHECK_NEAR(test_loss(results, "three"), 5.0, 0);
        CHECK(isnan(test_loss(results, "")));
        const json_t *newest = strait_results_find(results, "a");
        CHECK(strcmp(strait_results_text(strait_results_on(newest, "two")), "two") == 0);
        CHECK(strait_results_on(newest, "four") == newest &&
              strait_results_on(newest, "") == newest);
        strait_results_close(&results);
        CHECK_OK(strait_results_open(path, &results));
    }
    strait_results_close(&results);
    scratch_close(&dir);
}

static void test_merge_adds_losses_on_other_texts(void **state) {
    (void)state;
    scratch dir = scratch_open();
    char other[300];
    (void)snprintf(other, sizeof other, "%s/other.jsonl", dir.path);
    struct strait_results *results = NULL;
    json_t *first = record("a", 2.0);
    json_object_set_new(first, "test_loss", json_real(7.0)); // of a version that wrote no digest
    json_t *second = tested("a", "two", 8.0);
    CHECK_OK(strait_results_open(other, &results));
    CHECK_OK(strait_results_add(results, second));
    strait_results_close(&results);
    CHECK_OK(strait_results_open(scratch_at(&dir, "mine.jsonl"), &results));
    CHECK_OK(strait_results_add(results, first));
    for (int n_expected = 1; n_expected >= 0; n_expected--) {
        int n_new = -1;
        CHECK_OK(strait_results_merge(results, other, 0, &n_new));
        CHECK(n_new == n_expected);
    }
    add(results, "a", 1.0); // without a test
    CHECK_NEAR(test_loss(results, ""), 7.0, 0);
    CHECK_NEAR(test_loss(results, "two"), 8.0, 0);
    json_decref(first);
    json_decref(second);
    strait_results_close(&results);
    scratch_close(&dir);
}

static void test_merge_adds_what_is_new(void **state) {
    (void)state;
    scratch dir = scratch_open();
    char other[300];
    (void)snprintf(other, sizeof other, "%s/other.jsonl", dir.path);
    struct strait_results *results = NULL;
    int n_new = -1;
    CHECK_OK(strait_results_open(other, &results));
    add(results, "a", 9.0);
    add(results, "b", 2.0);
    strait_results_close(&results);
    CHECK_OK(strait_results_open(scratch_at(&dir, "mine.jsonl"), &results));
    add(results, "a", 1.0);
    CHECK_OK(strait_results_merge(results, other, 1, &n_new)); // dry: the file stays as it is
    CHECK(n_new == 1);
    CHECK_NEAR(loss_of(results, "b"), 2.0, 0);
    strait_results_close(&results);
    CHECK_OK(strait_results_open(scratch_at(&dir, "mine.jsonl"), &results));
    CHECK(strait_results_find(results, "b") == NULL);
    CHECK_OK(strait_results_merge(results, other, 0, &n_new));
    CHECK(n_new == 1);
    CHECK_NEAR(loss_of(results, "a"), 1.0, 0); // its own stays
    CHECK_NEAR(loss_of(results, "b"), 2.0, 0);
    CHECK_OK(strait_file_write(other, "{}\n", 3));
    CHECK_FAILS(strait_results_merge(results, other, 0, &n_new), STRAIT_EDATA, "other.jsonl:1");
    strait_results_close(&results);
    scratch_close(&dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results_survive_and_ignore_a_truncated_last_line),
        cmocka_unit_test(test_failures_are_not_results),
        cmocka_unit_test(test_a_run_keeps_its_losses_on_earlier_texts),
        cmocka_unit_test(test_merge_adds_losses_on_other_texts),
        cmocka_unit_test(test_merge_adds_what_is_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
