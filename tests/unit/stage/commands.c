/* Commands and replies arrive as they were sent, and nothing malformed is taken for one. */
#include "stage/commands.h"

#include "pair.h"
#include "stage/channel.h"

enum {
    CAPACITY = 8
};

static struct pair pair;
static float floats[CAPACITY];
static const strait_float_memory memory = {floats, CAPACITY};

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

static struct strait_msg *send_command(const strait_stage_command *command) {
    CHECK_OK(strait_stage_command_send(pair.meshes[0], pair.peers[0], command));
    return pair_take(&pair, 1);
}

static void delivers_commands_unchanged(void **state) {
    (void)state;
    static const float values[] = {1.5f, -0.0f, 3e38f};
    strait_stage_command command = {.kind = STRAIT_COMMAND_ADOPT_BASIS,
                                    .generation = UINT32_MAX,
                                    .sequence = 70000,
                                    .adopt_basis = {.version = 9, .basis = {values, 3}}};
    strait_stage_command back;
    struct strait_msg *msg = send_command(&command);
    assert_int_equal(msg->type, STRAIT_MSG_COMMAND);
    assert_int_equal(msg->priority, STRAIT_PRIORITY_CONTROL);
    CHECK_OK(strait_stage_command_unpack(msg, memory, &back));
    assert_int_equal(back.kind, STRAIT_COMMAND_ADOPT_BASIS);
    assert_true(back.generation == UINT32_MAX && back.sequence == 70000);
    assert_int_equal(back.adopt_basis.version, 9);
    assert_int_equal(back.adopt_basis.basis.n, 3);
    assert_memory_equal(back.adopt_basis.basis.data, values, sizeof values);
    CHECK_FAILS(strait_stage_command_unpack(msg, (strait_float_memory){floats, 2}, &back),
                STRAIT_EPROTO, "malformed command");
    strait_msg_close(&msg);
    command = (strait_stage_command){.kind = STRAIT_COMMAND_CONNECT_NEXT,
                                     .connect = {.address = "host:1234"}};
    for (int i = 0; i < STRAIT_FINGERPRINT_BYTES; i++)
        command.connect.key.bytes[i] = (unsigned char)(i * 9);
    msg = send_command(&command);
    CHECK_OK(strait_stage_command_unpack(msg, memory, &back));
    assert_string_equal(back.connect.address, "host:1234");
    assert_memory_equal(&back.connect.key, &command.connect.key, sizeof back.connect.key);
    strait_msg_close(&msg);
    command = (strait_stage_command){.kind = STRAIT_COMMAND_UPDATE,
                                     .update = {(int64_t)1 << 30, 0.25f, 1}};
    msg = send_command(&command);
    CHECK_OK(strait_stage_command_unpack(msg, memory, &back));
    assert_true(back.update.step == (int64_t)1 << 30 && back.update.factor == 0.25f);
    assert_int_equal(back.update.keep_snapshot, 1);
    strait_msg_close(&msg);
}

static void refuses(struct strait_msg *msg) {
    strait_stage_command back;
    CHECK_FAILS(strait_stage_command_unpack(msg, memory, &back), STRAIT_EPROTO,
                "malformed command");
}

/* Every shorter or longer message, kinds that do not exist, and texts that end early or late. */
static void rejects_malformed_commands(void **state) {
    (void)state;
    const strait_stage_command command = {.kind = STRAIT_COMMAND_LOAD, .load = {"folder"}};
    strait_stage_command back;
    struct strait_msg *msg = send_command(&command);
    const size_t whole = msg->size;
    for (size_t n = 0; n < whole; n++) {
        msg->size = n;
        refuses(msg);
    }
    msg->size = whole;
    CHECK_OK(strait_stage_command_unpack(msg, memory, &back));
    assert_string_equal(back.load.folder, "folder");
    msg->body[whole - 1] = 'x'; // no terminating zero
    refuses(msg);
    msg->body[whole - 1] = '\0';
    msg->body[whole - 3] = '\0'; // a zero inside the text
    refuses(msg);
    msg->body[whole - 3] = 'e';
    static const unsigned char kinds[] = {0, STRAIT_COMMAND_KINDS, 255};
    for (size_t i = 0; i < sizeof kinds; i++) {
        msg->body[0] = kinds[i];
        refuses(msg);
    }
    strait_msg_close(&msg);
    const strait_stage_command open = {.kind = STRAIT_COMMAND_OPEN, .open = {2, 1}};
    msg = send_command(&open);
    msg->body[msg->size - 1] = 2; // a flag that is neither 0 nor 1
    refuses(msg);
    strait_msg_close(&msg);
}

static strait_stage_reply gradients_reply(const float *squares, int n) {
    return (strait_stage_reply){
        .kind = STRAIT_COMMAND_GRADIENTS,
        .generation = 4,
        .sequence = 5,
        .device_bytes = 8,
        .device_free = UINT64_MAX - 1,
        .rejected_copies_prev = 1,
        .rejected_copies_next = 2,
        .gradients = {.loss_sum = 0.1,
                      .times = {1, 2, 3, 4, 5, 6},
                      .forward_bytes = UINT64_MAX,
                      .backward_bytes = 7,
                      .residual_forward = 1e-300,
                      .residual_backward = 0.5,
                      .faults = {3, 4, 5},
                      .squares = {squares, n}},
    };
}

static struct strait_msg *send_reply(const strait_stage_reply *reply) {
    CHECK_OK(strait_stage_reply_send(pair.meshes[1], pair.peers[1], reply));
    return pair_take(&pair, 0);
}

static void delivers_replies_unchanged(void **state) {
    (void)state;
    static const float squares[] = {1.0f, 2.0f};
    const strait_stage_reply reply = gradients_reply(squares, 2);
    strait_stage_reply back;
    struct strait_msg *msg = send_reply(&reply);
    assert_int_equal(msg->type, STRAIT_MSG_REPLY);
    CHECK_OK(strait_stage_reply_unpack(msg, memory, &back));
    assert_int_equal(back.kind, STRAIT_COMMAND_GRADIENTS);
    assert_true(back.generation == 4 && back.sequence == 5 && back.err == STRAIT_OK);
    assert_true(back.device_bytes == 8 && back.device_free == UINT64_MAX - 1);
    assert_true(back.rejected_copies_prev == 1 && back.rejected_copies_next == 2);
    assert_true(back.gradients.loss_sum == 0.1);
    assert_memory_equal(&back.gradients.times, &reply.gradients.times, sizeof(strait_step_times));
    assert_true(back.gradients.forward_bytes == UINT64_MAX && back.gradients.backward_bytes == 7);
    assert_true(back.gradients.residual_forward == 1e-300);
    assert_true(back.gradients.residual_backward == 0.5);
    assert_true(back.gradients.faults.nonfinite == 3 && back.gradients.faults.rejected_prev == 4 &&
                back.gradients.faults.rejected_next == 5);
    assert_memory_equal(floats, squares, sizeof squares);
    CHECK_FAILS(strait_stage_reply_unpack(msg, (strait_float_memory){floats, 1}, &back),
                STRAIT_EPROTO, "malformed reply");
    const size_t whole = msg->size;
    for (size_t n = 0; n < whole; n++) {
        msg->size = n;
        CHECK_FAILS(strait_stage_reply_unpack(msg, memory, &back), STRAIT_EPROTO,
                    "malformed reply");
    }
    strait_msg_close(&msg);
}

/* Reasons end up on the coordinator's terminal and in its log. */
static void cleans_reasons_of_control_characters(void **state) {
    (void)state;
    const strait_stage_reply reply = {.kind = STRAIT_COMMAND_SAVE,
                                      .err = STRAIT_EIO,
                                      .reason = "full\n2026-01-01 all is well \x1b]0;x\a"};
    strait_stage_reply back;
    struct strait_msg *msg = send_reply(&reply);
    CHECK_OK(strait_stage_reply_unpack(msg, memory, &back));
    assert_int_equal(back.err, STRAIT_EIO);
    assert_string_equal(back.reason, "full?2026-01-01 all is well ?]0;x?");
    strait_msg_close(&msg);
}

/* Boundaries index by the step, so a coordinator must not choose it freely. */
static void rejects_steps_out_of_range(void **state) {
    (void)state;
    static const int64_t steps[] = {-1, INT64_MIN, (int64_t)1 << 32, INT64_MAX};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const strait_stage_command command = {.kind = STRAIT_COMMAND_GRADIENTS,
                                              .gradients = {.step = steps[i]}};
        struct strait_msg *msg = send_command(&command);
        refuses(msg);
        strait_msg_close(&msg);
    }
}

/* A reply to another kind would be read as the wrong member of the union. */
static void rejects_replies_to_another_command(void **state) {
    (void)state;
    struct strait_stage_replies replies = {.floats = floats, .capacity = CAPACITY};
    strait_stage_reply reply = gradients_reply(NULL, 0);
    struct strait_msg *msg = send_reply(&reply);
    CHECK_FAILS(strait_stage_replies_take(&replies, 0, STRAIT_COMMAND_OPEN, &msg), STRAIT_EPROTO,
                "answered open with a reply to gradients");
    assert_non_null(msg);
    CHECK_OK(strait_stage_replies_take(&replies, 0, STRAIT_COMMAND_GRADIENTS, &msg));
    assert_null(msg);
    reply = (strait_stage_reply){.kind = STRAIT_COMMAND_LEAVE, .err = STRAIT_EIO, .reason = "no"};
    msg = send_reply(&reply); // a failed reply consists of its header only
    CHECK_OK(strait_stage_replies_take(&replies, 0, STRAIT_COMMAND_OPEN, &msg));
    assert_string_equal(replies.items[0].reason, "no");
    reply = gradients_reply(NULL, 0); // an error of another kind leaves nothing in the union
    reply.err = STRAIT_EIO;
    reply.reason = "no";
    msg = send_reply(&reply);
    CHECK_OK(strait_stage_replies_take(&replies, 0, STRAIT_COMMAND_OPEN, &msg));
    assert_null(replies.items[0].open.device);
    strait_msg_close(&replies.messages[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delivers_commands_unchanged),
        cmocka_unit_test(rejects_malformed_commands),
        cmocka_unit_test(delivers_replies_unchanged),
        cmocka_unit_test(cleans_reasons_of_control_characters),
        cmocka_unit_test(rejects_steps_out_of_range),
        cmocka_unit_test(rejects_replies_to_another_command),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
