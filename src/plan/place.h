/* place.h - which rank of a cluster computes which stage. */
#pragma once

typedef enum strait_place_rule {
    STRAIT_PLACE_PACK,   // consecutive stages on one node: few boundaries cross the network
    STRAIT_PLACE_SPREAD, // consecutive stages on different nodes: nodes share the load and memory
} strait_place_rule;

enum {
    STRAIT_PLACE_RANKS = 4096
};

/* The node of a rank, and its number among the ranks of that node, both from 0. */
typedef struct strait_place_rank {
    int node, local;
} strait_place_rank;

/* Writes the rank of each of n_stages stages to `out`. There are 1 to min(n_stages,
 * STRAIT_PLACE_RANKS) ranks; with fewer ranks than stages, consecutive stages share a rank, and
 * their numbers differ by at most one. */
void strait_place(strait_place_rule rule, const strait_place_rank *ranks, int n_ranks, int n_stages,
                  int *out);
