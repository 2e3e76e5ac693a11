/* Orders and replies survive the way, and nothing else is taken for one. */
#include "stage/commands.h"

#include "pair.h"

enum {
    ROOM = 8
};

static struct pair pair;
static strait_stage_command command, got;

static int set_up(void **state) {
    (void)state;
    pair_open(&pair);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    pair_close(&pair);
    return 0;
}

static struct strait_msg *sent_order(void) {
    CHECK_OK(strait_stage_command_send(pair.meshes[0], pair.peers[0], &command));
    return pair_take(&pair, 1);
}

static void an_order_arrives_as_it_was(void **state) {
    (void)state;
    static const float values[] = {1.5f, -0.0f, 3e38f};
    float capacity[ROOM];
    command = (strait_stage_command){.kind = STRAIT_COMMAND_ADOPT_BASIS,
                                     .step = (int64_t)1 << 40,
                                     .number = -3,
                                     .factor = 0.25f,
                                     .text = "/a folder/with a name",
                                     .n_values = 3,
                                     .values = values};
    for (int i = 0; i < STRAIT_FINGERPRINT_BYTES; i++)
        command.key.bytes[i] = (unsigned char)(i * 9);
    struct strait_msg *msg = sent_order();
    assert_int_equal(msg->type, STRAIT_MSG_COMMAND);
    assert_int_equal(msg->priority, STRAIT_PRIORITY_CONTROL);
    CHECK_OK(strait_stage_command_unpack(msg, capacity, ROOM, &got));
    assert_int_equal(got.kind, command.kind);
    assert_true(got.step == command.step && got.number == -3 && got.factor == 0.25f);
    assert_string_equal(got.text, command.text);
    assert_memory_equal(&got.key, &command.key, sizeof got.key);
    assert_int_equal(got.n_values, 3);
    assert_memory_equal(got.values, values, sizeof values);
    CHECK_FAILS(strait_stage_command_unpack(msg, capacity, 2, &got), STRAIT_EPROTO,
                "makes no sense");
    strait_msg_close(&msg);
}

/* Every shorter or longer message, and kinds that do not exist. */
static void other_lengths_and_kinds_are_refused(void **state) {
    (void)state;
    float capacity[ROOM];
    command = (strait_stage_command){.kind = STRAIT_COMMAND_LOAD, .text = "folder"};
    struct strait_msg *msg = sent_order();
    const size_t whole = msg->size;
    for (size_t n = 0; n < whole; n++) {
        msg->size = n;
        CHECK_FAILS(strait_stage_command_unpack(msg, capacity, ROOM, &got), STRAIT_EPROTO,
                    "makes no sense");
    }
    msg->size = whole;
    CHECK_OK(strait_stage_command_unpack(msg, capacity, ROOM, &got));
    static const unsigned char kinds[] = {0, STRAIT_COMMAND_LEAVE + 1, 255};
    for (size_t i = 0; i < sizeof kinds; i++) {
        msg->body[0] = kinds[i];
        CHECK_FAILS(strait_stage_command_unpack(msg, capacity, ROOM, &got), STRAIT_EPROTO,
                    "makes no sense");
    }
    strait_msg_close(&msg);
}

static void a_reply_arrives_as_it_was(void **state) {
    (void)state;
    static const float squares[] = {1.0f, 2.0f};
    static strait_reply reply, back;
    float capacity[ROOM];
    reply = (strait_reply){.kind = STRAIT_COMMAND_GRADIENTS,
                           .err = STRAIT_EIO,
                           .loss_sum = 0.1,
                           .times = {1, 2, 3, 4, 5, 6},
                           .forward_bytes = UINT64_MAX,
                           .backward_bytes = 7,
                           .device_bytes = 8,
                           .device_spare = UINT64_MAX - 1,
                           .residual = {1e-300, 0.5},
                           .spoiled = 3,
                           .refused = {4, 5},
                           .delay = 0.25,
                           .text = "the disk is full",
                           .n_values = 2,
                           .values = squares};
    CHECK_OK(strait_reply_send(pair.meshes[1], pair.peers[1], &reply));
    struct strait_msg *msg = pair_take(&pair, 0);
    assert_int_equal(msg->type, STRAIT_MSG_REPLY);
    CHECK_OK(strait_reply_unpack(msg, capacity, ROOM, &back));
    assert_int_equal(back.kind, STRAIT_COMMAND_GRADIENTS);
    assert_int_equal(back.err, STRAIT_EIO);
    assert_true(back.loss_sum == 0.1 && back.residual[0] == 1e-300 && back.residual[1] == 0.5);
    assert_memory_equal(&back.times, &reply.times, sizeof back.times);
    assert_true(back.spoiled == 3 && back.refused[0] == 4 && back.refused[1] == 5);
    assert_true(back.delay == 0.25);
    assert_true(back.forward_bytes == UINT64_MAX && back.backward_bytes == 7);
    assert_true(back.device_bytes == 8 && back.device_spare == UINT64_MAX - 1);
    assert_string_equal(back.text, "the disk is full");
    assert_memory_equal(capacity, squares, sizeof squares);
    CHECK_FAILS(strait_reply_unpack(msg, capacity, 1, &back), STRAIT_EPROTO, "makes no sense");
    const size_t whole = msg->size;
    for (size_t n = 0; n < whole; n++) {
        msg->size = n;
        CHECK_FAILS(strait_reply_unpack(msg, capacity, ROOM, &back), STRAIT_EPROTO,
                    "makes no sense");
    }
    strait_msg_close(&msg);
}

static void words_without_an_end_are_refused(void **state) {
    (void)state;
    static strait_reply back;
    float capacity[ROOM];
    command = (strait_stage_command){.kind = STRAIT_COMMAND_SAVE};
    memset(command.text, 'x', sizeof command.text - 1);
    struct strait_msg *msg = sent_order();
    CHECK_OK(strait_stage_command_unpack(msg, capacity, ROOM, &got));
    assert_int_equal(strlen(got.text), sizeof command.text - 1);
    CHECK_FAILS(strait_reply_unpack(msg, capacity, ROOM, &back), STRAIT_EPROTO, "makes no sense");
    strait_msg_close(&msg);
}

/* A worker's words end up on the coordinator's terminal and in its log. */
static void the_words_of_a_reply_are_tamed(void **state) {
    (void)state;
    static strait_reply reply, back;
    float capacity[ROOM];
    reply = (strait_reply){.kind = STRAIT_COMMAND_SAVE, .err = STRAIT_EIO};
    (void)snprintf(reply.text, sizeof reply.text, "full\n2026-01-01 all is well \x1b]0;x\a");
    CHECK_OK(strait_reply_send(pair.meshes[0], pair.peers[0], &reply));
    struct strait_msg *msg = pair_take(&pair, 1);
    CHECK_OK(strait_reply_unpack(msg, capacity, ROOM, &back));
    assert_string_equal(back.text, "full?2026-01-01 all is well ?]0;x?");
    strait_msg_close(&msg);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_order_arrives_as_it_was),
        cmocka_unit_test(other_lengths_and_kinds_are_refused),
        cmocka_unit_test(a_reply_arrives_as_it_was),
        cmocka_unit_test(words_without_an_end_are_refused),
        cmocka_unit_test(the_words_of_a_reply_are_tamed),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
