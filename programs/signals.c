#include "signals.h"

#include <signal.h>
#include <string.h>

static volatile sig_atomic_t n_interrupts;

static void interrupted(int number) {
    n_interrupts = n_interrupts + 1;
    if (n_interrupts >= 2) (void)signal(number, SIG_DFL);
}

void strait_signals_listen(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = interrupted;
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
}

int strait_signals_count(void) {
    return n_interrupts;
}
