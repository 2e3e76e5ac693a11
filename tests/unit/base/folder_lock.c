/* Who may write into the folder of a run. A lock belongs to a process, so children play the others.
 */
#include "base/folder_lock.h"

#include "check.h"
#include "scratch.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static scratch folder;

static int set_up(void **state) {
    (void)state;
    folder = scratch_open();
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    scratch_close(&folder);
    return 0;
}

/* A process that takes the folder and answers each byte with the result of a check. */
struct other {
    pid_t pid;
    int ask, answer; // pipes
};

static void serve_checks(uint64_t term, int ask, int answer) {
    struct strait_folder_lock lock;
    unsigned char result = (unsigned char)strait_folder_lock_take(&lock, folder.path, term);
    char byte = 0;
    do
        if (write(answer, &result, 1) != 1) _exit(2);
    while (result == 0 && read(ask, &byte, 1) == 1 &&
           ((result = (unsigned char)strait_folder_lock_check(&lock)), 1));
    _exit(0); // like a kill: nothing is released or removed
}

static strait_err answer_of(const struct other *o) {
    unsigned char result = 0;
    assert_int_equal(read(o->answer, &result, 1), 1);
    return (strait_err)result;
}

static strait_err ask(const struct other *o) {
    assert_int_equal(write(o->ask, "?", 1), 1);
    return answer_of(o);
}

static struct other start_other(uint64_t term) {
    int to[2], from[2];
    assert_int_equal(pipe(to) | pipe(from), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        (void)close(to[1]);
        serve_checks(term, to[0], from[1]);
    }
    (void)close(to[0]);
    (void)close(from[1]);
    return (struct other){pid, to[1], from[0]};
}

static void end_other(struct other *o) {
    assert_int_equal(kill(o->pid, SIGKILL), 0);
    assert_int_equal(waitpid(o->pid, NULL, 0), o->pid);
    (void)close(o->ask);
    (void)close(o->answer);
}

static void without_terms_one_process_works_at_a_time(void **state) {
    (void)state;
    struct strait_folder_lock lock = {.term = 0};
    struct other o = start_other(0);
    assert_int_equal(answer_of(&o), STRAIT_OK);
    CHECK_FAILS(strait_folder_lock_take(&lock, folder.path, 0), STRAIT_EIO, "another process");
    /* A term does not help against a program that is not a coordinator. */
    CHECK_FAILS(strait_folder_lock_take(&lock, folder.path, 7), STRAIT_EIO, "another process");
    assert_int_equal(ask(&o), STRAIT_OK);
    end_other(&o);
    CHECK_OK(strait_folder_lock_take(&lock, folder.path, 0));
    CHECK_OK(strait_folder_lock_check(&lock));
    strait_folder_lock_discard(&lock);
    assert_false(strait_file_exists(scratch_at(&folder, ".lock")));
    strait_folder_lock_release(&lock);
    strait_folder_lock_discard(&lock);
}

static void higher_term_takes_over_from_a_process_that_lives(void **state) {
    (void)state;
    struct strait_folder_lock lock = {.term = 0};
    struct other old = start_other(3);
    assert_int_equal(answer_of(&old), STRAIT_OK);
    assert_int_equal(ask(&old), STRAIT_OK);
    assert_int_equal(kill(old.pid, SIGSTOP), 0);
    CHECK_FAILS(strait_folder_lock_take(&lock, folder.path, 3), STRAIT_EIO, "another process");
    CHECK_OK(strait_folder_lock_take(&lock, folder.path, 5));
    CHECK_OK(strait_folder_lock_check(&lock));
    assert_false(strait_file_exists(scratch_at(&folder, ".term-3")));
    assert_int_equal(kill(old.pid, SIGCONT), 0);
    assert_int_equal(ask(&old), STRAIT_EDEPOSED);
    CHECK_OK(strait_folder_lock_renew(&lock, 5)); // the old process still holds the lock file
    end_other(&old);
    CHECK_OK(strait_folder_lock_renew(&lock, 5)); // now it is ours
    struct other train = start_other(0);
    assert_int_equal(answer_of(&train), STRAIT_EIO);
    end_other(&train);
    strait_folder_lock_release(&lock);
    assert_false(strait_file_exists(scratch_at(&folder, ".term-5")));
}

static void lower_term_never_takes_over(void **state) {
    (void)state;
    struct strait_folder_lock lock = {.term = 0};
    struct other old = start_other(3), leader;
    assert_int_equal(answer_of(&old), STRAIT_OK);
    leader = start_other(9);
    assert_int_equal(answer_of(&leader), STRAIT_OK);
    CHECK_FAILS(strait_folder_lock_take(&lock, folder.path, 5), STRAIT_EDEPOSED, "term 9");
    assert_false(strait_file_exists(scratch_at(&folder, ".term-5")));
    assert_int_equal(ask(&leader), STRAIT_OK);
    end_other(&old);
    end_other(&leader);
    /* Nobody is left: terms of dead processes do not matter, even if a new metastore counts from 1.
     */
    CHECK_OK(strait_folder_lock_take(&lock, folder.path, 1));
    CHECK_OK(strait_folder_lock_check(&lock));
    assert_false(strait_file_exists(scratch_at(&folder, ".term-9")));
    strait_folder_lock_release(&lock);
}

static void term_grows_unless_another_came_between(void **state) {
    (void)state;
    struct strait_folder_lock lock = {.term = 0};
    CHECK_OK(strait_folder_lock_take(&lock, folder.path, 4));
    CHECK_OK(strait_folder_lock_renew(&lock, 6)); // elected again after its lease expired
    assert_true(strait_file_exists(scratch_at(&folder, ".term-6")));
    assert_false(strait_file_exists(scratch_at(&folder, ".term-4")));
    struct other next = start_other(7);
    assert_int_equal(answer_of(&next), STRAIT_OK); // the lock file states term 6
    CHECK_FAILS(strait_folder_lock_renew(&lock, 8), STRAIT_EDEPOSED,
                "another coordinator (term 7) has taken over");
    strait_folder_lock_release(&lock);
    assert_int_equal(ask(&next), STRAIT_OK);
    end_other(&next);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(without_terms_one_process_works_at_a_time),
        TEST(higher_term_takes_over_from_a_process_that_lives),
        TEST(lower_term_never_takes_over),
        TEST(term_grows_unless_another_came_between),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
