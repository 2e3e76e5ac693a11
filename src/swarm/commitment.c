#include "swarm/commitment.h"

#include "base/bytes.h"
#include "stage/boundary/crossing_hash.h"

/* Numbers are hashed as little-endian bytes of their bits, the squares as they are in memory on
 * every machine that is supported. */
strait_err strait_commitment_add_report(strait_digest *reports, int64_t step, double loss_sum,
                                        const float *squares, int n_squares) {
    unsigned char head[16];
    strait_writer w = {head, sizeof head, 0};
    strait_writer_uint(&w, (uint64_t)step, 8);
    strait_writer_real(&w, loss_sum);
    STRAIT_TRY(strait_digest_extend(reports, head, sizeof head));
    return strait_digest_extend(reports, squares, (size_t)n_squares * sizeof *squares);
}

/* ---- replicas ---- */

void strait_work_merge(strait_work_shape s, const strait_group_owners *owners, int replica,
                       const strait_digest *stated, strait_digest *row) {
    for (int i = 0; i < STRAIT_WORK_CROSSINGS; i++)
        for (int g = 0; g < s.n_groups; g++)
            if (owners->replica[g] == replica) {
                const int at = strait_work_at(s, (strait_work_crossing)i, g);
                row[at] = stated[at];
            }
    for (int o = 0; o < s.n_replicas; o++) {
        const int at = strait_work_given(s, replica, o);
        row[at] = stated[at];
    }
    row[strait_work_total(s, replica)] = stated[strait_work_total(s, replica)];
}

int strait_work_contradicted(strait_work_shape s, int replica, const strait_digest *stated,
                             const strait_digest *row) {
    for (int other = 0; other < s.n_replicas; other++) {
        const int taken = strait_work_given(s, other, replica), total = strait_work_total(s, other);
        if (!strait_digest_equal(&stated[taken], &row[taken]) ||
            !strait_digest_equal(&stated[total], &row[total]))
            return other;
    }
    return -1;
}

static unsigned differing(const strait_digest *row, const strait_digest *right, int at,
                          int replica) {
    return strait_digest_equal(&row[at], &right[at]) ? 0 : 1U << replica;
}

/* What a replica sends and gives depends on no other replica in this step; the sum of a chunk only
 * on what was given for it; the report of the first on all of that. */
unsigned strait_work_blame(strait_work_shape s, const strait_group_owners *owners,
                           const strait_digest *row, const strait_digest *right) {
    unsigned bits = 0;
    for (int g = 0; g < s.n_groups; g++)
        for (int i = STRAIT_WORK_SENT_PREV; i <= STRAIT_WORK_SENT_NEXT; i++)
            bits |= differing(row, right, strait_work_at(s, (strait_work_crossing)i, g),
                              owners->replica[g]);
    for (int r = 0; r < s.n_replicas; r++)
        for (int o = 0; o < s.n_replicas; o++)
            bits |= differing(row, right, strait_work_given(s, r, o), r);
    for (int o = 0; o < s.n_replicas && bits == 0; o++)
        bits |= differing(row, right, strait_work_total(s, o), o);
    return bits != 0 ? bits : differing(row, right, strait_work_report(s), 0);
}

static strait_err extend_crossings(strait_work_shape s, const strait_digest *row,
                                   strait_work_crossing crossing, strait_digest *sum) {
    strait_digest step;
    STRAIT_TRY(strait_crossing_hash_step(&row[strait_work_at(s, crossing, 0)], s.n_groups, &step));
    return strait_digest_extend(sum, step.bytes, sizeof step.bytes);
}

strait_err strait_work_extend(strait_work_shape s, const strait_digest *row, strait_commitment *sum,
                              strait_audit_result *result) {
    const strait_digest *report = &row[strait_work_report(s)];
    if (s.has_prev) {
        STRAIT_TRY(extend_crossings(s, row, STRAIT_WORK_SENT_PREV, &sum->sent_prev));
        STRAIT_TRY(extend_crossings(s, row, STRAIT_WORK_RECEIVED_PREV, &sum->received_prev));
    }
    if (s.has_next) {
        STRAIT_TRY(extend_crossings(s, row, STRAIT_WORK_SENT_NEXT, &sum->sent_next));
        STRAIT_TRY(extend_crossings(s, row, STRAIT_WORK_RECEIVED_NEXT, &sum->received_next));
    }
    result->sent_prev = sum->sent_prev;
    result->sent_next = sum->sent_next;
    for (int at = strait_work_given(s, 0, 0); s.n_replicas > 1 && at < strait_work_report(s); at++)
        STRAIT_TRY(strait_digest_extend(&result->sums, row[at].bytes, sizeof row[at].bytes));
    return strait_digest_extend(&result->reports, report->bytes, sizeof report->bytes);
}
