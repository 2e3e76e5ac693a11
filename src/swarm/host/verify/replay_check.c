#include "swarm/host/verify/replay_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A CPU describes itself as "4 threads, avx2". How many threads there are changes no bit. */
void strait_replay_kernels(const char *device, char out[STRAIT_REPLAY_KERNELS]) {
    char *end = NULL;
    const long n_threads = strtol(device, &end, 10);
    const char *name = strstr(device, ", ");
    out[0] = '\0';
    if (n_threads < 1 || end == device || strncmp(end, " thread", 7) != 0 || name == NULL) return;
    (void)snprintf(out, STRAIT_REPLAY_KERNELS, "%s", name + 2);
}

/* One more than the step is stored, so that zeros are no result. */
void strait_replay_check_keep(struct strait_replay_check *check,
                              const strait_replay_result *result) {
    strait_replay_result *slot = &check->results[result->step % STRAIT_REPLAY_STEPS];
    *slot = *result;
    slot->step = result->step + 1;
    check->n_differing = 0;
}

static int is_near(double a, double b, double tolerance) {
    return fabs(a - b) <= tolerance * fmax(fabs(a), fabs(b));
}

static int is_finite(const strait_replay_result *result) {
    return isfinite(result->loss_sum) && isfinite(result->norm);
}

const strait_replay_result *strait_replay_check_compare(const struct strait_replay_check *check,
                                                        const strait_replay_result *again,
                                                        int64_t start) {
    const strait_replay_result *first = &check->results[again->step % STRAIT_REPLAY_STEPS];
    const int is_exact = first->kernels[0] != '\0' && strcmp(first->kernels, again->kernels) == 0;
    const double loss_tolerance = is_exact ? 0.0 : STRAIT_REPLAY_LOSS_TOLERANCE;
    const double norm_tolerance = is_exact ? 0.0 : STRAIT_REPLAY_NORM_TOLERANCE;
    if (first->step != again->step + 1 || !is_finite(first) || !is_finite(again)) return NULL;
    if (!is_exact && again->step - start >= STRAIT_REPLAY_NEAR) return NULL;
    return is_near(first->loss_sum, again->loss_sum, loss_tolerance) &&
                   is_near(first->norm, again->norm, norm_tolerance)
               ? NULL
               : first;
}
