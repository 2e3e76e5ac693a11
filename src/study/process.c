#include "study/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static strait_err open_file(const char *path, int flags, int *out) {
    *out = open(path, flags | O_CLOEXEC, 0644);
    if (*out >= 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EIO, "%s: %s", path, strerror(errno)); // NOLINT: one thread
}

/* Between fork and exec only calls that are safe in a signal handler. */
static void become(const char *const *argv, const int files[3], pid_t parent) {
    (void)setpgid(0, 0); // Ctrl-C and timeout(1) signal the group of the study
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127); // it ended before the line above
    for (int i = 0; i < 3; i++)
        if (dup2(files[i], i) < 0) _exit(127);
    (void)execv(argv[0], (char *const *)argv);
    _exit(127);
}

static strait_err start(const char *const *argv, const int files[3], pid_t *out) {
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0) return STRAIT_FAIL(STRAIT_ENOMEM, "%s: no memory for a process", argv[0]);
    if (child == 0) become(argv, files, parent);
    *out = child;
    return STRAIT_OK;
}

strait_err strait_process_start(const char *const *argv, const char *out_path, const char *err_path,
                                pid_t *out) {
    int files[3] = {-1, -1, -1};
    const int replaced = O_WRONLY | O_CREAT | O_TRUNC;
    strait_err err = open_file("/dev/null", O_RDONLY, &files[0]);
    if (err == STRAIT_OK) err = open_file(out_path, replaced, &files[1]);
    if (err == STRAIT_OK) err = open_file(err_path, replaced, &files[2]);
    if (err == STRAIT_OK) err = start(argv, files, out);
    for (int i = 0; i < 3; i++)
        if (files[i] >= 0) (void)close(files[i]);
    return err;
}

int strait_process_ended(pid_t pid, int *code) {
    int status = 0;
    const pid_t done = waitpid(pid, &status, WNOHANG);
    if (done == 0 || (done < 0 && errno == EINTR)) return 0;
    *code = done < 0 ? 127 : WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    return 1;
}
