/* find_refusals.c - find-refusals KIND [--all]: where a device does not start inside the sandbox of
 * "strait join", names the cause.
 *
 * Opens a device of KIND (cuda, cpu) without a sandbox, under each of its mechanisms alone, under
 * landlock with fewer rules or more rights, and under all of it, each in a process of its own.
 * Prints whether it started, and the system calls that were refused, with their paths: what is
 * refused in a case that fails and not in one that works is the cause. --all prints calls that
 * failed for other reasons, too. A KIND that begins with "/" is a file that is opened instead,
 * after a unix socket, as a test of this program. Exits with 1 if the device does not even start
 * without a sandbox. */
#include "backend/backend.h"
#include "confine.h"
#include "sandbox/sandbox.h"
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PATHS_MAX = 80,
    SECONDS_MAX = 60, // of one case, which then ends with SIGALRM
    NO_TRACE = 3      // exit status: ptrace is not allowed
};

struct mechanisms {
    const char *name;
    int has_nnp, landlock, has_filter; // landlock: 0 or the newest version to use
    const char *more_reads, *more_writes;
};

static const struct mechanisms cases[] = {
    {.name = "nothing"},
    {.name = "no_new_privs", .has_nnp = 1},
    {.name = "seccomp", .has_nnp = 1, .has_filter = 1},
    {.name = "landlock", .has_nnp = 1, .landlock = 99},
    {.name = "landlock, without scopes", .has_nnp = 1, .landlock = 5},
    {.name = "landlock, without scopes and rules of ioctl", .has_nnp = 1, .landlock = 4},
    {.name = "landlock, /dev/shm writable",
     .has_nnp = 1,
     .landlock = 99,
     .more_writes = "/dev/shm"},
    {.name = "landlock, /tmp writable", .has_nnp = 1, .landlock = 99, .more_writes = "/tmp"},
    {.name = "landlock, all files readable", .has_nnp = 1, .landlock = 99, .more_reads = "/"},
    {.name = "landlock, all files writable", .has_nnp = 1, .landlock = 99, .more_writes = "/"},
    {.name = "seccomp, and landlock with all files writable",
     .has_nnp = 1,
     .landlock = 99,
     .has_filter = 1,
     .more_writes = "/"},
    {.name = "the whole sandbox", .has_nnp = 1, .landlock = 99, .has_filter = 1},
};

static const char *kind;

/* A list that ends with NULL, and one more path. */
static void extend(const char *const *paths, const char *more, const char *out[PATHS_MAX + 2]) {
    int n = 0;
    for (; paths != NULL && paths[n] != NULL && n < PATHS_MAX; n++)
        out[n] = paths[n];
    out[n] = more;
    out[n + (more != NULL)] = NULL;
}

/* As strait_sandbox_enter does, but only the mechanisms of this case. */
static strait_err enter(const struct mechanisms *m) {
    static const char *reads[PATHS_MAX + 2], *writes[PATHS_MAX + 2];
    strait_sandbox_support support;
    strait_sandbox_spec spec;
    strait_sandbox_probe(&support);
    strait_confine_spec(kind, 1, &spec);
    extend(spec.reads, m->more_reads, reads);
    extend(spec.writes, m->more_writes, writes);
    spec.reads = reads;
    spec.writes = writes;
    const int abi = support.landlock_abi < m->landlock ? support.landlock_abi : m->landlock;
    if (m->has_nnp && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return strait_sandbox_fail("no_new_privs", errno);
    if (m->landlock > 0 && abi == 0)
        return STRAIT_FAIL(STRAIT_ENOTSUP, "no landlock: %s", support.no_landlock);
    if (abi > 0) STRAIT_TRY(strait_sandbox_landlock(&spec, abi));
    return m->has_filter ? strait_sandbox_filter(&spec) : STRAIT_OK;
}

static strait_err start(void) {
    struct strait_backend *backend = NULL;
    if (kind[0] != '/') return strait_backend_open((strait_backend_spec){.name = kind}, &backend);
    (void)socket(AF_UNIX, SOCK_STREAM, 0); // seccomp refuses it
    if (open(kind, O_RDONLY | O_CLOEXEC) >= 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EIO, "%s: %s", kind, strerrordesc_np(errno));
}

/* In a process of its own; the reason of a failure goes to `report`. */
static int act(const struct mechanisms *m, int is_traced, int report) {
    (void)alarm(SECONDS_MAX);
    if (is_traced && !trace_begin()) return NO_TRACE;
    strait_err err = enter(m);
    if (err == STRAIT_OK) err = start();
    const char *detail = strait_err_detail();
    return err != STRAIT_OK && write(report, detail, strlen(detail)) >= 0;
}

static int run(const struct mechanisms *m, int prints_all, int is_traced) {
    char detail[512] = "";
    int status = 0, ends[2];
    (void)fflush(NULL);
    if (pipe(ends) != 0) return -1;
    const pid_t child = fork();
    if (child == 0) _exit(act(m, is_traced, ends[1]));
    (void)close(ends[1]);
    if (child > 0 && is_traced)
        status = trace_follow(child, prints_all);
    else if (child > 0)
        (void)waitpid(child, &status, 0);
    const ssize_t n = read(ends[0], detail, sizeof detail - 1);
    (void)close(ends[0]);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_TRACE) return NO_TRACE;
    if (WIFSIGNALED(status))
        (void)snprintf(detail, sizeof detail, "ended with signal %d", WTERMSIG(status));
    const int starts = child > 0 && n <= 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    (void)printf("%s: %s%s\n", m->name, starts ? "starts" : "DOES NOT START: ", detail);
    return !starts;
}

int main(int n_args, char **args) {
    int is_traced = 1, failed = 0;
    const int prints_all = n_args == 3 && strcmp(args[2], "--all") == 0;
    if (n_args != 2 && !prints_all) {
        (void)fprintf(stderr, "usage: find-refusals KIND [--all]\n");
        return 2;
    }
    kind = args[1];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int result = run(&cases[i], prints_all, is_traced);
        if (result == NO_TRACE) {
            (void)printf("ptrace: not allowed here: refused calls are not shown\n");
            is_traced = 0;
            result = run(&cases[i], prints_all, is_traced);
        }
        if (i == 0) failed = result;
    }
    return failed != 0;
}
