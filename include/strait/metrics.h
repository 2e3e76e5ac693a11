/* metrics.h - read the losses that a run wrote to its metrics.jsonl. */
#pragma once

#include <strait/error.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One training or validation loss. */
typedef struct strait_metrics_point {
    int64_t step;
    double loss; // NaN where the file has null, that is for a non-finite loss
    int is_valid_loss;
    int64_t tokens; // trained on since the run began; 0: unknown, as for validations and old files
    double time;    // seconds since 1970 when the step ended; 0: unknown
    /* With train.outer: replicas, in a swarm pipelines, whose weights were averaged after the step,
     * as bits; 0: nothing was averaged. */
    uint64_t averaged;
} strait_metrics_point;

/* Reads the losses of a file, in its order. A truncated last line is skipped, because the run may
 * be writing it. STRAIT_EDATA: any other line is not metrics; the detail has its number. The caller
 * frees *out with strait_free. Any thread. */
STRAIT_API strait_err strait_metrics_read(const char *path, strait_metrics_point **out, int *n);

#ifdef __cplusplus
}
#endif
