/* pairwise.h - the fixed binary tree in which parts of a sum are added.
 *
 * The leaves are numbered from 0. Node (level, index) covers leaves [index 2^level, (index + 1)
 * 2^level), as far as they exist; its value is that of its left child plus that of its right one,
 * in this order. A node without a right child is its left child. So the tree follows from the
 * number of leaves alone: whoever adds whichever parts, in whatever order they become known, the
 * sum has the same bits. Pure functions. */
#pragma once

enum {
    STRAIT_PAIRWISE_LEAVES = 64, // most leaves of a tree
    STRAIT_PAIRWISE_LEVELS = 7   // levels of the largest tree, its leaves included
};

typedef struct strait_pairwise_node {
    int level, index;
} strait_pairwise_node;

/* A leaf as the node that is waited for: one that has a sibling, or the root. */
strait_pairwise_node strait_pairwise_leaf(int n_leaves, int leaf);

/* Whether a node is the whole sum. */
int strait_pairwise_is_root(int n_leaves, strait_pairwise_node node);

/* The node that is added to this one, which is not the root. The one with the even index is the
 * left operand. */
strait_pairwise_node strait_pairwise_sibling(strait_pairwise_node node);

/* The sum of a node and its sibling, again as the node that is waited for. */
strait_pairwise_node strait_pairwise_sum(int n_leaves, strait_pairwise_node node);

/* Whether a node that came from elsewhere is one that strait_pairwise_leaf or _sum can return. */
int strait_pairwise_is_valid(int n_leaves, strait_pairwise_node node);

/* The leaves of a node: [*first, *end). */
void strait_pairwise_leaves(int n_leaves, strait_pairwise_node node, int *first, int *end);

/* The parts of a sum that are known so far. Zeroed: none. */
struct strait_pairwise {
    unsigned char held[STRAIT_PAIRWISE_LEVELS][STRAIT_PAIRWISE_LEAVES]; // 1 + slot; 0: not here
};

/* The slot in which a node is held; -1: it is not. */
int strait_pairwise_find(const struct strait_pairwise *set, strait_pairwise_node node);
/* Notes that a slot (0 to 253) holds a node, or that it does not any more. */
void strait_pairwise_hold(struct strait_pairwise *set, strait_pairwise_node node, int slot);
void strait_pairwise_drop(struct strait_pairwise *set, strait_pairwise_node node);

/* The largest sums that the leaves with is_mine[leaf] set give without any other leaf. Writes at
 * most STRAIT_PAIRWISE_LEAVES nodes, by their first leaf, and returns their number. */
int strait_pairwise_parts(int n_leaves, const unsigned char *is_mine, strait_pairwise_node *out);

/* How many sums wait at most for their sibling when the leaves come in this order; the newest is
 * not counted. */
int strait_pairwise_most_held(int n_leaves, const int *order, int n);
