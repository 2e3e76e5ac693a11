#include "signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>

static atomic_int n_interrupts, n_polite; // a handler may touch them: they need no lock

static void interrupted(int number) {
    if (atomic_fetch_add(&n_interrupts, 1) < n_polite) return;
    (void)signal(number, SIG_DFL);
    (void)raise(number); // comes when this handler is done
}

/* A terminal that closes asks like Ctrl-C, unless nohup said that it shall not be heard. */
static void listen_to_hang_up(const struct sigaction *action) {
    struct sigaction old;
    if (sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        (void)sigaction(SIGHUP, action, NULL);
}

void strait_signals_listen(int n) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = interrupted;
    n_polite = n;
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    listen_to_hang_up(&action);
    (void)signal(SIGPIPE, SIG_IGN);
}

int strait_signals_count(void) {
    return n_interrupts;
}
