/* Who is at fault when results differ, case by case. */
#include "rig.h"

static strait_audit_result false_result(int n) {
    return (strait_audit_result){.snapshot = digest_of("false", n, 0)};
}

/* Returns the first open audit, which waits for a spare. */
static const strait_audit *only_audit(int stage) {
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++)
        if (audits.items[i].phase != STRAIT_AUDIT_CLOSED && audits.items[i].stage == stage) {
            strait_audits_gathered(&audits, audits.items[i].id, 0);
            return &audits.items[i];
        }
    fail_msg("no audit of stage %d is open", stage);
    return NULL;
}

/* The spare computes the audit and replies with `result`. */
static void compute(const strait_audit *audit, int spare, const strait_audit_result *result) {
    const strait_fingerprint k = worker(spare);
    assert_int_equal(strait_audits_assign(&audits, audit->id, &k, 1, 0), 0);
    strait_audits_vote(&audits, audit->id, &k, result, 0, 0, &verdict);
}

/* ---- single cases ---- */

static void approves_an_honest_owner(void **state) {
    (void)state;
    start(1.0);
    commit_all(8, -1);
    assert_int_equal(end.n_drawn, N_STAGES);
    const strait_audit_result result = honest_result(2, 0, 8);
    compute(only_audit(2), 1, &result);
    assert_int_equal(verdict.kind, STRAIT_VERDICT_APPROVED);
    assert_int_equal(verdict.stage, 2);
}

static void finds_an_owner_that_two_spares_contradict(void **state) {
    (void)state;
    start(1.0);
    commit_all(8, 2);
    const strait_audit_result result = honest_result(2, 0, 8);
    const strait_audit *audit = only_audit(2);
    compute(audit, 1, &result);
    assert_int_equal(verdict.kind, STRAIT_VERDICT_NONE);
    compute(audit, 2, &result);
    assert_int_equal(verdict.kind, STRAIT_VERDICT_GUILTY);
    assert_int_equal(verdict.n_guilty, 1);
    assert_true(is_guilty(102) && verdict.is_run_affected);
    assert_int_equal(verdict.from, 0);
}

static void finds_a_spare_that_accuses_falsely(void **state) {
    (void)state;
    start(1.0);
    commit_all(8, -1);
    const strait_audit_result result = honest_result(1, 0, 8), lie = false_result(1);
    const strait_audit *audit = only_audit(1);
    compute(audit, 1, &lie);
    compute(audit, 2, &result);
    assert_int_equal(verdict.kind, STRAIT_VERDICT_GUILTY);
    assert_int_equal(verdict.n_guilty, 1);
    assert_true(is_guilty(1) && !verdict.is_run_affected);
}

static void asks_on_until_two_agree(void **state) {
    (void)state;
    start(1.0);
    commit_all(8, 3);
    const strait_audit_result result = honest_result(3, 0, 8), lie = false_result(1);
    const strait_audit *audit = only_audit(3);
    compute(audit, 1, &lie);
    compute(audit, 2, &result);
    assert_int_equal(verdict.kind, STRAIT_VERDICT_NONE);
    compute(audit, 3, &result);
    assert_true(verdict.n_guilty == 2 && is_guilty(1) && is_guilty(103));
}

static void drops_what_nobody_agrees_on(void **state) {
    (void)state;
    start(1.0);
    commit_all(8, 0);
    const strait_audit *audit = only_audit(0);
    for (int i = 1; i < STRAIT_AUDIT_VOTES; i++) {
        const strait_audit_result lie = false_result(i);
        compute(audit, i, &lie);
    }
    assert_int_equal(verdict.kind, STRAIT_VERDICT_DROPPED);
    assert_int_equal(verdict.n_guilty, 0);
}

/* The reports of a stage are part of its result: losses and squares. */
static void finds_false_losses(void **state) {
    (void)state;
    start(1.0);
    commit_all(8, -1);
    strait_audit_result result = honest_result(3, 0, 8);
    result.reports = digest_of("other losses", 0, 0);
    const strait_audit *audit = only_audit(3);
    compute(audit, 1, &result);
    compute(audit, 2, &result);
    assert_true(is_guilty(103));
}

static void believes_no_spares_that_compute_nothing(void **state) {
    (void)state;
    start(1.0);
    commit_all(8, -1);
    const strait_audit_result result = honest_result(1, 0, 8);
    strait_audit_result idle = result;
    idle.snapshot = digest_of("snapshot", 0, 1);
    const strait_audit *audit = only_audit(1);
    compute(audit, 1, &idle);
    compute(audit, 2, &idle);
    assert_int_equal(verdict.kind, STRAIT_VERDICT_NONE);
    compute(audit, 3, &result);
    assert_true(verdict.n_guilty == 2 && is_guilty(1) && is_guilty(2));
}

static void lets_nobody_judge_in_its_own_case(void **state) {
    (void)state;
    start(1.0);
    commit_all(8, -1);
    const strait_audit *audit = only_audit(1);
    const strait_fingerprint own = worker(101), other = worker(1);
    const strait_audit_result lie = false_result(1);
    assert_int_equal(strait_audits_assign(&audits, audit->id, &own, 1, 0), -1);
    compute(audit, 1, &lie);
    assert_int_equal(strait_audits_assign(&audits, audit->id, &other, 1, 0), -1); // it has voted
    strait_audits_vote(&audits, audit->id, &other, &lie, 0, 0, &verdict);         // not asked
    assert_int_equal(verdict.kind, STRAIT_VERDICT_NONE);
    assert_int_equal(audit->n_votes, 2);
}

static void replaces_a_spare_that_leaves_or_takes_too_long(void **state) {
    (void)state;
    start(1.0);
    commit_all(8, -1);
    const strait_audit *audit = only_audit(1);
    const strait_fingerprint spares[] = {worker(1), worker(2), worker(3)};
    const int first = strait_audits_assign(&audits, audit->id, spares, 3, 0);
    strait_audits_lost(&audits, audit->id, 0, &verdict);
    const int second = strait_audits_assign(&audits, audit->id, spares, 3, 0);
    assert_true(first >= 0 && second >= 0 && first != second);
    do // the others are dropped
        strait_audits_tick(&audits, 2LL * SECOND, &verdict);
    while (verdict.kind != STRAIT_VERDICT_NONE);
    const int third = strait_audits_assign(&audits, audit->id, spares, 3, 2LL * SECOND);
    assert_true(third >= 0 && third != first && third != second);
    strait_audits_lost(&audits, audit->id, 2LL * SECOND, &verdict);
    assert_int_equal(strait_audits_assign(&audits, audit->id, spares, 3, 2LL * SECOND), -1);
    do
        strait_audits_tick(&audits, 20LL * SECOND, &verdict);
    while (verdict.kind != STRAIT_VERDICT_NONE && verdict.stage != 1);
    assert_int_equal(verdict.kind, STRAIT_VERDICT_DROPPED);
    assert_non_null(strstr(verdict.reason, "no other spare"));
}

static void drops_what_is_not_given(void **state) {
    (void)state;
    start(1.0);
    commit_all(8, -1);
    int n = 0;
    for (;;) {
        strait_audits_tick(&audits, 2LL * SECOND, &verdict);
        if (verdict.kind == STRAIT_VERDICT_NONE) break;
        assert_int_equal(verdict.kind, STRAIT_VERDICT_DROPPED);
        n++;
    }
    assert_int_equal(n, N_STAGES);
    assert_int_equal(audits.n_dropped, N_STAGES);
}

static void rejects_other_commitments(void **state) {
    (void)state;
    start(1.0);
    strait_commitment c = honest(0, 0, 8);
    assert_null(strait_audits_commit(&audits, 0, 1, &c));
    assert_non_null(strait_audits_commit(&audits, 0, 1, &c)); // twice
    c = honest(1, 4, 8);
    assert_non_null(strait_audits_commit(&audits, 1, 1, &c)); // another interval
    c = honest(1, 0, 0);
    assert_non_null(strait_audits_commit(&audits, 1, 1, &c));
    c = honest(1, 4, 8);
    assert_null(strait_audits_commit(&audits, 1, 2, &c)); // of another generation: late
    c = honest(2, 0, 7);
    assert_null(strait_audits_commit(&audits, 2, 1, &c));
    strait_audits_end_interval(&audits, 8, ends, 0, &end);
    assert_false(end.is_complete);
    assert_true(!end.is_missing[0] && end.is_missing[1] && end.is_missing[2] && end.is_missing[3]);
    assert_int_equal(end.n_drawn, 0);
    assert_int_equal(audits.from, 8);
}

static void expects_nothing_of_an_interval_without_a_beginning(void **state) {
    (void)state;
    start(1.0);
    strait_audits_begin(&audits, -1, 2);
    strait_audits_end_interval(&audits, 8, ends, 0, &end);
    assert_true(!end.is_complete && !end.is_missing[0] && end.n_drawn == 0);
    assert_int_equal(audits.from, 8);
}

static void opens_only_so_many_at_once(void **state) {
    (void)state;
    start(1.0);
    for (int i = 1; i <= STRAIT_AUDITS_OPEN / N_STAGES; i++) {
        commit_all(8 * i, -1);
        assert_int_equal(end.n_skipped, 0);
    }
    commit_all(1000, -1);
    assert_int_equal(end.n_skipped, N_STAGES);
    assert_int_equal(audits.n_dropped, N_STAGES);
}

/* What was stated in each step counts, not what the owner says of it in the end. */
static void takes_crossings_as_they_were_stated(void **state) {
    (void)state;
    start(1.0);
    for (int i = 0; i < N_STAGES; i++) {
        const strait_commitment stated = honest(i, 0, 8);
        strait_commitment c = stated;
        if (i == 1) c.sent_next = c.received_prev = digest_of("another", 8, i);
        assert_null(strait_audits_commit(&audits, i, audits.generation, &c));
        strait_audits_amend(&audits, i, &stated);
    }
    strait_audits_end_interval(&audits, 8, ends, 0, &end);
    assert_int_equal(end.n_drawn, N_STAGES);
    for (int i = 1; i <= 2; i++) { // the sender and the receiver
        const strait_audit_result result = honest_result(i, 0, 8);
        compute(only_audit(i), 1, &result);
        assert_int_equal(verdict.kind, STRAIT_VERDICT_APPROVED);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(approves_an_honest_owner),
        cmocka_unit_test(finds_an_owner_that_two_spares_contradict),
        cmocka_unit_test(finds_a_spare_that_accuses_falsely),
        cmocka_unit_test(asks_on_until_two_agree),
        cmocka_unit_test(drops_what_nobody_agrees_on),
        cmocka_unit_test(finds_false_losses),
        cmocka_unit_test(believes_no_spares_that_compute_nothing),
        cmocka_unit_test(lets_nobody_judge_in_its_own_case),
        cmocka_unit_test(replaces_a_spare_that_leaves_or_takes_too_long),
        cmocka_unit_test(drops_what_is_not_given),
        cmocka_unit_test(rejects_other_commitments),
        cmocka_unit_test(expects_nothing_of_an_interval_without_a_beginning),
        cmocka_unit_test(opens_only_so_many_at_once),
        cmocka_unit_test(takes_crossings_as_they_were_stated)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
