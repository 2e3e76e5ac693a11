/* metrics.h - metrics.jsonl: one JSON object per line, for people, scripts and a resumed run.
 *
 * Each line is one write(2), so that a kill leaves at most one truncated line, the last; readers
 * and a resumed run skip it. Losses have nine significant digits, enough to compare two runs bit by
 * bit. */
#pragma once

#include <strait/metrics.h>

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* One training step. Non-finite numbers are written as null. */
typedef struct strait_metrics_step {
    int64_t step;
    double loss, learning_rate, grad_norm, tokens_per_s;
    double forward_bytes_per_token,
        backward_bytes_per_token; // at the socket, of the busiest boundary
    double ratio_forward, ratio_backward;
    double bubble;
    const char *limit; // the bottleneck of the step: "compute", "bubble", "serialisation", ...
    double seconds;
    int64_t batch_tokens; // of this step alone; the file has the sum over all steps
    double time;          // seconds since 1970 when the step ended
    double meter_seconds; // omitted when 0
    double reduce_bytes;  // received by a replica from others of its stage; omitted when 0
    int staleness;        // steps that its update is late; omitted when 0
    /* Of an average of replicas that train on their own; all omitted when `averaged` is 0. */
    uint64_t averaged; // replicas that took part, as bits; a list in the file
    double average_bytes_per_token, divergence;
    int n_boundaries; // up to 63; with 0 the residuals are omitted
    const double *residual_forward, *residual_backward;
    const double *leak, *corrections; // per boundary; with a NULL leak these five are omitted
    double basis_angle, basis_mean_angle, basis_error;
    /* Per stage, seconds of the step; per boundary, bytes of the step. A NULL busy_s omits all. */
    int n_stages;
    const double *busy_s, *wait_s, *forward_bytes, *backward_bytes;
} strait_metrics_step;

struct strait_metrics;

/* Opens `path` for appending. Lines of steps after resume_step, and a tail damaged by a kill or a
 * power cut, are removed first, atomically. resume_step 0 starts an empty file. STRAIT_EDATA: a
 * damaged line precedes lines to keep. One thread at a time uses a file. */
strait_err strait_metrics_open(const char *path, int64_t resume_step, struct strait_metrics **out);
void strait_metrics_close(struct strait_metrics **metrics); // accepts NULL

/* Each appends one line, without allocating. STRAIT_EIO: the write failed, for example on a full
 * disk; the line is kept in memory and written with the next one. Lines are kept until they are
 * synced; after 64 KiB of them they are synced here. */
strait_err strait_metrics_put_step(struct strait_metrics *metrics, const strait_metrics_step *step);
strait_err strait_metrics_put_valid(struct strait_metrics *metrics, int64_t step,
                                    double valid_loss);

/* Tokens trained on up to the last step that was put or kept; 0 before the first. */
int64_t strait_metrics_tokens(const struct strait_metrics *metrics);

/* Syncs all lines to disk. Called before a checkpoint is saved, and by a host before it records a
 * step as settled, so that a run resumed from there finds the lines up to its step. STRAIT_EIO:
 * call again; the lines are written again, not only synced again. */
strait_err strait_metrics_sync(struct strait_metrics *metrics);

/* One line of a file, well-formed or not. */
typedef struct strait_metrics_line {
    int number; // from 1
    const char *text;
    size_t bytes;               // including the newline
    strait_err err;             // result of parsing; strait_err_detail has the reason
    strait_metrics_point point; // when err is STRAIT_OK
} strait_metrics_line;

/* Calls `visit` for every newline-terminated line until it fails. The error message then starts
 * with the file and the line number. */
strait_err strait_metrics_walk(const char *path,
                               strait_err (*visit)(void *arg, const strait_metrics_line *line),
                               void *arg);
