#include "plan/window.h"

#include "base/alloc.h"

static strait_err seconds(const strait_pipe *pipe, strait_schedule_kind kind, const int *windows,
                          double *out) {
    const strait_simulate_params params = {
        .kind = kind, .windows = windows, .n_steps = strait_pipe_steps(pipe, 1)};
    strait_simulate_result result;
    STRAIT_TRY(strait_simulate(pipe, &params, NULL, &result));
    *out = result.seconds;
    return STRAIT_OK;
}

/* Adds a slot to each stage. The last stage of a schedule without split has no use for a second
 * one, because its backward pass follows its forward pass at once. */
static void widen(int *windows, const int *widest, int n_stages, int splits) {
    for (int i = 0; i < n_stages - !splits; i++)
        if (windows[i] < widest[i]) windows[i]++;
}

/* The largest windows that memory, the step and the rule that windows never grow allow. */
static void find_widest(const strait_pipe *pipe, const int *caps, int *widest) {
    for (int i = 0; i < pipe->n_stages; i++) {
        widest[i] = strait_pipe_in_flight(pipe, i);
        if (caps != NULL && caps[i] < widest[i]) widest[i] = caps[i];
        if (i > 0 && widest[i] > widest[i - 1]) widest[i] = widest[i - 1];
    }
}

/* Slots are added one at a time because each takes memory: the first windows that are fast enough
 * are also the smallest. */
static strait_err fit(const strait_pipe *pipe, strait_schedule_kind kind, const int *widest,
                      double slack, int *windows) {
    double best = 0, now = 0;
    STRAIT_TRY(seconds(pipe, kind, widest, &best));
    for (int n = 0; n < strait_pipe_in_flight(pipe, 0); n++) {
        STRAIT_TRY(seconds(pipe, kind, windows, &now));
        if (now <= best * (1 + slack)) break;
        widen(windows, widest, pipe->n_stages, kind == STRAIT_SCHEDULE_SPLIT);
    }
    return STRAIT_OK;
}

strait_err strait_window_fit(const strait_pipe *pipe, strait_schedule_kind kind, const int *caps,
                             double slack, int *windows) {
    STRAIT_TRY(strait_schedule_windows(pipe, kind, caps, windows));
    /* The windows of the other schedules are part of their definition. */
    if (kind != STRAIT_SCHEDULE_WINDOW && kind != STRAIT_SCHEDULE_SPLIT) return STRAIT_OK;
    int *widest;
    STRAIT_TRY(strait_alloc((size_t)pipe->n_stages, sizeof *widest, "windows", (void **)&widest));
    find_widest(pipe, caps, widest);
    const strait_err err = fit(pipe, kind, widest, slack, windows);
    strait_alloc_free(widest);
    return err;
}
