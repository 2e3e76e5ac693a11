/* freeze.c - stops one thread of a process, as a file system that no longer answers would: freeze
 * TID. The others go on. Lasts until this program ends. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const pid_t thread = argc == 2 ? (pid_t)strtol(argv[1], NULL, 10) : 0;
    int status = 0;
    if (thread <= 0 || ptrace(PTRACE_SEIZE, thread, NULL, NULL) != 0)
        return 77; // not permitted here
    if (ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) != 0) return 1;
    if (waitpid(thread, &status, __WALL) != thread || !WIFSTOPPED(status)) return 1;
    (void)puts("frozen");
    (void)fflush(stdout);
    (void)waitpid(thread, &status, __WALL); // until the process of the thread ends
    return 0;
}
