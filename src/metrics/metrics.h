/* metrics.h - metrics.jsonl: one JSON object a line, for people, scripts and a resumed run.
 *
 * A line is one write, so that a kill leaves at most a last line that is cut short; readers and a
 * resumed run pass over it. Losses have nine digits: enough to compare the bits of two runs. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* A training step. A number that is not finite is written as null. */
typedef struct strait_metrics_step {
    int64_t step;
    double loss, rate, grad_norm, tokens_per_s;
    double forward_bytes_per_token, backward_bytes_per_token; // at the socket, worst boundary
    double ratio_forward, ratio_backward;
    double bubble;
    const char *limit; // what held the step up: "compute", or a link or stage
    double seconds;
    double meter_seconds; // left out when 0
    int n_boundaries;     // up to 63; without any the residuals are left out
    const double *residual_forward, *residual_backward;
} strait_metrics_step;

struct strait_metrics;

/* Opens `path` for appending. What it holds of steps after resume_step is dropped first, with
 * whatever a kill or a power cut damaged at its end, in one move; resume_step 0 starts an empty
 * file. STRAIT_EDATA when a damaged line stands among those to keep. One thread at a time. */
strait_err strait_metrics_open(const char *path, int64_t resume_step, struct strait_metrics **out);
void strait_metrics_close(struct strait_metrics **metrics); // accepts NULL

/* Each appends one line. They do not allocate. STRAIT_EIO names the file; what was not written then
 * is tried again with the next line, up to some dozens of them. */
strait_err strait_metrics_put_step(struct strait_metrics *metrics, const strait_metrics_step *step);
strait_err strait_metrics_put_valid(struct strait_metrics *metrics, int64_t step,
                                    double valid_loss);

/* Waits until all lines so far are on the disk: before a checkpoint that a resumed run may start
 * from. */
strait_err strait_metrics_sync(struct strait_metrics *metrics);

typedef struct strait_metrics_point {
    int64_t step;
    double loss; // of training or of validation; not a number where the file has null
    int is_valid_loss;
} strait_metrics_point;

/* The losses in a file, in its order. A last line that was cut short is passed over; any other
 * that is no metrics is STRAIT_EDATA with its number. The caller releases *out with
 * strait_alloc_free. */
strait_err strait_metrics_read(const char *path, strait_metrics_point **out, int *n);

/* A line of a file, whole or not. */
typedef struct strait_metrics_line {
    int number; // from 1
    const char *text;
    size_t bytes;               // with its ending
    strait_err err;             // what parsing it said; its detail is noted
    strait_metrics_point point; // when err is STRAIT_OK
} strait_metrics_line;

/* Shows every ended line of a file to `visit`, until that fails. The error then starts with the
 * file and the line. */
strait_err strait_metrics_walk(const char *path,
                               strait_err (*visit)(void *arg, const strait_metrics_line *line),
                               void *arg);
