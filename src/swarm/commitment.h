/* commitment.h - what the workers of a stage state about an interval between two snapshots before
 * they can know whether that interval is audited. Plain data. */
#pragma once

#include "base/digest/sha256.h"
#include "plan/groups.h"

#include <stdint.h>

/* The steps from `from` up to, not including, `to`. The digests of crossings cover every group of
 * every step (strait_crossing_hash_step, then strait_digest_extend); zeros where the stage has no
 * neighbour. What workers state of them in each step counts, see below. */
typedef struct strait_commitment {
    int64_t from, to;
    strait_digest sent_prev, sent_next;         // crossings to each neighbour
    strait_digest received_prev, received_next; // crossings from each neighbour
    strait_digest snapshot;                     // of the stage after the last step
} strait_commitment;

/* What the interval of a stage results in, by whoever computed it: equal for all who did so
 * honestly with the same kernels. */
typedef struct strait_audit_result {
    strait_digest sent_prev, sent_next, snapshot;
    strait_digest reports; // losses and squares of gradients, of each step
    strait_digest sums;    // what replicas gave each other and summed; zeros: there is one
} strait_audit_result;

/* Extends a digest of reports by what a stage reports of one step; `reports` is zeros at first. */
strait_err strait_commitment_add_report(strait_digest *reports, int64_t step, double loss_sum,
                                        const float *squares, int n_squares);

static inline int strait_audit_result_equal(const strait_audit_result *a,
                                            const strait_audit_result *b) {
    return strait_digest_equal(&a->sent_prev, &b->sent_prev) &&
           strait_digest_equal(&a->sent_next, &b->sent_next) &&
           strait_digest_equal(&a->snapshot, &b->snapshot) &&
           strait_digest_equal(&a->reports, &b->reports) && strait_digest_equal(&a->sums, &b->sums);
}

/* ---- steps ---- */

/* What the replicas of a stage did in one step is a row of digests: of the crossings of each group,
 * of what each replica gave to the owner of each chunk of the sum, of the summed chunks of each
 * owner (stage/replicas/sums_hash.h), and of the report. One replica states a part of it; all of
 * it, if it is the only one. */
typedef enum strait_work_crossing {
    STRAIT_WORK_SENT_PREV,
    STRAIT_WORK_SENT_NEXT,
    STRAIT_WORK_RECEIVED_PREV,
    STRAIT_WORK_RECEIVED_NEXT,
    STRAIT_WORK_CROSSINGS
} strait_work_crossing;

typedef struct strait_work_shape {
    int n_groups, n_replicas;
    int has_prev, has_next; // the stage has that neighbour
} strait_work_shape;

enum {
    STRAIT_WORK_REPLICAS = 8, // most replicas of a stage
    STRAIT_WORK_MAX = STRAIT_WORK_CROSSINGS * STRAIT_GROUPS_MAX +
                      STRAIT_WORK_REPLICAS * (STRAIT_WORK_REPLICAS + 1) + 1 // digests of a row
};

/* Where in the row a digest is. */
static inline int strait_work_at(strait_work_shape s, strait_work_crossing crossing, int group) {
    return (int)crossing * s.n_groups + group;
}
static inline int strait_work_given(strait_work_shape s, int giver, int owner) {
    return STRAIT_WORK_CROSSINGS * s.n_groups + giver * s.n_replicas + owner;
}
static inline int strait_work_total(strait_work_shape s, int owner) {
    return strait_work_given(s, s.n_replicas, owner);
}
static inline int strait_work_report(strait_work_shape s) {
    return strait_work_total(s, s.n_replicas);
}
static inline int strait_work_digests(strait_work_shape s) {
    return strait_work_report(s) + 1;
}

/* Copies to the row of the stage what `replica` alone can state: of its groups, of what it gave and
 * of the chunks that it sums. */
void strait_work_merge(strait_work_shape shape, const strait_group_owners *owners, int replica,
                       const strait_digest *stated, strait_digest *row);

/* Returns a replica that contradicts what `replica` states about what the two exchanged: what it
 * took, and the sums that it got; -1: none does. `row` has what all have stated. */
int strait_work_contradicted(strait_work_shape shape, int replica, const strait_digest *stated,
                             const strait_digest *row);

/* Returns which replicas did something else than they should in a step, as bits: those at fault,
 * not those that computed from what they were given. Steps before were right, and `right` was
 * computed from what all received. 0: nothing is wrong. */
unsigned strait_work_blame(strait_work_shape shape, const strait_group_owners *owners,
                           const strait_digest *row, const strait_digest *right);

/* Extends the digests of an interval, but that of its snapshot, by a row. */
strait_err strait_work_extend(strait_work_shape shape, const strait_digest *row,
                              strait_commitment *sum, strait_audit_result *result);
