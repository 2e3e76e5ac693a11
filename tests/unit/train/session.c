#include "train/session.h"

#include "../config/tiny_run.h"
#include "base/alloc.h"
#include "metrics/metrics.h"
#include "store/checkpoint.h"

#include <sys/stat.h>
#include <unistd.h>

/* What a session told, and when it is to stop. */
struct diary {
    int64_t stop_after;
    int n_steps, n_valid, n_saved, n_notes;
    int64_t opened_at, last_step;
    char note[256];
};

static void on_opened(void *user, const strait_trainer_info *facts, int64_t step) {
    struct diary *d = user;
    assert_true(facts->parameters > 0);
    d->opened_at = step;
}

static void on_stepped(void *user, const strait_trainer_report *report) {
    struct diary *d = user;
    d->n_steps++;
    d->last_step = report->step;
}

static void on_validated(void *user, int64_t step, double loss) {
    struct diary *d = user;
    assert_true(step > 0 && loss > 0.0);
    d->n_valid++;
}

static char metrics_path[STRAIT_PATH_MAX]; // whose syncs are looked at; empty: nobody's
static off_t metrics_synced;               // bytes of it that are surely on the disk

/* The library's calls end here. */
int fsync(int fd) {
    struct stat synced;
    struct stat metrics;
    if (fstat(fd, &synced) == 0 && stat(metrics_path, &metrics) == 0 &&
        synced.st_ino == metrics.st_ino)
        metrics_synced = synced.st_size;
    return fdatasync(fd);
}

static void on_saved(void *user, int64_t step) {
    struct diary *d = user;
    struct stat metrics;
    assert_true(step > 0);
    d->n_saved++;
    if (stat(metrics_path, &metrics) == 0) assert_int_equal(metrics_synced, metrics.st_size);
}

static void on_noted(void *user, const char *text) {
    struct diary *d = user;
    d->n_notes++;
    (void)snprintf(d->note, sizeof d->note, "%s", text);
}

static int must_stop(void *user) {
    const struct diary *d = user;
    return d->stop_after > 0 && d->last_step >= d->stop_after;
}

static strait_err go(const strait_run *run, const char *out, int resumes, struct diary *diary) {
    const strait_session_spec spec = {
        .run = run,
        .folder = out,
        .resumes = resumes,
        .events = {diary, on_opened, on_stepped, on_validated, on_saved, on_noted, must_stop}};
    return strait_session_run(&spec);
}

/* The losses of two runs, line by line, bit by bit as far as nine digits tell. */
static void check_same_losses(const char *a, const char *b) {
    char path[STRAIT_PATH_MAX];
    strait_metrics_point *pa = NULL;
    strait_metrics_point *pb = NULL;
    int na = 0;
    int nb = 0;
    CHECK_OK(strait_file_path(path, "%s/metrics.jsonl", a));
    CHECK_OK(strait_metrics_read(path, &pa, &na));
    CHECK_OK(strait_file_path(path, "%s/metrics.jsonl", b));
    CHECK_OK(strait_metrics_read(path, &pb, &nb));
    assert_int_equal(na, nb);
    for (int i = 0; i < na; i++) {
        assert_int_equal(pa[i].step, pb[i].step);
        assert_int_equal(pa[i].is_valid_loss, pb[i].is_valid_loss);
        assert_true(pa[i].loss == pb[i].loss);
    }
    strait_alloc_free(pa);
    strait_alloc_free(pb);
}

static void test_metrics_are_on_the_disk_before_a_checkpoint(void **state) {
    (void)state;
    scratch folder = scratch_open();
    static strait_run run;
    struct diary diary = {0};
    tiny_run(&folder, &run);
    (void)snprintf(metrics_path, sizeof metrics_path, "%s",
                   scratch_at(&folder, "out/metrics.jsonl"));
    CHECK_OK(go(&run, scratch_at(&folder, "out"), 0, &diary));
    assert_int_equal(diary.n_saved, 3);
    assert_true(metrics_synced > 0);
    metrics_path[0] = '\0';
    scratch_close(&folder);
}

static void test_runs_to_the_end(void **state) {
    (void)state;
    scratch folder = scratch_open();
    static strait_run run;
    struct diary diary = {0};
    tiny_run(&folder, &run);
    CHECK_OK(go(&run, scratch_at(&folder, "out"), 0, &diary));
    assert_int_equal(diary.n_steps, 12);
    assert_int_equal(diary.n_valid, 3);
    assert_int_equal(diary.n_saved, 3);
    assert_int_equal(diary.n_notes, 0);
    static strait_run read_back;
    CHECK_OK(strait_run_init_file(scratch_at(&folder, "out/run.yaml"), NULL, 0, &read_back));
    assert_int_equal(read_back.model.ffn, 40);
    CHECK_FAILS(go(&run, scratch_at(&folder, "out"), 0, &diary), STRAIT_ECONFIG, "--resume");
    scratch_close(&folder);
}

static void test_stopped_and_resumed_equals_undisturbed(void **state) {
    (void)state;
    scratch folder = scratch_open();
    static strait_run run;
    tiny_run(&folder, &run);
    struct diary straight = {0};
    CHECK_OK(go(&run, scratch_at(&folder, "a"), 0, &straight));
    struct diary first = {.stop_after = 5};
    CHECK_FAILS(go(&run, scratch_at(&folder, "b"), 0, &first), STRAIT_EINTERRUPTED, "step 5 of 12");
    struct diary second = {0};
    CHECK_OK(go(&run, scratch_at(&folder, "b"), 1, &second));
    assert_int_equal(second.opened_at, 5);
    assert_int_equal(second.n_steps, 7);
    check_same_losses(scratch_at(&folder, "a"), scratch_at(&folder, "b"));
    scratch_close(&folder);
}

static void test_resume_without_a_checkpoint_starts_over(void **state) {
    (void)state;
    scratch folder = scratch_open();
    static strait_run run;
    tiny_run(&folder, &run);
    struct diary diary = {0};
    CHECK_OK(go(&run, scratch_at(&folder, "out"), 1, &diary));
    assert_int_equal(diary.opened_at, 0);
    assert_non_null(strstr(diary.note, "no checkpoint"));
    scratch_close(&folder);
}

static void test_damaged_newest_checkpoint_is_told_and_passed_over(void **state) {
    (void)state;
    scratch folder = scratch_open();
    static strait_run run;
    tiny_run(&folder, &run);
    struct diary straight = {0};
    CHECK_OK(go(&run, scratch_at(&folder, "out"), 0, &straight));
    FILE *file = fopen(scratch_at(&folder, "out/checkpoints/00000012/stage-0.safetensors"), "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, -3, SEEK_END), 0);
    assert_int_equal(fputc('!', file), '!');
    assert_int_equal(fclose(file), 0);
    struct diary diary = {0};
    CHECK_OK(go(&run, scratch_at(&folder, "out"), 1, &diary));
    assert_int_equal(diary.opened_at, 8);
    assert_int_equal(diary.n_notes, 1);
    assert_non_null(strstr(diary.note, "using step 8"));
    scratch_close(&folder);
}

static void test_checkpoint_that_cannot_be_written_is_noted_and_the_run_goes_on(void **state) {
    (void)state;
    scratch folder = scratch_open();
    static strait_run run;
    tiny_run(&folder, &run);
    struct diary first = {.stop_after = 4};
    CHECK_FAILS(go(&run, scratch_at(&folder, "out"), 0, &first), STRAIT_EINTERRUPTED, "step 4");
    /* In the way of step 8, and of step 8 only: a file where the folder would go. */
    FILE *file = fopen(scratch_at(&folder, "out/checkpoints/00000008"), "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    struct diary diary = {0};
    CHECK_OK(go(&run, scratch_at(&folder, "out"), 1, &diary));
    assert_int_equal(diary.opened_at, 4);
    assert_int_equal(diary.last_step, 12);
    assert_true(diary.n_notes >= 1);
    struct strait_checkpoint *checkpoint = NULL;
    CHECK_OK(strait_checkpoint_open(scratch_at(&folder, "out/checkpoints/00000012"),
                                    STRAIT_CHECKPOINT_NEWEST, &checkpoint));
    assert_int_equal(strait_checkpoint_step(checkpoint), 12);
    strait_checkpoint_close(&checkpoint);
    scratch_close(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_to_the_end),
        cmocka_unit_test(test_metrics_are_on_the_disk_before_a_checkpoint),
        cmocka_unit_test(test_stopped_and_resumed_equals_undisturbed),
        cmocka_unit_test(test_resume_without_a_checkpoint_starts_over),
        cmocka_unit_test(test_damaged_newest_checkpoint_is_told_and_passed_over),
        cmocka_unit_test(test_checkpoint_that_cannot_be_written_is_noted_and_the_run_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
