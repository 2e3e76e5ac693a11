#include "signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>

/* Lock-free atomics are safe in a signal handler. */
static atomic_int n_interrupts, n_counted;

static void interrupted(int number) {
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
