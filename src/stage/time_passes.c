/* time_passes.c - measures how fast a stage computes, without its neighbours. */
#include "base/clock.h"
#include "stage/runner.h"

#include <time.h>

enum {
    RTT_MS = 2000, // for a first round trip to be measured
    RTT_POLL_MS = 10
};

double strait_runner_next_delay(const struct strait_runner *runner) {
    strait_link_stats stats = {0};
    const int peer = runner->sender != NULL ? strait_boundary_peer(runner->sender, 0) : -1;
    for (int waited = 0; peer >= 0 && waited < RTT_MS; waited += RTT_POLL_MS) {
        if (strait_mesh_stats(runner->mesh, peer, &stats) == STRAIT_OK && stats.rtt_min_s > 0.0)
            break;
        const struct timespec pause = {.tv_nsec = RTT_POLL_MS * 1000000L};
        (void)nanosleep(&pause, NULL);
    }
    return 0.5 * stats.rtt_min_s;
}

strait_err strait_runner_time_passes(struct strait_runner *runner, int n, strait_step_times *out) {
    struct strait_stream *stream = strait_stage_stream(runner->model);
    const strait_tensor tokens = strait_loader_tokens(runner->loader, 0);
    const int defers = strait_stage_get_spec(runner->model)->can_defer;
    strait_step_times times = {0};
    STRAIT_TRY(strait_loader_load(runner->loader, stream, 0, 0, 0));
    for (int i = 0; i < n; i++) {
        strait_tensor output;
        const double began = strait_clock_seconds();
        STRAIT_TRY(strait_stage_forward(runner->model, 0, tokens));
        if (runner->sender == NULL)
            STRAIT_TRY(strait_stage_loss(runner->model, strait_loader_targets(runner->loader, 0),
                                         1.0f, &output));
        else
            STRAIT_TRY(strait_stage_output(runner->model, &output));
        STRAIT_TRY(runner->backend->ops->wait(stream));
        const double after_forward = strait_clock_seconds();
        STRAIT_TRY(strait_stage_backward(runner->model, 0, defers));
        STRAIT_TRY(strait_stage_backward_input(runner->model, 0));
        STRAIT_TRY(runner->backend->ops->wait(stream));
        const double after_backward = strait_clock_seconds();
        if (defers) STRAIT_TRY(strait_stage_backward_weights(runner->model, 0));
        STRAIT_TRY(runner->backend->ops->wait(stream));
        times.forward = after_forward - began; // only the last pass counts: the others warm up
        times.input = after_backward - after_forward;
        times.weights = strait_clock_seconds() - after_backward;
    }
    *out = times;
    return strait_runner_zero_gradients(runner);
}

/* ---- traces: what a runner does, and when ---- */

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
