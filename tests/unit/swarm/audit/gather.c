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
    audits.machine.items[0] = audit;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(givers_may_send_what_is_needed_and_no_more),
        cmocka_unit_test(givers_may_send_what_is_under_way_when_an_audit_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
