/* trace.c - follows a process with ptrace. The kernel reports a call before the sandbox sees it,
 * and its result afterwards, so calls that seccomp or landlock refuse are seen like all others. */
#include "trace.h"

#include <errno.h>
#include <seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    THREADS_MAX = 256, // calls of further threads are not seen
    LINES_MAX = 512,
    LINE_BYTES = 400,
    PATH_BYTES = 160,
    CALL_STOP = SIGTRAP | 0x80, // PTRACE_O_TRACESYSGOOD
    UNIX_PATH = 2               // offset of sun_path
};

/* The call that a thread is in. */
struct call {
    pid_t thread;
    uint64_t number, arguments[6];
};

static struct call calls[THREADS_MAX];
static char lines[LINES_MAX][LINE_BYTES]; // printed already
static int n_lines;

int trace_begin(void) {
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) return 0;
    return raise(SIGSTOP) == 0;
}

static struct call *call_of(pid_t thread) {
    for (int i = 0; i < THREADS_MAX; i++) {
        if (calls[i].thread != 0 && calls[i].thread != thread) continue;
        calls[i].thread = thread;
        return &calls[i];
    }
    return NULL;
}

/* The text at an address of the thread, if it is a path; a page that cannot be read ends it. */
static int read_path(pid_t thread, uint64_t address, char out[PATH_BYTES]) {
    const size_t left = 4096 - (size_t)(address % 4096);
    const struct iovec here = {out, left < PATH_BYTES - 1 ? left : PATH_BYTES - 1};
    const struct iovec there = {(void *)(uintptr_t)address,
                                here.iov_len}; // NOLINT(performance-no-int-to-ptr)
    memset(out, 0, PATH_BYTES);
    if (address == 0 || process_vm_readv(thread, &here, 1, &there, 1, 0) <= 0) return 0;
    if (out[0] == '\0' && out[1] > ' ') out[0] = '@'; // an abstract unix socket
    for (const char *c = out; *c != '\0'; c++)
        if (*c < ' ' || *c > '~') return 0;
    return out[0] == '/' || out[0] == '@';
}

static void print_once(const char *line) {
    for (int i = 0; i < n_lines; i++)
        if (strcmp(lines[i], line) == 0) return;
    if (n_lines < LINES_MAX) (void)snprintf(lines[n_lines++], LINE_BYTES, "%s", line);
    (void)printf("  %s\n", line);
}

static void print_failure(const struct call *call, int error) {
    char line[LINE_BYTES], path[PATH_BYTES] = "", text[PATH_BYTES];
    char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, (int)call->number);
    const char *error_name = strerrorname_np(error);
    const int is_address = name != NULL &&
                           (strcmp(name, "connect") == 0 || strcmp(name, "bind") == 0);
    for (int i = 0; i < 2; i++) {
        const uint64_t at = call->arguments[i] + (is_address && i == 1 ? UNIX_PATH : 0);
        if (read_path(call->thread, at, text)) memcpy(path, text, sizeof path);
    }
    /* Addresses differ from call to call: small arguments tell flags, kinds and requests. */
    size_t n = (size_t)snprintf(line, sizeof line, "%s %s(", error_name != NULL ? error_name : "?",
                                name != NULL ? name : "?");
    for (int i = 0; i < 4; i++) {
        const uint64_t value = call->arguments[i];
        const char *comma = i > 0 ? ", " : "";
        n += (size_t)(value >> 32 == 0 || value >> 32 == 0xffffffffu
                          ? snprintf(line + n, sizeof line - n, "%s0x%x", comma, (unsigned)value)
                          : snprintf(line + n, sizeof line - n, "%spointer", comma));
    }
    (void)snprintf(line + n, sizeof line - n, ") %s", path);
    print_once(line);
    free(name);
}

static void look_at_call(pid_t thread, int prints_all) {
    struct __ptrace_syscall_info info;
    struct call *call = call_of(thread);
    if (call == NULL || ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) <= 0) return;
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
        call->number = info.entry.nr;
        memcpy(call->arguments, info.entry.args, sizeof call->arguments);
    } else if (info.op == PTRACE_SYSCALL_INFO_EXIT && info.exit.is_error) {
        const int error = (int)-info.exit.rval;
        if (prints_all || error == EPERM || error == EACCES || error == ENOSYS)
            print_failure(call, error);
    }
}

/* What is passed on to a thread that stopped: 0, or a signal that was sent to it. Stops of ptrace
 * itself, and the first one of a new thread, are not signals. */
static int signal_of(int status) {
    const int stop = WSTOPSIG(status);
    return stop == SIGTRAP || stop == SIGSTOP || stop == CALL_STOP ? 0 : stop;
}

int trace_follow(pid_t child, int prints_all) {
    const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                         PTRACE_O_TRACEVFORK | PTRACE_O_EXITKILL;
    int status = 0;
    memset(calls, 0, sizeof calls);
    n_lines = 0;
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return status;
    (void)ptrace(PTRACE_SETOPTIONS, child, NULL, options);
    (void)ptrace(PTRACE_SYSCALL, child, NULL, 0);
    for (;;) {
        const pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0) return -1;
        if (!WIFSTOPPED(status)) {
            if (thread == child) return status;
            continue;
        }
        if (WSTOPSIG(status) == CALL_STOP) look_at_call(thread, prints_all);
        (void)ptrace(PTRACE_SYSCALL, thread, NULL, (long)signal_of(status));
    }
}
