/* history.h - how the steps of a run ended: the factor of each update, the bases that were adopted,
 * and what every stage reported. A stage that computes steps again is told the former and compared
 * with the latter. Part of the host, used by its thread. */
#pragma once

#include "base/layout.h"
#include "stage/boundary/crossing_log.h"
#include "swarm/host/verify/replay_check.h"
#include "train/executor.h"

struct host;

enum {
    STRAIT_HOST_HISTORY = 2 * STRAIT_CROSSING_STEPS_MAX, // steps whose end is remembered
    STRAIT_HOST_BASES = 16                               // bases of a codec that are remembered
};

/* How a step ended: what stages that compute it again are told, and compared with. */
struct host_step {
    int64_t step; // one more than the step; 0: unused
    int is_skipped;
    float factor; // of its update
    double loss_sum;
    double squares[STRAIT_RUN_STAGES];                      // sum over the parameters of each stage
    char kernels[STRAIT_RUN_STAGES][STRAIT_REPLAY_KERNELS]; // of its owner; empty: not a CPU
};

struct host_basis {
    uint32_t version; // 0: unused
    float *values;    // owned
    int n;
};

/* The steps of this host's life that can still be computed again; history.c. */
struct host_history {
    struct host_step steps[STRAIT_HOST_HISTORY]; // step s at s % STRAIT_HOST_HISTORY
    struct host_basis bases[STRAIT_HOST_BASES];
    int n_bases; // so far; the oldest is overwritten
};

/* Remembers what the gradients of a step gave: the replies of all stages are still there. */
void strait_host_note_step(struct host *h, int64_t step, const strait_executor_report *report);
/* Remembers by which factor its update multiplies them. */
void strait_host_note_factor(struct host *h, int64_t step, float factor);
/* Remembers a basis that all stages are about to adopt. STRAIT_ENOMEM. */
strait_err strait_host_note_basis(struct host *h, uint32_t version, const strait_floats *basis);
/* How a step ended; NULL: not known. */
const struct host_step *strait_host_find_step(const struct host *h, int64_t step);
/* The basis of this version; NULL: not known. */
const struct host_basis *strait_host_find_basis(const struct host *h, uint32_t version);
/* Compares the replies of the stages that have computed a step again with the first time. Returns
 * the first stage that differs; -1: none does. `start` is the step that they restored. */
int strait_host_find_difference(const struct host *h, int64_t step, int64_t start);
void strait_host_history_fini(struct host *h);
