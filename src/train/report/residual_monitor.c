#include "train/report/residual_monitor.h"

#include <math.h>
#include <stdio.h>

enum {
    SMOOTH_STEPS = 8, // time constant of the average
    FIRST_STEPS = 10  // ignored: residuals fall quickly at the start of a run
};

/* Below this level residuals are noise of the arithmetic, and twice of that is no news. */
static const double rounding = 1e-5;

/* The second bound matters for large baselines: a residual cannot exceed 1 by much. Above 1, where
 * everything is lost already, it would lie below the baseline, and a steady residual would warn at
 * every step. */
static double bound(double baseline) {
    const double level = fmax(baseline, rounding);
    return level < 1.0 ? fmin(2.0 * level, 0.5 * (1.0 + level)) : 2.0 * level;
}

double strait_residual_monitor_watch(strait_residual_monitor *monitor, double residual) {
    if (!isfinite(residual)) return 0.0; // non-finite values are counted and reported elsewhere
    monitor->n_seen += monitor->n_seen < FIRST_STEPS;
    const int weight = monitor->n_seen < SMOOTH_STEPS ? monitor->n_seen : SMOOTH_STEPS;
    monitor->mean += (residual - monitor->mean) / weight;
    if (monitor->n_seen < FIRST_STEPS) return 0.0;
    const double baseline = monitor->baseline;
    if (baseline > 0.0 && monitor->mean > bound(baseline)) {
        monitor->mean = monitor->baseline = fmax(monitor->mean, residual);
        return baseline;
    }
    if (baseline == 0.0 || monitor->mean < baseline)
        monitor->baseline = fmax(monitor->mean, rounding);
    return 0.0;
}

int strait_residual_monitors_watch(strait_residual_monitors *monitors,
                                   const double *const residuals[2], int n_boundaries, char *text,
                                   size_t capacity) {
    static const char *const what[] = {"activations", "gradients"};
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < 2 * n_boundaries && used < capacity; i++) {
        strait_residual_monitor *monitor = &monitors->of[i % 2][i / 2];
        const double baseline = strait_residual_monitor_watch(monitor, residuals[i % 2][i / 2]);
        if (baseline == 0.0) continue;
        const int n = snprintf(text + used, capacity - used,
                               "%sboundary %d loses %.3g of its %s, up from %.3g",
                               used > 0 ? "; " : "", i / 2, monitor->mean, what[i % 2], baseline);
        used += n > 0 ? (size_t)n : 0;
    }
    return used > 0;
}
