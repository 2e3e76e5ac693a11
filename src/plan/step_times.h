/* step_times.h - where the time of a training step went on one stage, as the stage measured it. */
#pragma once

/* Where the time of a step went on this stage, in seconds. */
typedef struct strait_step_times {
    double forward, input, weights; // sums over the microbatches
    double codec;                   // packing and unpacking, not in the three above
    double wait;                    // for the neighbours
    double wall;                    // all of it
} strait_step_times;
