/* intruder.c - the program, whose worker has fallen to an attacker: after its first reply it tries
 * what the sandbox of "strait join" forbids, and prints one line for each attempt:
 *
 *     intruder: NAME: done            or the name of the error: EPERM, EACCES, ENOENT, ...
 *
 * It then goes on as an honest worker. INTRUDER_FILE names a file of the user. */
#include "swarm/worker/state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Names required by the linker's --wrap. NOLINTBEGIN(*-naming,*-reserved-identifier,cert-dcl*) */
strait_err __real_strait_worker_send_reply(struct worker *w, strait_stage_reply *reply);
strait_err __wrap_strait_worker_send_reply(struct worker *w, strait_stage_reply *reply);

static void report(const char *name, int is_done) {
    fprintf(stderr, "intruder: %s: %s\n", name, is_done ? "done" : strerrorname_np(errno));
}

static void try_open(const char *name, const char *path, int flags) {
    const int fd = open(path, flags, 0600);
    report(name, fd >= 0);
    if (fd >= 0) (void)close(fd);
}

/* Without the sandbox the program is not found, with it the call itself is refused. */
static void try_programs(void) {
    char *const arguments[] = {"program", NULL};
    (void)execve("/no/such/program", arguments, NULL);
    report("execve", 0);
    (void)syscall(SYS_execveat, AT_FDCWD, "/no/such/program", arguments, NULL, 0);
    report("execveat", 0);
    const pid_t child = fork();
    if (child == 0) _exit(0);
    report("fork", child > 0);
    if (child > 0) (void)waitpid(child, NULL, 0);
}

static void try_files(const char *file) {
    char beside[512];
    (void)snprintf(beside, sizeof beside, "%s.new", file);
    try_open("read", file, O_RDONLY);
    try_open("write", file, O_WRONLY);
    try_open("truncate", file, O_RDONLY | O_TRUNC);
    try_open("create", beside, O_WRONLY | O_CREAT);
    report("rename", rename(file, beside) == 0);
    report("mkdir", mkdir(beside, 0700) == 0);
    report("unlink", unlink(beside) == 0);
    try_open("list", "/", O_RDONLY | O_DIRECTORY);
    try_open("passwords", "/etc/passwd", O_RDONLY);
    try_open("parent", "/proc/1/cmdline", O_RDONLY);
}

static void try_kernel(void) {
    report("unix-socket", socket(AF_UNIX, SOCK_STREAM, 0) >= 0);
    report("raw-socket", socket(AF_INET, SOCK_RAW, IPPROTO_ICMP) >= 0);
    report("ptrace", ptrace(PTRACE_ATTACH, getppid(), NULL, NULL) == 0);
    report("signal", kill(getppid(), 0) == 0);
    report("unshare", unshare(CLONE_NEWUSER) == 0);
    report("keyctl", syscall(SYS_keyctl, 0, -3, 0, 0, 0) >= 0);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    report("listen", listen(listener, 1) == 0);
    (void)close(listener);
}

strait_err __wrap_strait_worker_send_reply(struct worker *w, strait_stage_reply *reply) {
    static int has_tried;
    const char *file = getenv("INTRUDER_FILE"); // NOLINT(concurrency-mt-unsafe) never changed
    if (!has_tried && file != NULL) {
        has_tried = 1;
        try_programs();
        try_files(file);
        try_kernel();
    }
    return __real_strait_worker_send_reply(w, reply);
}
/* NOLINTEND(*-naming,*-reserved-identifier,cert-dcl*) */
