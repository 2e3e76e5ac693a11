/* series.h - the history of a run in bounded memory, for curves.
 *
 * Of a long run only every 2nd, 4th, 8th... step is kept, and the last one, so that the curve stays
 * whole while its memory does not grow. follow.h fills it from metrics.jsonl. One thread uses it.
 */
#pragma once

#include "base/json.h"

/* The figures of a step that are kept, with the keys of metrics.jsonl. */
#define STRAIT_SERIES_COLUMNS(X) \
    X(step)                      \
    X(tokens)                    \
    X(time)                      \
    X(loss)                      \
    X(learning_rate)             \
    X(grad_norm)                 \
    X(tokens_per_s)              \
    X(forward_bytes_per_token)   \
    X(backward_bytes_per_token)  \
    X(ratio_forward)             \
    X(ratio_backward)            \
    X(bubble)                    \
    X(seconds)

/* One step; what its line does not have, or has as null, is NaN. */
typedef struct strait_series_point {
#define X(name) double name;
    STRAIT_SERIES_COLUMNS(X)
#undef X
} strait_series_point;

typedef struct strait_series_valid {
    double step, valid_loss;
} strait_series_valid;

enum {
    STRAIT_SERIES_MAX = 4096 // points, and as many validations
};

typedef struct strait_series {
    strait_series_point *points; // in the order of steps
    strait_series_valid *valid;
    int n_points, n_valid;
    int64_t stride, valid_stride; // of the kept points only every so many are kept
    int64_t n_seen, n_valid_seen; // points put so far
    strait_series_point last;     // kept or not
    strait_series_valid last_valid;
    int has_last, has_last_valid;
} strait_series;

strait_err strait_series_open(strait_series *series);
void strait_series_close(strait_series *series); // accepts a zeroed one
void strait_series_clear(strait_series *series);

void strait_series_put(strait_series *series, const strait_series_point *point);
void strait_series_put_valid(strait_series *series, const strait_series_valid *valid);

/* Columns of equal length by name: {"step":[...],...,"valid":{"step":[...],"valid_loss":[...]}}.
 * The caller releases it; NULL: no memory. */
json_t *strait_series_pack(const strait_series *series);

/* Replaces all points by those of such an object, as /api/v1/history has it. */
void strait_series_load(strait_series *series, const json_t *history);

/* One point as {"step":...,...}; NaN becomes null. NULL: no memory. */
json_t *strait_series_pack_point(const strait_series_point *point);
json_t *strait_series_pack_valid(const strait_series_valid *valid);

/* Reads the figures that a parsed line of metrics.jsonl has. Returns 0 if it is a validation, which
 * is then in *valid. */
int strait_series_unpack(const json_t *line, strait_series_point *point,
                         strait_series_valid *valid);
