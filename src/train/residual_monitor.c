#include "train/residual_monitor.h"

#include <math.h>
#include <stdio.h>

enum {
    SMOOTH_STEPS = 8,
    FIRST_STEPS = 10
};

static const double rounding = 1e-5;

static double bound(double usual) {
    const double level = fmax(usual, rounding);
    return fmin(2.0 * level, 0.5 * (1.0 + level));
}

double strait_residual_monitor_watch(strait_residual_monitor *alarm, double residual) {
    if (!isfinite(residual)) return 0.0; // counted as spoiled, and told elsewhere
    alarm->n_seen += alarm->n_seen < FIRST_STEPS;
    const int weight = alarm->n_seen < SMOOTH_STEPS ? alarm->n_seen : SMOOTH_STEPS;
    alarm->mean += (residual - alarm->mean) / weight;
    if (alarm->n_seen < FIRST_STEPS) return 0.0;
    const double usual = alarm->usual;
    if (usual > 0.0 && alarm->mean > bound(usual)) {
        alarm->mean = alarm->usual = fmax(alarm->mean, residual);
        return usual;
    }
    if (usual == 0.0 || alarm->mean < usual) alarm->usual = fmax(alarm->mean, rounding);
    return 0.0;
}

int strait_residual_monitors_watch(strait_residual_monitors *alarms,
                                   const double *const residuals[2], int n_boundaries, char *text,
                                   size_t capacity) {
    static const char *const what[] = {"activations", "gradients"};
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < 2 * n_boundaries && used < capacity; i++) {
        strait_residual_monitor *alarm = &alarms->of[i % 2][i / 2];
        const double usual = strait_residual_monitor_watch(alarm, residuals[i % 2][i / 2]);
        if (usual == 0.0) continue;
        const int n = snprintf(text + used, capacity - used,
                               "%sboundary %d loses %.3g of its %s, %.3g was usual",
                               used > 0 ? "; " : "", i / 2, alarm->mean, what[i % 2], usual);
        used += n > 0 ? (size_t)n : 0;
    }
    return used > 0;
}
