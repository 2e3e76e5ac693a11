/* history.h - the results of a run, read from its metrics: validation losses, step times, bytes. */
#pragma once

#include "metrics/metrics.h"

/* One training step; tokens, seconds and bytes since the run began. */
typedef struct strait_history_step {
    int64_t step;
    double loss, tokens, seconds, bytes; // bytes: at the socket of the busiest boundary, both ways
} strait_history_step;

typedef struct strait_history {
    strait_metrics_point *valid; // validations in the order of their steps
    int n_valid;
    strait_history_step *train; // all steps
    int n_train;
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

/* The same of a run that need not have a validation. */
strait_err strait_history_read_any(const char *path, strait_history *out);

/* The last training step up to `step`; NULL: there is none. */
const strait_history_step *strait_history_at(const strait_history *history, int64_t step);

/* Lets training losses stand for validations, to compare runs by them. */
strait_err strait_history_use_training(strait_history *history);
void strait_history_close(strait_history *history); // accepts a zeroed one

/* The loss of the last validation. */
double strait_history_loss(const strait_history *history);

/* The number of steps until the validation loss fell to `loss`, interpolated linearly between
 * validations; NaN if it never did. */
double strait_history_steps_to(const strait_history *history, double loss);
