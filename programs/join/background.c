#include "background.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    REPORT_BYTES = 1024
};

strait_err strait_background_begin(strait_background *out) {
    int ends[2];
    if (pipe(ends) != 0) return STRAIT_FAIL(STRAIT_ENOMEM, "cannot open a pipe");
    (void)fflush(NULL); // what is buffered must not be written twice
    const pid_t child = fork();
    if (child < 0) return STRAIT_FAIL(STRAIT_ENOMEM, "cannot start a process");
    *out = (strait_background){.fd = ends[child == 0], .is_parent = child > 0};
    (void)close(ends[child != 0]);
    (void)fcntl(out->fd, F_SETFD, FD_CLOEXEC);
    if (child > 0) return STRAIT_OK;
    (void)setsid();
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nothing >= 0) (void)dup2(nothing, STDIN_FILENO);
    if (nothing > STDERR_FILENO) (void)close(nothing);
    return STRAIT_OK;
}

strait_err strait_background_log(const char *path) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (fd < 0) return STRAIT_FAIL(STRAIT_EIO, "%s: cannot write", path);
    (void)fflush(NULL);
    (void)dup2(fd, STDOUT_FILENO);
    (void)dup2(fd, STDERR_FILENO);
    (void)close(fd);
    return STRAIT_OK;
}

/* "12 the reason": the code first, so that the parent ends with the same exit code. */
void strait_background_report(strait_background *b, strait_err err, const char *text) {
    char line[REPORT_BYTES];
    if (b->fd < 0 || b->is_parent) return;
    const int n = snprintf(line, sizeof line, "%d %s", (int)err, text);
    if (n > 0) (void)!write(b->fd, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
    (void)close(b->fd);
    b->fd = -1;
    if (err != STRAIT_OK) (void)strait_background_log("/dev/null"); // the parent prints it
}

strait_err strait_background_wait(strait_background *b, char *out, int capacity) {
    char line[REPORT_BYTES];
    size_t used = 0;
    ssize_t n = 0;
    while (used + 1 < sizeof line && (n = read(b->fd, line + used, sizeof line - 1 - used)) > 0)
        used += (size_t)n;
    line[used] = '\0';
    (void)close(b->fd);
    char *text = NULL;
    const strait_err err = (strait_err)strtol(line, &text, 10);
    if (text == line) return STRAIT_FAIL(STRAIT_ECLOSED, "the process in the background has ended");
    text += *text == ' ';
    if (err != STRAIT_OK) return STRAIT_FAIL(err, "%s", text);
    (void)snprintf(out, (size_t)capacity, "%s", text);
    return STRAIT_OK;
}
