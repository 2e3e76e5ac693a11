/* rig.h - pipelines of equal stages and links, and reproducible random numbers. */
#pragma once

#include "base/rng/rng.h"
#include "check.h"
#include "plan/window.h"

enum {
    MOST_STAGES = 16
};

typedef struct rig {
    strait_pipe pipe;
    strait_pipe_stage stages[MOST_STAGES];
    strait_pipe_link links[MOST_STAGES];
    int windows[MOST_STAGES];
} rig;

static inline void rig_make(rig *r, int n_stages, int n_microbatches, strait_pipe_stage stage,
                            strait_pipe_link link) {
    for (int i = 0; i < n_stages; i++) {
        r->stages[i] = stage;
        r->links[i] = link;
    }
    r->pipe = (strait_pipe){.n_stages = n_stages,
                            .n_microbatches = n_microbatches,
                            .stages = r->stages,
                            .links = r->links,
                            .microbatch_tokens = 1};
}

static inline strait_simulate_result rig_run(rig *r, strait_schedule_kind kind,
                                             strait_simulate_stage *stages) {
    const strait_simulate_params params = {.kind = kind, .windows = r->windows, .n_steps = 1};
    strait_simulate_result result;
    CHECK_OK(strait_simulate(&r->pipe, &params, stages, &result));
    return result;
}

/* Simulates with the windows that strait_schedule_windows computes. */
static inline double rig_seconds(rig *r, strait_schedule_kind kind) {
    CHECK_OK(strait_schedule_windows(&r->pipe, kind, NULL, r->windows));
    return rig_run(r, kind, NULL).seconds;
}

typedef struct dice {
    uint64_t seed, n;
} dice;

/* A random number in [0, n). */
static inline int dice_roll(dice *d, int n) {
    return (int)(strait_rng_u64((strait_rng){d->seed, 1}, d->n++) % (uint64_t)n);
}

static inline double dice_real(dice *d) {
    return strait_rng_uniform((strait_rng){d->seed, 2}, d->n++);
}
