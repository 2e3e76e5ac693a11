/* history.h - the results of a run, read from its metrics: validation losses, step times, bytes. */
#pragma once

#include "metrics/metrics.h"

typedef struct strait_history {
    strait_metrics_point *valid; // validations in the order of their steps
    int n_valid;
    int64_t steps;         // the last step
    double seconds;        // per step: the median of the later half
    double meter_seconds;  // the same on the emulated meter (link.meter); 0 if the run had none
    double tokens_per_s;   // median, as for seconds
    double forward_bytes;  // per token at the socket, in the last step; 0 without boundaries
    double backward_bytes; // in the other direction
    double ratio_forward, ratio_backward;
} strait_history;

/* Reads a run's folder or its metrics.jsonl. STRAIT_EDATA: there is no step or no validation yet.
 * The caller releases *out with close. */
strait_err strait_history_read(const char *path, strait_history *out);
void strait_history_close(strait_history *history); // accepts a zeroed one

/* The loss of the last validation. */
double strait_history_loss(const strait_history *history);

/* The number of steps until the validation loss fell to `loss`, interpolated linearly between
 * validations; NaN if it never did. */
double strait_history_steps_to(const strait_history *history, double loss);
