/* Sessions: complete, stopped and resumed, and with damaged or unwritable checkpoints. */
#include "train/session.h"

#include "../config/tiny_run.h"
#include "base/alloc.h"
#include "metrics/metrics.h"
#include "store/checkpoint.h"

#include <sys/stat.h>
#include <unistd.h>

/* Counts the events of a session; `stop_after` is the step after which it is to stop, 0: none. */
struct event_log {
    int64_t stop_after;
    int must_settle; // lines of a step must be synced before the next one begins
    int n_steps, n_valid, n_saved, n_notes;
    int64_t opened_at, last_step;
    char note[256];
};

static void on_opened(void *user, const strait_trainer_info *info, int64_t step) {
    struct event_log *seen = user;
    assert_true(info->parameters > 0);
    seen->opened_at = step;
}

static char metrics_path[STRAIT_PATH_MAX]; // the file whose fsync calls are observed; empty: none
static off_t metrics_synced;               // its size at the last fsync
static off_t metrics_earlier;              // its size after the previous step and its validation

/* Overrides libc's fsync to record which bytes of the metrics have been synced. */
int fsync(int fd) {
    struct stat synced;
    struct stat metrics;
    if (fstat(fd, &synced) == 0 && stat(metrics_path, &metrics) == 0 &&
        synced.st_ino == metrics.st_ino)
        metrics_synced = synced.st_size;
    return fdatasync(fd);
}

/* Bytes of the metrics; 0 unless they are observed. */
static off_t metrics_bytes(void) {
    struct stat metrics;
    return stat(metrics_path, &metrics) == 0 ? metrics.st_size : 0;
}

static void on_stepped(void *user, const strait_trainer_report *report) {
    struct event_log *seen = user;
    seen->n_steps++;
    seen->last_step = report->step;
    if (seen->must_settle) assert_true(metrics_synced >= metrics_earlier);
    metrics_earlier = metrics_bytes();
}

static void on_validated(void *user, int64_t step, double loss) {
    struct event_log *seen = user;
    assert_true(step > 0 && loss > 0.0);
    seen->n_valid++;
    metrics_earlier = metrics_bytes();
}

static void on_saved(void *user, int64_t step) {
    struct event_log *seen = user;
    struct stat metrics;
    assert_true(step > 0);
    seen->n_saved++;
    if (stat(metrics_path, &metrics) == 0) assert_int_equal(metrics_synced, metrics.st_size);
}

static void on_noted(void *user, const char *text) {
    struct event_log *seen = user;
    seen->n_notes++;
    (void)snprintf(seen->note, sizeof seen->note, "%s", text);
}

static int must_stop(void *user) {
    const struct event_log *seen = user;
    return seen->stop_after > 0 && seen->last_step >= seen->stop_after;
}

static strait_err run_session(const strait_run *run, const char *out, int resumes,
                              struct event_log *seen) {
    const strait_session_spec spec = {
        .run = run,
        .folder = out,
        .resumes = resumes,
        .waits_for_disk = seen->must_settle,
        .events = {seen, on_opened, on_stepped, on_validated, on_saved, on_noted, must_stop}};
    return strait_session_run(&spec);
}

/* Both runs logged the same losses, to the nine digits that the metrics hold. */
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

static void syncs_metrics_before_a_checkpoint(void **state) {
    (void)state;
    scratch folder = scratch_open();
    static strait_run run;
    struct event_log seen = {0};
    tiny_run(&folder, &run);
    (void)snprintf(metrics_path, sizeof metrics_path, "%s",
                   scratch_at(&folder, "out/metrics.jsonl"));
    CHECK_OK(run_session(&run, scratch_at(&folder, "out"), 0, &seen));
    assert_int_equal(seen.n_saved, 3);
    assert_true(metrics_synced > 0);
    metrics_path[0] = '\0';
    scratch_close(&folder);
}

/* A host records a step as settled when the next one begins: after a power cut it continues there,
 * and the lines up to it must exist. */
static void host_syncs_metrics_before_the_next_step(void **state) {
    (void)state;
    scratch folder = scratch_open();
    static strait_run run;
    struct event_log seen = {.must_settle = 1};
    tiny_run(&folder, &run);
    metrics_synced = metrics_earlier = 0;
    (void)snprintf(metrics_path, sizeof metrics_path, "%s",
                   scratch_at(&folder, "out/metrics.jsonl"));
    CHECK_OK(run_session(&run, scratch_at(&folder, "out"), 0, &seen));
    assert_int_equal(seen.n_steps, 12);
    assert_true(metrics_earlier > 0);
    metrics_path[0] = '\0';
    scratch_close(&folder);
}

static void runs_to_the_end(void **state) {
    (void)state;
    scratch folder = scratch_open();
    static strait_run run;
    struct event_log seen = {0};
    tiny_run(&folder, &run);
    CHECK_OK(run_session(&run, scratch_at(&folder, "out"), 0, &seen));
    assert_int_equal(seen.n_steps, 12);
    assert_int_equal(seen.n_valid, 3);
    assert_int_equal(seen.n_saved, 3);
    assert_int_equal(seen.n_notes, 0);
    static strait_run read_back;
    CHECK_OK(strait_run_init_file(scratch_at(&folder, "out/run.yaml"), NULL, 0, &read_back));
    assert_int_equal(read_back.model.ffn, 40);
    CHECK_FAILS(run_session(&run, scratch_at(&folder, "out"), 0, &seen), STRAIT_ECONFIG,
                "already contains a run");
    scratch_close(&folder);
}

static void resumed_run_equals_undisturbed_run(void **state) {
    (void)state;
    scratch folder = scratch_open();
    static strait_run run;
    tiny_run(&folder, &run);
    struct event_log straight = {0};
    CHECK_OK(run_session(&run, scratch_at(&folder, "a"), 0, &straight));
    struct event_log first = {.stop_after = 5};
    CHECK_FAILS(run_session(&run, scratch_at(&folder, "b"), 0, &first), STRAIT_EINTERRUPTED,
                "step 5 of 12");
    struct event_log second = {0};
    CHECK_OK(run_session(&run, scratch_at(&folder, "b"), 1, &second));
    assert_int_equal(second.opened_at, 5);
    assert_int_equal(second.n_steps, 7);
    check_same_losses(scratch_at(&folder, "a"), scratch_at(&folder, "b"));
    scratch_close(&folder);
}

static void resume_without_checkpoint_starts_over(void **state) {
    (void)state;
    scratch folder = scratch_open();
    static strait_run run;
    tiny_run(&folder, &run);
    struct event_log seen = {0};
    CHECK_OK(run_session(&run, scratch_at(&folder, "out"), 1, &seen));
    assert_int_equal(seen.opened_at, 0);
    assert_non_null(strstr(seen.note, "no checkpoint"));
    scratch_close(&folder);
}

static void skips_damaged_newest_checkpoint_with_a_note(void **state) {
    (void)state;
    scratch folder = scratch_open();
    static strait_run run;
    tiny_run(&folder, &run);
    struct event_log straight = {0};
    CHECK_OK(run_session(&run, scratch_at(&folder, "out"), 0, &straight));
    FILE *file = fopen(scratch_at(&folder, "out/checkpoints/00000012/stage-0.safetensors"), "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, -3, SEEK_END), 0);
    assert_int_equal(fputc('!', file), '!');
    assert_int_equal(fclose(file), 0);
    struct event_log seen = {0};
    CHECK_OK(run_session(&run, scratch_at(&folder, "out"), 1, &seen));
    assert_int_equal(seen.opened_at, 8);
    assert_int_equal(seen.n_notes, 1);
    assert_non_null(strstr(seen.note, "using step 8"));
    scratch_close(&folder);
}

static void continues_if_a_checkpoint_cannot_be_written(void **state) {
    (void)state;
    scratch folder = scratch_open();
    static strait_run run;
    tiny_run(&folder, &run);
    struct event_log first = {.stop_after = 4};
    CHECK_FAILS(run_session(&run, scratch_at(&folder, "out"), 0, &first), STRAIT_EINTERRUPTED,
                "step 4");
    /* A file in place of the checkpoint folder makes only the save of step 8 fail. */
    FILE *file = fopen(scratch_at(&folder, "out/checkpoints/00000008"), "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    struct event_log seen = {0};
    CHECK_OK(run_session(&run, scratch_at(&folder, "out"), 1, &seen));
    assert_int_equal(seen.opened_at, 4);
    assert_int_equal(seen.last_step, 12);
    assert_true(seen.n_notes >= 1);
    struct strait_checkpoint *checkpoint = NULL;
    CHECK_OK(strait_checkpoint_open(scratch_at(&folder, "out/checkpoints/00000012"),
                                    STRAIT_CHECKPOINT_NEWEST, &checkpoint));
    assert_int_equal(strait_checkpoint_step(checkpoint), 12);
    strait_checkpoint_close(&checkpoint);
    scratch_close(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_to_the_end),
        cmocka_unit_test(syncs_metrics_before_a_checkpoint),
        cmocka_unit_test(host_syncs_metrics_before_the_next_step),
        cmocka_unit_test(resumed_run_equals_undisturbed_run),
        cmocka_unit_test(resume_without_checkpoint_starts_over),
        cmocka_unit_test(skips_damaged_newest_checkpoint_with_a_note),
        cmocka_unit_test(continues_if_a_checkpoint_cannot_be_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
