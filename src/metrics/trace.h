/* trace.h - what a stage did when, as a Chrome trace.
 *
 * A stage records spans of time in a ring buffer of fixed size and writes them as a JSON array of
 * complete events, with one process per stage and one thread per lane, for chrome://tracing or
 * ui.perfetto.dev. The traces of several stages are merged into one file. */
#pragma once

#include "base/error.h"

#include <stdint.h>

typedef enum strait_trace_lane {
    STRAIT_LANE_COMPUTE,
    STRAIT_LANE_NEXT,     // the link to the next stage: activations
    STRAIT_LANE_PREVIOUS, // the link to the previous stage: gradients
    STRAIT_LANE_KINDS,
} strait_trace_lane;

/* One span. All times are on the clock of the stage. */
typedef struct strait_trace_span {
    const char *name; // letters, digits, spaces and -_.: only; must outlive the recorder
    int stage;
    strait_trace_lane lane;
    int microbatch; // -1: belongs to no microbatch
    int64_t step;
    int64_t start_ns, end_ns;
} strait_trace_span;

/* STRAIT_EINVAL: the name, stage, lane or times of the span are not valid. */
strait_err strait_trace_check(const strait_trace_span *s);

/* A recorder of the newest spans. One thread uses it. */
struct strait_trace;

/* Opens a recorder for `capacity` spans. */
strait_err strait_trace_open(int capacity, struct strait_trace **out);
void strait_trace_close(struct strait_trace **trace); // accepts NULL

/* Records a span, overwriting the oldest when the buffer is full. Never allocates or fails. Does
 * nothing when `trace` is NULL, so that callers need not check whether tracing is on. */
void strait_trace_put(struct strait_trace *trace, const strait_trace_span *span);

int strait_trace_count(const struct strait_trace *trace);    // recorded and not overwritten
int64_t strait_trace_lost(const struct strait_trace *trace); // overwritten since the last clear
/* Forgets all spans. */
void strait_trace_clear(struct strait_trace *trace);

/* Replaces the file `path` with the recorded spans, oldest first, checking each. */
strait_err strait_trace_save(const struct strait_trace *trace, const char *path);

/* The same for an array of spans. */
strait_err strait_trace_write(const char *path, const strait_trace_span *spans, int n_spans);

/* Merges traces into one file. offsets_ns[i] is added to the times of paths[i] to convert them to a
 * common clock; then all times are shifted so that the first event is at 0. STRAIT_EDATA: a file
 * has an event that this module did not write; the message names both. */
strait_err strait_trace_merge(const char *const *paths, const int64_t *offsets_ns, int n_paths,
                              const char *out_path);
