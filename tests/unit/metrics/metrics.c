#include "metrics/metrics.h"

#include "base/alloc.h"
#include "check.h"
#include "scratch.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static int64_t failing_from = -1; // the next sync fails, and the file is cut here; -1: it works

/* Names required by the linker's --wrap. NOLINTBEGIN(*-naming,*-reserved-identifier,cert-dcl*) */
int __real_fsync(int fd);
int __wrap_fsync(int fd);

/* A sync that fails once: what was not on disk before is lost, as when the kernel drops pages that
 * it could not write. */
int __wrap_fsync(int fd) {
    if (failing_from < 0) return __real_fsync(fd);
    CHECK(ftruncate(fd, (off_t)failing_from) == 0);
    failing_from = -1;
    errno = EIO;
    return -1;
}
/* NOLINTEND(*-naming,*-reserved-identifier,cert-dcl*) */

static strait_metrics_step step_at(int64_t step) {
    return (strait_metrics_step){.step = step,
                                 .loss = 9.0 / (double)step,
                                 .learning_rate = 0.02,
                                 .grad_norm = 1.25,
                                 .tokens_per_s = 12345.678,
                                 .forward_bytes_per_token = 16.5,
                                 .backward_bytes_per_token = 17,
                                 .ratio_forward = 124.12,
                                 .ratio_backward = 120,
                                 .bubble = 0.02,
                                 .limit = "compute",
                                 .seconds = 0.5,
                                 .batch_tokens = 1024,
                                 .time = 1700000000.25};
}

/* Steps 1 to 4, a validation after each second one. */
static void fill(const char *path) {
    struct strait_metrics *m = NULL;
    CHECK_OK(strait_metrics_open(path, 0, &m));
    for (int64_t step = 1; step <= 4; step++) {
        const strait_metrics_step s = step_at(step);
        CHECK_OK(strait_metrics_put_step(m, &s));
        if (step % 2 == 0) CHECK_OK(strait_metrics_put_valid(m, step, 1.0 / 3));
    }
    CHECK_OK(strait_metrics_sync(m));
    strait_metrics_close(&m);
    strait_metrics_close(&m);
}

static void add(const char *path, const char *text, size_t bytes) {
    FILE *file = fopen(path, "ab");
    CHECK(file != NULL && fwrite(text, 1, bytes, file) == bytes && fclose(file) == 0);
}

static char *read_all(const char *path) {
    char *text = NULL;
    CHECK_OK(strait_file_read(path, 1 << 20, &text, NULL));
    return text;
}

static void test_writes_the_documented_keys(void **state) {
    (void)state;
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "metrics.jsonl");
    struct strait_metrics *m = NULL;
    CHECK_OK(strait_metrics_open(path, 0, &m));
    strait_metrics_step s = step_at(3);
    s.loss = 2.3456789012;
    CHECK_OK(strait_metrics_put_step(m, &s));
    CHECK_OK(strait_metrics_put_valid(m, 3, 1.0 / 3));
    s.loss = (double)NAN;
    s.grad_norm = (double)INFINITY;
    s.limit = "link \"a\"\n\\b";
    s.meter_seconds = 19.889;
    s.n_boundaries = 2;
    s.residual_forward = (const double[]){0.123456, 0};
    s.residual_backward = (const double[]){(double)NAN, 1e-7};
    s.leak = (const double[]){2e-6, 0.25};
    s.corrections = (const double[]){0, 1234567};
    s.basis_angle = 0.125;
    s.basis_mean_angle = 0.01;
    s.basis_error = 1e-7;
    s.n_stages = 2;
    s.busy_s = (const double[]){0.25, 0.125};
    s.wait_s = (const double[]){0, 0.5};
    s.forward_bytes = (const double[]){123456789};
    s.backward_bytes = (const double[]){7};
    CHECK_OK(strait_metrics_put_step(m, &s));
    strait_metrics_close(&m);
    char *text = read_all(path);
    assert_string_equal(
        text, "{\"step\":3,\"loss\":2.3456789,\"learning_rate\":0.02,\"grad_norm\":1.25,"
              "\"tokens_per_s\":12345.7,\"forward_bytes_per_token\":16.5,"
              "\"backward_bytes_per_token\":17,\"ratio_forward\":124.12,\"ratio_backward\":120,"
              "\"bubble\":0.02,\"limit\":\"compute\",\"seconds\":0.5,\"tokens\":1024,"
              "\"time\":1700000000.250}\n"
              "{\"step\":3,\"valid_loss\":0.333333333}\n"
              "{\"step\":3,\"loss\":null,\"learning_rate\":0.02,\"grad_norm\":null,"
              "\"tokens_per_s\":12345.7,\"forward_bytes_per_token\":16.5,"
              "\"backward_bytes_per_token\":17,\"ratio_forward\":124.12,\"ratio_backward\":120,"
              "\"bubble\":0.02,\"limit\":\"link \\\"a\\\"\\\\b\",\"seconds\":0.5,"
              "\"tokens\":2048,\"time\":1700000000.250,\"meter_seconds\":19.889,\"residual_"
              "forward\":[0.1235,0],\"residual_backward\":["
              "null,1e-07],\"leak\":[2e-06,0.25],\"corrections\":[0,1234567],"
              "\"basis_angle\":0.125,\"basis_mean_angle\":0.01,\"basis_error\":1e-07,"
              "\"stage_busy_seconds\":[0.25,0.125],\"stage_wait_seconds\":[0,0.5],"
              "\"boundary_forward_bytes\":[123456789],\"boundary_backward_bytes\":[7]}\n");
    strait_alloc_free(text);
    scratch_close(&dir);
}

static void test_reads_losses(void **state) {
    (void)state;
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "metrics.jsonl");
    fill(path);
    add(path, "{\"step\":5,\"loss\":null,\"averaged\":[0,2,-1,64]}\n{\"step\":6,\"lo", 59);
    strait_metrics_point *points = NULL;
    int n = 0;
    CHECK_OK(strait_metrics_read(path, &points, &n));
    assert_int_equal(n, 7);
    CHECK(points[0].step == 1 && points[0].loss == 9 && !points[0].is_valid_loss);
    CHECK(points[2].step == 2 && points[2].is_valid_loss);
    CHECK_NEAR(points[2].loss, 1.0 / 3, 1e-9);
    CHECK(points[6].step == 5 && isnan(points[6].loss));
    CHECK(points[0].averaged == 0 && points[6].averaged == 5); // no other number is a replica's
    strait_alloc_free(points);
    scratch_close(&dir);
}

static void test_resume_keeps_whole_lines_up_to_the_step(void **state) {
    (void)state;
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "metrics.jsonl");
    fill(path);
    char *before = read_all(path);
    add(path, "{\"step\":2,\"loss\":7}", 19); // has no newline: truncated
    struct strait_metrics *m = NULL;
    CHECK_OK(strait_metrics_open(path, 2, &m));
    for (int64_t step = 3; step <= 4; step++) {
        const strait_metrics_step s = step_at(step);
        CHECK_OK(strait_metrics_put_step(m, &s));
    }
    CHECK_OK(strait_metrics_put_valid(m, 4, 1.0 / 3));
    strait_metrics_close(&m);
    char *after = read_all(path);
    assert_string_equal(after, before);
    CHECK(!strait_file_exists(scratch_at(&dir, "metrics.jsonl.tmp")));
    strait_alloc_free(before);
    strait_alloc_free(after);
    CHECK_OK(strait_metrics_open(path, 0, &m));
    strait_metrics_close(&m);
    after = read_all(path);
    assert_string_equal(after, "");
    strait_alloc_free(after);
    CHECK_OK(strait_metrics_open(path, 5, &m)); // an empty file
    strait_metrics_close(&m);
    (void)unlink(path);
    CHECK_OK(strait_metrics_open(path, 5, &m)); // none at all
    strait_metrics_close(&m);
    scratch_close(&dir);
}

/* Another batch size after the resume, and a file of a program that did not count tokens. */
static void test_counts_tokens_across_resumes(void **state) {
    (void)state;
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "metrics.jsonl");
    struct strait_metrics *m = NULL;
    strait_metrics_step s = step_at(3);
    fill(path);
    CHECK_OK(strait_metrics_open(path, 2, &m));
    assert_int_equal(strait_metrics_tokens(m), 2048);
    s.batch_tokens = 100;
    CHECK_OK(strait_metrics_put_step(m, &s));
    assert_int_equal(strait_metrics_tokens(m), 2148);
    strait_metrics_close(&m);
    CHECK_OK(strait_file_write(path, "{\"step\":2,\"loss\":7}\n", 21));
    CHECK_OK(strait_metrics_open(path, 2, &m));
    CHECK_OK(strait_metrics_put_step(m, &s));
    assert_int_equal(strait_metrics_tokens(m), 300);
    strait_metrics_close(&m);
    strait_metrics_point *points = NULL;
    int n = 0;
    CHECK_OK(strait_metrics_read(path, &points, &n));
    CHECK(n == 2 && points[0].tokens == 0 && points[0].time == 0);
    CHECK(points[1].tokens == 300 && points[1].time == 1700000000.25);
    strait_alloc_free(points);
    scratch_close(&dir);
}

static void test_drops_damage_at_the_end_and_reports_it_elsewhere(void **state) {
    (void)state;
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "metrics.jsonl");
    fill(path);
    add(path, "\0\0\0\n{\"step\":9,\"loss\":1}\n", 25);
    struct strait_metrics *m = NULL;
    CHECK_OK(strait_metrics_open(path, 3, &m));
    strait_metrics_close(&m);
    strait_metrics_point *points = NULL;
    int n = 0;
    CHECK_OK(strait_metrics_read(path, &points, &n));
    assert_int_equal(n, 4);
    strait_alloc_free(points);
    add(path, "what\n{\"step\":3,\"loss\":1}\n", 26);
    CHECK_FAILS(strait_metrics_open(path, 3, &m), STRAIT_EDATA,
                "metrics.jsonl: line 6: follows the damaged line 5");
    CHECK_FAILS(strait_metrics_read(path, &points, &n), STRAIT_EDATA,
                "metrics.jsonl: line 5: line 1, column");
    CHECK_OK(strait_file_write(path, "{\"step\":1}\n", 11));
    CHECK_FAILS(strait_metrics_read(path, &points, &n), STRAIT_EDATA,
                "line 1: has no number \"loss\" or \"valid_loss\"");
    CHECK_OK(strait_file_write(path, "{\"loss\":1}\n", 11));
    CHECK_FAILS(strait_metrics_read(path, &points, &n), STRAIT_EDATA,
                "line 1: \"step\" is missing");
    scratch_close(&dir);
}

static void test_names_the_file_that_cannot_be_written(void **state) {
    (void)state;
    scratch dir = scratch_open();
    struct strait_metrics *m = NULL;
    CHECK_FAILS(strait_metrics_open(scratch_at(&dir, "none/metrics.jsonl"), 0, &m), STRAIT_EIO,
                "none/metrics.jsonl");
    CHECK_FAILS(strait_metrics_open(dir.path, 3, &m), STRAIT_EIO, "is a folder; name a file");
    CHECK_OK(strait_metrics_open(scratch_at(&dir, "metrics.jsonl"), 0, &m));
    (void)signal(SIGXFSZ, SIG_IGN);
    struct rlimit before;
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){10, before.rlim_max}) == 0);
    const strait_err err = strait_metrics_put_valid(m, 1, 2.5);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    assert_int_equal(err, STRAIT_EIO);
    CHECK(strstr(strait_err_detail(), "metrics.jsonl: cannot write: File too large") != NULL);
    strait_metrics_close(&m);
    scratch_close(&dir);
}

/* The limit lets the second line begin, and nothing behind it. */
static void test_retries_lines_after_a_full_disk(void **state) {
    (void)state;
    scratch dir = scratch_open();
    const char *full = scratch_at(&dir, "full.jsonl");
    struct strait_metrics *m = NULL;
    struct rlimit before;
    struct stat info;
    fill(full);
    CHECK(stat(full, &info) == 0);
    CHECK_OK(strait_metrics_open(full, 4, &m));
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){(rlim_t)info.st_size + 7, before.rlim_max}) ==
          0);
    for (int64_t step = 5; step <= 6; step++) {
        const strait_metrics_step s = step_at(step);
        CHECK_FAILS(strait_metrics_put_step(m, &s), STRAIT_EIO, "full.jsonl: cannot write");
    }
    CHECK_FAILS(strait_metrics_sync(m), STRAIT_EIO, "full.jsonl: cannot write");
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK_OK(strait_metrics_put_valid(m, 6, 0.5));
    strait_metrics_close(&m);

    strait_metrics_point *points = NULL;
    int n = 0;
    CHECK_OK(strait_metrics_read(full, &points, &n));
    CHECK(n == 9 && points[6].step == 5 && points[7].step == 6 && points[8].is_valid_loss);
    strait_alloc_free(points);
    scratch_close(&dir);
}

static void test_writes_again_what_a_failed_sync_may_have_lost(void **state) {
    (void)state;
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "metrics.jsonl");
    struct strait_metrics *m = NULL;
    struct stat info;
    fill(path);
    CHECK(stat(path, &info) == 0);
    CHECK_OK(strait_metrics_open(path, 4, &m));
    strait_metrics_step s = step_at(5);
    CHECK_OK(strait_metrics_put_step(m, &s));
    failing_from = info.st_size;
    CHECK_FAILS(strait_metrics_sync(m), STRAIT_EIO, "metrics.jsonl: cannot sync");
    s = step_at(6);
    CHECK_OK(strait_metrics_put_step(m, &s));
    CHECK_OK(strait_metrics_sync(m));
    strait_metrics_close(&m);

    strait_metrics_point *points = NULL;
    int n = 0;
    CHECK_OK(strait_metrics_read(path, &points, &n));
    CHECK(n == 8 && points[6].step == 5 && points[7].step == 6);
    strait_alloc_free(points);
    scratch_close(&dir);
}

/* More lines than are kept in memory: they are synced on the way. */
static void test_keeps_every_line_of_a_long_run(void **state) {
    (void)state;
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "metrics.jsonl");
    struct strait_metrics *m = NULL;
    strait_metrics_point *points = NULL;
    int n = 0;
    CHECK_OK(strait_metrics_open(path, 0, &m));
    for (int64_t step = 1; step <= 1000; step++) {
        const strait_metrics_step s = step_at(step);
        CHECK_OK(strait_metrics_put_step(m, &s));
    }
    strait_metrics_close(&m);
    CHECK_OK(strait_metrics_read(path, &points, &n));
    assert_int_equal(n, 1000);
    for (int i = 0; i < n; i++)
        assert_int_equal(points[i].step, i + 1);
    strait_alloc_free(points);
    scratch_close(&dir);
}

static void test_survives_any_failing_allocation(void **state) {
    (void)state;
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "metrics.jsonl");
    fill(path);
    int n_failed = 0;
    for (int n = 1;; n++, n_failed++) {
        struct strait_metrics *m = NULL;
        strait_metrics_point *points = NULL;
        int n_points = 0;
        strait_alloc_fail_at(n);
        strait_err err = strait_metrics_open(path, 4, &m);
        if (err == STRAIT_OK) err = strait_metrics_read(path, &points, &n_points);
        strait_alloc_fail_at(0);
        strait_metrics_close(&m);
        strait_alloc_free(points);
        if (err == STRAIT_OK) break;
        assert_int_equal(err, STRAIT_ENOMEM);
    }
    assert_int_equal(n_failed, 4);
    scratch_close(&dir);
}

static void test_writing_a_line_allocates_nothing(void **state) {
    (void)state;
    scratch dir = scratch_open();
    struct strait_metrics *m = NULL;
    CHECK_OK(strait_metrics_open(scratch_at(&dir, "metrics.jsonl"), 0, &m));
    const int64_t before = strait_alloc_count();
    const strait_metrics_step s = step_at(1);
    CHECK_OK(strait_metrics_put_step(m, &s));
    CHECK_OK(strait_metrics_put_valid(m, 1, 2));
    assert_int_equal(strait_alloc_count(), before);
    strait_metrics_close(&m);
    scratch_close(&dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writes_the_documented_keys),
        cmocka_unit_test(test_reads_losses),
        cmocka_unit_test(test_resume_keeps_whole_lines_up_to_the_step),
        cmocka_unit_test(test_counts_tokens_across_resumes),
        cmocka_unit_test(test_drops_damage_at_the_end_and_reports_it_elsewhere),
        cmocka_unit_test(test_names_the_file_that_cannot_be_written),
        cmocka_unit_test(test_retries_lines_after_a_full_disk),
        cmocka_unit_test(test_writes_again_what_a_failed_sync_may_have_lost),
        cmocka_unit_test(test_keeps_every_line_of_a_long_run),
        cmocka_unit_test(test_survives_any_failing_allocation),
        cmocka_unit_test(test_writing_a_line_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
