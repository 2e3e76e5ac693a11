/* due.c - how many messages those that an audit asked may send without regard to their rate limit:
 * as many as it takes. What is under way when an audit is given up is not held against them. */
#include "swarm/host/audit/driver.h"
#include "swarm/host/state.h"

#include <string.h>

enum {
    PER_MESSAGE = 2 // that is needed: others may be under way when their audit is given up
};

int64_t strait_host_audit_pieces(size_t bytes) {
    return PER_MESSAGE * (int64_t)((bytes + STRAIT_PIECE_BYTES - 1) / STRAIT_PIECE_BYTES);
}

void strait_host_audit_expect(struct host_audit *a) {
    const strait_evidence_spec *spec = &a->evidence.spec;
    memset(a->n_due, 0, sizeof a->n_due);
    a->n_due[STRAIT_EVIDENCE_SNAPSHOT][0] = strait_host_audit_pieces(spec->snapshot_bytes);
    for (int part = 0; part < STRAIT_EVIDENCE_SNAPSHOT; part++)
        for (int64_t step = spec->from; spec->crossing_bytes[part] > 0 && step < spec->to; step++)
            for (int m = 0; m < spec->groups.n_microbatches; m++)
                a->n_due[part][strait_host_work_giver(a, (strait_evidence_part)part, step, m)] +=
                    PER_MESSAGE;
    memcpy(a->n_asked, a->n_due, sizeof a->n_asked);
}

int strait_host_audit_giver(const struct host *h, const struct connection *connection,
                            const struct host_audit *a, strait_evidence_part part) {
    const strait_fingerprint *key = &h->coordinator.workers[connection->worker].key;
    for (int i = 0; a->id != 0 && i < a->givers[part].n; i++)
        if (strait_fingerprint_equal(&a->givers[part].keys[i], key)) return i;
    return -1;
}

int strait_host_audit_is_open(const struct strait_evidence *end) {
    return end->fd > 0 && !strait_evidence_has(end, STRAIT_EVIDENCE_SNAPSHOT);
}

/* The owner's end comes first. */
static int expects_end(const struct host *h, const struct connection *connection,
                       const struct host_audit *a) {
    int is_any = 0;
    if (strait_host_audit_is_open(&a->ends[0]))
        return strait_host_audit_giver(h, connection, a, STRAIT_EVIDENCE_SNAPSHOT) >= 0;
    for (int i = 1; i < STRAIT_AUDIT_VOTES; i++)
        is_any |= strait_host_audit_is_open(&a->ends[i]);
    return is_any && a->auditor == connection->worker;
}

static int take_one(int64_t *n) {
    return *n > 0 && (*n)-- > 0;
}

/* Returns whether an open audit expects the message. */
static int is_due(struct host *h, const struct connection *connection, int is_piece) {
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++) {
        struct host_audit *a = &h->audits->open[i];
        if (a->id == 0) continue;
        if (is_piece && expects_end(h, connection, a) && take_one(&a->n_due_ends)) return 1;
        for (int part = 0; part < STRAIT_EVIDENCE_PARTS; part++) {
            const int giver = strait_host_audit_giver(h, connection, a, (strait_evidence_part)part);
            if (giver >= 0 && (part == STRAIT_EVIDENCE_SNAPSHOT) == is_piece &&
                take_one(&a->n_due[part][giver]))
                return 1;
        }
    }
    return 0;
}

int strait_host_audit_expects(struct host *h, struct connection *connection,
                              const struct strait_msg *msg) {
    if (h->audits == NULL || connection->worker < 0) return 0;
    return is_due(h, connection, msg->type == STRAIT_MSG_SNAPSHOT) || take_one(&connection->n_late);
}

/* ---- audits that end before all has arrived ---- */

/* n_due is twice what the audit needs; the second half is the allowance for audits that end early.
 */
static void excuse(struct host *h, int slot, int64_t n_due, int64_t n_asked) {
    struct connection *connection = slot >= 0 ? strait_host_connection(h, slot) : NULL;
    const int64_t n = n_due - n_asked / PER_MESSAGE;
    if (connection != NULL && n > 0) connection->n_late += n;
}

void strait_host_audit_excuse_end(struct host *h, struct host_audit *a) {
    const strait_fingerprint *owner = &a->givers[STRAIT_EVIDENCE_SNAPSHOT].keys[0];
    int slot = a->auditor;
    if (strait_host_audit_is_open(&a->ends[0]))
        slot = strait_coordinator_find(&h->coordinator, owner);
    excuse(h, slot, a->n_due_ends, a->n_asked_ends);
    a->n_due_ends = a->n_asked_ends = 0;
}

void strait_host_audit_excuse(struct host *h, struct host_audit *a) {
    for (int part = 0; part < STRAIT_EVIDENCE_PARTS; part++)
        for (int i = 0; i < a->givers[part].n; i++)
            excuse(h, strait_coordinator_find(&h->coordinator, &a->givers[part].keys[i]),
                   a->n_due[part][i], a->n_asked[part][i]);
    strait_host_audit_excuse_end(h, a);
}
