/* runner_trace.c - records what a runner does, for `strait trace`. */
#include "stage/runner.h"

enum {
    TRACE_SPANS = 1 << 16 // only the newest are kept
};

strait_err strait_runner_trace_begin(struct strait_runner *runner) {
    strait_trace_close(&runner->trace); // a second begin starts over
    return strait_trace_open(TRACE_SPANS, &runner->trace);
}

/* The trace is closed even if it could not be written, so that a full disk does not slow later
 * steps. */
strait_err strait_runner_trace_end(struct strait_runner *runner, const char *path) {
    const strait_err err = strait_trace_save(runner->trace, path);
    strait_trace_close(&runner->trace);
    return err;
}
