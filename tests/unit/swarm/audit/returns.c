/* Replicas that committed to different snapshots: the run goes back when what their audit needs is
 * here, once, and whoever is at fault is banned when the audit has found it. */
#include "returns_rig.h"

static void begin_returned(void) {
    begin();
    assert_int_equal(strait_host_audit_check(&h), STRAIT_EAGAIN);
    /* The stages are ready again, with their owners alone. */
    for (int i = 0; i < 2; i++)
        h.coordinator.n_helpers[i] = 0;
    strait_host_audit_restored(&h, FROM);
    n_contradictions = n_limits = 0;
    noted[0] = '\0';
}

static void judge_one(int id, strait_verdict_kind kind, int at_fault) {
    strait_verdict verdict = {.kind = kind, .id = (uint32_t)id, .stage = 1, .from = FROM, .to = TO};
    if (kind == STRAIT_VERDICT_GUILTY) {
        verdict.guilty[verdict.n_guilty++] = h.coordinator.workers[at_fault].key;
        verdict.is_run_affected = 1;
        verdict.at_fault = at_fault == OWNER ? 1 : 2;
    } else {
        verdict.reason = "for a test";
        verdict.is_contested = 1;
        strait_audit_contested(&audits.state.items[id], verdict.contested);
    }
    audits.state.items[id].phase = STRAIT_AUDIT_CLOSED; // as the machine leaves it
    strait_host_audit_judge(&h, &verdict);
}

static void judge(strait_verdict_kind kind, int at_fault) {
    judge_one(1, kind, at_fault);
}

/* Its evidence, and that of other audits, is gathered first; the verdict is not waited for. */
static void goes_back_when_the_evidence_is_here(void **state) {
    (void)state;
    begin();
    assert_int_equal(strait_host_audit_check(&h), STRAIT_EAGAIN);
    assert_int_equal(n_pumped, gathered_after);
    assert_true(n_contradictions == 1 && n_limits == 1 && n_banned == 0 && n_violations == 0);
    assert_int_equal(limit, FROM);
    assert_non_null(strstr(noted, "steps 8 to 16: w1 and w3 hold different states"));
    assert_int_equal(audits.state.items[1].phase, STRAIT_AUDIT_WAITING);
    assert_int_equal(audits.state.items[2].phase, STRAIT_AUDIT_WAITING);
    /* Only once. */
    CHECK_OK(strait_host_audit_check(&h));
    assert_int_equal(n_pumped, gathered_after);
    end();
}

/* One that leaves at once is remembered by its key, also if it is the first that the host hears of
 * it; one that was banned meanwhile is not asked for. */
static void remembers_who_left_before_the_run_went_back(void **state) {
    (void)state;
    for (int is_banned = 0; is_banned < 2; is_banned++) {
        begin();
        const strait_fingerprint key = h.coordinator.workers[HELPER].key;
        h.coordinator.workers[HELPER] = (strait_swarm_worker){.stage = -1};
        h.admission.keys[0] = (struct host_key){.key = key, .is_banned = is_banned, .name = "gone"};
        h.admission.n_keys = 1;
        assert_int_equal(strait_host_audit_check(&h), STRAIT_EAGAIN);
        assert_int_equal(n_contradictions, !is_banned);
        assert_int_equal(strait_coordinator_find(&h.coordinator, &key), is_banned ? -1 : HELPER);
        assert_string_equal(h.coordinator.workers[HELPER].report.name, is_banned ? "" : "gone");
        assert_int_equal(limit, FROM);
        end();
    }
}

/* Both left, and there is a slot for one of them: it does not contradict itself. */
static void needs_a_slot_for_each_of_two_that_left(void **state) {
    (void)state;
    begin();
    for (int i = WORKERS; i < STRAIT_SWARM_WORKERS; i++)
        h.coordinator.workers[i].is_known = h.coordinator.workers[i].is_connected = 1;
    h.coordinator.workers[HELPER].key.bytes[1] = 1; // another has its place
    h.coordinator.workers[OWNER] = (strait_swarm_worker){.stage = -1};
    assert_int_equal(strait_host_audit_check(&h), STRAIT_EAGAIN);
    assert_true(n_contradictions == 0 && n_limits == 1 && limit == FROM);
    end();
}

/* The steps since are those of others. */
static void bans_a_replica_that_took_no_part_since(void **state) {
    (void)state;
    begin_returned();
    judge(STRAIT_VERDICT_GUILTY, HELPER);
    assert_true(n_banned == 1 && banned == HELPER && n_limits == 0);
    CHECK_OK(strait_host_audit_check(&h));
    assert_true(n_contradictions == 0 && n_limits == 0);
    end();
}

static void returns_once_more_if_the_owner_lied(void **state) {
    (void)state;
    begin_returned();
    judge(STRAIT_VERDICT_GUILTY, OWNER);
    assert_int_equal(n_banned, 0); // before the next step
    assert_int_equal(strait_host_audit_check(&h), STRAIT_EAGAIN);
    assert_true(n_banned == 1 && banned == OWNER && n_limits == 1 && limit == FROM);
    assert_int_equal(n_contradictions, 0);
    end();
}

/* It got another stage meanwhile: its owner may have been lost. */
static void returns_once_more_if_the_replica_had_a_stage(void **state) {
    (void)state;
    begin_returned();
    h.coordinator.workers[HELPER].stage = 0;
    strait_host_audit_restored(&h, TO + 1);
    h.coordinator.workers[HELPER].stage = -1;
    judge(STRAIT_VERDICT_GUILTY, HELPER);
    assert_int_equal(strait_host_audit_check(&h), STRAIT_EAGAIN);
    assert_true(n_banned == 1 && banned == HELPER &&
                limit == TO + 1); // others took the steps before
    end();
}

/* The run went back further since: the owner computed those steps again, too. */
static void returns_to_where_the_guilty_began_again(void **state) {
    (void)state;
    begin_returned();
    strait_host_audit_restored(&h, 2);
    strait_host_audit_restored(&h, 5);
    judge(STRAIT_VERDICT_GUILTY, OWNER);
    assert_int_equal(strait_host_audit_check(&h), STRAIT_EAGAIN);
    assert_true(n_banned == 1 && banned == OWNER && limit == 2);
    end();
}

/* Nobody can tell: they still contradict each other, and the run has gone back. */
static void does_not_return_again_for_an_audit_that_is_dropped(void **state) {
    (void)state;
    begin_returned();
    judge(STRAIT_VERDICT_DROPPED, -1);
    CHECK_OK(strait_host_audit_check(&h));
    assert_true(n_contradictions == 0 && n_limits == 0 && n_banned == 0);
    end();
}

/* A withheld snapshot drops the audit while it is waited for. */
static void goes_back_without_evidence_if_it_is_not_given(void **state) {
    (void)state;
    begin();
    judge(STRAIT_VERDICT_DROPPED, -1);
    assert_int_equal(strait_host_audit_check(&h), STRAIT_EAGAIN);
    assert_true(n_contradictions == 1 && n_limits == 1 && n_banned == 0 && limit == FROM);
    end();
}

/* Ctrl-C: the state that replicas disagree about is not saved, and nobody is blamed for evidence
 * that is gone. */
static void does_not_wait_when_the_host_stops(void **state) {
    (void)state;
    begin();
    must_stop = 1;
    assert_int_equal(strait_host_audit_check(&h), STRAIT_EAGAIN);
    assert_true(n_pumped == 0 && n_contradictions == 1 && n_limits == 1 && limit == FROM);
    assert_null(strait_host_audit_find(&h, 1));
    assert_null(strait_host_audit_find(&h, 2));
    assert_true(n_violations == 0 && !is_any_withheld());
    end();
}

/* What workers keep of later steps is overwritten: they would be blamed for other bytes. */
static void drops_audits_of_steps_that_are_computed_again(void **state) {
    (void)state;
    begin_returned();
    open_audit(3, FROM + 100, 0);
    open_audit(4, 0, 0); // it ends where the run returns to
    judge(STRAIT_VERDICT_GUILTY, OWNER);
    assert_int_equal(strait_host_audit_check(&h), STRAIT_EAGAIN);
    assert_null(strait_host_audit_find(&h, 3));
    assert_non_null(strait_host_audit_find(&h, 4));
    assert_non_null(strait_host_audit_find(&h, 2)); // it has all that it needs
    assert_true(n_violations == 0 && !is_any_withheld());
    end();
}

/* The same where the stages go back because one was lost. A stage that recomputes its steps alone
 * leaves what the others keep as it is. */
static void drops_audits_of_steps_that_were_lost(void **state) {
    (void)state;
    for (int is_alone = 0; is_alone < 2; is_alone++) {
        begin();
        open_audit(4, 0, 0);
        strait_host_audit_tick(&h, 0);
        assert_non_null(strait_host_audit_find(&h, 2));
        h.coordinator.replay.until = is_alone ? TO : -1;
        strait_host_audit_restored(&h, FROM);
        strait_host_audit_tick(&h, 0);
        assert_int_equal(strait_host_audit_find(&h, 2) != NULL, is_alone);
        assert_non_null(strait_host_audit_find(&h, 4));
        assert_int_equal(n_contradictions, !is_alone); // of those that differ
        assert_true(n_violations == 0 && !is_any_withheld());
        end();
    }
}

/* Two audits find the same worker: the run has gone back to before both. */
static void returns_once_for_one_lie(void **state) {
    (void)state;
    begin_returned();
    judge(STRAIT_VERDICT_GUILTY, OWNER);
    assert_int_equal(strait_host_audit_check(&h), STRAIT_EAGAIN);
    assert_int_equal(n_limits, 1);
    h.coordinator.workers[OWNER].is_known = 0; // as the coordinator bans it
    h.coordinator.workers[OWNER].stage = -1;
    h.admission.keys[0] = (struct host_key){.key = h.coordinator.workers[OWNER].key,
                                            .is_banned = 1};
    h.admission.n_keys = 1;
    strait_host_audit_restored(&h, FROM);
    noted[0] = '\0';
    judge_one(2, STRAIT_VERDICT_GUILTY, OWNER);
    CHECK_OK(strait_host_audit_check(&h));
    assert_true(n_limits == 1 && n_banned == 1);
    assert_string_equal(noted, "");
    end();
}

/* Others differ before the audit has ended, in an interval that cannot be audited. */
static void goes_back_for_others_meanwhile(void **state) {
    (void)state;
    begin_returned();
    for (int i = 0; i < 2; i++)
        h.coordinator.n_helpers[i] = 1;
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++) {
            strait_commitment_message message = {.stage = i, .interval = {.to = 24}};
            message.interval.snapshot.bytes[0] = (unsigned char)(i == 1 && k == 1);
            strait_host_audit_replica(&h, i, k, &message);
        }
    strait_host_work_next(&h, 24);
    assert_int_equal(n_contradictions, 1);
    assert_int_equal(strait_host_audit_check(&h), STRAIT_EAGAIN);
    assert_int_equal(limit, 23);
    end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_back_when_the_evidence_is_here),
        cmocka_unit_test(remembers_who_left_before_the_run_went_back),
        cmocka_unit_test(needs_a_slot_for_each_of_two_that_left),
        cmocka_unit_test(bans_a_replica_that_took_no_part_since),
        cmocka_unit_test(returns_once_more_if_the_owner_lied),
        cmocka_unit_test(returns_once_more_if_the_replica_had_a_stage),
        cmocka_unit_test(returns_to_where_the_guilty_began_again),
        cmocka_unit_test(does_not_return_again_for_an_audit_that_is_dropped),
        cmocka_unit_test(goes_back_without_evidence_if_it_is_not_given),
        cmocka_unit_test(does_not_wait_when_the_host_stops),
        cmocka_unit_test(drops_audits_of_steps_that_are_computed_again),
        cmocka_unit_test(drops_audits_of_steps_that_were_lost),
        cmocka_unit_test(returns_once_for_one_lie),
        cmocka_unit_test(goes_back_for_others_meanwhile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
