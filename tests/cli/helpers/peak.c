/* peak.c - runs a command and prints its peak memory in bytes. Exits with its exit code. */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    const pid_t pid = fork();
    if (pid == 0) {
        (void)execv(argv[1], argv + 1);
        _exit(127);
    }
    int status = 0;
    struct rusage usage;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return 1;
    (void)getrusage(RUSAGE_CHILDREN, &usage);
    printf("%lld\n", (long long)usage.ru_maxrss * 1024);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
