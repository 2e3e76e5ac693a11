/* What a host takes from those that give what an audit needs, beyond their rate limit. */
#include "scratch.h"
#include "swarm/host/audit/driver.h"
#include "swarm/host/state.h"
#include "unit/config/run_plan_rig.h"

static struct host h; // large, and zeroed
static struct host_audits audits;
static struct strait_executor executor;
static scratch folder;
static strait_host_spec spec;
static struct strait_link links[4]; // nothing is sent over them
static int is_leaving;              // the owner, which had asked to

enum {
    STEPS = 4,
    MOST = 100000 // messages that are sent
};

/* An audit of the second of three stages, of the workers 0 to 2. */
static const struct host_audit *open_audit(void) {
    const strait_audit audit = {.phase = STRAIT_AUDIT_GATHERING,
                                .id = 7,
                                .stage = 1,
                                .commitment = {.from = 8, .to = 8 + STEPS}};
    CHECK_OK(make("stages.count=3", NULL, NULL));
    folder = scratch_open();
    spec.folder = folder.path;
    executor = (struct strait_executor){.run = run, .plan = plan};
    h = (struct host){.spec = &spec, .run = run, .executor = &executor, .audits = &audits};
    CHECK_OK(strait_msg_pool_open(&h.pool));
    memset(&audits, 0, sizeof audits);
    h.coordinator.config.n_stages = plan.n_stages;
    for (int i = 0; i < 4; i++) {
        strait_swarm_worker *worker = &h.coordinator.workers[i];
        worker->is_known = worker->is_connected = 1;
        worker->key.bytes[0] = (unsigned char)(i + 1);
        worker->stage = i < 3 ? i : -1;
        (void)snprintf(worker->report.device, sizeof worker->report.device, "1 thread, avx2");
        if (i < 3) h.coordinator.owner[i] = i;
        h.links.of_worker[i] = -1;
    }
    for (int i = 0; i < STEPS; i++)
        audits.steps[8 + i] = (struct host_audit_step){.step = 8 + i};
    audits.withheld[0] = (struct host_withheld){
        .key = h.coordinator.workers[1].key, .is_used = 1, .left_ns = 5};
    h.coordinator.workers[1].is_leaving = is_leaving;
    audits.state.items[0] = audit;
    strait_host_audit_gather(&h, &audit);
    for (int i = 0; i < 4; i++) {
        h.links.of_worker[i] = i;
        h.links.items[i] = (struct connection){.worker = i, .link = &links[i]};
    }
    const struct host_audit *a = strait_host_audit_find(&h, 7);
    assert_non_null(a);
    return a;
}

static void close_audit(void) {
    strait_host_audit_drop(&h, 7, NULL, "the test is over");
    strait_msg_pool_close(&h.pool);
    scratch_close(&folder);
}

/* Returns how many messages of a type a worker may send. */
static int count_expected(int worker, int type) {
    const struct strait_msg msg = {.type = (unsigned char)type};
    int n = 0;
    while (n < MOST && strait_host_audit_expects(&h, &h.links.items[worker], &msg))
        n++;
    return n;
}

/* All that is needed, twice, and nothing more: whoever sends the same again and again is limited
 * like everybody else. */
static void givers_may_send_what_is_needed_and_no_more(void **state) {
    (void)state;
    const struct host_audit *a = open_audit();
    const int n_crossings = STEPS * (int)plan.n_microbatches;
    const size_t bytes = a->evidence.spec.snapshot_bytes;
    const int n_pieces = (int)((bytes + STRAIT_PIECE_BYTES - 1) / STRAIT_PIECE_BYTES);
    assert_true(n_pieces > 0);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(count_expected(0, STRAIT_MSG_CROSSING), again ? 0 : 2 * n_crossings);
        assert_int_equal(count_expected(2, STRAIT_MSG_CROSSING), again ? 0 : 2 * n_crossings);
        assert_int_equal(count_expected(1, STRAIT_MSG_SNAPSHOT), again ? 0 : 2 * n_pieces);
    }
    for (int i = 0; i < 4; i++) { // nobody else was asked
        assert_int_equal(count_expected(i, STRAIT_MSG_CROSSING), 0);
        assert_int_equal(count_expected(i, STRAIT_MSG_SNAPSHOT), 0);
    }
    close_audit();
}

/* Others did not give: what is under way then is no reason to disconnect those that did. */
static void givers_may_send_what_is_under_way_when_an_audit_ends(void **state) {
    (void)state;
    const struct host_audit *a = open_audit();
    const struct strait_msg msg = {.type = STRAIT_MSG_CROSSING};
    const int n_crossings = STEPS * (int)plan.n_microbatches;
    const size_t bytes = a->evidence.spec.snapshot_bytes;
    const int n_pieces = (int)((bytes + STRAIT_PIECE_BYTES - 1) / STRAIT_PIECE_BYTES);
    assert_true(n_crossings > 3);
    for (int i = 0; i < 3; i++)
        assert_true(strait_host_audit_expects(&h, &h.links.items[0], &msg));
    (void)count_expected(2, STRAIT_MSG_CROSSING); // as often as it may
    close_audit();
    assert_int_equal(count_expected(0, STRAIT_MSG_CROSSING), n_crossings - 3);
    assert_int_equal(count_expected(1, STRAIT_MSG_SNAPSHOT), n_pieces);
    assert_int_equal(count_expected(2, STRAIT_MSG_CROSSING), 0);
    assert_int_equal(count_expected(3, STRAIT_MSG_CROSSING), 0);
}

/* One that is back, and is asked for something, has left no longer. */
static void asking_ends_that_a_worker_has_left(void **state) {
    (void)state;
    for (is_leaving = 1; is_leaving >= 0; is_leaving--) {
        (void)open_audit();
        assert_int_equal(audits.withheld[0].left_ns, is_leaving ? 5 : 0);
        close_audit();
    }
    is_leaving = 0;
}

/* An owner learns that it is audited when it is asked. Once it has given all, a lie of its own must
 * not end the audit, whether others still give or a spare computes it. */
static void an_owner_cannot_call_off_an_audit_that_it_gave_its_evidence_for(void **state) {
    static const strait_audit_phase phases[] = {STRAIT_AUDIT_GATHERING, STRAIT_AUDIT_WAITING,
                                                STRAIT_AUDIT_RUNNING, STRAIT_AUDIT_GATHERING};
    (void)state;
    for (int i = 0; i < 4; i++) {
        const strait_given given = {.audit = 7, .err = STRAIT_ENOMEM};
        const int has_given = i < 3;
        struct strait_msg *msg = NULL;
        (void)open_audit();
        struct host_audit *a = strait_host_audit_find(&h, 7);
        audits.state.items[0].phase = phases[i];
        if (has_given) a->evidence.n_snapshot = a->evidence.spec.snapshot_bytes;
        CHECK_OK(strait_given_pack(h.pool, &given, &msg));
        CHECK_OK(strait_host_audit_message(&h, &h.links.items[1], msg));
        strait_msg_close(&msg);
        assert_int_equal(strait_host_audit_find(&h, 7) != NULL, has_given);
        assert_int_equal(audits.withheld[0].n, !has_given);
        close_audit();
    }
}

/* What an auditor sends of its result shows that it is not silent. */
static void counts_the_bytes_of_an_auditor(void **state) {
    (void)state;
    static unsigned char bytes[1000];
    (void)open_audit();
    struct host_audit *a = strait_host_audit_find(&h, 7);
    CHECK_OK(strait_host_audit_open_end(&h, a, 0));
    a->auditor = 3;
    a->awaited = STRAIT_TASK_AUDIT_END;
    const strait_piece piece = {.stage = 1,
                                .step = 8 + STEPS,
                                .must_keep = 1,
                                .total = a->ends[0].spec.snapshot_bytes,
                                .data = bytes,
                                .bytes = sizeof bytes};
    assert_true(strait_host_audit_piece(&h, &h.links.items[3], &piece));
    assert_int_equal(a->n_queued, sizeof bytes);
    close_audit();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(givers_may_send_what_is_needed_and_no_more),
        cmocka_unit_test(givers_may_send_what_is_under_way_when_an_audit_ends),
        cmocka_unit_test(asking_ends_that_a_worker_has_left),
        cmocka_unit_test(an_owner_cannot_call_off_an_audit_that_it_gave_its_evidence_for),
        cmocka_unit_test(counts_the_bytes_of_an_auditor)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
