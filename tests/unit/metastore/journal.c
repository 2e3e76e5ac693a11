/* The journal backend on a real disk: kills, full disks, locks between processes, rewriting. */
#include "metastore/journal_format.h"
#include "metastore_rig.h"
#include "scratch.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static scratch folder;
static char store[STRAIT_PATH_MAX];
static struct metastore_world world;

static int set_up(void **state) {
    (void)state;
    folder = scratch_open();
    CHECK_OK(strait_file_path(store, "journal:%s", scratch_at(&folder, "journal")));
    world.config = (strait_metastore_config){.store = store, .run = "run-1"};
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    scratch_close(&folder);
    return 0;
}

static off_t size_of(const char *name) {
    struct stat info;
    return stat(scratch_at(&folder, name), &info) == 0 ? info.st_size : -1;
}

static strait_err keep_number(void *user, const strait_metastore_entry *entry) {
    char text[32] = "";
    CHECK(entry->bytes < sizeof text);
    memcpy(text, entry->data, entry->bytes);
    *(int64_t *)user = strtoll(text, NULL, 10);
    return STRAIT_OK;
}

/* ---- kills ---- */

/* Commits step after step, and reports each through the pipe. */
static void commit_until_killed(int pipe_fd) {
    struct strait_metastore *a = metastore_rig_open(&world, "child");
    uint64_t term = 0;
    int64_t step = 0;
    if (strait_metastore_claim(a, &term) != STRAIT_OK) _exit(2);
    if (strait_metastore_read(a, "step", keep_number, &step) != STRAIT_OK) _exit(3);
    char padding[600];
    memset(padding, 'p', sizeof padding);
    for (;;) {
        char text[32];
        (void)snprintf(text, sizeof text, "%" PRId64, ++step);
        const strait_metastore_change changes[] = {
            {.key = "step", .data = text, .bytes = strlen(text)},
            {.key = "padding", .data = padding, .bytes = sizeof padding}};
        if (strait_metastore_commit(a, changes, 2, NULL) != STRAIT_OK) _exit(4);
        if (write(pipe_fd, &step, sizeof step) != sizeof step) _exit(5);
    }
}

static pid_t start_child(int *out_fd) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        (void)close(ends[0]);
        commit_until_killed(ends[1]);
    }
    (void)close(ends[1]);
    *out_fd = ends[0];
    return child;
}

static void end_child(pid_t child, int signal) {
    int status = 0;
    CHECK(kill(child, signal) == 0);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == signal);
}

/* Lets the child commit `n` steps and a little more, kills it and returns the last step reported.
 */
static int64_t kill_after(int n, long bit_us) {
    int fd = -1;
    int64_t step = 0;
    const pid_t child = start_child(&fd);
    for (int i = 0; i < n; i++)
        CHECK(read(fd, &step, sizeof step) == sizeof step);
    (void)nanosleep(&(struct timespec){0, bit_us * 1000}, NULL);
    end_child(child, SIGKILL);
    int64_t later = 0;
    while (read(fd, &later, sizeof later) == sizeof later)
        step = later;
    (void)close(fd);
    return step;
}

static void test_a_kill_loses_no_acknowledged_commit(void **state) {
    (void)state;
    int64_t told = 0;
    for (int i = 0; i < 20; i++) {
        const int64_t last = kill_after(1 + i % 7, 37L * i * i % 900);
        CHECK(last > told);
        told = last;
        struct strait_metastore *a = metastore_rig_open(&world, "parent");
        int64_t step = 0;
        CHECK_OK(strait_metastore_read(a, "step", keep_number, &step));
        CHECK(step == told ||
              step == told + 1); // the last may have been committed but not reported
        assert_int_equal(metastore_rig_claim(a), 2 * (i + 1));
        told = step;
        strait_metastore_close(&a);
    }
}

static void test_another_process_holds_the_lock_until_it_dies(void **state) {
    (void)state;
    int fd = -1;
    int64_t step = 0;
    uint64_t term = 0;
    const pid_t child = start_child(&fd);
    CHECK(read(fd, &step, sizeof step) == sizeof step);
    struct strait_metastore *a = metastore_rig_open(&world, "parent");
    CHECK_FAILS(strait_metastore_claim(a, &term), STRAIT_EAGAIN, "another coordinator is using");
    struct stat info; // another user who may open the lock file could hold it
    CHECK(stat(scratch_at(&folder, "journal.lock"), &info) == 0 && (info.st_mode & 0777) == 0600);
    CHECK_FAILS(strait_metastore_await(a, 50), STRAIT_ETIMEDOUT, "still led by 'child'");
    CHECK(kill(child, SIGSTOP) == 0); // stopped is not dead
    CHECK_FAILS(strait_metastore_claim(a, &term), STRAIT_EAGAIN, "another coordinator is using");
    end_child(child, SIGKILL);
    CHECK_OK(strait_metastore_await(a, 60000));
    assert_int_equal(metastore_rig_claim(a), 2);
    (void)close(fd);
    strait_metastore_close(&a);
}

/* ---- disks ---- */

/* A limit on the size of files simulates a full disk. */
static void limit_files(rlim_t bytes) {
    struct rlimit limit;
    (void)signal(SIGXFSZ, SIG_IGN);
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static void test_a_full_disk_loses_nothing_and_recovers(void **state) {
    (void)state;
    struct strait_metastore *a = metastore_rig_open(&world, "alice");
    (void)metastore_rig_claim(a);
    metastore_rig_put(a, "k", "kept");
    for (int capacity = 0; capacity < 60; capacity += 7) { // a record of 25 + 24 + 15 bytes
        const off_t before = size_of("journal");
        limit_files((rlim_t)(before + capacity));
        CHECK_FAILS(strait_metastore_put(a, "k", "twenty bytes of loss", 20), STRAIT_EIO,
                    "journal: cannot write");
        CHECK(strstr(strait_err_detail(), "nothing committed is lost") != NULL);
        limit_files(RLIM_INFINITY);
        assert_int_equal(size_of("journal"), before);
        metastore_rig_expect(a, "", "k=kept ");
        struct strait_metastore *b = metastore_rig_open(&world, "bob");
        metastore_rig_expect(b, "", "k=kept ");
        strait_metastore_close(&b);
        metastore_rig_put(a, "k", "kept");
    }
    strait_metastore_close(&a);
    limit_files(0);
    a = metastore_rig_open(&world, "alice");
    uint64_t term = 0;
    CHECK_FAILS(strait_metastore_claim(a, &term), STRAIT_EIO, "cannot write");
    limit_files(RLIM_INFINITY);
    CHECK(metastore_rig_claim(a) == 2);
    metastore_rig_expect(a, "", "k=kept ");
    strait_metastore_close(&a);
}

static void test_an_unwritable_folder_is_named(void **state) {
    (void)state;
    struct metastore_world nowhere = world;
    nowhere.config.store = "journal:/proc/strait/journal";
    struct strait_metastore *a = metastore_rig_open(&nowhere, "alice");
    uint64_t term = 0;
    CHECK_FAILS(strait_metastore_claim(a, &term), STRAIT_EIO, "/proc/strait/journal.lock: cannot");
    metastore_rig_expect(a, "", "");
    strait_metastore_close(&a);
}

static void test_a_removed_journal_is_written_again(void **state) {
    (void)state;
    struct strait_metastore *a = metastore_rig_open(&world, "alice");
    (void)metastore_rig_claim(a);
    metastore_rig_put(a, "k", "1");
    CHECK(unlink(scratch_at(&folder, "journal")) == 0);
    metastore_rig_put(a, "l", "2");
    strait_metastore_close(&a);
    a = metastore_rig_open(&world, "alice");
    CHECK(metastore_rig_claim(a) == 2);
    metastore_rig_expect(a, "", "k=1 l=2 ");
    strait_metastore_close(&a);
}

/* The invite's token is one of the entries. */
static void test_only_the_owner_may_read_the_journal(void **state) {
    (void)state;
    struct stat info;
    const mode_t before = umask(0);
    struct strait_metastore *a = metastore_rig_open(&world, "alice");
    (void)metastore_rig_claim(a);
    metastore_rig_put(a, "k", "1");
    strait_metastore_close(&a);
    (void)umask(before);
    CHECK(stat(scratch_at(&folder, "journal"), &info) == 0);
    assert_int_equal(info.st_mode & 0777, 0600);
}

static void test_discard_removes_a_journal_without_entries(void **state) {
    (void)state;
    struct strait_metastore *a = metastore_rig_open(&world, "alice");
    struct strait_metastore *b = metastore_rig_open(&world, "bob");
    uint64_t term = 0;
    strait_metastore_discard(a); // without a term it removes nothing
    assert_int_equal(metastore_rig_claim(b), 1);
    strait_metastore_discard(a);
    CHECK(size_of("journal") > 0 && size_of("journal.lock") >= 0);
    CHECK_FAILS(strait_metastore_claim(a, &term), STRAIT_EAGAIN, "another coordinator");
    strait_metastore_discard(b);
    assert_int_equal(size_of("journal"), -1);
    assert_int_equal(size_of("journal.lock"), -1);
    assert_int_equal(strait_metastore_term(b), 0);
    assert_int_equal(metastore_rig_claim(a), 1); // the standby leads, with a lock that others see
    CHECK_FAILS(strait_metastore_claim(b, &term), STRAIT_EAGAIN, "another coordinator");
    CHECK_OK(strait_metastore_renew(a));
    CHECK_OK(strait_metastore_put(a, "step", "7", 1));
    strait_metastore_discard(a);
    assert_int_equal(metastore_rig_claim(b), 2);
    int64_t step = 0;
    CHECK_OK(strait_metastore_read(b, "step", keep_number, &step));
    assert_int_equal(step, 7);
    strait_metastore_close(&a);
    strait_metastore_close(&b);
}

static void test_a_growing_journal_is_rewritten(void **state) {
    (void)state;
    enum {
        N_ROUNDS = 60,
        BYTES = 64 * 1024,
        MIB = 1024 * 1024
    };
    static unsigned char value[BYTES];
    struct strait_metastore *a = metastore_rig_open(&world, "alice");
    uint64_t last = 0;
    off_t largest = 0;
    (void)metastore_rig_claim(a);
    for (int i = 0; i < N_ROUNDS; i++) {
        memset(value, i, sizeof value);
        const strait_metastore_change changes[] = {
            {.key = "assignment", .data = value, .bytes = sizeof value},
            {.key = "gone", .data = i % 2 ? NULL : "x", .bytes = 1}};
        CHECK_OK(strait_metastore_commit(a, changes, 2, &last));
        if (size_of("journal") > largest) largest = size_of("journal");
    }
    CHECK(largest > MIB);                    // it grew,
    CHECK(largest < MIB + (off_t)5 * BYTES); // and was rewritten
    CHECK(size_of("journal.tmp") < 0);
    strait_metastore_close(&a);
    a = metastore_rig_open(&world, "alice");
    (void)metastore_rig_claim(a);
    struct metastore_rig_list list = {.n = 0};
    CHECK_OK(strait_metastore_read(a, "gone", metastore_rig_add, &list));
    assert_int_equal(list.n, 0);
    uint64_t next = 0;
    const strait_metastore_change change = {.key = "k", .data = "v", .bytes = 1};
    CHECK_OK(strait_metastore_commit(a, &change, 1, &next));
    assert_int_equal(next, last + 1); // though the last change was a removal
    strait_metastore_close(&a);
}

/* ---- foreign and torn files ---- */

static void test_foreign_files_are_rejected_unchanged(void **state) {
    (void)state;
    struct strait_metastore *a = metastore_rig_open(&world, "alice");
    uint64_t term = 0;
    (void)metastore_rig_claim(a);
    strait_metastore_close(&a);
    struct metastore_world other = world;
    other.config.run = "run-2";
    a = metastore_rig_open(&other, "alice");
    const off_t before = size_of("journal");
    CHECK_FAILS(strait_metastore_claim(a, &term), STRAIT_EDATA, "journal of run 'run-1'");
    CHECK_FAILS(strait_metastore_read(a, "", metastore_rig_add, NULL), STRAIT_EDATA, "'run-2'");
    assert_int_equal(size_of("journal"), before);
    CHECK_OK(strait_file_write(scratch_at(&folder, "journal"), "", 0));
    CHECK_FAILS(strait_metastore_claim(a, &term), STRAIT_EDATA, "not a journal");
    CHECK_OK(strait_file_write(scratch_at(&folder, "journal"), "name: x\n", 8));
    CHECK_FAILS(strait_metastore_claim(a, &term), STRAIT_EDATA, "not a journal");
    assert_int_equal(size_of("journal"), 8);
    CHECK(unlink(scratch_at(&folder, "journal")) == 0);
    CHECK_OK(strait_file_make_folders(scratch_at(&folder, "journal")));
    CHECK_FAILS(strait_metastore_claim(a, &term), STRAIT_EIO, "journal: cannot open");
    strait_metastore_close(&a);
}

/* Truncated before or within the last record, the journal continues from the record before. */
static void test_a_torn_end_is_truncated_and_appended_to(void **state) {
    (void)state;
    for (off_t cut = 0; cut < 50; cut += 6) {
        struct strait_metastore *a = metastore_rig_open(&world, "alice");
        (void)metastore_rig_claim(a);
        metastore_rig_put(a, "step", "1");
        const off_t whole = size_of("journal");
        metastore_rig_put(a, "step", "2");
        strait_metastore_close(&a);
        const off_t end = size_of("journal");
        CHECK(truncate(scratch_at(&folder, "journal"), end - cut) == 0);
        a = metastore_rig_open(&world, "alice");
        const char *expected = cut == 0 ? "step=2 " : "step=1 ";
        metastore_rig_expect(a, "step", expected);
        CHECK(size_of("journal") == end - cut); // reading does not truncate
        (void)metastore_rig_claim(a);
        CHECK(size_of("journal") > whole);
        metastore_rig_put(a, "more", "3");
        strait_metastore_close(&a);
        a = metastore_rig_open(&world, "alice");
        metastore_rig_expect(a, "step", expected);
        metastore_rig_expect(a, "more", "more=3 ");
        strait_metastore_close(&a);
    }
}

int main(void) {
#define ON_DISK(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ON_DISK(test_a_kill_loses_no_acknowledged_commit),
        ON_DISK(test_another_process_holds_the_lock_until_it_dies),
        ON_DISK(test_a_full_disk_loses_nothing_and_recovers),
        ON_DISK(test_an_unwritable_folder_is_named),
        ON_DISK(test_a_removed_journal_is_written_again),
        ON_DISK(test_only_the_owner_may_read_the_journal),
        ON_DISK(test_discard_removes_a_journal_without_entries),
        ON_DISK(test_a_growing_journal_is_rewritten),
        ON_DISK(test_foreign_files_are_rejected_unchanged),
        ON_DISK(test_a_torn_end_is_truncated_and_appended_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
