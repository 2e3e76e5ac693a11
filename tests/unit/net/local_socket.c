/* Requests over a local socket: one line in each direction, for the same user only. */
#include "net/core/local_socket.h"

#include "base/alloc.h"
#include "check.h"
#include "scratch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

static scratch folder;
static char path[512];
static struct strait_local_server *server;
static atomic_int is_over;

static char *repeat(void *user, const char *request) {
    char text[256], *out = NULL;
    ++*(int *)user;
    (void)snprintf(text, sizeof text, "[%.200s]", request);
    CHECK_OK(strait_alloc_string(text, &out));
    return out;
}

static void *serve(void *user) {
    const struct timespec nap = {.tv_nsec = 1000000};
    while (!atomic_load(&is_over)) {
        strait_local_serve(server, repeat, user);
        (void)nanosleep(&nap, NULL);
    }
    return NULL;
}

static int set_up(void **state) {
    (void)state;
    folder = scratch_open();
    (void)snprintf(path, sizeof path, "%s", scratch_at(&folder, "."));
    atomic_store(&is_over, 0);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    strait_local_close(&server);
    scratch_close(&folder);
    return 0;
}

static void answers_requests(void **state) {
    (void)state;
    pthread_t thread;
    int n_served = 0;
    char *answer = NULL;
    struct stat file;
    CHECK_OK(strait_local_open(path, "sock", &server));
    strait_local_close(&server);
    CHECK_OK(strait_local_open(path, "sock", &server)); // in place of an older one
    CHECK(stat(scratch_at(&folder, "sock"), &file) == 0 && (file.st_mode & 0777) == 0600);
    CHECK(pthread_create(&thread, NULL, serve, &n_served) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(strait_local_ask(path, "sock", "hello", 60000, &answer));
        CHECK(strcmp(answer, "[hello]") == 0);
        strait_alloc_free(answer);
    }
    atomic_store(&is_over, 1);
    (void)pthread_join(thread, NULL);
    CHECK(n_served == 3);
}

/* A caller that sends too much, or nothing, is dropped, and the next is answered. */
/* A coordinator that hung closes its socket late, when another has taken over. */
static void leaves_the_socket_of_a_successor(void **state) {
    (void)state;
    struct strait_local_server *old = NULL;
    struct stat file;
    CHECK_OK(strait_local_open(path, "sock", &old));
    CHECK_OK(strait_local_open(path, "sock", &server));
    strait_local_close(&old);
    CHECK(stat(scratch_at(&folder, "sock"), &file) == 0);
    strait_local_close(&server);
    CHECK(stat(scratch_at(&folder, "sock"), &file) != 0);
}

static void drops_callers_that_do_not_ask(void **state) {
    (void)state;
    static char endless[2 * STRAIT_LOCAL_REQUEST_MAX];
    pthread_t thread;
    int n_served = 0;
    char *answer = NULL;
    memset(endless, 'x', sizeof endless - 1);
    CHECK_OK(strait_local_open(path, "sock", &server));
    CHECK(pthread_create(&thread, NULL, serve, &n_served) == 0);
    CHECK(strait_local_ask(path, "sock", endless, 60000, &answer) == STRAIT_ETIMEDOUT);
    CHECK_OK(strait_local_ask(path, "sock", "again", 60000, &answer));
    CHECK(strcmp(answer, "[again]") == 0);
    strait_alloc_free(answer);
    atomic_store(&is_over, 1);
    (void)pthread_join(thread, NULL);
    CHECK(n_served == 1);
}

static void says_that_nobody_listens(void **state) {
    (void)state;
    char *answer = NULL;
    CHECK(strait_local_ask(path, "sock", "hello", 100, &answer) == STRAIT_ECLOSED);
    CHECK_OK(strait_local_open(path, "sock", &server));
    CHECK(strait_local_ask(path, "sock", "hello", 100, &answer) == STRAIT_ETIMEDOUT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(answers_requests, set_up, tear_down),
        cmocka_unit_test_setup_teardown(leaves_the_socket_of_a_successor, set_up, tear_down),
        cmocka_unit_test_setup_teardown(drops_callers_that_do_not_ask, set_up, tear_down),
        cmocka_unit_test_setup_teardown(says_that_nobody_listens, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
