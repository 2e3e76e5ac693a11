/* Stages with replicas: what they state about a step, and who is at fault when it is wrong. */
#include "rig.h"

enum {
    GROUPS = 4,
    REPLICAS = 3
};

static const strait_work_shape shape = {GROUPS, REPLICAS, 1, 1};
static const strait_group_owners owners = {{0, 1, 1, 2}};
static strait_digest right[STRAIT_WORK_MAX], row[STRAIT_WORK_MAX];

/* What honest replicas do. */
static void setup(void) {
    memset(row, 0, sizeof row);
    for (int i = 0; i < strait_work_digests(shape); i++)
        right[i] = digest_of("work", i, 0);
    memcpy(row, right, sizeof row);
}

static void change(strait_digest *digests, int at) {
    digests[at] = digest_of("false", at, 0);
}

static unsigned blamed(void) {
    return strait_work_blame(shape, &owners, row, right);
}

static void rows_have_a_place_for_everything(void **state) {
    (void)state;
    assert_int_equal(strait_work_digests(shape), 4 * GROUPS + REPLICAS * REPLICAS + REPLICAS + 1);
    const strait_work_shape most = {STRAIT_GROUPS_MAX, STRAIT_WORK_REPLICAS, 1, 1};
    assert_int_equal(strait_work_digests(most), STRAIT_WORK_MAX);
}

/* Everyone states all of it; what counts is what each alone can know. */
static void puts_together_what_each_replica_knows(void **state) {
    (void)state;
    strait_digest merged[STRAIT_WORK_MAX] = {{{0}}}, stated[REPLICAS][STRAIT_WORK_MAX];
    setup();
    for (int r = 0; r < REPLICAS; r++) {
        for (int i = 0; i < STRAIT_WORK_MAX; i++)
            stated[r][i] = digest_of("by", i, r);
        strait_work_merge(shape, &owners, r, stated[r], merged);
    }
    for (int i = 0; i < STRAIT_WORK_CROSSINGS; i++)
        for (int g = 0; g < GROUPS; g++) {
            const int at = strait_work_at(shape, (strait_work_crossing)i, g);
            assert_true(strait_digest_equal(&merged[at], &stated[owners.replica[g]][at]));
        }
    for (int r = 0; r < REPLICAS; r++) {
        for (int o = 0; o < REPLICAS; o++) {
            const int at = strait_work_given(shape, r, o);
            assert_true(strait_digest_equal(&merged[at], &stated[r][at]));
        }
        const int at = strait_work_total(shape, r);
        assert_true(strait_digest_equal(&merged[at], &stated[r][at]));
    }
}

static void finds_who_contradicts_whom(void **state) {
    (void)state;
    strait_digest stated[STRAIT_WORK_MAX];
    setup();
    memcpy(stated, right, sizeof stated);
    assert_int_equal(strait_work_contradicted(shape, 1, stated, row), -1);
    change(stated, strait_work_given(shape, 2, 1)); // what it took
    assert_int_equal(strait_work_contradicted(shape, 1, stated, row), 2);
    memcpy(stated, right, sizeof stated);
    change(stated, strait_work_total(shape, 0)); // the sum that it got
    assert_int_equal(strait_work_contradicted(shape, 1, stated, row), 0);
    memcpy(stated, right, sizeof stated);
    change(stated, strait_work_given(shape, 0, 2)); // between others
    assert_int_equal(strait_work_contradicted(shape, 1, stated, row), -1);
}

/* A wrong sum of a chunk is the fault of its owner only if everybody gave what they should. */
static void blames_who_is_first_to_do_something_else(void **state) {
    (void)state;
    setup();
    assert_int_equal(blamed(), 0);
    change(row, strait_work_at(shape, STRAIT_WORK_SENT_NEXT, 2));
    assert_int_equal(blamed(), 1 << 1);
    change(row, strait_work_given(shape, 2, 0));
    change(row, strait_work_total(shape, 0));
    change(row, strait_work_report(shape));
    assert_int_equal(blamed(), 1 << 1 | 1 << 2);
    setup();
    change(row, strait_work_total(shape, 1));
    change(row, strait_work_report(shape));
    assert_int_equal(blamed(), 1 << 1);
    setup();
    change(row, strait_work_report(shape));
    assert_int_equal(blamed(), 1 << 0);
    setup();
    change(row, strait_work_at(shape, STRAIT_WORK_RECEIVED_PREV, 0)); // what others sent
    assert_int_equal(blamed(), 0);
}

/* Everything but what was received is part of the result. */
static void every_digest_is_in_the_result(void **state) {
    (void)state;
    strait_commitment sum = {0};
    strait_audit_result first = {0};
    setup();
    CHECK_OK(strait_work_extend(shape, right, &sum, &first));
    for (int i = 0; i < strait_work_digests(shape); i++) {
        strait_commitment other_sum = {0};
        strait_audit_result other = {0};
        setup();
        change(row, i);
        CHECK_OK(strait_work_extend(shape, row, &other_sum, &other));
        const int is_received = i >= strait_work_at(shape, STRAIT_WORK_RECEIVED_PREV, 0) &&
                                i < strait_work_given(shape, 0, 0);
        assert_int_equal(strait_audit_result_equal(&first, &other), is_received);
        assert_int_equal(strait_digest_equal(&sum.received_prev, &other_sum.received_prev) &&
                             strait_digest_equal(&sum.received_next, &other_sum.received_next),
                         !is_received);
    }
}

/* ---- verdicts ---- */

/* Stage 2 has three replicas, 102, 202 and 302; `differing` holds another snapshot in the end. */
static const strait_audit *audit_replicas(int liar, int differing) {
    start(1.0);
    for (int i = 0; i < N_STAGES; i++) {
        strait_commitment c = honest(i, 0, 8);
        ends[i].start = digest_of("snapshot", 0, i);
        if (i == 2 && liar) c.snapshot = digest_of("perturbed", 8, i);
        assert_null(strait_audits_commit(&audits, i, audits.generation, &c));
        if (i != 2) continue;
        ends[i].n_replicas = REPLICAS;
        for (int k = 0; k < REPLICAS; k++)
            ends[i].replicas[k] = (strait_audit_replica){
                worker(102 + 100 * k), k == differing ? digest_of("mine", 8, k) : c.snapshot};
    }
    strait_audits_end_interval(&audits, 8, ends, 0, &end);
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++)
        if (audits.items[i].phase != STRAIT_AUDIT_CLOSED && audits.items[i].stage == 2) {
            strait_audits_gathered(&audits, audits.items[i].id, 0);
            return &audits.items[i];
        }
    fail_msg("no audit is open");
    return NULL;
}

static int may_compute(const strait_audit *audit, int spare) {
    const strait_fingerprint k = worker(spare);
    return strait_audits_assign(&audits, audit->id, &k, 1, 0) == 0;
}

static void compute(const strait_audit *audit, int spare, unsigned bits) {
    const strait_fingerprint k = worker(spare);
    const strait_audit_result result = honest_result(2, 0, 8);
    assert_true(may_compute(audit, spare));
    strait_audits_vote(&audits, audit->id, &k, &result, bits, 0, &verdict);
}

static void finds_the_replica_that_lied(void **state) {
    (void)state;
    const strait_audit *audit = audit_replicas(1, -1);
    assert_false(may_compute(audit, 202)); // it has an interest in the outcome
    compute(audit, 1, 1 << 1);
    assert_int_equal(verdict.kind, STRAIT_VERDICT_NONE);
    compute(audit, 2, 1 << 1);
    assert_int_equal(verdict.kind, STRAIT_VERDICT_GUILTY);
    assert_int_equal(verdict.n_guilty, 1); // the owner committed to what the lie led to
    assert_true(is_guilty(202) && verdict.is_run_affected);
}

static void approves_honest_replicas(void **state) {
    (void)state;
    const strait_audit *audit = audit_replicas(0, -1);
    compute(audit, 1, 0);
    assert_int_equal(verdict.kind, STRAIT_VERDICT_APPROVED);
}

/* All steps are right, and one of them has something else in the end: the owner's word is no
 * evidence, two spares tell. */
static void finds_the_replica_with_another_state(void **state) {
    (void)state;
    const strait_audit *audit = audit_replicas(0, 2);
    compute(audit, 1, 0);
    assert_int_equal(verdict.kind, STRAIT_VERDICT_NONE);
    compute(audit, 2, 0);
    assert_true(verdict.n_guilty == 1 && is_guilty(302) && verdict.is_run_affected);
    audit = audit_replicas(1, 1); // the owner and another replica are wrong in different ways
    compute(audit, 1, 0);
    compute(audit, 2, 0);
    assert_true(verdict.n_guilty == 3 && is_guilty(102) && is_guilty(202) && is_guilty(302));
}

/* They are audited whatever the draw says; without two spares it is known who differ. */
static void names_both_if_nobody_can_tell(void **state) {
    (void)state;
    const strait_fingerprint owner = worker(102), other = worker(202);
    const strait_audit *audit = audit_replicas(0, 1);
    strait_audits_drop(&audits, audit->id, "no spare", &verdict);
    assert_int_equal(verdict.kind, STRAIT_VERDICT_DROPPED);
    assert_true(verdict.is_contested);
    assert_true(strait_fingerprint_equal(&verdict.contested[0], &owner));
    assert_true(strait_fingerprint_equal(&verdict.contested[1], &other));
    audits.share = 0.0;
    commit_all(16, -1);
    assert_int_equal(end.n_drawn, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_a_place_for_everything),
        cmocka_unit_test(puts_together_what_each_replica_knows),
        cmocka_unit_test(finds_who_contradicts_whom),
        cmocka_unit_test(blames_who_is_first_to_do_something_else),
        cmocka_unit_test(every_digest_is_in_the_result),
        cmocka_unit_test(finds_the_replica_that_lied),
        cmocka_unit_test(approves_honest_replicas),
        cmocka_unit_test(finds_the_replica_with_another_state),
        cmocka_unit_test(names_both_if_nobody_can_tell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
