/* What a worker says in its heartbeats about whom it waits for. */
#include "swarm/worker/state.h"
#include "unit/stage/pair.h"

static struct strait_runner runner; // large, and zeroed
static struct worker w;
static struct pair pair;

struct strait_runner *__wrap_strait_service_runner(struct strait_service *service);
struct strait_runner *__wrap_strait_service_runner(struct strait_service *service) {
    (void)service;
    return &runner;
}

strait_runner_live __wrap_strait_runner_describe_live(const struct strait_runner *of);
strait_runner_live __wrap_strait_runner_describe_live(const struct strait_runner *of) {
    (void)of;
    return (strait_runner_live){.step = -1};
}

static int sent(void) {
    struct strait_msg *msg = NULL;
    strait_heartbeat heartbeat;
    strait_worker_send_heartbeat(&w);
    do { // others are about the link
        strait_msg_close(&msg);
        CHECK_OK(strait_mesh_receive(pair.meshes[1], 10000, &msg));
    } while (msg->type != STRAIT_MSG_HEARTBEAT);
    CHECK_OK(strait_heartbeat_unpack(msg, &heartbeat));
    strait_msg_close(&msg);
    return heartbeat.waits_for;
}

/* A neighbour, another replica, or in an average the replica whose bytes it lacks. */
static void says_whom_it_waits_for(void **state) {
    (void)state;
    static char service; // nothing reads it
    pair_open(&pair);
    w = (struct worker){.service = (struct strait_service *)(void *)&service};
    w.control.mesh = pair.meshes[0];
    w.control.is_joined = 1;
    assert_int_equal(sent(), 0);
    runner.is_waiting = 1;
    runner.side = -1;
    assert_int_equal(sent(), -1);
    runner.side = 0;
    assert_int_equal(sent(), STRAIT_SWARM_SAME_STAGE);
    runner.awaited_replica = 3;
    assert_int_equal(sent(), STRAIT_SWARM_SAME_STAGE + 3);
    runner.is_waiting = 0; // it was sent something just now, but not all
    assert_int_equal(sent(), STRAIT_SWARM_SAME_STAGE + 3);
    pair_close(&pair);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(says_whom_it_waits_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
