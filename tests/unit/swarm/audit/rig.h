/* rig.h - owners that commit to intervals and spares that compute them, for tests of
 * swarm/host/audit/audits.h. */
#pragma once

#include "check.h"
#include "swarm/host/audit/audits.h"

#include <stdio.h>
#include <string.h>

enum {
    N_STAGES = 4,
    SECOND = 1000000000
};

static strait_audits audits;
static strait_interval_stage ends[STRAIT_RUN_STAGES];
static strait_interval_end end;
static strait_verdict verdict;
static unsigned char key[STRAIT_AUDIT_KEY_BYTES] = {7};

static strait_fingerprint worker(int i) {
    strait_fingerprint k = {{0}};
    memcpy(&k, &i, sizeof i);
    return k;
}

static strait_digest digest_of(const char *what, int64_t a, int b) {
    char text[128];
    strait_digest digest;
    (void)snprintf(text, sizeof text, "%s %lld %d", what, (long long)a, b);
    CHECK_OK(strait_sha256(text, strlen(text), &digest));
    return digest;
}

/* What honest owners commit to: the ends of a boundary agree. */
static strait_commitment honest(int stage, int64_t from, int64_t to) {
    strait_commitment c = {.from = from, .to = to, .snapshot = digest_of("snapshot", to, stage)};
    if (stage > 0) c.sent_prev = digest_of("gradients", from, stage);
    if (stage > 0) c.received_prev = digest_of("activations", from, stage - 1);
    if (stage + 1 < N_STAGES) c.sent_next = digest_of("activations", from, stage);
    if (stage + 1 < N_STAGES) c.received_next = digest_of("gradients", from, stage + 1);
    return c;
}

static strait_audit_result result_of(const strait_commitment *c, int stage) {
    return (strait_audit_result){c->sent_prev, c->sent_next, c->snapshot, ends[stage].reports,
                                 ends[stage].sums};
}

static strait_audit_result honest_result(int stage, int64_t from, int64_t to) {
    const strait_commitment c = honest(stage, from, to);
    return result_of(&c, stage);
}

static void start(double share) {
    strait_audits_init(&audits, N_STAGES, share, key);
    audits.limits = (strait_audit_limits){SECOND, 10LL * SECOND, SECOND};
    for (int i = 0; i < N_STAGES; i++) {
        ends[i] = (strait_interval_stage){.owner = worker(100 + i),
                                          .reports = digest_of("reports", 0, i)};
    }
    strait_audits_begin(&audits, 0, 1);
}

static void commit_all(int64_t to, int liar) {
    for (int i = 0; i < N_STAGES; i++) {
        strait_commitment c = honest(i, audits.from, to);
        ends[i].start = digest_of("snapshot", audits.from, i);
        if (i == liar) c.snapshot = digest_of("perturbed", to, i);
        assert_null(strait_audits_commit(&audits, i, audits.generation, &c));
    }
    strait_audits_end_interval(&audits, to, ends, 0, &end);
}

static int is_guilty(int w) {
    const strait_fingerprint k = worker(w);
    for (int i = 0; i < verdict.n_guilty; i++)
        if (strait_fingerprint_equal(&verdict.guilty[i], &k)) return 1;
    return 0;
}
