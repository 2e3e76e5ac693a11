/* replay_check.h - compares a replayed step with what the same step gave the first time.
 *
 * After stages were restored, the steps since are computed again. Loss and gradient norm depend on
 * every stage, so a stage that was restored from the wrong values, or that computes other ones,
 * shows there. On CPUs that use the same kernels both must have the same bits. Other devices round
 * differently, and the difference grows with every step: a tolerance applies to the first steps
 * after the restored one, and later ones are not compared. Plain data, allocates nothing. */
#pragma once

#include <stdint.h>

enum {
    STRAIT_REPLAY_STEPS = 4096, // that are remembered; older ones are not compared
    STRAIT_REPLAY_NEAR = 8,     // steps after the restored one, on devices that round differently
    STRAIT_REPLAY_KERNELS = 16  // bytes of the name of a CPU's kernels, with its final zero
};

/* Relative differences that rounding on other devices may cause. */
#define STRAIT_REPLAY_LOSS_TOLERANCE 0.01
#define STRAIT_REPLAY_NORM_TOLERANCE 0.05

/* What a step gave. */
typedef struct strait_replay_result {
    int64_t step;
    double loss_sum, norm;
    char kernels[STRAIT_REPLAY_KERNELS]; // of all stages; empty: they differ, or not only CPUs
} strait_replay_result;

struct strait_replay_check {                           // zeroed has no results
    strait_replay_result results[STRAIT_REPLAY_STEPS]; // that of step s at s % STRAIT_REPLAY_STEPS
    int64_t start;                                     // the step that was restored last
    int n_differing; // replays since the last new step that gave something else
};

/* Writes which kernels a worker uses, from the device that it reports; empty if it is not a CPU. */
void strait_replay_kernels(const char *device, char out[STRAIT_REPLAY_KERNELS]);

/* Remembers what a new step gave. */
void strait_replay_check_keep(struct strait_replay_check *check,
                              const strait_replay_result *result);

/* Returns what the step gave the first time, if `again` differs from it; NULL: it does not, or is
 * not known. `start` is the restored step. Results that are not finite are not compared. */
const strait_replay_result *strait_replay_check_compare(const struct strait_replay_check *check,
                                                        const strait_replay_result *again,
                                                        int64_t start);
