/* Spares that compute audits: who is asked, how long each may take, and what follows for one that
 * does not reply. */
#include "returns_rig.h"

enum {
    AUDITOR = HELPER,
    OTHER = 2, // another spare
    NEVER = 1000000
};

static struct strait_link links[WORKERS]; // nothing is sent over them
static int has_heartbeats;

void __wrap_strait_host_send(struct host *host, struct connection *connection,
                             struct strait_msg **msg);
void __wrap_strait_host_send(struct host *host, struct connection *connection,
                             struct strait_msg **msg) {
    (void)host;
    (void)connection;
    strait_msg_close(msg);
}

int64_t __wrap_strait_loader_valid_windows(const struct strait_loader *loader);
int64_t __wrap_strait_loader_valid_windows(const struct strait_loader *loader) {
    (void)loader;
    return 1;
}

/* An audit of stage 1 waits for a spare; there are two. */
static void begin_waiting(void) {
    begin();
    CHECK_OK(strait_msg_pool_open(&h.pool));
    audits.state.limits = (strait_audit_limits){INT64_MAX, INT64_MAX, INT64_MAX};
    audits.state.items[2].phase = STRAIT_AUDIT_CLOSED;
    audits.state.items[1].phase = STRAIT_AUDIT_WAITING;
    audits.state.items[1].n_replicas = 1;
    audits.open[2].id = 0;
    audits.open[1].evidence.spec = (strait_evidence_spec){.stage = 1, .from = FROM, .to = TO};
    (void)snprintf(audits.open[1].kernels, sizeof audits.open[1].kernels, "avx2");
    h.pace.step_s = 0.5;
    gathered_after = NEVER;
    has_heartbeats = 1;
    for (int i = 0; i < WORKERS; i++) {
        strait_swarm_worker *worker = &h.coordinator.workers[i];
        (void)snprintf(worker->report.device, sizeof worker->report.device, "1 thread, avx2");
        worker->seen_ns = virtual_ns;
        h.links.of_worker[i] = i;
        h.links.items[i] = (struct connection){.worker = i, .link = &links[i]};
        h.coordinator.n_helpers[i % 2] = 0;
    }
    strait_replay_kernels("1 thread, avx2", audits.open[1].kernels);
}

static void finish(void) {
    end();
    strait_msg_pool_close(&h.pool);
}

static void tick_for(int seconds) {
    for (int i = 0; i < seconds; i++) {
        virtual_ns += INT64_C(1000000000);
        for (int k = 0; k < WORKERS && has_heartbeats; k++)
            h.coordinator.workers[k].seen_ns = virtual_ns;
        strait_host_audit_tick(&h, virtual_ns);
    }
}

static int rests(int slot) {
    return !strait_host_audit_may_ask(&h, &h.coordinator.workers[slot].key, virtual_ns);
}

/* A spare computes an interval, and was just sent a task. */
static struct host_audit *begin_auditing(int awaited, size_t snapshot_bytes) {
    begin_waiting();
    struct host_audit *a = &audits.open[1];
    strait_audit *audit = &audits.state.items[1];
    a->evidence.spec.snapshot_bytes = a->n_sent = snapshot_bytes; // all of it is queued
    audit->phase = STRAIT_AUDIT_RUNNING;
    audit->auditor = h.coordinator.workers[AUDITOR].key;
    audit->excluded[audit->n_excluded++] = h.coordinator.workers[OTHER].key;
    a->auditor = AUDITOR;
    a->awaited = awaited;
    a->sequence = 1;
    a->heard_ns = audit->since_ns = virtual_ns;
    return a;
}

/* The state machine alone would wait for a quarter of an hour. */
static void replaces_an_auditor_that_does_not_reply(void **state) {
    (void)state;
    const struct {
        int task, at_least_s, at_most_s;
    } cases[] = {{STRAIT_TASK_AUDIT, 30, 48},
                 {STRAIT_TASK_AUDIT_STEP, 10, 16},
                 {STRAIT_TASK_AUDIT_END, 10, 12}};
    for (int i = 0; i < 3; i++) {
        struct host_audit *a = begin_auditing(cases[i].task, 1000000);
        tick_for(cases[i].at_least_s);
        assert_int_equal(a->auditor, AUDITOR);
        tick_for(cases[i].at_most_s - cases[i].at_least_s);
        assert_int_equal(a->auditor, -1);
        assert_int_equal(audits.state.items[1].phase, STRAIT_AUDIT_WAITING);
        assert_true(n_silent == 1 && n_withheld == 0);
        assert_true(rests(AUDITOR));
        assert_non_null(
            strstr(noted, "w3: did not complete an audit in time; the audit is reassigned"));
        finish();
    }
}

/* It is not asked again for a while, and for longer each time, unless it has computed others. */
static void lets_a_silent_auditor_rest(void **state) {
    (void)state;
    begin_waiting();
    const strait_fingerprint key = h.coordinator.workers[AUDITOR].key;
    assert_true(strait_host_audit_may_ask(&h, &key, virtual_ns));
    for (int i = 0; i < 3; i++) {
        const int64_t rest_ns = (INT64_C(600) << i) * 1000000000;
        strait_host_audit_count_silence(&h, &key, virtual_ns);
        assert_false(strait_host_audit_may_ask(&h, &key, virtual_ns + rest_ns - 1));
        assert_true(strait_host_audit_may_ask(&h, &key, virtual_ns + rest_ns));
    }
    for (int i = 0; i < 3; i++)
        strait_host_audit_computed(&h, &key);
    strait_host_audit_count_silence(&h, &key, virtual_ns);
    assert_true(strait_host_audit_may_ask(&h, &key, virtual_ns + INT64_C(600000000000)));
    finish();
}

/* Bytes that cross at the rate of a slow link are progress; bytes that trickle are none. */
static void waits_for_an_auditor_with_a_slow_link(void **state) {
    (void)state;
    for (int is_trickling = 0; is_trickling < 2; is_trickling++) {
        struct host_audit *a = begin_auditing(STRAIT_TASK_AUDIT, 20000000);
        for (int i = 0; i < 280 && a->auditor == AUDITOR; i++) {
            a->n_queued += is_trickling ? 1000 : 70000;
            tick_for(1);
        }
        assert_int_equal(a->auditor, is_trickling ? -1 : AUDITOR);
        finish();
    }
}

/* The host was stopped: its auditors were not silent. */
static void does_not_blame_auditors_for_a_stop(void **state) {
    (void)state;
    struct host_audit *a = begin_auditing(STRAIT_TASK_AUDIT_STEP, 0);
    tick_for(5);
    virtual_ns += 3600 * INT64_C(1000000000);
    tick_for(5);
    assert_int_equal(a->auditor, AUDITOR);
    finish();
}

/* Others are asked first, whatever was drawn; but the audit does not wait for it. */
static void asks_one_that_rests_if_there_is_no_other(void **state) {
    (void)state;
    for (int id = 1; id < 20; id++) {
        begin_waiting();
        audits.open[1].id = audits.state.items[1].id = (uint32_t)id;
        strait_host_audit_rest(&h, &h.coordinator.workers[AUDITOR].key, virtual_ns);
        strait_host_audit_tick(&h, virtual_ns);
        assert_int_equal(audits.open[1].auditor, OTHER);
        assert_true(audits.open[1].heard_ns == virtual_ns);
        h.coordinator.workers[OTHER].is_connected = 0;
        strait_host_audit_tick(&h, virtual_ns);
        strait_host_audit_tick(&h, virtual_ns);
        assert_int_equal(audits.open[1].auditor, AUDITOR);
        finish();
    }
}

/* They share the uplink of the host. */
static void auditors_share_a_slow_link(void **state) {
    (void)state;
    for (int n = 1; n <= 2; n++) {
        struct host_audit *a = begin_auditing(STRAIT_TASK_AUDIT, 20000000);
        if (n == 2) audits.open[3] = (struct host_audit){.id = 3, .auditor = OTHER};
        for (int i = 0; i < 280 && a->auditor == AUDITOR; i++) {
            a->n_queued += 40000;
            tick_for(1);
        }
        assert_int_equal(a->auditor == AUDITOR, n == 2);
        finish();
    }
}

/* Then its link is at fault, and perhaps the host's. */
static void does_not_count_silence_without_heartbeats(void **state) {
    (void)state;
    struct host_audit *a = begin_auditing(STRAIT_TASK_AUDIT_STEP, 0);
    has_heartbeats = 0;
    tick_for(16);
    assert_true(a->auditor == -1 && n_silent == 0 && rests(AUDITOR) && !is_any_withheld());
    finish();
}

/* It may come back at once. One that was given a stage cannot go on, which is not its own doing. */
static void lets_one_rest_that_leaves(void **state) {
    (void)state;
    for (int has_left = 0; has_left < 2; has_left++) {
        struct host_audit *a = begin_auditing(STRAIT_TASK_AUDIT_STEP, 0);
        if (has_left)
            h.coordinator.workers[AUDITOR].is_connected = 0;
        else
            h.coordinator.workers[AUDITOR].stage = 1;
        virtual_ns += 60 * INT64_C(1000000000);
        audits.ticked_ns = virtual_ns; // the host was not stopped
        strait_host_audit_tick(&h, virtual_ns);
        assert_true(a->auditor == -1 && n_silent == 0);
        assert_int_equal(rests(AUDITOR), has_left);
        finish();
    }
}

static void lets_one_rest_that_fails(void **state) {
    (void)state;
    struct host_audit *a = begin_auditing(STRAIT_TASK_AUDIT, 0);
    const strait_task_reply reply = {
        .kind = STRAIT_TASK_AUDIT, .sequence = 1, .err = STRAIT_ENOMEM};
    assert_true(strait_host_audit_reply(&h, &h.links.items[AUDITOR], &reply));
    assert_true(a->auditor == -1 && n_silent == 0 && rests(AUDITOR));
    finish();
}

/* An audit that it computes undoes one that it did not. */
static void counts_an_audit_that_was_computed(void **state) {
    (void)state;
    (void)begin_auditing(STRAIT_TASK_AUDIT_END, 0);
    const strait_task_reply reply = {.kind = STRAIT_TASK_AUDIT_END, .sequence = 1};
    struct host_withheld *record = strait_host_audit_record(&audits,
                                                            &h.coordinator.workers[AUDITOR].key);
    record->n_silent = 2;
    assert_true(strait_host_audit_reply(&h, &h.links.items[AUDITOR], &reply));
    assert_int_equal(record->n_silent, 1);
    finish();
}

/* A message of an owner that asks to leave: an audit is told of it. */
static void hears_that_a_worker_asks_to_leave(void **state) {
    (void)state;
    struct strait_msg *msg = NULL;
    begin_waiting();
    h.links.n_items = WORKERS;
    CHECK_OK(strait_msg_open(h.pool, STRAIT_MSG_LEAVE, 0, &msg));
    strait_priority_queue_push(&h.links.items[OWNER].in, &msg);
    strait_host_dispatch(&h);
    const struct host_withheld *record = strait_host_audit_find_record(
        &audits, &h.coordinator.workers[OWNER].key);
    assert_true(record != NULL && record->left_ns == virtual_ns);
    finish();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(replaces_an_auditor_that_does_not_reply),
                                       cmocka_unit_test(lets_a_silent_auditor_rest),
                                       cmocka_unit_test(waits_for_an_auditor_with_a_slow_link),
                                       cmocka_unit_test(does_not_blame_auditors_for_a_stop),
                                       cmocka_unit_test(asks_one_that_rests_if_there_is_no_other),
                                       cmocka_unit_test(auditors_share_a_slow_link),
                                       cmocka_unit_test(does_not_count_silence_without_heartbeats),
                                       cmocka_unit_test(lets_one_rest_that_leaves),
                                       cmocka_unit_test(lets_one_rest_that_fails),
                                       cmocka_unit_test(counts_an_audit_that_was_computed),
                                       cmocka_unit_test(hears_that_a_worker_asks_to_leave)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
