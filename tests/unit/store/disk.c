/* What a full disk, a folder that cannot be written and a kill leave behind. */
#include "base/alloc.h"
#include "check.h"
#include "scratch.h"
#include "store/checkpoint.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum {
    N_VALUES = 1 << 18
};

static strait_err save(const char *run, int64_t step, float *values, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)(step + i);
    const strait_safetensors_item items[] = {{"w", {values, STRAIT_F32, 1, n}, 0}};
    const strait_checkpoint_stage_file files[] = {{.items = items, .n_items = 1}};
    const strait_checkpoint_plan plan = {
        .step = step, .tokenizer = "", .files = files, .n_files = 1, .keep = 2};
    return strait_checkpoint_save(run, &plan);
}

static void check_holds(const char *run, int64_t step) {
    struct strait_checkpoint *c = NULL;
    CHECK_OK(strait_checkpoint_open(run, STRAIT_CHECKPOINT_NEWEST, &c));
    assert_int_equal(strait_checkpoint_step(c), step);
    float *values = NULL;
    CHECK_OK(strait_alloc(N_VALUES, sizeof *values, "values", (void **)&values));
    CHECK_OK(strait_checkpoint_read(c, "w", (strait_tensor){values, STRAIT_F32, 1, N_VALUES}));
    for (int64_t i = 0; i < N_VALUES; i++)
        CHECK(values[i] == (float)(step + i));
    strait_alloc_free(values);
    strait_checkpoint_close(&c);
}

static float *make_values(void) {
    float *values = NULL;
    CHECK_OK(strait_alloc(N_VALUES, sizeof *values, "values", (void **)&values));
    return values;
}

/* A limit on the size of files stands in for a disk that fills up in the middle of a file. */
static void test_full_disk_keeps_last_checkpoint(void **state) {
    (void)state;
    scratch dir = scratch_open();
    float *values = make_values();
    CHECK_OK(save(dir.path, 10, values, N_VALUES));
    (void)signal(SIGXFSZ, SIG_IGN);
    struct rlimit before;
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    const rlim_t limits[] = {0, 100, 65536, sizeof(float) * N_VALUES};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){limits[i], before.rlim_max}) == 0);
        const strait_err err = save(dir.path, 20, values, N_VALUES);
        char detail[512];
        (void)snprintf(detail, sizeof detail, "%s", strait_err_detail());
        CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
        assert_int_equal(err, STRAIT_EIO);
        CHECK(strstr(detail, "checkpoint of step 20 is not saved, earlier ones are kept: ") ==
              detail);
        CHECK(strstr(detail, "00000020.tmp/stage-0.safetensors: cannot write: File too large"));
        CHECK(!strait_file_exists(scratch_at(&dir, "checkpoints/00000020.tmp")));
        check_holds(dir.path, 10);
    }
    CHECK_OK(save(dir.path, 20, values, N_VALUES));
    check_holds(dir.path, 20);
    strait_alloc_free(values);
    scratch_close(&dir);
}

/* As anyone but root, whom no mode stops. Returns the exit status of the child. */
static int save_in_read_only_folder(const scratch *dir, float *values) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(77);
        const strait_err err = save(dir->path, 20, values, N_VALUES);
        const int is_named = strstr(strait_err_detail(), "step 20 is not saved") != NULL &&
                             strstr(strait_err_detail(), "Permission denied") != NULL;
        _exit(err == STRAIT_EIO && is_named ? 0 : 1);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_read_only_folder_keeps_last_checkpoint(void **state) {
    (void)state;
    scratch dir = scratch_open();
    float *values = make_values();
    CHECK_OK(save(dir.path, 10, values, N_VALUES));
    CHECK(chmod(dir.path, 0755) == 0);
    CHECK(chmod(scratch_at(&dir, "checkpoints"), 0555) == 0);
    const int status = save_in_read_only_folder(&dir, values);
    CHECK(chmod(scratch_at(&dir, "checkpoints"), 0755) == 0);
    CHECK(status == 0 || status == 77);
    check_holds(dir.path, 10);
    strait_alloc_free(values);
    scratch_close(&dir);
    if (status == 77) skip();
}

static void test_names_file_in_place_of_a_folder(void **state) {
    (void)state;
    scratch dir = scratch_open();
    float values[4];
    CHECK_OK(strait_file_write(scratch_at(&dir, "checkpoints"), "", 0));
    CHECK_FAILS(save(dir.path, 20, values, 4), STRAIT_EIO, "step 20 is not saved");
    CHECK(strstr(strait_err_detail(), "/checkpoints") != NULL);
    CHECK_FAILS(strait_checkpoint_prepare(dir.path), STRAIT_EIO, "checkpoints: not a folder");
    scratch_close(&dir);
}

/* Killed at a random moment of saving again and again, a run always has a whole checkpoint. */
static void test_kill_at_any_time_leaves_a_valid_checkpoint(void **state) {
    (void)state;
    scratch dir = scratch_open();
    float *values = make_values();
    CHECK_OK(save(dir.path, 1, values, N_VALUES));
    for (int round = 0; round < 12; round++) {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            for (int64_t step = 2 + round * 1000;; step++)
                if (save(dir.path, step, values, N_VALUES) != STRAIT_OK) _exit(1);
        const struct timespec nap = {0, 1000000L * (3 + 7 * round)};
        (void)nanosleep(&nap, NULL);
        CHECK(kill(child, SIGKILL) == 0);
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status));
        CHECK_OK(strait_checkpoint_prepare(dir.path));
        struct strait_checkpoint *c = NULL;
        CHECK_OK(strait_checkpoint_open(dir.path, STRAIT_CHECKPOINT_NEWEST, &c));
        const int64_t step = strait_checkpoint_step(c);
        strait_checkpoint_close(&c);
        check_holds(dir.path, step);
    }
    strait_alloc_free(values);
    scratch_close(&dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_disk_keeps_last_checkpoint),
        cmocka_unit_test(test_read_only_folder_keeps_last_checkpoint),
        cmocka_unit_test(test_names_file_in_place_of_a_folder),
        cmocka_unit_test(test_kill_at_any_time_leaves_a_valid_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
