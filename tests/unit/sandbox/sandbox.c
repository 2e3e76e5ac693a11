/* What a confined process can still do, and what it cannot. Each case runs in a child, because a
 * sandbox cannot be left. tests/cli/swarm/sandbox.sh tries the same inside a joined worker. */
#include "sandbox/sandbox.h"

#include "check.h"
#include "scratch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum {
    LANDLOCK_CREATE = 444 // landlock_create_ruleset, on all architectures
};

static strait_sandbox_support support;
static scratch folder;
static const char *reads[] = {NULL, NULL}, *writes[] = {NULL, NULL};

/* Runs `act` in a child; it returns 0, or the number of the line that failed. */
static void run_child(int (*act)(void)) {
    int status = 0;
    (void)fflush(NULL);
    const pid_t child = fork();
    if (child == 0) _exit(act());
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status)) fail_msg("the child ended with signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status) != 0) fail_msg("line %d of this file, modulo 256", WEXITSTATUS(status));
}

static strait_sandbox_spec confinement; // of the next run_confined
static int (*confined_act)(void);

static int enter_and_act(void) {
    char line[STRAIT_SANDBOX_LINE];
    const strait_err err = strait_sandbox_enter(&confinement, line);
    if (err != STRAIT_OK) (void)fprintf(stderr, "%s\n", strait_err_detail());
    return err != STRAIT_OK ? 255 : confined_act();
}

/* The same, in a child that is confined first. */
static void run_confined(strait_sandbox_spec spec, int (*act)(void)) {
    confinement = spec;
    confined_act = act;
    run_child(enter_and_act);
}

/* In a child: an exit status has eight bits. */
#define EXPECT(condition)                        \
    do {                                         \
        if (!(condition)) return __LINE__ % 256; \
    } while (0)

static int opens(const char *path, int flags) {
    const int fd = open(path, flags, 0600);
    if (fd >= 0) (void)close(fd);
    return fd >= 0;
}

static void *do_nothing(void *user) {
    return user;
}

static int works_as_a_worker_does(void) {
    pthread_t thread;
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    EXPECT(pthread_create(&thread, NULL, do_nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
    EXPECT(getaddrinfo("localhost", "80", &hints, &found) == 0);
    freeaddrinfo(found);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    EXPECT(fd >= 0 && listen(fd, 1) == 0);
    EXPECT(opens("/proc/meminfo", O_RDONLY) && opens("/proc/self/maps", O_RDONLY));
    EXPECT(opens("/dev/urandom", O_RDONLY));
    void *memory = malloc(1 << 24);
    EXPECT(memory != NULL);
    free(memory);
    return 0;
}

static int starts_no_program(void) {
    char *const arguments[] = {"true", NULL};
    EXPECT(execve("/bin/true", arguments, NULL) != 0 && errno == EPERM);
    EXPECT(fork() < 0);
    EXPECT(unshare(CLONE_NEWUSER) != 0 && errno == EPERM);
    EXPECT(socket(AF_UNIX, SOCK_STREAM, 0) < 0);
    EXPECT(kill(getppid(), 0) != 0);
    return 0;
}

/* What NVIDIA's driver opens; those of desktop services are streams. */
static int opens_packet_sockets_only(void) {
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    EXPECT(fd >= 0 && close(fd) == 0);
    EXPECT(socket(AF_UNIX, SOCK_STREAM, 0) < 0 && socket(AF_UNIX, SOCK_DGRAM, 0) < 0);
    return 0;
}

static void *name_own_thread(void *out) {
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/task/%ld/comm", syscall(SYS_gettid));
    *(int *)out = opens(path, O_WRONLY | O_CREAT | O_TRUNC);
    return NULL;
}

/* NVIDIA's driver names the threads that it starts. */
static int names_its_threads_only(void) {
    pthread_t thread;
    int is_named = 0;
    char path[64];
    EXPECT(pthread_create(&thread, NULL, name_own_thread, &is_named) == 0);
    EXPECT(pthread_join(thread, NULL) == 0 && is_named);
    (void)snprintf(path, sizeof path, "/proc/%d/comm", (int)getppid());
    EXPECT(support.landlock_abi == 0 || !opens(path, O_WRONLY));
    return 0;
}

/* Landlock refuses a port where the filter cannot: NVIDIA's driver listens at a unix socket. */
static int cannot_bind(void) {
    const struct sockaddr_in any = {.sin_family = AF_INET};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT(fd >= 0 && bind(fd, (const struct sockaddr *)&any, sizeof any) != 0 && errno == EACCES);
    return 0;
}

static int cannot_listen(void) {
    const int fd = socket(AF_INET6, SOCK_STREAM, 0);
    EXPECT(fd < 0 || (listen(fd, 1) != 0 && errno == EPERM));
    return 0;
}

static int opens_only_what_was_given(void) {
    const char *given = scratch_at(&folder, "given/file");
    EXPECT(opens(given, O_RDONLY));
    EXPECT(!opens(given, O_WRONLY) && !opens(given, O_RDWR));
    EXPECT(!opens(scratch_at(&folder, "new"), O_WRONLY | O_CREAT));
    EXPECT(rename(given, scratch_at(&folder, "moved")) != 0);
    if (support.landlock_abi == 0) return 0;
    EXPECT(!opens(scratch_at(&folder, "other"), O_RDONLY) && errno == EACCES);
    EXPECT(!opens("/etc/passwd", O_RDONLY) && errno == EACCES);
    return 0;
}

static int writes_only_what_was_given(void) {
    EXPECT(opens(scratch_at(&folder, "given/file"), O_RDWR));
    EXPECT(opens(scratch_at(&folder, "given/new"), O_WRONLY | O_CREAT));
    EXPECT(unlink(scratch_at(&folder, "given/new")) == 0);
    if (support.landlock_abi == 0) return 0;
    EXPECT(!opens(scratch_at(&folder, "other"), O_RDWR) && errno == EACCES);
    EXPECT(!opens(scratch_at(&folder, "new"), O_WRONLY | O_CREAT) && errno == EACCES);
    return 0;
}

static void a_confined_worker_can_work(void **state) {
    (void)state;
    run_confined((strait_sandbox_spec){.may_listen = 1}, works_as_a_worker_does);
    run_confined((strait_sandbox_spec){.may_listen = 1, .uses_cuda = 1}, works_as_a_worker_does);
}

static void a_confined_worker_starts_no_program(void **state) {
    (void)state;
    run_confined((strait_sandbox_spec){.may_listen = 1}, starts_no_program);
    run_confined((strait_sandbox_spec){.may_listen = 1, .uses_cuda = 1}, starts_no_program);
    run_confined((strait_sandbox_spec){.may_listen = 1, .uses_cuda = 1}, opens_packet_sockets_only);
    run_confined((strait_sandbox_spec){.uses_cuda = 1}, names_its_threads_only);
}

static void without_permission_it_does_not_listen(void **state) {
    (void)state;
    run_confined((strait_sandbox_spec){0}, cannot_listen);
    if (support.landlock_abi >= 4) run_confined((strait_sandbox_spec){.uses_cuda = 1}, cannot_bind);
}

static void files_are_limited_to_those_given(void **state) {
    (void)state;
    if (support.landlock_abi == 0)
        print_message("skipped: kernel has no landlock (%s): which files can be opened\n",
                      support.no_landlock);
    run_confined((strait_sandbox_spec){.reads = reads}, opens_only_what_was_given);
    run_confined((strait_sandbox_spec){.writes = writes}, writes_only_what_was_given);
}

static int describes_itself(void) {
    char line[STRAIT_SANDBOX_LINE] = "";
    EXPECT(strait_sandbox_enter(&(strait_sandbox_spec){0}, line) == STRAIT_OK);
    EXPECT(strstr(line, "accepts no connection") != NULL);
    EXPECT(strstr(line, support.landlock_abi > 0 ? "reads system files only" : "NO landlock"));
    return 0;
}

static void says_what_is_in_force(void **state) {
    (void)state;
    run_child(describes_itself);
}

/* Makes a system call fail for the rest of this process, as on a kernel that does not have it. */
static int forget_call(int call) {
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    const int is_gone = filter != NULL &&
                        seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), call, 0) == 0 &&
                        seccomp_load(filter) == 0;
    seccomp_release(filter);
    return is_gone;
}

static int enters_without_landlock(void) {
    char line[STRAIT_SANDBOX_LINE];
    EXPECT(forget_call(LANDLOCK_CREATE));
    EXPECT(strait_sandbox_enter(&(strait_sandbox_spec){0}, line) == STRAIT_OK);
    EXPECT(strstr(line, "NO landlock (this kernel has none: files of this user can be read)"));
    EXPECT(opens(scratch_at(&folder, "other"), O_RDONLY));
    EXPECT(!opens(scratch_at(&folder, "other"), O_WRONLY) && errno == EPERM);
    EXPECT(fork() < 0);
    return 0;
}

static int refuses_without_seccomp(void) {
    char line[STRAIT_SANDBOX_LINE];
    EXPECT(forget_call(SCMP_SYS(seccomp)));
    EXPECT(strait_sandbox_enter(&(strait_sandbox_spec){0}, line) == STRAIT_ENOTSUP);
    EXPECT(strstr(strait_err_detail(), "--no-sandbox") != NULL);
    return 0;
}

static void a_kernel_without_landlock_is_reported(void **state) {
    (void)state;
    run_child(enters_without_landlock);
}

static void a_kernel_without_seccomp_is_an_error(void **state) {
    (void)state;
    run_child(refuses_without_seccomp);
}

static void make_file(const char *name) {
    const int fd = open(scratch_at(&folder, name), O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0 && close(fd) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_confined_worker_can_work),
        cmocka_unit_test(a_confined_worker_starts_no_program),
        cmocka_unit_test(without_permission_it_does_not_listen),
        cmocka_unit_test(files_are_limited_to_those_given),
        cmocka_unit_test(says_what_is_in_force),
        cmocka_unit_test(a_kernel_without_landlock_is_reported),
        cmocka_unit_test(a_kernel_without_seccomp_is_an_error),
    };
    strait_sandbox_probe(&support);
    if (!support.has_seccomp) return 77; // CTest: skipped
    folder = scratch_open();
    char given[STRAIT_PATH_MAX];
    (void)snprintf(given, sizeof given, "%s", scratch_at(&folder, "given"));
    if (mkdir(given, 0700) != 0) return 1;
    reads[0] = writes[0] = given;
    make_file("given/file");
    make_file("other");
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_close(&folder);
    return n_failed;
}
