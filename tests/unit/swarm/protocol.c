/* Messages of the control plane: unpacking returns what was packed and rejects malformed messages.
 */
#include "swarm/protocol.h"

#include "base/bytes.h"
#include "check.h"

#include <stdio.h>
#include <string.h>

static struct strait_msg_pool *pool;

static int set_up(void **state) {
    (void)state;
    CHECK_OK(strait_msg_pool_open(&pool));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    strait_msg_pool_close(&pool);
    return 0;
}

static const strait_snapshot_set own = {3, 2, {40, 20}, {7, 6}, {{{1, 2}}, {{3}}}};
static const strait_snapshot_set none = {.stage = -1};

static void check_same_set(const strait_snapshot_set *a, const strait_snapshot_set *b) {
    assert_int_equal(a->stage, b->stage);
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        assert_int_equal(a->steps[i], b->steps[i]);
        assert_int_equal(a->generations[i], b->generations[i]);
        assert_true(strait_digest_equal(&a->digests[i], &b->digests[i]));
    }
}

/* `call` rejects every truncation of `msg`. */
#define REJECTS_TRUNCATION(msg, call)                \
    do {                                             \
        const size_t whole = (msg)->size;            \
        for (size_t n = 0; n < whole; n++) {         \
            (msg)->size = n;                         \
            assert_int_equal((call), STRAIT_EPROTO); \
        }                                            \
        (msg)->size = whole;                         \
    } while (0)

static void unpacks_join(void **state) {
    (void)state;
    struct strait_msg *msg = NULL;
    strait_join join = {.report = {.name = "attic",
                                   .device = "8 threads, avx2",
                                   .memory_bytes = 8e9,
                                   .flops = 3e11,
                                   .up_bps = 2e7,
                                   .down_bps = 8e7,
                                   .is_reachable = 1},
                        .inventory = {.own = own, .prev = none, .next = own}};
    strait_join back;
    memset(join.token, 0xab, sizeof join.token);
    CHECK_OK(strait_join_pack(pool, &join, &msg));
    CHECK_OK(strait_join_unpack(msg, &back));
    assert_memory_equal(join.token, back.token, sizeof join.token);
    assert_string_equal(back.report.name, "attic");
    assert_string_equal(back.report.device, "8 threads, avx2");
    assert_true(back.report.memory_bytes == 8e9 && back.report.flops == 3e11);
    assert_true(back.report.up_bps == 2e7 && back.report.down_bps == 8e7);
    assert_int_equal(back.report.is_reachable, 1);
    check_same_set(&back.inventory.own, &own);
    check_same_set(&back.inventory.prev, &none);
    check_same_set(&back.inventory.next, &own);
    REJECTS_TRUNCATION(msg, strait_join_unpack(msg, &back));
    unsigned char *memory = msg->body + STRAIT_TOKEN_BYTES + 4;
    memory[7] = 0x7f; // it becomes NaN
    memory[6] = 0xf8;
    CHECK_OK(strait_join_unpack(msg, &back));
    assert_true(back.report.memory_bytes == 0.0);
    memory[4 * 8 + 1 + 6 + 16 + 4] = STRAIT_SWARM_SNAPSHOTS + 1; // of its own snapshots
    assert_int_equal(strait_join_unpack(msg, &back), STRAIT_EPROTO);
    strait_msg_close(&msg);
}

static void unpacks_restore_task(void **state) {
    (void)state;
    struct strait_msg *msg = NULL;
    strait_task task = {
        .kind = STRAIT_TASK_RESTORE,
        .generation = 70000,
        .sequence = 90000,
        .restore = {.step = 1234567890123, .source = STRAIT_SWARM_FROM_NEXT, .gives_next = 1}};
    strait_task back;
    CHECK_OK(strait_task_pack(pool, &task, &msg));
    CHECK_OK(strait_task_unpack(msg, &back));
    assert_int_equal(back.kind, STRAIT_TASK_RESTORE);
    assert_true(back.generation == 70000 && back.sequence == 90000);
    assert_true(back.restore.step == 1234567890123);
    assert_int_equal(back.restore.source, STRAIT_SWARM_FROM_NEXT);
    assert_int_equal(back.restore.gives_prev, 0);
    assert_int_equal(back.restore.gives_next, 1);
    REJECTS_TRUNCATION(msg, strait_task_unpack(msg, &back));
    msg->body[0] = STRAIT_TASK_KINDS;
    assert_int_equal(strait_task_unpack(msg, &back), STRAIT_EPROTO);
    strait_msg_close(&msg);
    task.restore.source = (strait_swarm_source)(STRAIT_SWARM_FROM_REPLICA + 1);
    CHECK_OK(strait_task_pack(pool, &task, &msg));
    assert_int_equal(strait_task_unpack(msg, &back), STRAIT_EPROTO);
    strait_msg_close(&msg);
    for (int64_t step = 1234; step >= -1; step -= 1235) {
        task.restore.source = STRAIT_SWARM_FROM_LIVE;
        task.restore.live_step = step;
        CHECK_OK(strait_task_pack(pool, &task, &msg));
        assert_int_equal(strait_task_unpack(msg, &back), step < 0 ? STRAIT_EPROTO : STRAIT_OK);
        strait_msg_close(&msg);
    }
}

static void unpacks_assign_task(void **state) {
    (void)state;
    struct strait_msg *msg = NULL;
    strait_task task = {.kind = STRAIT_TASK_ASSIGN,
                        .assign = {.stage = 5, .valid_windows = 17, .run_text = "model: {}\n"}};
    strait_task back;
    CHECK_OK(strait_task_pack(pool, &task, &msg));
    CHECK_OK(strait_task_unpack(msg, &back));
    assert_int_equal(back.assign.stage, 5);
    assert_int_equal(back.assign.valid_windows, 17);
    assert_string_equal(back.assign.run_text, "model: {}\n");
    REJECTS_TRUNCATION(msg, strait_task_unpack(msg, &back));
    strait_msg_close(&msg);
    task.assign.stage = STRAIT_RUN_STAGES;
    CHECK_OK(strait_task_pack(pool, &task, &msg));
    assert_int_equal(strait_task_unpack(msg, &back), STRAIT_EPROTO);
    strait_msg_close(&msg);
}

/* A worker states what it did in rows with places for so many replicas. */
static void rejects_commitments_of_too_many_replicas(void **state) {
    (void)state;
    for (int n = STRAIT_WORK_REPLICAS; n <= STRAIT_WORK_REPLICAS + 1; n++)
        for (int commits = 0; commits < 2; commits++) {
            const strait_task task = {.kind = STRAIT_TASK_ASSIGN,
                                      .assign = {.replicas = {.n = {1, n, 1}, .most = n},
                                                 .commits = commits,
                                                 .run_text = "model: {}\n"}};
            struct strait_msg *msg = NULL;
            strait_task back;
            CHECK_OK(strait_task_pack(pool, &task, &msg));
            const int is_too_many = commits && n > STRAIT_WORK_REPLICAS;
            assert_int_equal(strait_task_unpack(msg, &back),
                             is_too_many ? STRAIT_EPROTO : STRAIT_OK);
            strait_msg_close(&msg);
        }
}

static void unpacks_connect_task(void **state) {
    (void)state;
    struct strait_msg *msg = NULL;
    strait_task task = {.kind = STRAIT_TASK_CONNECT};
    strait_task back;
    task.neighbours.prev.is_present = 1;
    memset(task.neighbours.prev.key.bytes, 1, sizeof task.neighbours.prev.key.bytes);
    (void)snprintf(task.neighbours.prev.address, sizeof task.neighbours.prev.address,
                   "10.0.0.1:99");
    CHECK_OK(strait_task_pack(pool, &task, &msg));
    CHECK_OK(strait_task_unpack(msg, &back));
    assert_memory_equal(&back.neighbours.prev, &task.neighbours.prev, sizeof back.neighbours.prev);
    assert_int_equal(back.neighbours.next.is_present, 0);
    REJECTS_TRUNCATION(msg, strait_task_unpack(msg, &back));
    strait_msg_close(&msg);
}

static void unpacks_replicas(void **state) {
    (void)state;
    static strait_task_replica replicas[STRAIT_TASK_REPLICAS], back[STRAIT_TASK_REPLICAS];
    static unsigned char memory[sizeof replicas];
    strait_view view;
    int n = 0;
    for (int i = 0; i < STRAIT_TASK_REPLICAS; i++) {
        replicas[i] = (strait_task_replica){.side = i % 3, .replica = i / 3};
        memset(replicas[i].peer.key.bytes, i + 1, sizeof replicas[i].peer.key.bytes);
        (void)snprintf(replicas[i].peer.address, sizeof replicas[i].peer.address, "10.0.0.%d:1", i);
    }
    CHECK_OK(
        strait_task_replicas_pack(replicas, STRAIT_TASK_REPLICAS, memory, sizeof memory, &view));
    CHECK_OK(strait_task_replicas_unpack(&view, back, &n));
    assert_int_equal(n, STRAIT_TASK_REPLICAS);
    assert_memory_equal(back, replicas, sizeof back);
    view.bytes--; // one that ends early
    assert_int_equal(strait_task_replicas_unpack(&view, back, &n), STRAIT_EPROTO);
    assert_int_equal(strait_task_replicas_pack(replicas, 2, memory, 60, &view), STRAIT_EINVAL);
    replicas[0].replica = STRAIT_SWARM_REPLICAS;
    CHECK_OK(strait_task_replicas_pack(replicas, 1, memory, sizeof memory, &view));
    assert_int_equal(strait_task_replicas_unpack(&view, back, &n), STRAIT_EPROTO);
}

static void unpacks_task_reply(void **state) {
    (void)state;
    struct strait_msg *msg = NULL;
    strait_task_reply reply = {.kind = STRAIT_TASK_CONNECT,
                               .generation = 3,
                               .sequence = 4,
                               .err = STRAIT_ETIMEDOUT,
                               .rejected_copies_next = 2,
                               .failed_side = 1};
    strait_task_reply back;
    CHECK_OK(strait_task_reply_pack(pool, &reply, &msg));
    CHECK_OK(strait_task_reply_unpack(msg, &back));
    assert_int_equal(back.kind, STRAIT_TASK_CONNECT);
    assert_true(back.generation == 3 && back.sequence == 4 && back.err == STRAIT_ETIMEDOUT);
    assert_true(back.rejected_copies_prev == 0 && back.rejected_copies_next == 2);
    assert_int_equal(back.failed_side, 1);
    REJECTS_TRUNCATION(msg, strait_task_reply_unpack(msg, &back));
    strait_msg_close(&msg);
}

static void unpacks_heartbeat(void **state) {
    (void)state;
    struct strait_msg *msg = NULL;
    const strait_heartbeat heartbeat = {.inventory = {.own = none, .prev = own, .next = none},
                                        .progress = 4000000000u,
                                        .waits_for = 1,
                                        .arrived = {UINT64_C(1) << 40, 2, 3}};
    strait_heartbeat back;
    CHECK_OK(strait_heartbeat_pack(pool, &heartbeat, &msg));
    CHECK_OK(strait_heartbeat_unpack(msg, &back));
    check_same_set(&back.inventory.own, &none);
    check_same_set(&back.inventory.prev, &own);
    check_same_set(&back.inventory.next, &none);
    assert_true(back.progress == heartbeat.progress);
    assert_int_equal(back.waits_for, 1);
    assert_memory_equal(&back.arrived, &heartbeat.arrived, sizeof back.arrived);
    REJECTS_TRUNCATION(msg, strait_heartbeat_unpack(msg, &back));
    strait_msg_close(&msg);
}

static void unpacks_live_state(void **state) {
    (void)state;
    static const struct {
        strait_live_state live;
        strait_err err;
    } cases[] = {
        {{3, 70000, 12, 1, 69990}, STRAIT_OK}, {{-1, -1, 0, 0, 0}, STRAIT_OK},
        {{-2, 0, 0, 0, 0}, STRAIT_EPROTO},     {{STRAIT_RUN_STAGES, 0, 0, 0, 0}, STRAIT_EPROTO},
        {{0, -2, 0, 0, 0}, STRAIT_EPROTO},     {{0, UINT32_MAX, 0, 0, 0}, STRAIT_EPROTO},
        {{0, 0, 0, 0, -1}, STRAIT_EPROTO}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strait_msg *msg = NULL;
        const strait_heartbeat heartbeat = {.inventory = {none, own, none, cases[i].live}};
        strait_heartbeat back;
        CHECK_OK(strait_heartbeat_pack(pool, &heartbeat, &msg));
        assert_int_equal(strait_heartbeat_unpack(msg, &back), cases[i].err);
        const strait_live_state *live = &back.inventory.live;
        assert_true(live->stage == cases[i].live.stage && live->step == cases[i].live.step);
        assert_true(live->generation == cases[i].live.generation &&
                    live->is_pending == cases[i].live.is_pending &&
                    live->first_kept == cases[i].live.first_kept);
        strait_msg_close(&msg);
    }
}

static void unpacks_narrow_and_wide_ids(void **state) {
    (void)state;
    static const int32_t tokens[] = {0, 65534, 7};
    static const int32_t targets[] = {-1, 1, 65534};
    for (int is_wide = 0; is_wide < 2; is_wide++) {
        struct strait_msg *msg = NULL;
        int32_t memory[6];
        const strait_batch_ids ids = {.step = 9,
                                      .batch = 70000,
                                      .is_valid = 1,
                                      .tokens = tokens,
                                      .targets = targets,
                                      .n = 3,
                                      .is_wide = is_wide};
        strait_batch_ids back;
        CHECK_OK(strait_batch_ids_pack(pool, &ids, &msg));
        assert_int_equal(msg->size, 12 + (is_wide ? 24 : 12));
        CHECK_OK(strait_batch_ids_unpack(msg, memory, 3, &back));
        assert_int_equal(back.step, 9);
        assert_int_equal(back.batch, 70000);
        assert_int_equal(back.is_valid, 1);
        assert_memory_equal(back.tokens, tokens, sizeof tokens);
        assert_memory_equal(back.targets, targets, sizeof targets);
        REJECTS_TRUNCATION(msg, strait_batch_ids_unpack(msg, memory, 3, &back));
        assert_int_equal(strait_batch_ids_unpack(msg, memory, 2, &back), STRAIT_EPROTO);
        strait_msg_close(&msg);
    }
    struct strait_msg *msg = NULL;
    int32_t memory[6];
    const strait_batch_ids ids = {.tokens = tokens, .n = 3};
    strait_batch_ids back;
    CHECK_OK(strait_batch_ids_pack(pool, &ids, &msg));
    CHECK_OK(strait_batch_ids_unpack(msg, memory, 3, &back));
    assert_null(back.targets);
    assert_memory_equal(back.tokens, tokens, sizeof tokens);
    strait_msg_close(&msg);
}

static void unpacks_snapshot_piece(void **state) {
    (void)state;
    struct strait_msg *msg = NULL;
    const strait_piece piece = {.stage = 2,
                                .step = 50,
                                .generation = 3,
                                .must_keep = 1,
                                .offset = 10,
                                .total = 15,
                                .data = (const unsigned char *)"hello",
                                .bytes = 5};
    strait_piece back;
    CHECK_OK(strait_piece_pack(pool, &piece, &msg));
    CHECK_OK(strait_piece_unpack(msg, &back));
    assert_int_equal(back.stage, 2);
    assert_int_equal(back.step, 50);
    assert_int_equal(back.generation, 3);
    assert_int_equal(back.must_keep, 1);
    assert_int_equal(back.offset, 10);
    assert_int_equal(back.total, 15);
    assert_memory_equal(back.data, "hello", 5);
    strait_put_u64(msg->body + 16, 11); // the piece would end after the snapshot
    assert_int_equal(strait_piece_unpack(msg, &back), STRAIT_EPROTO);
    strait_put_u64(msg->body + 16, UINT64_MAX - 2); // offset + bytes would overflow
    assert_int_equal(strait_piece_unpack(msg, &back), STRAIT_EPROTO);
    msg->size = 32;
    assert_int_equal(strait_piece_unpack(msg, &back), STRAIT_EPROTO);
    strait_msg_close(&msg);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unpacks_join),
        cmocka_unit_test(unpacks_restore_task),
        cmocka_unit_test(unpacks_assign_task),
        cmocka_unit_test(unpacks_connect_task),
        cmocka_unit_test(unpacks_task_reply),
        cmocka_unit_test(unpacks_heartbeat),
        cmocka_unit_test(unpacks_live_state),
        cmocka_unit_test(unpacks_narrow_and_wide_ids),
        cmocka_unit_test(unpacks_snapshot_piece),
        cmocka_unit_test(unpacks_replicas),
        cmocka_unit_test(rejects_commitments_of_too_many_replicas),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
