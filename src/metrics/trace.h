/* trace.h - what a stage did when, as a picture that a browser can show.
 *
 * A stage puts spans of time into a recorder of fixed size and writes them as a Chrome trace: a
 * JSON array of complete events, with a process for each stage and a thread for each lane, to open
 * in chrome://tracing or ui.perfetto.dev. The traces of several stages merge into one. */
#pragma once

#include "base/error.h"

#include <stdint.h>

typedef enum strait_trace_lane {
    STRAIT_LANE_COMPUTE,
    STRAIT_LANE_NEXT,     // the wire to the next stage: activations
    STRAIT_LANE_PREVIOUS, // the wire to the one before: gradients
    STRAIT_LANE_KINDS,
} strait_trace_lane;

/* Times are those of one clock, the stage's own. */
typedef struct strait_trace_span {
    const char *name; // letters, digits, spaces and -_.: only; lives as long as the recorder
    int stage;
    strait_trace_lane lane;
    int microbatch; // -1: of no microbatch
    int64_t step;
    int64_t start_ns, end_ns;
} strait_trace_span;

/* STRAIT_EINVAL when a span has no place in a trace: its name, stage, lane or times. */
strait_err strait_trace_check(const strait_trace_span *s);

/* The newest `room` spans. One thread uses a recorder. */
struct strait_trace;

strait_err strait_trace_open(int capacity, struct strait_trace **out);
void strait_trace_close(struct strait_trace **trace); // accepts NULL

/* Keeps a span, in place of the oldest when there is no room. Neither allocates nor fails. Does
 * nothing when `trace` is NULL: no trace was asked for. */
void strait_trace_put(struct strait_trace *trace, const strait_trace_span *span);

int strait_trace_count(const struct strait_trace *trace);    // kept
int64_t strait_trace_lost(const struct strait_trace *trace); // overwritten since the last clear
void strait_trace_clear(struct strait_trace *trace);

/* Replaces `path` with the spans that are kept, oldest first. Checks each. */
strait_err strait_trace_save(const struct strait_trace *trace, const char *path);

/* The same for spans that are elsewhere. */
strait_err strait_trace_write(const char *path, const strait_trace_span *spans, int n_spans);

/* One trace from several files. offsets_ns[i] is added to the times of paths[i], to take them to
 * the clock that all share; the first event is then moved to time 0. STRAIT_EDATA names the file
 * and the event that is not one of ours. */
strait_err strait_trace_merge(const char *const *paths, const int64_t *offsets_ns, int n_paths,
                              const char *out_path);
