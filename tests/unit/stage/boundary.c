/* Both sides of a boundary over an in-process link: what one side sends, the other stores by
 * microbatch and unpacks; messages that cannot belong to the step are rejected. */
#include "stage/boundary/boundary.h"

#include "pair.h"

enum {
    ROWS = 3,
    COLS = 8,
    N_MICROBATCHES = 4
};

static struct pair pair;
static struct strait_backend *backend;
static struct strait_stream stream;
static struct strait_boundary *sender, *receiver;

static int set_up(void **state) {
    (void)state;
    pair_open(&pair);
    CHECK_OK(strait_backend_open((strait_backend_spec){.name = "cpu", .n_threads = 1}, &backend));
    CHECK_OK(backend->ops->stream_open(backend, &stream));
    strait_boundary_spec spec = {.codec = {.name = "none",
                                           .variant = "fp32",
                                           .rows = ROWS,
                                           .cols = COLS,
                                           .boundary = 2,
                                           .n_boundaries = 3,
                                           .n_slots = 2},
                                 .side = STRAIT_SENDER,
                                 .n_microbatches = N_MICROBATCHES,
                                 .n_valid = 3};
    CHECK_OK(strait_boundary_open(&spec, backend, &sender));
    spec.side = STRAIT_RECEIVER;
    CHECK_OK(strait_boundary_open(&spec, backend, &receiver));
    assert_int_equal(strait_boundary_peer(sender, 0), -1);
    strait_boundary_connect(sender, pair.meshes[0], &pair.peers[0], 1);
    strait_boundary_connect(receiver, pair.meshes[1], &pair.peers[1], 1);
    assert_int_equal(strait_boundary_peer(receiver, 0), pair.peers[1]);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    strait_boundary_close(&sender);
    strait_boundary_close(&receiver);
    backend->ops->stream_close(&stream);
    strait_backend_close(&backend);
    pair_close(&pair);
    return 0;
}

static strait_crossing crossing(int64_t step, int64_t microbatch) {
    return (strait_crossing){.stream = &stream, .step = step, .microbatch = microbatch};
}

/* Values that identify step, microbatch and position. */
static strait_tensor filled(float *values, int64_t step, int64_t microbatch) {
    for (int i = 0; i < ROWS * COLS; i++)
        values[i] = (float)(step * 1000 + microbatch * 100 + i) + 0.5f;
    return (strait_tensor){values, STRAIT_F32, ROWS, COLS};
}

/* Sends from the sender side and returns the message that reaches the receiver side. */
static struct strait_msg *send_and_take(int64_t step, int64_t microbatch, int is_valid) {
    float values[ROWS * COLS];
    strait_crossing at = crossing(step, microbatch);
    at.is_evaluation = is_valid;
    CHECK_OK(strait_boundary_send(sender, &at, filled(values, step, microbatch)));
    return pair_take(&pair, 1);
}

static void transfer(int64_t step, int64_t microbatch) {
    struct strait_msg *msg = send_and_take(step, microbatch, 0);
    CHECK_OK(strait_boundary_deliver(receiver, &msg));
    assert_null(msg);
}

static void check_received(int64_t step, int64_t microbatch) {
    float expected[ROWS * COLS];
    float values[ROWS * COLS] = {0};
    const strait_crossing at = crossing(step, microbatch);
    CHECK_OK(
        strait_boundary_receive(receiver, &at, (strait_tensor){values, STRAIT_F32, ROWS, COLS}));
    (void)filled(expected, step, microbatch);
    assert_memory_equal(values, expected, sizeof expected);
}

static void stores_messages_by_step_and_microbatch(void **state) {
    (void)state;
    strait_boundary_begin(sender, 5);
    strait_boundary_begin(receiver, 5);
    transfer(5, 1);
    assert_int_equal(strait_boundary_arrived(receiver, 0), 0); // the first is still missing
    transfer(5, 0);
    assert_int_equal(strait_boundary_arrived(receiver, 0), 2);
    transfer(6, 0); // the neighbour is a step ahead
    transfer(5, 2);
    transfer(5, 3);
    assert_int_equal(strait_boundary_arrived(receiver, 0), N_MICROBATCHES);
    assert_int_equal(strait_boundary_arrived(receiver, 1), 1);
    transfer(6, 1);
    check_received(6, 1); // late updates: a step ahead, before this one is over
    for (int m = 0; m < N_MICROBATCHES; m++)
        check_received(5, m);
    strait_boundary_begin(receiver, 6);
    assert_int_equal(strait_boundary_arrived(receiver, 0), 2);
    assert_int_equal(strait_boundary_arrived(receiver, 1), 0);
    check_received(6, 0);
    assert_true(strait_boundary_codec_seconds(receiver) > 0.0);
    assert_true(strait_boundary_codec_seconds(receiver) == 0.0);
    assert_true(strait_boundary_crossed_bytes(receiver) > 0);
    assert_true(strait_boundary_crossed_bytes(receiver) == 0);
}

static void sends_gradients_from_receiver_to_sender(void **state) {
    (void)state;
    float values[ROWS * COLS];
    float back[ROWS * COLS] = {0};
    const strait_crossing at = crossing(0, 0);
    CHECK_OK(strait_boundary_send(receiver, &at, filled(values, 0, 0)));
    struct strait_msg *msg = pair_take(&pair, 0);
    assert_int_equal(msg->priority, STRAIT_PRIORITY_GRADIENT);
    CHECK_OK(strait_boundary_deliver(sender, &msg));
    CHECK_OK(strait_boundary_receive(sender, &at, (strait_tensor){back, STRAIT_F32, ROWS, COLS}));
    assert_memory_equal(values, back, sizeof values);
}

/* Checks that the receiver rejects `msg` and leaves it to the caller. */
static void check_rejected(struct strait_msg *msg, const char *message) {
    CHECK_FAILS(strait_boundary_deliver(receiver, &msg), STRAIT_EPROTO, message);
    assert_non_null(msg);
    strait_msg_close(&msg);
}

static void rejects_unexpected_messages(void **state) {
    (void)state;
    strait_boundary_begin(receiver, 5);
    check_rejected(send_and_take(4, 0, 0),
                   "boundary 2, at step 5: unexpected message for boundary 2, step 4");
    check_rejected(send_and_take(7, 0, 0), "step 7");
    check_rejected(send_and_take(5, N_MICROBATCHES, 0), "microbatch 4");
    struct strait_msg *msg = send_and_take(5, 0, 0);
    msg->boundary = 1;
    check_rejected(msg, "message for boundary 1");
    msg = send_and_take(5, 0, 0);
    msg->size--;
    check_rejected(msg, "95 bytes");
    transfer(5, 1);
    check_rejected(send_and_take(5, 1, 0), "microbatch 1"); // a duplicate
    assert_int_equal(strait_boundary_arrived(receiver, 0), 0);
    strait_boundary_begin(receiver, 7);
    strait_boundary_begin(receiver, 5); // dropped messages may be sent again
    transfer(5, 1);
}

static void receives_validation_messages_in_order(void **state) {
    (void)state;
    float values[ROWS * COLS];
    const strait_tensor into = {values, STRAIT_F32, ROWS, COLS};
    assert_false(strait_boundary_has_valid(receiver));
    for (int m = 0; m < 3; m++) {
        struct strait_msg *msg = send_and_take(9, m, 1);
        CHECK_OK(strait_boundary_deliver(receiver, &msg));
    }
    check_rejected(send_and_take(9, 3, 1), "microbatch 3"); // more than n_valid
    strait_crossing at = crossing(9, 0);
    CHECK_OK(strait_boundary_receive_valid(receiver, &at, into));
    assert_true(values[1] == 9001.5f);
    at.microbatch = 2;
    CHECK_FAILS(strait_boundary_receive_valid(receiver, &at, into), STRAIT_EPROTO, "microbatch 1");
    CHECK_OK(strait_boundary_receive_valid(receiver, &at, into));
    assert_false(strait_boundary_has_valid(receiver));
    /* The sender side receives no validation messages. */
    struct strait_msg *msg = send_and_take(9, 0, 1);
    CHECK_FAILS(strait_boundary_deliver(sender, &msg), STRAIT_EPROTO, "unexpected");
    strait_msg_close(&msg);
    msg = send_and_take(9, 3, 1); // never received: close must free it
    CHECK_OK(strait_boundary_deliver(receiver, &msg));
    strait_boundary_begin(receiver, 10);
    strait_boundary_begin(sender, 10);
    /* begin discards the time of the validation. */
    assert_true(strait_boundary_codec_seconds(receiver) == 0.0);
    assert_true(strait_boundary_codec_seconds(sender) == 0.0);
    assert_true(strait_boundary_post_seconds(sender) == 0.0);
}

static strait_err count_polls(void *user) {
    int *n_polls = user;
    return ++*n_polls < 3 ? STRAIT_OK : STRAIT_FAIL(STRAIT_EINTERRUPTED, "something newer");
}

/* A stage whose neighbour accepts nothing must still react to the coordinator. */
static void send_polls_while_the_queue_is_full(void **state) {
    (void)state;
    float values[ROWS * COLS];
    int n_polls = 0;
    int peer = 0;
    struct strait_mesh *mesh = NULL;
    struct strait_identity *absent_identity = NULL;
    CHECK_OK(strait_identity_generate(&absent_identity));
    const strait_mesh_config config = {
        .scheme = "inproc",
        .queue_bytes = 100, // fits one message
        .transport = {.network = pair.network, .identity = pair.identities[0], .run = {7}}};
    const strait_mesh_peer absent = {.name = "absent",
                                     .key = *strait_identity_fingerprint(absent_identity)};
    CHECK_OK(strait_mesh_open(&config, &mesh));
    CHECK_OK(strait_mesh_add(mesh, &absent, &peer));
    strait_boundary_connect(sender, mesh, &peer, 1);
    strait_boundary_set_poll(sender, count_polls, &n_polls);
    const strait_crossing at = crossing(0, 0);
    CHECK_OK(strait_boundary_send(sender, &at, filled(values, 0, 0)));
    assert_int_equal(n_polls, 0);
    (void)strait_boundary_post_seconds(sender);
    CHECK_FAILS(strait_boundary_send(sender, &at, filled(values, 0, 0)), STRAIT_EINTERRUPTED,
                "something newer");
    assert_int_equal(n_polls, 3);
    assert_true(strait_boundary_post_seconds(sender) > 0.02); // two poll intervals
    strait_mesh_close(&mesh);
    strait_identity_close(&absent_identity);
}

static void open_rejects_unknown_codec(void **state) {
    (void)state;
    struct strait_boundary *boundary = NULL;
    const strait_boundary_spec spec = {.codec = {.name = "morse", .rows = 1, .cols = 1},
                                       .n_microbatches = 1};
    CHECK_FAILS(strait_boundary_open(&spec, backend, &boundary), STRAIT_ECONFIG, "morse");
    assert_null(boundary);
}

#define BOUNDARY_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        BOUNDARY_TEST(stores_messages_by_step_and_microbatch),
        BOUNDARY_TEST(sends_gradients_from_receiver_to_sender),
        BOUNDARY_TEST(rejects_unexpected_messages),
        BOUNDARY_TEST(receives_validation_messages_in_order),
        BOUNDARY_TEST(send_polls_while_the_queue_is_full),
        BOUNDARY_TEST(open_rejects_unknown_codec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
