#include "plan/pairwise.h"

#include <assert.h>

int strait_pairwise_is_root(int n_leaves, strait_pairwise_node node) {
    return 1 << node.level >= n_leaves;
}

/* Only the last node of a level can be without a sibling: it stands for its parent, too. */
static strait_pairwise_node climb(int n_leaves, strait_pairwise_node node) {
    while (!strait_pairwise_is_root(n_leaves, node) &&
           strait_pairwise_sibling(node).index << node.level >= n_leaves)
        node = (strait_pairwise_node){node.level + 1, node.index / 2};
    return node;
}

strait_pairwise_node strait_pairwise_leaf(int n_leaves, int leaf) {
    return climb(n_leaves, (strait_pairwise_node){0, leaf});
}

strait_pairwise_node strait_pairwise_sibling(strait_pairwise_node node) {
    return (strait_pairwise_node){node.level, node.index ^ 1};
}

/* The sibling of a node may have climbed as well, and is then found at the level of this one: both
 * have the same parent. */
strait_pairwise_node strait_pairwise_sum(int n_leaves, strait_pairwise_node node) {
    return climb(n_leaves, (strait_pairwise_node){node.level + 1, node.index / 2});
}

/* Bounds first: the numbers may come from the network. */
int strait_pairwise_is_valid(int n_leaves, strait_pairwise_node node) {
    if (node.level < 0 || node.level >= STRAIT_PAIRWISE_LEVELS || node.index < 0 ||
        node.index >= STRAIT_PAIRWISE_LEAVES || node.index << node.level >= n_leaves)
        return 0;
    const strait_pairwise_node known = climb(n_leaves, node);
    return known.level == node.level;
}

void strait_pairwise_leaves(int n_leaves, strait_pairwise_node node, int *first, int *end) {
    const int last = (node.index + 1) << node.level;
    *first = node.index << node.level;
    *end = last < n_leaves ? last : n_leaves;
}

int strait_pairwise_find(const struct strait_pairwise *set, strait_pairwise_node node) {
    return set->held[node.level][node.index] - 1;
}

void strait_pairwise_hold(struct strait_pairwise *set, strait_pairwise_node node, int slot) {
    assert(slot >= 0 && slot < 254);
    set->held[node.level][node.index] = (unsigned char)(slot + 1);
}

void strait_pairwise_drop(struct strait_pairwise *set, strait_pairwise_node node) {
    set->held[node.level][node.index] = 0;
}

/* Adds a leaf to a set without values; returns by how many sums the set grows. */
static int add_leaf(struct strait_pairwise *set, int n_leaves, int leaf) {
    strait_pairwise_node node = strait_pairwise_leaf(n_leaves, leaf);
    int grown = 1;
    while (!strait_pairwise_is_root(n_leaves, node) &&
           strait_pairwise_find(set, strait_pairwise_sibling(node)) >= 0) {
        strait_pairwise_drop(set, strait_pairwise_sibling(node));
        node = strait_pairwise_sum(n_leaves, node);
        grown--;
    }
    strait_pairwise_hold(set, node, 0);
    return grown;
}

int strait_pairwise_parts(int n_leaves, const unsigned char *is_mine, strait_pairwise_node *out) {
    struct strait_pairwise set = {0};
    int n = 0;
    for (int leaf = 0; leaf < n_leaves; leaf++)
        if (is_mine[leaf]) (void)add_leaf(&set, n_leaves, leaf);
    for (int leaf = 0; leaf < n_leaves; leaf++)
        for (int level = 0; level < STRAIT_PAIRWISE_LEVELS; level++) {
            const strait_pairwise_node node = {level, leaf >> level};
            if (node.index << level == leaf && strait_pairwise_find(&set, node) >= 0)
                out[n++] = node;
        }
    return n;
}

int strait_pairwise_most_held(int n_leaves, const int *order, int n) {
    struct strait_pairwise set = {0};
    int held = 0;
    int most = 0;
    for (int i = 0; i < n; i++) {
        if (held > most) most = held; // while the next leaf is computed
        held += add_leaf(&set, n_leaves, order[i]);
    }
    return most;
}
