/* The control plane's messages: what is packed is unpacked, and nothing else is. */
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

static const strait_snapshot_set own = {3, 2, {40, 20}, {7, 6}};
static const strait_snapshot_set none = {.stage = -1};

static void same_holding(const strait_snapshot_set *a, const strait_snapshot_set *b) {
    assert_int_equal(a->stage, b->stage);
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        assert_int_equal(a->steps[i], b->steps[i]);
        assert_int_equal(a->generations[i], b->generations[i]);
    }
}

/* Every shorter message, and one that is longer, is refused. */
#define REFUSES_CUTS(msg, call)                      \
    do {                                             \
        const size_t whole = (msg)->size;            \
        for (size_t n = 0; n < whole; n++) {         \
            (msg)->size = n;                         \
            assert_int_equal((call), STRAIT_EPROTO); \
        }                                            \
        (msg)->size = whole;                         \
    } while (0)

static void joins(void **state) {
    (void)state;
    struct strait_msg *msg = NULL;
    strait_join join = {.report = {.name = "attic",
                                   .device = "8 threads, avx2",
                                   .memory_bytes = 8e9,
                                   .flops = 3e11,
                                   .is_reachable = 1},
                        .inventory = {own, none, own}};
    strait_join back;
    memset(join.token, 0xab, sizeof join.token);
    CHECK_OK(strait_join_pack(pool, &join, &msg));
    CHECK_OK(strait_join_unpack(msg, &back));
    assert_memory_equal(join.token, back.token, sizeof join.token);
    assert_string_equal(back.report.name, "attic");
    assert_string_equal(back.report.device, "8 threads, avx2");
    assert_true(back.report.memory_bytes == 8e9 && back.report.flops == 3e11);
    assert_int_equal(back.report.is_reachable, 1);
    same_holding(&back.inventory.own, &own);
    same_holding(&back.inventory.prev, &none);
    same_holding(&back.inventory.next, &own);
    REFUSES_CUTS(msg, strait_join_unpack(msg, &back));
    msg->body[0]++;
    CHECK_FAILS(strait_join_unpack(msg, &back), STRAIT_EPROTO, "version 2, expected 1");
    msg->body[0]--;
    msg->body[2 + 16 + 7] = 0x7f; // memory becomes no number at all
    msg->body[2 + 16 + 6] = 0xf8;
    CHECK_OK(strait_join_unpack(msg, &back));
    assert_true(back.report.memory_bytes == 0.0);
    msg->body[2 + 16 + 8 + 8 + 1 + 2] = STRAIT_SWARM_SNAPSHOTS + 1;
    assert_int_equal(strait_join_unpack(msg, &back), STRAIT_EPROTO);
    strait_msg_close(&msg);
}

static void tasks(void **state) {
    (void)state;
    static strait_task task, back;
    struct strait_msg *msg = NULL;
    task = (strait_task){.kind = STRAIT_TASK_RESTORE,
                         .generation = 70000,
                         .sequence = 9,
                         .stage = 5,
                         .step = 1234567890123,
                         .source = STRAIT_SWARM_FROM_NEXT,
                         .gives_next = 1,
                         .valid_windows = 17,
                         .text = "model: {width: 8}\n"};
    task.prev.is_there = 1;
    memset(task.prev.key.bytes, 1, sizeof task.prev.key.bytes);
    (void)snprintf(task.prev.address, sizeof task.prev.address, "10.0.0.1:99");
    CHECK_OK(strait_task_pack(pool, &task, &msg));
    CHECK_OK(strait_task_unpack(msg, &back));
    assert_int_equal(back.kind, task.kind);
    assert_int_equal(back.generation, 70000);
    assert_int_equal(back.sequence, 9);
    assert_int_equal(back.stage, 5);
    assert_true(back.step == task.step);
    assert_int_equal(back.source, task.source);
    assert_int_equal(back.gives_prev, 0);
    assert_int_equal(back.gives_next, 1);
    assert_int_equal(back.valid_windows, 17);
    assert_memory_equal(&back.prev, &task.prev, sizeof back.prev);
    assert_int_equal(back.next.is_there, 0);
    assert_string_equal(back.text, task.text);
    REFUSES_CUTS(msg, strait_task_unpack(msg, &back));
    msg->body[0] = STRAIT_TASK_END + 1;
    assert_int_equal(strait_task_unpack(msg, &back), STRAIT_EPROTO);
    msg->body[0] = STRAIT_TASK_TAKE;
    msg->body[1] = STRAIT_RUN_STAGES;
    assert_int_equal(strait_task_unpack(msg, &back), STRAIT_EPROTO);
    strait_msg_close(&msg);
}

static void pulses(void **state) {
    (void)state;
    struct strait_msg *msg = NULL;
    const strait_heartbeat pulse = {
        .inventory = {none, own, none}, .progress = 4000000000u, .is_waiting = 1};
    strait_heartbeat back;
    CHECK_OK(strait_heartbeat_pack(pool, &pulse, &msg));
    CHECK_OK(strait_heartbeat_unpack(msg, &back));
    same_holding(&back.inventory.own, &none);
    same_holding(&back.inventory.prev, &own);
    same_holding(&back.inventory.next, &none);
    assert_true(back.progress == pulse.progress);
    assert_int_equal(back.is_waiting, 1);
    REFUSES_CUTS(msg, strait_heartbeat_unpack(msg, &back));
    strait_msg_close(&msg);
}

static void ids_in_two_and_four_bytes(void **state) {
    (void)state;
    static const int32_t tokens[] = {0, 65534, 7};
    static const int32_t targets[] = {-1, 1, 65534};
    for (int is_wide = 0; is_wide < 2; is_wide++) {
        struct strait_msg *msg = NULL;
        int32_t capacity[6];
        const strait_ids ids = {.step = 9,
                                .batch = 70000,
                                .is_valid = 1,
                                .tokens = tokens,
                                .targets = targets,
                                .n = 3,
                                .is_wide = is_wide};
        strait_ids back;
        CHECK_OK(strait_ids_pack(pool, &ids, &msg));
        assert_int_equal(msg->size, 12 + (is_wide ? 24 : 12));
        CHECK_OK(strait_ids_unpack(msg, capacity, 3, &back));
        assert_int_equal(back.step, 9);
        assert_int_equal(back.batch, 70000);
        assert_int_equal(back.is_valid, 1);
        assert_memory_equal(back.tokens, tokens, sizeof tokens);
        assert_memory_equal(back.targets, targets, sizeof targets);
        REFUSES_CUTS(msg, strait_ids_unpack(msg, capacity, 3, &back));
        assert_int_equal(strait_ids_unpack(msg, capacity, 2, &back), STRAIT_EPROTO);
        strait_msg_close(&msg);
    }
    struct strait_msg *msg = NULL;
    int32_t capacity[6];
    const strait_ids ids = {.tokens = tokens, .n = 3};
    strait_ids back;
    CHECK_OK(strait_ids_pack(pool, &ids, &msg));
    CHECK_OK(strait_ids_unpack(msg, capacity, 3, &back));
    assert_null(back.targets);
    assert_memory_equal(back.tokens, tokens, sizeof tokens);
    strait_msg_close(&msg);
}

static void pieces(void **state) {
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
    strait_put_u64(msg->body + 8, 11); // it would end behind the end
    assert_int_equal(strait_piece_unpack(msg, &back), STRAIT_EPROTO);
    strait_put_u64(msg->body + 8, UINT64_MAX - 2); // and round the corner
    assert_int_equal(strait_piece_unpack(msg, &back), STRAIT_EPROTO);
    msg->size = 28;
    assert_int_equal(strait_piece_unpack(msg, &back), STRAIT_EPROTO);
    strait_msg_close(&msg);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins),  cmocka_unit_test(tasks),
        cmocka_unit_test(pulses), cmocka_unit_test(ids_in_two_and_four_bytes),
        cmocka_unit_test(pieces),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
