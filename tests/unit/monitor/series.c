#include "check.h"
#include "monitor/follow.h"
#include "scratch.h"

#include <math.h>

static strait_series_point point_at(double step) {
    return (strait_series_point){.step = step, .tokens = 10 * step, .loss = 1.0 / step};
}

static void test_bounds_a_long_history(void **state) {
    (void)state;
    strait_series s;
    enum {
        STEPS = 100001
    };
    CHECK_OK(strait_series_open(&s));
    for (int i = 1; i <= STEPS; i++) {
        const strait_series_point p = point_at(i);
        strait_series_put(&s, &p);
    }
    assert_true(s.n_points <= STRAIT_SERIES_MAX && s.n_points >= STRAIT_SERIES_MAX / 2);
    assert_int_equal(s.stride, 32);
    for (int i = 0; i < s.n_points; i++)
        assert_true(s.points[i].step == 1.0 + 32.0 * i); // evenly, from the first
    json_t *history = strait_series_pack(&s);
    const json_t *steps = json_object_get(history, "step");
    const size_t n = json_array_size(steps);
    assert_int_equal(json_integer_value(json_array_get(steps, n - 1)), STEPS); // the last is there
    assert_int_equal(json_array_size(json_object_get(history, "loss")), n);
    json_decref(history);
    strait_series_close(&s);
}

static void test_bounds_a_long_history_of_validations(void **state) {
    (void)state;
    strait_series s;
    enum {
        N = 4 * STRAIT_SERIES_MAX + 2
    };
    CHECK_OK(strait_series_open(&s));
    for (int i = 1; i <= N; i++)
        strait_series_put_valid(&s, &(strait_series_valid){i, 1.0 / i});
    assert_true(s.n_valid <= STRAIT_SERIES_MAX && s.n_valid >= STRAIT_SERIES_MAX / 2);
    assert_int_equal(s.valid_stride, 8);
    for (int i = 0; i < s.n_valid; i++)
        assert_true(s.valid[i].step == 1.0 + 8.0 * i); // evenly, from the first
    json_t *history = strait_series_pack(&s);
    const json_t *steps = json_object_get(json_object_get(history, "valid"), "step");
    assert_int_equal(json_integer_value(json_array_get(steps, json_array_size(steps) - 1)), N);
    json_decref(history);
    strait_series_close(&s);
}

static void test_a_short_history_is_complete(void **state) {
    (void)state;
    strait_series s;
    CHECK_OK(strait_series_open(&s));
    strait_series_point p = point_at(1);
    p.loss = (double)NAN;
    strait_series_put(&s, &p);
    strait_series_put_valid(&s, &(strait_series_valid){1, 2.5});
    json_t *history = strait_series_pack(&s);
    char *text = json_dumps(history, JSON_COMPACT | JSON_REAL_PRECISION(13));
    assert_non_null(strstr(text, "{\"step\":[1],\"tokens\":[10],"));
    assert_non_null(strstr(text, "\"loss\":[null]"));
    assert_non_null(strstr(text, "\"valid\":{\"step\":[1],\"valid_loss\":[2.5]}"));
    free(text);
    json_decref(history);
    strait_series_close(&s);
}

static void append(const char *path, const char *text) {
    FILE *file = fopen(path, "ab");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void test_follows_a_file_that_grows(void **state) {
    (void)state;
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "metrics.jsonl");
    strait_follow f;
    CHECK_OK(strait_follow_open(path, &f));
    strait_follow_read(&f); // there is no file yet
    assert_int_equal(f.series.n_points, 0);
    append(path,
           "{\"step\":1,\"loss\":3.5,\"time\":7.25}\n{\"step\":1,\"valid_loss\":4}\n{\"step\":2,");
    strait_follow_read(&f);
    assert_int_equal(f.series.n_points, 1); // the last line is not whole
    assert_true(f.series.points[0].loss == 3.5 && f.series.points[0].time == 7.25);
    assert_true(isnan(f.series.points[0].grad_norm));
    assert_true(f.series.n_valid == 1 && f.series.valid[0].valid_loss == 4.0);
    append(path, "\"loss\":3}\nnot JSON\n{\"step\":3,\"loss\":null}\n");
    strait_follow_read(&f);
    assert_int_equal(f.series.n_points, 3);
    assert_true(f.n_fresh == 3 && f.n_fresh_valid == 1 && !f.is_reset);
    assert_true(isnan(f.fresh[2].loss));
    strait_follow_take(&f);
    strait_follow_read(&f);
    assert_int_equal(f.n_fresh, 0);
    strait_follow_close(&f);
    scratch_close(&dir);
}

/* A resumed run replaces the file: steps that it computes again must not appear twice. */
static void test_starts_again_after_a_resume(void **state) {
    (void)state;
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "metrics.jsonl");
    static const char first[] = "{\"step\":1,\"loss\":3}\n";
    strait_follow f;
    CHECK_OK(strait_follow_open(path, &f));
    append(path, first);
    append(path, "{\"step\":2,\"loss\":2}\n");
    strait_follow_read(&f);
    CHECK_OK(strait_file_replace(path, first, sizeof first - 1));
    append(path, "{\"step\":2,\"loss\":1.5}\n{\"step\":3,\"loss\":1}\n");
    strait_follow_read(&f);
    assert_int_equal(f.series.n_points, 3);
    assert_true(f.series.points[1].loss == 1.5 && f.is_reset);
    assert_int_equal(f.n_fresh, 3); // those of the new file
    strait_follow_take(&f);
    for (int i = 4; i < 4 + 2 * STRAIT_FOLLOW_NEW; i++) { // more than are reported one by one
        char line[64];
        (void)snprintf(line, sizeof line, "{\"step\":%d,\"loss\":1}\n", i);
        append(path, line);
    }
    strait_follow_read(&f);
    assert_true(f.is_reset && f.series.last.step == 3 + 2 * STRAIT_FOLLOW_NEW);
    strait_follow_close(&f);
    scratch_close(&dir);
}

/* It keeps its number: only that it became shorter says that it begins anew. */
static void test_starts_again_after_the_file_is_cut(void **state) {
    (void)state;
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "metrics.jsonl");
    strait_follow f;
    CHECK_OK(strait_follow_open(path, &f));
    append(path, "{\"step\":1,\"loss\":3}\n{\"step\":2,\"loss\":2}\n");
    strait_follow_read(&f);
    CHECK(truncate(path, 0) == 0);
    append(path, "{\"step\":1,\"loss\":4}\n");
    strait_follow_read(&f);
    assert_int_equal(f.series.n_points, 1);
    assert_true(f.series.points[0].loss == 4.0 && f.is_reset);
    strait_follow_close(&f);
    scratch_close(&dir);
}

/* More validations at once than are reported one by one: the page asks for the history. */
static void test_reports_many_validations_as_a_reset(void **state) {
    (void)state;
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "metrics.jsonl");
    strait_follow f;
    CHECK_OK(strait_follow_open(path, &f));
    for (int i = 1; i <= STRAIT_FOLLOW_NEW + 1; i++) {
        append(path, "{\"step\":1,\"valid_loss\":4}\n");
        if (i < STRAIT_FOLLOW_NEW) continue;
        strait_follow_read(&f);
        assert_int_equal(f.n_fresh_valid, STRAIT_FOLLOW_NEW);
        assert_int_equal(f.is_reset, i > STRAIT_FOLLOW_NEW);
    }
    strait_follow_close(&f);
    scratch_close(&dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds_a_long_history),
        cmocka_unit_test(test_bounds_a_long_history_of_validations),
        cmocka_unit_test(test_a_short_history_is_complete),
        cmocka_unit_test(test_follows_a_file_that_grows),
        cmocka_unit_test(test_starts_again_after_a_resume),
        cmocka_unit_test(test_starts_again_after_the_file_is_cut),
        cmocka_unit_test(test_reports_many_validations_as_a_reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
