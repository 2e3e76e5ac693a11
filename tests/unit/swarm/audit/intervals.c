/* How a host ends the intervals that audits are of: how long they are, and workers that do not
 * commit, or are gone. */
#include "stage/boundary/crossing_log.h"
#include "swarm/host/audit/driver.h"
#include "swarm/host/state.h"
#include "unit/config/run_plan_rig.h"

static struct host h; // large, and zeroed
static struct host_audits audits;
static struct strait_executor executor;
static char noted[1024]; // all log lines

static void on_noted(void *user, const char *text) {
    const size_t used = strlen(noted);
    (void)user;
    (void)snprintf(noted + used, sizeof noted - used, "%s\n", text);
}

static const strait_host_spec spec = {.events = {.noted = on_noted}};

/* Two stages of the workers w0 and w1, with further replicas w2 and w3 where there are two. All
 * are at `step`. */
static void start(const char *replicas, int64_t step) {
    CHECK_OK(make("stages.count=2", replicas, NULL));
    executor = (struct strait_executor){.run = run, .plan = plan};
    h = (struct host){.spec = &spec, .run = run, .executor = &executor, .audits = &audits};
    h.is_ending = 1; // the coordinator is not asked
    h.coordinator.config.n_stages = plan.n_stages;
    h.coordinator.phase = STRAIT_PHASE_READY;
    for (int i = 0; i < 2; i++) {
        h.coordinator.owner[i] = i;
        h.coordinator.n_helpers[i] = plan.replicas[i] - 1;
        h.coordinator.helper[i][0] = 2 + i;
    }
    for (int i = 0; i < 4; i++) {
        strait_swarm_worker *worker = &h.coordinator.workers[i];
        (void)snprintf(worker->report.name, sizeof worker->report.name, "w%d", i);
        worker->key.bytes[0] = (unsigned char)(1 + i);
        worker->is_known = 1;
    }
    memset(&audits, 0, sizeof audits);
    audits.state.n_stages = plan.n_stages;
    audits.rewind_to = -1;
    noted[0] = '\0';
    strait_audits_begin(&audits.state, step, 0);
    strait_host_work_begin(&h, 1);
}

/* A worker is banned while the last step of an interval ends: it has no name and no key. */
static void an_owner_that_is_gone_is_not_looked_at(void **state) {
    (void)state;
    for (int is_gone = 0; is_gone < 2; is_gone++) {
        start("stages.replicas=1", 1);
        for (int i = 0; i < 2; i++)
            h.coordinator.records[i] = (strait_snapshot_records){.n = 1, .items = {{.step = 1}}};
        audits.state.has_commitment[0] = 1;
        audits.state.commitments[0].to = 1;
        if (is_gone) h.coordinator.owner[1] = -1;
        strait_host_audit_step(&h, 0, 1.0f, 0, 1);
        assert_string_equal(noted,
                            is_gone ? "" : "w1, stage 1: did not commit to what it computed\n");
        assert_int_equal(audits.state.from, 1);
        strait_host_work_close(&h);
    }
}

/* Nothing can be audited from a snapshot on of which its owner says nothing: neither its own stage
 * nor any other. */
static void an_owner_that_does_not_report_its_snapshot_is_noticed(void **state) {
    (void)state;
    for (int reports = 0; reports < 2; reports++) {
        start("stages.replicas=1", 1);
        for (int i = 0; i < 2; i++) {
            h.coordinator.records[i].n = 1 + (i == 0 || reports);
            for (int k = 0; k < 2; k++)
                h.coordinator.records[i].items[k].step = 1 + k;
            audits.state.has_commitment[i] = 1;
            audits.state.commitments[i].to = 2;
        }
        strait_host_audit_step(&h, 1, 1.0f, 0, 1);
        assert_string_equal(
            noted, reports ? "" : "w1, stage 1: did not report the snapshot that it took\n");
        strait_host_work_close(&h);
    }
}

/* It is not its fault that the generation ended, or that its state is one that it kept. */
static void nobody_must_report_a_snapshot_that_it_need_not_have(void **state) {
    (void)state;
    for (int kept = 0; kept < 2; kept++) {
        start("stages.replicas=1", kept ? -1 : 1);
        if (!kept) h.coordinator.phase = STRAIT_PHASE_WAITING;
        strait_host_audit_step(&h, 1, 1.0f, 0, 1);
        assert_string_equal(noted, "");
        strait_host_work_close(&h);
    }
}

/* Commits all but one worker to a snapshot of step 8; one of them to another one than the rest. */
static void commit_all(int missing, int differing) {
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++) {
            strait_commitment_message message = {.stage = i, .interval = {.to = 8}};
            const int slot = strait_coordinator_replica(&h.coordinator, i, k);
            message.interval.snapshot.bytes[0] = (unsigned char)(slot == differing);
            if (slot != missing) strait_host_audit_replica(&h, i, k, &message);
        }
}

/* Beside an honest owner a replica commits to nothing: that is its fault alone. */
static void not_to_commit_counts_against_nobody_else(void **state) {
    (void)state;
    for (int missing = -1; missing < 4; missing++) {
        char expected[64] = "";
        start("stages.replicas=2", 0);
        commit_all(missing, -1);
        strait_host_work_next(&h, 8);
        if (missing >= 0)
            (void)snprintf(expected, sizeof expected,
                           "w%d, stage %d: did not commit to what it computed\n", missing,
                           missing % 2);
        assert_string_equal(noted, expected);
        assert_int_equal(audits.rewind_to, -1);
        strait_host_work_close(&h);
    }
}

static void different_snapshots_count_against_both(void **state) {
    (void)state;
    start("stages.replicas=2", 0);
    commit_all(-1, 3);
    strait_host_work_next(&h, 8);
    assert_non_null(strstr(noted, "replicas hold different states"));
    assert_int_equal(audits.rewind_to, 7);
    strait_host_work_close(&h);
}

/* The generation ended with a violation: its workers may have changed. */
static void nobody_is_judged_after_a_violation(void **state) {
    (void)state;
    start("stages.replicas=2", 0);
    commit_all(2, 3);
    h.coordinator.phase = STRAIT_PHASE_WAITING;
    strait_host_work_next(&h, 8);
    assert_string_equal(noted, "");
    assert_int_equal(audits.rewind_to, -1);
    strait_host_work_close(&h);
}

/* However rare snapshots are otherwise, also if it is not known where the interval began. */
static void an_interval_ends_while_its_crossings_are_kept(void **state) {
    (void)state;
    start("stages.replicas=1", 1000);
    h.pace.snapshot_every = 1000000;
    assert_false(strait_host_audit_is_due(&h, 1095));
    assert_true(strait_host_audit_is_due(&h, 1096));
    assert_true(strait_host_audit_is_due(&h, 1200));
    assert_true(1096 - 1000 < STRAIT_CROSSING_STEPS_MAX);
    strait_audits_begin(&audits.state, -1, 0);
    h.coordinator.start_steps[0] = 1010;
    assert_false(strait_host_audit_is_due(&h, 1105));
    assert_true(strait_host_audit_is_due(&h, 1106));
    assert_true(strait_host_audit_is_due(&h, run.train.steps));
    h.coordinator.config.n_stages = 1; // nothing crosses
    assert_false(strait_host_audit_is_due(&h, 1010 + STRAIT_AUDIT_STEPS - 2));
    assert_true(strait_host_audit_is_due(&h, 1010 + STRAIT_AUDIT_STEPS - 1));
    strait_host_work_close(&h);
    h.audits = NULL;
    assert_false(strait_host_audit_is_due(&h, run.train.steps));
}

static void an_interval_that_was_too_long_is_logged(void **state) {
    (void)state;
    for (int more = 0; more < 2; more++) {
        start("stages.replicas=2", 1);
        strait_host_audit_step(&h, STRAIT_AUDIT_ROWS + more, 1.0f, 0, 1);
        assert_int_equal(
            strstr(noted, "steps 1 to 258 are not audited: an interval has at most 256") != NULL,
            more);
        strait_host_work_close(&h);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_owner_that_is_gone_is_not_looked_at),
        cmocka_unit_test(an_owner_that_does_not_report_its_snapshot_is_noticed),
        cmocka_unit_test(nobody_must_report_a_snapshot_that_it_need_not_have),
        cmocka_unit_test(not_to_commit_counts_against_nobody_else),
        cmocka_unit_test(different_snapshots_count_against_both),
        cmocka_unit_test(nobody_is_judged_after_a_violation),
        cmocka_unit_test(an_interval_ends_while_its_crossings_are_kept),
        cmocka_unit_test(an_interval_that_was_too_long_is_logged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
