/* reduction_state.h - the inside of a reduction, for its two files: reduction.c sends what this
 * replica computed, reduction_receive.c adds what arrives. */
#pragma once

#include "stage/replicas/quantize.h"
#include "stage/replicas/reduction.h"

/* What a message holds. */
enum {
    HOLDS_PART = 0, // a chunk of a sum, for the owner of the chunk
    HOLDS_SUM = 1,  // the chunk summed over all replicas, from its owner
    HOLDS_LOSSES = 2
};

/* A chunk that this replica owns: the sums that wait for their sibling, by their first leaf. */
struct chunk {
    struct strait_pairwise set;
    struct strait_msg *waiting[STRAIT_PAIRWISE_LEAVES];
    uint64_t leaves;                            // that have arrived, as bits
    unsigned char from[STRAIT_PAIRWISE_LEAVES]; // the replica that sent each
};

/* A sum of this replica that has to be sent. */
struct part {
    strait_pairwise_node node;
    int is_ready[2]; // by is_deferred
    int next;        // chunk to send
};

struct strait_reduction {
    strait_reduction_spec spec;
    struct strait_backend *backend;
    struct strait_mesh *mesh;
    int peers[STRAIT_GROUPS_MAX];
    int64_t step; // being reduced, or the next one
    int is_begun;
    int64_t n_posted; // messages that links have accepted
    int is_foreign;   // somebody has sent a sum of groups that are not its own
    strait_group_owners owners;
    int n_leaves, n_chunks;
    int64_t chunk_size; // values of a chunk, except the last
    int64_t *offsets;   // of each parameter in the row of all values, and its end
    float *copy;        // of all values, where the device is not the host
    /* With fewer than 32 bits: what was lost of the sums of this replica, and of the results that
     * it owns; and the values of one chunk. */
    float *residual, *result_residual, *scratch;
    struct strait_msg *encoded; // the result that is being sent
    struct strait_msg *held;    // a message that did not fit into a queue, and whose it is
    int held_for;
    struct chunk *chunks; // owned: [index / n_replicas]
    unsigned char *is_summed;
    int n_summed;
    struct part parts[STRAIT_PAIRWISE_LEAVES];
    int n_parts;
    int *results; // chunks whose sum the others must get, in the order in which they were summed
    int n_results, next_result, next_peer;
    struct strait_msg *losses[STRAIT_GROUPS_MAX]; // of the other replicas; NULL: not arrived
    int has_sent_losses;
    struct strait_sums_hash *hash; // borrowed; NULL: nothing is hashed
};

static inline int chunk_owner(const struct strait_reduction *r, int chunk) {
    return chunk % r->spec.n_replicas;
}

static inline int64_t chunk_first(const struct strait_reduction *r, int chunk) {
    return (int64_t)chunk * r->chunk_size;
}

static inline int64_t chunk_values(const struct strait_reduction *r, int chunk) {
    const int64_t left = r->offsets[r->spec.n_params] - chunk_first(r, chunk);
    return left < r->chunk_size ? left : r->chunk_size;
}

/* Copies a chunk of a sum to `values`; or `values` into the gradients, with is_result. */
void strait_reduction_copy(const struct strait_reduction *r, strait_pairwise_node node, int chunk,
                           float *values, int is_result);

/* Takes a sum of a chunk of ours, whose leaves have not arrived before, and adds what belongs to
 * it. */
void strait_reduction_add(struct strait_reduction *r, int index, strait_pairwise_node node,
                          int from, struct strait_msg *msg);

/* Hashes a chunk of a sum that this replica gives or takes, if that is wanted. */
strait_err strait_reduction_hash_part(struct strait_reduction *r, strait_pairwise_node node,
                                      int chunk, struct strait_msg *msg);

/* Whether a leaf, once the owners of the groups are known, belongs to this replica. */
static inline int is_leaf_of(const struct strait_reduction *r, int leaf, int replica) {
    return (r->spec.sums != NULL ? r->owners.replica[leaf] : leaf) == replica;
}

/* A chunk is complete in the gradients. */
void strait_reduction_note_summed(struct strait_reduction *r, int chunk);

/* Whether replica 0 lacks the losses of this one. */
int strait_reduction_awaits_losses(const struct strait_reduction *r, int replica);

static inline float *chunk_body(struct strait_msg *msg) {
    return (float *)(void *)msg->body;
}
