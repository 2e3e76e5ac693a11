#include "signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* Lock-free atomics are safe in a signal handler. */
static atomic_int n_interrupts, n_counted;
static atomic_llong counted_ms; // when a signal was counted last, on the monotonic clock

enum {
    TOGETHER_MS = 500
};

/* timeout(1) signals its child and then the whole process group: what was meant as one request
 * arrives twice, and must not end a process that is saving. */
static int comes_together(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); // safe in a signal handler
    const long long ms = (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    long long before = counted_ms;
    if (before != 0 && ms - before < TOGETHER_MS) return 1;
    return !atomic_compare_exchange_strong(&counted_ms, &before, ms); // another thread's handler
}

static void interrupted(int number) {
    if (comes_together()) return;
    if (atomic_fetch_add(&n_interrupts, 1) < n_counted) return;
    (void)signal(number, SIG_DFL);
    (void)raise(number); // delivered when this handler returns
}

/* A closed terminal counts like Ctrl-C, unless nohup made the process ignore it. */
static void listen_to_hang_up(const struct sigaction *action) {
    struct sigaction old;
    if (sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        (void)sigaction(SIGHUP, action, NULL);
}

void strait_signals_listen(int n) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = interrupted;
    n_counted = n;
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    listen_to_hang_up(&action);
    (void)signal(SIGPIPE, SIG_IGN);
}

int strait_signals_count(void) {
    return n_interrupts;
}
