#include "report/history.h"

#include "base/file.h"
#include "check.h"
#include "scratch.h"

static scratch dir;

static int open_dir(void **state) {
    (void)state;
    dir = scratch_open();
    return 0;
}

static int close_dir(void **state) {
    (void)state;
    scratch_close(&dir);
    return 0;
}

/* Six steps of 1, 1, 1, 3, 2 and 9 seconds, a validation after each second one. */
static const char *fill(void) {
    static const double seconds[] = {1, 1, 1, 3, 2, 9};
    static const double losses[] = {5.0, 4.0, 3.0};
    const char *path = scratch_at(&dir, "metrics.jsonl");
    struct strait_metrics *m = NULL;
    CHECK_OK(strait_metrics_open(path, 0, &m));
    for (int64_t step = 1; step <= 6; step++) {
        const strait_metrics_step s = {.step = step,
                                       .loss = 6.0,
                                       .limit = "compute",
                                       .tokens_per_s = 100.0 / seconds[step - 1],
                                       .forward_bytes_per_token = (double)step,
                                       .backward_bytes_per_token = 2.0 * (double)step,
                                       .ratio_forward = 128.0,
                                       .ratio_backward = 64.0,
                                       .seconds = seconds[step - 1],
                                       .meter_seconds = 10.0 * seconds[step - 1]};
        CHECK_OK(strait_metrics_put_step(m, &s));
        if (step % 2 == 0) CHECK_OK(strait_metrics_put_valid(m, step, losses[step / 2 - 1]));
    }
    strait_metrics_close(&m);
    return path;
}

static void test_step_time_is_the_median_of_the_later_half(void **state) {
    (void)state;
    const char *path = fill();
    strait_history h;
    CHECK_OK(strait_history_read(path, &h));
    CHECK(h.steps == 6 && h.n_valid == 3);
    CHECK_NEAR(h.seconds, 3.0, 1e-9); // of 3, 2 and 9
    CHECK_NEAR(h.meter_seconds, 30.0, 1e-9);
    CHECK_NEAR(h.tokens_per_s, 100.0 / 3.0, 1e-3);
    CHECK_NEAR(h.forward_bytes, 6.0, 1e-9);
    CHECK_NEAR(h.backward_bytes, 12.0, 1e-9);
    CHECK_NEAR(h.ratio_forward, 128.0, 1e-9);
    CHECK_NEAR(h.ratio_backward, 64.0, 1e-9);
    CHECK_NEAR(strait_history_loss(&h), 3.0, 1e-9);
    strait_history_close(&h);
    CHECK_OK(strait_history_read(scratch_at(&dir, "."), &h)); // the run's folder
    CHECK(h.steps == 6);
    strait_history_close(&h);
    strait_history_close(&h);
}

static void test_steps_to_a_loss(void **state) {
    (void)state;
    strait_metrics_point points[] = {
        {.step = 10, .loss = 5.0}, {.step = 20, .loss = 4.0}, {.step = 40, .loss = 3.0}};
    strait_history h = {.valid = points, .n_valid = 3};
    CHECK_NEAR(strait_history_steps_to(&h, 6.0), 10.0, 1e-9);
    CHECK_NEAR(strait_history_steps_to(&h, 4.25), 17.5, 1e-9);
    CHECK_NEAR(strait_history_steps_to(&h, 4.0), 20.0, 1e-9);
    CHECK_NEAR(strait_history_steps_to(&h, 3.25), 35.0, 1e-9);
    CHECK(isnan(strait_history_steps_to(&h, 2.9)));
    points[1].loss = (double)NAN; // a validation that went wrong is no way down
    CHECK_NEAR(strait_history_steps_to(&h, 3.5), 40.0, 1e-9);
}

static void test_rejects_runs_without_metrics(void **state) {
    (void)state;
    strait_history h;
    const char *path = scratch_at(&dir, "metrics.jsonl");
    CHECK_FAILS(strait_history_read(path, &h), STRAIT_EIO, "metrics.jsonl");
    CHECK_FAILS(strait_history_read(scratch_at(&dir, "."), &h), STRAIT_EDATA,
                "has no metrics.jsonl");
    CHECK_OK(strait_file_write(path, "", 0));
    CHECK_FAILS(strait_history_read(path, &h), STRAIT_EDATA, "no training step yet");
    static const char step[] = "{\"step\":1,\"loss\":2,\"seconds\":1}\n";
    CHECK_OK(strait_file_write(path, step, sizeof step - 1));
    CHECK_FAILS(strait_history_read(path, &h), STRAIT_EDATA, "no validation yet");
    static const char broken[] = "{\"step\":1,\"loss\":2}\nnonsense\n";
    CHECK_OK(strait_file_write(path, broken, sizeof broken - 1));
    CHECK_FAILS(strait_history_read(path, &h), STRAIT_EDATA, "line 2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_step_time_is_the_median_of_the_later_half, open_dir,
                                        close_dir),
        cmocka_unit_test(test_steps_to_a_loss),
        cmocka_unit_test_setup_teardown(test_rejects_runs_without_metrics, open_dir, close_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
