/* commitment.h - what the owner of a stage states about an interval between two snapshots before it
 * can know whether that interval is audited. Plain data. */
#pragma once

#include "base/digest/sha256.h"

#include <stdint.h>

/* The steps from `from` up to, not including, `to`. The digests of crossings cover every microbatch
 * of every step (strait_digest_extend); zeros where the stage has no neighbour. */
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
} strait_audit_result;

/* Extends a digest of reports by what a stage reports of one step; `reports` is zeros at first. */
strait_err strait_commitment_add_report(strait_digest *reports, int64_t step, double loss_sum,
                                        const float *squares, int n_squares);

static inline int strait_audit_result_equal(const strait_audit_result *a,
                                            const strait_audit_result *b) {
    return strait_digest_equal(&a->sent_prev, &b->sent_prev) &&
           strait_digest_equal(&a->sent_next, &b->sent_next) &&
           strait_digest_equal(&a->snapshot, &b->snapshot) &&
           strait_digest_equal(&a->reports, &b->reports);
}
