/* assign.h - which machine serves which stage, and how many layers it gets: a pure function of what
 * the machines report. */
#pragma once

#include "config/run.h"

#include "base/error.h"

typedef struct strait_assign_worker {
    double memory_bytes; // free for a stage; 0: unknown, taken as enough
    double flops;        // a second; 0: unknown, taken as the median of the others
} strait_assign_worker;

typedef struct strait_assign_spec {
    int n_stages, n_layers;
    int stride;         // stages begin at its multiples; 0: anywhere
    double head_cost;   // time of the head, in layers
    double layer_bytes; // memory that a layer takes
    double head_bytes;  // memory of the head, on the last stage
    double embed_bytes; // memory of the embedding, on the first
    const int *split;   // layers of each stage as the run file wants them; NULL: choose
    const strait_assign_worker *workers;
    int n_workers;
} strait_assign_spec;

/* Writes the worker and the layers of each stage. The fastest n_stages machines are taken, in the
 * order in which they came; the others are spares. Machines within 30% of each other count as
 * equally fast, so that noise in a measurement does not change the cut. STRAIT_EAGAIN when there
 * are too few machines, or too small ones: more may come. */
strait_err strait_assign(const strait_assign_spec *spec, int workers[STRAIT_RUN_STAGES],
                         int counts[STRAIT_RUN_STAGES]);
