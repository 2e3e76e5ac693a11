/* split.h - how many layers each stage holds.
 *
 * All layers have the same cost, so a split is one count per stage. The embedding belongs to the
 * first stage and the head to the last; their cost and memory are given in layers: 1.5 is as much
 * as one and a half layers. */
#pragma once

#include "base/error.h"

typedef struct strait_split_spec {
    int n_layers, n_stages;
    int stride;                           // stages begin at multiples of it; 0: anywhere
    double embedding_cost, head_cost;     // time, in layers
    double embedding_memory, head_memory; // in layers
    const double *speeds;                 // relative, of each stage; NULL: equal
    const double *memories;               // layers that fit on each stage; NULL: any number
} strait_split_spec;

/* Minimises the time of the slowest stage and balances the others. Ties go to later stages, which
 * keep fewer microbatches in flight. Writes n_stages counts, each at least 1. STRAIT_ECONFIG when
 * there are more stages than layers they may begin at, or too little memory. */
strait_err strait_split_auto(const strait_split_spec *spec, int *counts);

/* Rejects counts (STRAIT_ECONFIG) that are not one per stage, are below 1 or do not add up to the
 * layers. */
strait_err strait_split_check(int n_layers, int n_stages, const int *counts, int n_counts);
