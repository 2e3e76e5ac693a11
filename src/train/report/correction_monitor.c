#include "train/report/correction_monitor.h"

#include <stdio.h>
#include <string.h>

enum {
    WINDOW_STEPS = 20, // the last steps, at most 32
    /* Of which so many corrections are the rule. Weights that leak in every step are projected in
     * every other one: after a projection the leak of one update is often below the limit. */
    RULE_STEPS = 8
};

/* Advances one boundary. Returns what is to be said about it now, as in `said`; 0: nothing. */
static int advance(strait_correction_monitor *monitor, int i, double corrections) {
    const int is_corrected = monitor->is_started && corrections > monitor->seen[i];
    monitor->seen[i] = corrections;
    monitor->history[i] = monitor->history[i] << 1 | (uint32_t)is_corrected;
    const uint32_t window = monitor->history[i] & ((UINT32_C(1) << WINDOW_STEPS) - 1);
    const int level = __builtin_popcount(window) >= RULE_STEPS ? 2 : is_corrected;
    if (level <= monitor->said[i]) return 0;
    monitor->said[i] = level;
    return level;
}

int strait_correction_monitor_watch(strait_correction_monitor *monitor, const double *corrections,
                                    const double *leaks, int n_boundaries, char *text,
                                    size_t capacity) {
    int says = 0;
    for (int i = 0; i < n_boundaries; i++) {
        const int level = advance(monitor, i, corrections[i]);
        const size_t used = strlen(text);
        if (level == 0) continue;
        says = 1;
        if (level == 1)
            (void)snprintf(text + used, capacity - used,
                           "%sboundary %d: more of the stream left the subspace than "
                           "link.codec.leak_limit allows (%.3g): the weights of stage %d were "
                           "projected back",
                           used > 0 ? "; " : "", i, monitor->leaks[i], i);
        else
            (void)snprintf(text + used, capacity - used,
                           "%sboundary %d: the weights of stage %d were projected in %d of the "
                           "last %d steps: form a has become form b; use train.optimizer "
                           "adamw-rows or raise link.codec.leak_limit",
                           used > 0 ? "; " : "", i, i, RULE_STEPS, WINDOW_STEPS);
    }
    /* Weights are projected after the step whose leak was too large, and counted in the next. */
    for (int i = 0; i < n_boundaries; i++)
        monitor->leaks[i] = leaks[i];
    monitor->is_started = 1;
    return says;
}
