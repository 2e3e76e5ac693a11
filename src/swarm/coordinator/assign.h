/* assign.h - chooses the workers of a new run and how many layers each stage gets: a pure function
 * of what the workers report. */
#pragma once

#include "base/error.h"
#include "config/run.h"

typedef struct strait_assign_worker {
    double memory_bytes; // free for a stage; 0: unknown, assumed to be enough
    double flops;        // per second; 0: unknown, assumed to be the median of the others
} strait_assign_worker;

typedef struct strait_assign_spec {
    int n_stages, n_layers;
    int stride;         // stages begin at multiples of it; 0: at any layer
    double head_cost;   // time of the head, in units of one layer
    double layer_bytes; // memory of one layer
    double head_bytes;  // memory of the head, on the last stage
    double embed_bytes; // memory of the embedding, on the first
    const int *split;   // layers of each stage from the run file; NULL: choose
    const strait_assign_worker *workers;
    int n_workers;
} strait_assign_spec;

/* Writes the worker and the number of layers of each stage. The fastest n_stages workers are taken,
 * in the order in which they joined; the others are spares. Workers within 30% of each other count
 * as equally fast, so that noise in a measurement does not change the split. STRAIT_EAGAIN when
 * there are too few workers or they have too little memory: more may join. */
strait_err strait_assign(const strait_assign_spec *spec, int workers[STRAIT_RUN_STAGES],
                         int counts[STRAIT_RUN_STAGES]);
