/* history.h - what a run has to show: its losses on held-out text, and what its steps took. */
#pragma once

#include "metrics/metrics.h"

typedef struct strait_history {
    strait_metrics_point *valid; // validations in the order of their steps
    int n_valid;
    int64_t steps;         // the last step that was taken
    double seconds;        // of a step: the median of the later half
    double meter_seconds;  // the same by the meter; 0 when the run had none
    double tokens_per_s;   // as seconds
    double forward_bytes;  // a token at the socket, in the last step; 0 without boundaries
    double backward_bytes; // the other way
    double ratio_forward, ratio_backward;
} strait_history;

/* Reads a run's folder, or its metrics.jsonl. STRAIT_EDATA when it has no step or no validation.
 * Release with close. */
strait_err strait_history_read(const char *path, strait_history *out);
void strait_history_close(strait_history *history); // accepts a zeroed one

/* The loss of the last validation. */
double strait_history_loss(const strait_history *history);

/* How many steps it took until validations fell to `loss`, between two of them in a straight line.
 * Not a number when they never did. */
double strait_history_steps_to(const strait_history *history, double loss);
