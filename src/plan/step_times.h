/* step_times.h - how a stage spent the time of one training step, as it measured it itself. */
#pragma once

/* Seconds of one step. */
typedef struct strait_step_times {
    double forward, input, weights; // sums over the microbatches
    double codec;                   // encoding and decoding, not included above
    double wait;                    // for messages of neighbors
    double wall;                    // the whole step
} strait_step_times;
