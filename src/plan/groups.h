/* groups.h - the groups that the microbatches of a step form, and who computes which.
 *
 * A group is a contiguous range of microbatches. Gradients are summed in the order of microbatches
 * inside a group, and pairwise across groups (pairwise.h). Replicas of a stage take whole groups:
 * the sum then has the same bits for any number of replicas and any shares, since the groups follow
 * from the run file alone. Pure functions. */
#pragma once

#include "plan/pairwise.h"

enum {
    STRAIT_GROUPS_MAX = STRAIT_PAIRWISE_LEAVES
};

typedef struct strait_groups {
    int n_microbatches;
    int n_groups;  // at most STRAIT_GROUPS_MAX, and at most n_microbatches
    int n_streams; // ranges of groups that are computed in turn; see strait_groups_order
} strait_groups;

/* For each group the replica of one stage that computes it. Zeroed: a stage without others. */
typedef struct strait_group_owners {
    unsigned char replica[STRAIT_GROUPS_MAX];
} strait_group_owners;

/* Groups of a step whose stages have at most `replicas_max` replicas. */
strait_groups strait_groups_make(int n_microbatches, int n_groups, int replicas_max);

/* The first microbatch of a group; that of the group after the last is n_microbatches. */
int strait_groups_first(const strait_groups *groups, int group);
/* The group of a microbatch. */
int strait_groups_of(const strait_groups *groups, int microbatch);

/* The order in which every stage computes the groups. With one stream it is 0, 1, 2, ... Otherwise
 * the groups are cut into ranges, and each range gives one group in turn, ranges far apart first:
 * the owners of neighbouring groups are often one replica, and the others must not be idle. All
 * stages use the same order, so none waits for a microbatch that another has put off. */
void strait_groups_order(const strait_groups *groups, int order[STRAIT_GROUPS_MAX]);

/* The microbatches that a replica computes, in order. Writes up to n_microbatches numbers and
 * returns how many. */
int strait_groups_list(const strait_groups *groups, const strait_group_owners *owners, int replica,
                       int *out);

/* How many they are. */
int strait_groups_count(const strait_groups *groups, const strait_group_owners *owners,
                        int replica);

/* Gives each replica a contiguous range of groups in proportion to its speed, and at least one.
 * There must be at least as many groups as replicas. `speeds` NULL: all equal. */
void strait_groups_share(const strait_groups *groups, int n_replicas, const double *speeds,
                         strait_group_owners *out);

/* Sums that a replica keeps at most while it computes another group, for any range of groups. With
 * one replica that is all of them. */
int strait_groups_buffers(const strait_groups *groups, int n_replicas);
