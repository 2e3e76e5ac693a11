/* split.h - how many layers each stage holds.
 *
 * Layers are alike, so a split is a count for each stage. The embedding sits on the first stage and
 * the head on the last; their cost and memory are given in layers, so that 1.5 means as much as a
 * layer and a half. */
#pragma once

#include "base/error.h"

typedef struct strait_split_spec {
    int n_layers, n_stages;
    int stride;                           // stages begin at its multiples; 0: anywhere
    double embedding_cost, head_cost;     // time, in layers
    double embedding_memory, head_memory; // in layers
    const double *speeds;                 // of each stage, relative; NULL: all the same
    const double *memories;               // layers that fit on each stage; NULL: any number
} strait_split_spec;

/* Makes the slowest stage as fast as it can be, and the others as even as that leaves them. Ties
 * go to later stages, which keep fewer microbatches in flight. Writes n_stages counts, each at
 * least 1. STRAIT_ECONFIG when there are more stages than places to begin at or the memory is too
 * small. */
strait_err strait_split_auto(const strait_split_spec *spec, int *counts);

/* Refuses counts that are not one for each stage, are below 1 or do not add up to the layers. */
strait_err strait_split_check(int n_layers, int n_stages, const int *counts, int n_counts);
