#include "swarm/host/audit/audits.h"

#include "base/bytes.h"

#include <math.h>
#include <string.h>

/* ---- the draw ---- */

double strait_audit_detection(double share, double n) {
    return share >= 1.0 ? (n > 0.0 ? 1.0 : 0.0) : -expm1(n * log1p(-share));
}

/* The first eight bytes of an HMAC, as a number from 0 up to, not including, 1. Without memory for
 * the hash nothing is drawn, and everything else fails too. */
static double secret_number(const strait_audits *a, const void *data, size_t bytes) {
    strait_digest digest;
    if (strait_hmac_sha256(a->key, sizeof a->key, data, bytes, &digest) != STRAIT_OK) return 1.0;
    strait_reader r = {digest.bytes, sizeof digest.bytes, 0};
    return (double)(strait_reader_uint(&r, 8) >> 11) * 0x1p-53;
}

/* All commitments are in the HMAC: an owner that tries variants of its own draws anew each time,
 * and never learns the result. */
static int is_drawn(const strait_audits *a, int stage) {
    unsigned char bytes[16 + sizeof a->commitments];
    strait_writer w = {bytes, sizeof bytes, 0};
    strait_writer_uint(&w, a->generation, 4);
    strait_writer_uint(&w, (uint64_t)stage, 4);
    for (int i = 0; i < a->n_stages; i++) {
        const strait_commitment *c = &a->commitments[i];
        const strait_digest *all[] = {&c->sent_prev, &c->sent_next, &c->received_prev,
                                      &c->received_next, &c->snapshot};
        strait_writer_uint(&w, (uint64_t)c->from, 8);
        strait_writer_uint(&w, (uint64_t)c->to, 8);
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            strait_writer_copy(&w, all[k]->bytes, STRAIT_DIGEST_BYTES);
    }
    return secret_number(a, bytes, sizeof bytes - w.left) < a->share;
}

/* ---- intervals ---- */

void strait_audits_init(strait_audits *a, int n_stages, double share,
                        const unsigned char key[STRAIT_AUDIT_KEY_BYTES]) {
    memset(a, 0, sizeof *a);
    a->n_stages = n_stages;
    a->share = share;
    a->from = -1;
    memcpy(a->key, key, sizeof a->key);
}

void strait_audits_begin(strait_audits *a, int64_t step, uint32_t generation) {
    a->from = step;
    a->generation = generation;
    memset(a->has_commitment, 0, sizeof a->has_commitment);
}

const char *strait_audits_commit(strait_audits *a, int stage, uint32_t generation,
                                 const strait_commitment *c) {
    if (a->from < 0 || generation != a->generation) return NULL; // nothing is expected
    if (a->has_commitment[stage]) return "committed twice to one interval";
    if (c->from != a->from || c->to <= c->from) return "committed to another interval";
    a->commitments[stage] = *c;
    a->has_commitment[stage] = 1;
    return NULL;
}

void strait_audits_amend(strait_audits *a, int stage, const strait_commitment *crossings) {
    strait_commitment *c = &a->commitments[stage];
    c->sent_prev = crossings->sent_prev;
    c->sent_next = crossings->sent_next;
    c->received_prev = crossings->received_prev;
    c->received_next = crossings->received_next;
}

/* Returns the first replica that committed to another snapshot than the owner; 0: none did. */
static int find_differing(const strait_audit_replica *replicas, int n) {
    for (int i = 1; i < n; i++)
        if (!strait_digest_equal(&replicas[i].snapshot, &replicas[0].snapshot)) return i;
    return 0;
}

static strait_audit *open_audit(strait_audits *a, int stage, const strait_interval_stage *ends,
                                int64_t now_ns) {
    const strait_commitment *c = &a->commitments[stage];
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++) {
        strait_audit *audit = &a->items[i];
        if (audit->phase != STRAIT_AUDIT_CLOSED) continue;
        *audit = (strait_audit){.phase = STRAIT_AUDIT_GATHERING,
                                .id = ++a->n_opened,
                                .stage = stage,
                                .start = ends[stage].start,
                                .commitment = *c,
                                .n_votes = 1,
                                .n_replicas = ends[stage].n_replicas,
                                .since_ns = now_ns};
        memcpy(audit->replicas, ends[stage].replicas, sizeof audit->replicas);
        audit->is_contested = find_differing(audit->replicas, audit->n_replicas) > 0;
        audit->votes[0] = (strait_audit_vote){.key = ends[stage].owner,
                                              .result = {c->sent_prev, c->sent_next, c->snapshot,
                                                         ends[stage].reports, ends[stage].sums}};
        return audit;
    }
    return NULL;
}

void strait_audits_end_interval(strait_audits *a, int64_t step, const strait_interval_stage *ends,
                                int64_t now_ns, strait_interval_end *out) {
    *out = (strait_interval_end){.is_complete = a->from >= 0};
    for (int i = 0; i < a->n_stages && a->from >= 0; i++) {
        out->is_missing[i] = !a->has_commitment[i] || a->commitments[i].to != step;
        out->is_complete &= !out->is_missing[i];
    }
    if (out->is_complete) {
        a->n_intervals++;
        for (int i = 0; i < a->n_stages; i++) {
            const int differs = find_differing(ends[i].replicas, ends[i].n_replicas) > 0;
            if (!differs && !is_drawn(a, i)) continue;
            out->n_drawn++;
            out->n_skipped += open_audit(a, i, ends, now_ns) == NULL;
        }
        a->n_dropped += out->n_skipped;
    }
    strait_audits_begin(a, step, a->generation);
}

/* ---- audits ---- */

strait_audit *strait_audits_find(strait_audits *a, uint32_t id) {
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++)
        if (a->items[i].phase != STRAIT_AUDIT_CLOSED && a->items[i].id == id) return &a->items[i];
    return NULL;
}

void strait_audits_gathered(strait_audits *a, uint32_t id, int64_t now_ns) {
    strait_audit *audit = strait_audits_find(a, id);
    if (audit == NULL || audit->phase != STRAIT_AUDIT_GATHERING) return;
    audit->phase = STRAIT_AUDIT_WAITING;
    audit->since_ns = now_ns;
}

/* Whoever has an interest in the outcome, or computed it already, does not compute it. */
static int may_compute(const strait_audit *audit, const strait_fingerprint *key) {
    for (int i = 0; i < audit->n_votes; i++)
        if (strait_fingerprint_equal(&audit->votes[i].key, key)) return 0;
    for (int i = 0; i < audit->n_excluded; i++)
        if (strait_fingerprint_equal(&audit->excluded[i], key)) return 0;
    for (int i = 0; i < audit->n_replicas; i++)
        if (strait_fingerprint_equal(&audit->replicas[i].key, key)) return 0;
    return 1;
}

/* A spare that could tell when it is chosen could wait for the audit of an accomplice. */
static double secret_rank(const strait_audits *a, uint32_t id, const strait_fingerprint *key) {
    unsigned char bytes[4 + sizeof *key];
    strait_writer w = {bytes, sizeof bytes, 0};
    strait_writer_uint(&w, id, 4);
    strait_writer_copy(&w, key, sizeof *key);
    return secret_number(a, bytes, sizeof bytes);
}

int strait_audits_assign(strait_audits *a, uint32_t id, const strait_fingerprint *candidates, int n,
                         int64_t now_ns) {
    strait_audit *audit = strait_audits_find(a, id);
    int best = -1;
    double lowest = 2.0;
    if (audit == NULL || audit->phase != STRAIT_AUDIT_WAITING) return -1;
    for (int i = 0; i < n; i++) {
        const double rank = secret_rank(a, id, &candidates[i]);
        if (!may_compute(audit, &candidates[i]) || rank >= lowest) continue;
        lowest = rank;
        best = i;
    }
    if (best < 0) return -1;
    audit->auditor = candidates[best];
    audit->phase = STRAIT_AUDIT_RUNNING;
    audit->since_ns = now_ns;
    return best;
}

static void close_audit(strait_audits *a, strait_audit *audit, strait_verdict_kind kind,
                        strait_verdict *out) {
    out->kind = kind;
    out->id = audit->id;
    out->stage = audit->stage;
    out->from = audit->commitment.from;
    out->to = audit->commitment.to;
    a->n_approved += kind == STRAIT_VERDICT_APPROVED;
    a->n_convicted += kind == STRAIT_VERDICT_GUILTY;
    a->n_dropped += kind == STRAIT_VERDICT_DROPPED;
    audit->phase = STRAIT_AUDIT_CLOSED;
}

void strait_audit_contested(const strait_audit *audit, strait_fingerprint out[2]) {
    out[0] = audit->replicas[0].key;
    out[1] = audit->replicas[find_differing(audit->replicas, audit->n_replicas)].key;
}

static void drop(strait_audits *a, strait_audit *audit, const char *reason, strait_verdict *out) {
    close_audit(a, audit, STRAIT_VERDICT_DROPPED, out);
    out->reason = reason;
    out->is_contested = audit->is_contested;
    if (audit->is_contested) strait_audit_contested(audit, out->contested);
}

/* A spare that computes nothing has the digest of the snapshot that it was given, like all others
 * that compute nothing. */
static int is_idle(const strait_audit *audit, int i) {
    const strait_digest *snapshot = &audit->votes[i].result.snapshot;
    return strait_digest_equal(snapshot, &audit->start) &&
           !strait_digest_equal(snapshot, &audit->commitment.snapshot);
}

/* Returns a result that enough votes agree on; -1: there is none yet. The owner's vote does not
 * count where another replica contradicts it, which is as much a suspect as itself. */
static int agreed_vote(const strait_audit *audit) {
    for (int i = 0; i < audit->n_votes; i++) {
        int n = 0;
        for (int k = audit->is_contested; k < audit->n_votes && !is_idle(audit, i); k++)
            n += strait_audit_result_equal(&audit->votes[i].result, &audit->votes[k].result);
        if (n >= 2) return i;
    }
    return -1;
}

static void add_guilty(strait_verdict *out, const strait_fingerprint *key, int is_owner) {
    out->guilty[out->n_guilty++] = *key;
    out->is_run_affected |= is_owner;
}

/* Of a stage with replicas those that were first to do something else; if all steps are right,
 * those that hold another state in the end. */
static void add_replicas(const strait_audit *audit, const strait_audit_vote *right,
                         strait_verdict *out) {
    for (int i = 0; i < audit->n_replicas; i++) {
        const strait_audit_replica *replica = &audit->replicas[i];
        const int is_wrong = right->blamed != 0 ? (right->blamed >> i & 1) != 0
                                                : !strait_digest_equal(&replica->snapshot,
                                                                       &right->result.snapshot);
        if (!is_wrong) continue;
        add_guilty(out, &replica->key, 1);
        out->at_fault |= 1u << i;
    }
}

/* Whoever two contradict. */
static void find_guilty(const strait_audit *audit, int agreed, strait_verdict *out) {
    const strait_audit_vote *right = &audit->votes[agreed];
    for (int i = 0; i < audit->n_votes; i++) {
        const int is_right = strait_audit_result_equal(&audit->votes[i].result, &right->result);
        if (is_right || (i == 0 && audit->n_replicas > 1)) continue;
        add_guilty(out, &audit->votes[i].key, i == 0);
        out->at_fault |= i == 0;
    }
    if (audit->n_replicas > 1) add_replicas(audit, right, out);
}

void strait_audits_vote(strait_audits *a, uint32_t id, const strait_fingerprint *key,
                        const strait_audit_result *result, unsigned blamed, int64_t now_ns,
                        strait_verdict *out) {
    strait_audit *audit = strait_audits_find(a, id);
    *out = (strait_verdict){0};
    if (audit == NULL || audit->phase != STRAIT_AUDIT_RUNNING ||
        !strait_fingerprint_equal(&audit->auditor, key))
        return;
    audit->votes[audit->n_votes++] = (strait_audit_vote){*key, *result, blamed};
    audit->phase = STRAIT_AUDIT_WAITING; // for another one, unless it is decided
    audit->since_ns = now_ns;
    const int agreed = agreed_vote(audit);
    if (agreed < 0 && audit->n_votes == STRAIT_AUDIT_VOTES)
        drop(a, audit, "no two of those that computed it agree", out);
    if (agreed < 0) return;
    find_guilty(audit, agreed, out);
    close_audit(a, audit, out->n_guilty > 0 ? STRAIT_VERDICT_GUILTY : STRAIT_VERDICT_APPROVED, out);
}

void strait_audits_lost(strait_audits *a, uint32_t id, int64_t now_ns, strait_verdict *out) {
    strait_audit *audit = strait_audits_find(a, id);
    *out = (strait_verdict){0};
    if (audit == NULL || audit->phase != STRAIT_AUDIT_RUNNING) return;
    if (audit->n_excluded == STRAIT_AUDIT_EXCLUDED) {
        drop(a, audit, "too many spares left or failed while they computed it", out);
        return;
    }
    audit->excluded[audit->n_excluded++] = audit->auditor;
    audit->phase = STRAIT_AUDIT_WAITING;
    audit->since_ns = now_ns;
}

void strait_audits_release(strait_audits *a, uint32_t id, int64_t now_ns) {
    strait_audit *audit = strait_audits_find(a, id);
    if (audit == NULL || audit->phase != STRAIT_AUDIT_RUNNING) return;
    audit->phase = STRAIT_AUDIT_WAITING;
    audit->since_ns = now_ns;
}

void strait_audits_drop(strait_audits *a, uint32_t id, const char *reason, strait_verdict *out) {
    strait_audit *audit = strait_audits_find(a, id);
    *out = (strait_verdict){0};
    if (audit != NULL) drop(a, audit, reason, out);
}

void strait_audits_tick(strait_audits *a, int64_t now_ns, strait_verdict *out) {
    *out = (strait_verdict){0};
    for (int i = 0; i < STRAIT_AUDITS_OPEN && out->kind == STRAIT_VERDICT_NONE; i++) {
        strait_audit *audit = &a->items[i];
        const int64_t spent = now_ns - audit->since_ns;
        if (audit->phase == STRAIT_AUDIT_GATHERING && spent > a->limits.gather_ns)
            drop(a, audit, "an owner did not give what is needed in time", out);
        else if (audit->phase == STRAIT_AUDIT_WAITING && spent > a->limits.wait_ns)
            drop(a, audit, "no other spare with the same kernels is free", out);
        else if (audit->phase == STRAIT_AUDIT_RUNNING && spent > a->limits.run_ns)
            strait_audits_lost(a, audit->id, now_ns, out);
    }
}
