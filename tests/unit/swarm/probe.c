/* Probes of a worker, with a neighbour that answers as it should, not at all, or falsely. The
 * neighbour acts whenever the worker looks for commands of its coordinator. */
#include "../config/tiny_run.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "net/inproc/endpoint.h"
#include "swarm/worker/state.h"

#include <stdio.h>

enum {
    SEQUENCE = 7,
    DURATION_MS = 1000,
    MESSAGE = 4096,
    ACK = 20,
    LONG_MS = 10000, // of a measurement that an error ends
    ATTEMPTS = 60,   // of such a measurement, in which nothing may arrive on a busy machine
    LARGE = 65536,
    NEARLY_ENDLESS = (32 << 20) - LARGE, // of another measurement: one more message is accepted
    UNKNOWN = 250                        // a type of messages
};

typedef enum neighbour_kind {
    HONEST,
    SILENT,
    ACKS_TOO_MUCH,
    ACKS_LESS, // than it did before
    SLOW,      // says that everything waits for long
    FLOODS,    // with probes of another measurement
    BABBLES    // sends a type that nobody knows
} neighbour_kind;

static scratch folder;
static struct strait_inproc_network *network;
static struct strait_identity *identities[2];
static struct strait_mesh *theirs;
static int peer; // the worker, in their mesh
static strait_worker_spec spec;
static struct worker w;
static neighbour_kind kind;
static uint64_t received, most_unacked;

static strait_err on_poll(void *user) {
    (void)user;
    return STRAIT_OK;
}

static struct strait_mesh *open_mesh(int i, const char *name) {
    strait_mesh_config config = {
        .scheme = "inproc",
        .transport = {.identity = identities[i], .network = network, .run = {7}}};
    char address[STRAIT_ADDRESS_MAX];
    struct strait_mesh *mesh = NULL;
    (void)snprintf(config.transport.name, sizeof config.transport.name, "%s", name);
    CHECK_OK(strait_mesh_open(&config, &mesh));
    CHECK_OK(strait_mesh_listen(mesh, name, address));
    return mesh;
}

/* The first of two stages, connected with the second. */
static int set_up(void **state) {
    struct strait_loader *loader = NULL;
    (void)state;
    folder = scratch_open();
    w = (struct worker){.spec = &spec, .prev = -1};
    tiny_run(&folder, &w.run);
    w.run.stages.count = w.run.model.layers = 2;
    CHECK_OK(strait_loader_open(&w.run, &loader));
    const strait_service_hooks hooks = strait_worker_hooks(&w);
    const strait_service_spec service = {
        .run = &w.run,
        .hooks = {
            .user = &w, .on_message = hooks.on_message, .on_poll = on_poll, .probe = hooks.probe}};
    CHECK_OK(strait_service_open(&service, &loader, &w.service));
    CHECK_OK(strait_inproc_network_open(&network));
    for (int i = 0; i < 2; i++)
        CHECK_OK(strait_identity_generate(&identities[i]));
    w.mesh = open_mesh(0, "stage-0");
    theirs = open_mesh(1, "stage-1");
    strait_mesh_peer other = {.name = "stage-0",
                              .key = *strait_identity_fingerprint(identities[0])};
    CHECK_OK(strait_mesh_add(theirs, &other, &peer));
    other = (strait_mesh_peer){.name = "stage-1",
                               .key = *strait_identity_fingerprint(identities[1]),
                               .address = "stage-1"};
    CHECK_OK(strait_mesh_add(w.mesh, &other, &w.next_peer));
    CHECK_OK(strait_mesh_wait_up(w.mesh, w.next_peer, 60000));
    strait_service_set_links(w.service, w.mesh, -1, w.next_peer);
    received = most_unacked = 0;
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    strait_service_set_links(w.service, NULL, -1, -1);
    strait_mesh_close(&w.mesh);
    strait_mesh_close(&theirs);
    strait_service_close(&w.service);
    for (int i = 0; i < 2; i++)
        strait_identity_close(&identities[i]);
    strait_inproc_network_close(&network);
    scratch_close(&folder);
    return 0;
}

static void send_probe(size_t size, uint32_t sequence, uint64_t first, uint64_t second) {
    struct strait_msg *msg = NULL;
    CHECK_OK(strait_msg_open(strait_mesh_pool(theirs), STRAIT_MSG_PROBE, size, &msg));
    memset(msg->body, 0, size);
    strait_put_u32(msg->body, sequence);
    strait_put_u64(msg->body + 4, first);
    if (size == ACK) strait_put_u64(msg->body + 12, second);
    CHECK_OK(strait_mesh_send_wait(theirs, peer, 60000, &msg));
}

/* The end of a flood. All of it would take longer than a measurement on a busy machine, and then
 * the measurement ends before it is refused. */
static void flood(struct worker *worker) {
    if (worker->stray[1].total < NEARLY_ENDLESS) worker->stray[1].total = NEARLY_ENDLESS;
    for (int i = 0; i < 2; i++)
        send_probe(LARGE, SEQUENCE + 1, 0, 0);
}

static void send_unknown(void) {
    struct strait_msg *msg = NULL;
    CHECK_OK(strait_msg_open(strait_mesh_pool(theirs), UNKNOWN, 1, &msg));
    msg->body[0] = 0;
    CHECK_OK(strait_mesh_send_wait(theirs, peer, 60000, &msg));
}

static void acknowledge(void) {
    const uint64_t extra = kind == ACKS_TOO_MUCH ? UINT64_C(1) << 40 : 0;
    send_probe(ACK, SEQUENCE, received + extra, kind == SLOW ? 1000000000 : 0);
    if (kind == ACKS_LESS) send_probe(ACK, SEQUENCE, received - 1, 0);
}

/* What the neighbour does: takes everything, acknowledges it, and sends a message for each. */
strait_err __wrap_strait_worker_poll_control(struct worker *worker);
strait_err __wrap_strait_worker_poll_control(struct worker *worker) {
    struct strait_msg *msg = NULL;
    const uint64_t before = received;
    int n = 0;
    while (strait_mesh_receive(theirs, 0, &msg) == STRAIT_OK) {
        if (msg->type == STRAIT_MSG_PROBE && msg->size > ACK) {
            CHECK(strait_get_u32(msg->body) == SEQUENCE);
            received += msg->size;
            n++;
        }
        strait_msg_close(&msg);
    }
    most_unacked = received - before > most_unacked ? received - before : most_unacked;
    if (kind == FLOODS) flood(worker);
    if (kind == BABBLES) send_unknown();
    if (kind == SILENT || kind == FLOODS || kind == BABBLES || n == 0) return STRAIT_OK;
    acknowledge();
    for (int i = 0; i < n; i++)
        send_probe(MESSAGE, SEQUENCE, (uint64_t)strait_clock_ns(), 0);
    return STRAIT_OK;
}

static strait_err probe(strait_stage_reply *reply) {
    const strait_stage_command command = {
        .kind = STRAIT_COMMAND_PROBE, .sequence = SEQUENCE, .probe = {DURATION_MS}};
    *reply = (strait_stage_reply){.kind = command.kind};
    return strait_worker_probe(&w, &command, reply);
}

static strait_err execute(strait_stage_reply *reply) {
    const strait_stage_command command = {
        .kind = STRAIT_COMMAND_PROBE, .sequence = SEQUENCE, .probe = {LONG_MS}};
    return strait_service_execute(w.service, &command, reply);
}

/* A measurement in which nothing arrived succeeds. */
static strait_err repeat_until_error(strait_err (*measure)(strait_stage_reply *reply),
                                     strait_stage_reply *reply) {
    strait_err err = STRAIT_OK;
    for (int i = 0; err == STRAIT_OK && i < ATTEMPTS; i++) {
        received = 0;
        err = measure(reply);
    }
    return err;
}

/* On a busy machine too little time may be left for anything to arrive. */
static void measures_both_directions(void **state) {
    strait_stage_reply reply = {0};
    (void)state;
    kind = HONEST;
    for (int i = 0; i < ATTEMPTS; i++) {
        received = 0;
        CHECK_OK(probe(&reply));
        if (reply.probe.from_next_bps > 0.0 && reply.probe.to_next_bps > 0.0) break;
    }
    CHECK(reply.probe.from_next_bps > 0.0 && reply.probe.to_next_bps > 0.0);
    CHECK(reply.probe.from_prev_bps == 0.0 && reply.probe.to_prev_bps == 0.0); // there is none
    CHECK(most_unacked <= 8 << 20);
}

/* Nothing comes back, and little was sent. */
static void ends_in_time_with_a_silent_neighbour(void **state) {
    strait_stage_reply reply;
    (void)state;
    kind = SILENT;
    CHECK_OK(probe(&reply));
    CHECK(reply.probe.from_next_bps == 0.0 && reply.probe.to_next_bps == 0.0);
    CHECK(received <= 16384 + MESSAGE);
}

static void sends_little_to_who_lets_it_wait(void **state) {
    strait_stage_reply reply;
    (void)state;
    kind = SLOW;
    CHECK_OK(probe(&reply));
    CHECK(most_unacked <= 16384 + MESSAGE);
}

static void refuses_false_acknowledgements(void **state) {
    strait_stage_reply reply;
    (void)state;
    kind = ACKS_TOO_MUCH;
    CHECK_FAILS(repeat_until_error(probe, &reply), STRAIT_EPROTO, "malformed probe from stage 1");
    (void)tear_down(state);
    (void)set_up(state);
    kind = ACKS_LESS;
    CHECK_FAILS(repeat_until_error(probe, &reply), STRAIT_EPROTO, "malformed probe from stage 1");
}

static void refuses_a_duration_without_end(void **state) {
    const strait_stage_command command = {.probe = {10001}};
    strait_stage_reply reply;
    (void)state;
    CHECK_FAILS(strait_worker_probe(&w, &command, &reply), STRAIT_EPROTO, "probes of 10001 ms");
}

static void open_stage(void) {
    const strait_stage_command open = {.kind = STRAIT_COMMAND_OPEN, .open = {.n_slots = 1}};
    strait_stage_reply reply;
    CHECK_OK(strait_service_execute(w.service, &open, &reply));
}

/* What a neighbour sends is not charged to the worker alone: its reply names the boundary. */
static void errors_name_the_side_they_came_from(void **state) {
    static const struct {
        neighbour_kind kind;
        const char *reason;
    } cases[] = {{ACKS_TOO_MUCH, "malformed probe from stage 1"},
                 {FLOODS, "stage 1 sends probes without end"},
                 {BABBLES, "unexpected message of type 250"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strait_stage_reply reply;
        if (i > 0) (void)tear_down(state);
        if (i > 0) (void)set_up(state);
        open_stage();
        kind = cases[i].kind;
        CHECK_FAILS(repeat_until_error(execute, &reply), STRAIT_EPROTO, cases[i].reason);
        assert_int_equal(reply.failed_side, 1);
    }
}

/* A neighbour that begins first is acknowledged later; one that never ends is refused. */
static void bounds_probes_outside_of_a_command(void **state) {
    struct strait_msg *msg = NULL;
    strait_err err = STRAIT_OK;
    (void)state;
    open_stage();
    CHECK_OK(strait_msg_open(strait_mesh_pool(theirs), STRAIT_MSG_PROBE, LARGE, &msg));
    memset(msg->body, 0, msg->size);
    strait_put_u32(msg->body, SEQUENCE);
    msg->peer = w.next_peer;
    CHECK_OK(strait_worker_stray_probe(&w, msg));
    CHECK(w.stray[1].sequence == SEQUENCE && w.stray[1].bytes == LARGE);
    strait_put_u32(msg->body, SEQUENCE + 1);
    int n = 1;
    for (; err == STRAIT_OK && n < 1000; n++)
        err = strait_worker_stray_probe(&w, msg);
    CHECK_FAILS(err, STRAIT_EPROTO, "stage 1 sends probes without end");
    CHECK(n > 500 && n < 600); // 32 MiB
    assert_int_equal(strait_service_runner(w.service)->side, 1);
    msg->size = 3;
    CHECK_FAILS(strait_worker_stray_probe(&w, msg), STRAIT_EPROTO, "malformed probe");
    msg->peer = w.next_peer + 1;
    CHECK_FAILS(strait_worker_stray_probe(&w, msg), STRAIT_EPROTO, "no neighbour");
    strait_msg_close(&msg);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(measures_both_directions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ends_in_time_with_a_silent_neighbour, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sends_little_to_who_lets_it_wait, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_false_acknowledgements, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_a_duration_without_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(errors_name_the_side_they_came_from, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bounds_probes_outside_of_a_command, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
