/* gradient_sums.h - sums the gradients of a stage over the groups of a step.
 *
 * The model adds the microbatches of a group to its gradients, in order. After a group, its sum is
 * put aside, and sums are added pairwise (plan/pairwise.h) as soon as two belong together. At the
 * end the newest sum is in the gradients themselves: all of the step, unless other replicas have
 * computed some of the groups; then the parts that are left are reduced with theirs (reduction.h).
 *
 * Gradients that a schedule defers are complete later than others (strait_param.is_deferred): the
 * two kinds have sums of their own. One thread uses it, that of the runner. */
#pragma once

#include "backend/slab.h"
#include "config/run_plan.h"
#include "plan/groups.h"
#include "stage/replicas/sums_hash.h"

/* Buffers for sums of a replica's groups; 0 where groups are added in order in one buffer. */
int strait_gradient_sums_buffers(const strait_run_plan *plan, int stage);

/* Their bytes for these parameters, of which only the shapes are read. STRAIT_ENOMEM. */
strait_err strait_gradient_sums_bytes(const strait_param *params, int n_params, int n_buffers,
                                      size_t *out);

struct strait_gradient_sums {   // zeroed is closed
    const strait_param *params; // borrowed
    int n_params, n_leaves, n_buffers;
    struct strait_slab slab;
    strait_tensor *buffers; // [n_buffers x n_params]
    struct {
        struct strait_pairwise set;
        strait_pairwise_node newest; // its sum is in the gradients
        unsigned char is_used[STRAIT_PAIRWISE_LEAVES];
    } kinds[2]; // by is_deferred
    /* An auditor's: of the sums that the replicas of the stage should have. NULL: not wanted. Both
     * are borrowed. */
    struct strait_sums_hash *audited;
    const strait_group_owners *audited_owners;
};

/* Borrows the parameters. After an error call fini. */
strait_err strait_gradient_sums_init(struct strait_gradient_sums *sums, int n_leaves, int n_buffers,
                                     const strait_param *params, int n_params,
                                     struct strait_backend *backend);
void strait_gradient_sums_fini(struct strait_gradient_sums *sums); // accepts a zeroed one

/* Starts a step: no group has been summed. */
void strait_gradient_sums_begin(struct strait_gradient_sums *sums);

/* The gradients of a kind hold the sum of group `leaf`: adds to it every sum that belongs to it.
 * Queues work only. */
strait_err strait_gradient_sums_add(struct strait_gradient_sums *sums, struct strait_stream *stream,
                                    int is_deferred, int leaf);

/* Puts the newest sum aside, since the next group is computed in the gradients' memory. */
strait_err strait_gradient_sums_put_aside(struct strait_gradient_sums *sums,
                                          struct strait_stream *stream, int is_deferred);

/* Where the sum of a node is for one parameter: in the gradient or in a buffer. The node must be
 * one of the parts that are left. */
strait_tensor strait_gradient_sums_get(const struct strait_gradient_sums *sums,
                                       strait_pairwise_node node, int param);
