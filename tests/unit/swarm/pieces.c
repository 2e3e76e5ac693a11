/* Pieces of snapshots from neighbours and from the coordinator: what a worker stores, what it
 * ignores, and that nobody makes it allocate more than the plan says. */
#include "../config/tiny_run.h"
#include "base/alloc.h"
#include "swarm/worker/state.h"

enum {
    PREV = 0, // numbers of the neighbours in the mesh
    NEXT = 1,
    HOST = 2
};

static scratch folder;
static strait_worker_spec spec;
static struct worker w;
static struct strait_msg_pool *pool;
static size_t bytes[3];  // of a snapshot of each stage
static int lacks_memory; // the worker's next allocation fails

static strait_err on_message(void *user, struct strait_msg **msg) {
    (void)user;
    (void)msg;
    return STRAIT_OK;
}

/* The worker of the middle stage of three, as after ASSIGN. */
static int set_up(void **state) {
    (void)state;
    struct strait_loader *loader = NULL;
    folder = scratch_open();
    w = (struct worker){.spec = &spec, .stage = 1, .prev = PREV, .next_peer = NEXT};
    tiny_run(&folder, &w.run);
    w.run.stages.count = w.run.model.layers = 3;
    CHECK_OK(strait_loader_open(&w.run, &loader));
    const strait_service_spec service = {
        .run = &w.run, .stage = w.stage, .hooks = {.on_message = on_message}};
    CHECK_OK(strait_service_open(&service, &loader, &w.service));
    CHECK_OK(strait_msg_pool_open(&pool));
    for (int i = 0; i < 3; i++)
        CHECK_OK(strait_snapshot_expected_bytes(strait_service_plan(w.service), i, &bytes[i]));
    strait_worker_expect_snapshot(&w, STRAIT_WORKER_FROM_NONE, 0);
    CHECK_OK(strait_worker_expect_copies(&w));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    strait_snapshot_fini(&w.snapshots.incoming);
    for (int i = 0; i < 2 * STRAIT_WORKER_COPIES; i++)
        strait_snapshot_fini(
            &w.snapshots.copies[i / STRAIT_WORKER_COPIES][i % STRAIT_WORKER_COPIES]);
    strait_service_close(&w.service);
    strait_msg_pool_close(&pool);
    scratch_close(&folder);
    return 0;
}

/* Sends one byte of a snapshot; returns how many allocations that caused in the worker. */
static int64_t receive(int from, int stage, int64_t step, int must_keep, size_t total,
                       size_t offset) {
    struct strait_msg *msg = NULL;
    const strait_piece piece = {.stage = stage,
                                .step = step,
                                .must_keep = must_keep,
                                .offset = offset,
                                .total = total,
                                .data = (const unsigned char *)"x",
                                .bytes = 1};
    CHECK_OK(strait_piece_pack(pool, &piece, &msg));
    msg->peer = from == HOST ? 0 : from;
    const int64_t before = strait_alloc_count();
    strait_alloc_fail_at(lacks_memory);
    CHECK_OK(strait_worker_receive_piece(&w, msg, from == HOST));
    const int64_t n = strait_alloc_count() - before;
    strait_alloc_fail_at(0);
    strait_msg_close(&msg);
    return n;
}

static void allocates_nothing_that_was_not_asked_for(void **state) {
    (void)state;
    for (int from = PREV; from <= HOST; from++)
        assert_int_equal(receive(from, 1, 4, 0, bytes[1], 0), 0);
    strait_worker_expect_snapshot(&w, PREV, 4);
    assert_int_equal(receive(NEXT, 1, 4, 0, bytes[1], 0), 0);
    assert_int_equal(receive(HOST, 1, 4, 0, bytes[1], 0), 0);
    assert_false(w.snapshots.is_incoming_bad);
    assert_int_equal(receive(PREV, 1, 4, 0, bytes[1], 0), 1);
    assert_int_equal(w.snapshots.incoming.capacity, bytes[1]);
    assert_int_equal(receive(PREV, 1, 4, 0, bytes[1], 1), 0);
    assert_int_equal(w.snapshots.incoming.filled, 2);
    assert_int_equal(receive(PREV, 1, 4, 1, bytes[1], 2), 0); // with the flag of a copy
    assert_int_equal(w.snapshots.incoming.filled, 3);
}

/* A giver of anything else than the snapshot that was asked for gave a bad one. */
static void rejects_another_snapshot_than_the_expected(void **state) {
    (void)state;
    static const size_t more[] = {1, SIZE_MAX / 4};
    for (int i = 0; i < 2; i++) {
        strait_worker_expect_snapshot(&w, NEXT, 4);
        assert_int_equal(receive(NEXT, 1, 4, 0, bytes[1] + more[i], 0), 0);
        assert_true(w.snapshots.is_incoming_bad);
    }
    strait_worker_expect_snapshot(&w, NEXT, 4);
    assert_int_equal(receive(NEXT, 1, 5, 0, bytes[1], 0), 0);
    assert_true(w.snapshots.is_incoming_bad);
    strait_worker_expect_snapshot(&w, NEXT, 4);
    assert_int_equal(receive(NEXT, 2, 4, 0, bytes[2], 0), 0);
    assert_true(w.snapshots.is_incoming_bad);
    strait_worker_expect_snapshot(&w, NEXT, 4);
    assert_false(w.snapshots.is_incoming_bad);
}

static void allocates_copies_of_exactly_the_planned_size(void **state) {
    (void)state;
    assert_int_equal(receive(PREV, 0, 4, 1, bytes[0] + 1, 0), 0);
    assert_int_equal(w.snapshots.rejected_prev, 1);
    assert_int_equal(receive(NEXT, 0, 4, 1, bytes[0], 0), 0); // of a stage that it does not own
    assert_int_equal(receive(PREV, 1, 4, 1, bytes[1], 0), 0);
    assert_int_equal(receive(PREV, 0, 4, 1, bytes[0], 0), 1);
    assert_int_equal(receive(PREV, 0, 4, 1, bytes[0], 1), 0);
    assert_int_equal(receive(PREV, 0, 5, 1, bytes[0], 0), 0); // the sender started over
    assert_int_equal(receive(NEXT, 2, 4, 1, bytes[2], 0), 1); // of the last stage
    assert_int_equal(receive(PREV, 0, 5, 1, bytes[0], 3), 0);
    assert_int_equal(w.snapshots.rejected_prev, 2);
    assert_int_equal(w.snapshots.rejected_next, 0);
}

static void expect_arrived(uint64_t own, uint64_t prev, uint64_t next) {
    const strait_snapshot_arrivals arrived = strait_worker_arrived(&w);
    assert_int_equal(arrived.own, own);
    assert_int_equal(arrived.prev, prev);
    assert_int_equal(arrived.next, next);
}

/* An older copy that was given up counts no more than none. */
static void counts_what_has_arrived_of_each_snapshot(void **state) {
    (void)state;
    w.step = 4;
    expect_arrived(0, 0, 0);
    strait_worker_expect_snapshot(&w, PREV, 4);
    for (size_t at = 0; at < 3; at++)
        (void)receive(PREV, 1, 4, 0, bytes[1], at);
    (void)receive(PREV, 0, 4, 1, bytes[0], 0);
    (void)receive(NEXT, 2, 3, 1, bytes[2], 0);
    expect_arrived(3, 1, 0);
    (void)receive(NEXT, 2, 4, 1, bytes[2], 0);
    (void)receive(NEXT, 2, 4, 1, bytes[2], 1);
    expect_arrived(3, 1, 2);
    strait_worker_expect_snapshot(&w, PREV, 4);
    expect_arrived(0, 1, 2);
}

/* Only the last stage sends its copies backwards. */
static void keeps_no_copies_of_a_next_stage_in_the_middle(void **state) {
    (void)state;
    w.stage = 0;
    w.prev = -1;
    CHECK_OK(strait_worker_expect_copies(&w));
    assert_int_equal(receive(NEXT, 1, 4, 1, bytes[1], 0), 0);
    assert_int_equal(w.snapshots.rejected_next, 0);
}

/* The rest of a copy that did not fit is ignored; the next one is tried again. */
static void survives_a_lack_of_memory(void **state) {
    (void)state;
    lacks_memory = 1;
    (void)receive(PREV, 0, 4, 1, bytes[0], 0);
    lacks_memory = 0;
    assert_int_equal(w.snapshots.copies[0][0].capacity, 0);
    assert_int_equal(receive(PREV, 0, 4, 1, bytes[0], 1), 0);
    assert_int_equal(w.snapshots.rejected_prev, 0);
    assert_int_equal(receive(PREV, 0, 5, 1, bytes[0], 0), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(allocates_nothing_that_was_not_asked_for, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(rejects_another_snapshot_than_the_expected, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(allocates_copies_of_exactly_the_planned_size, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(keeps_no_copies_of_a_next_stage_in_the_middle, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(counts_what_has_arrived_of_each_snapshot, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(survives_a_lack_of_memory, set_up, tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
