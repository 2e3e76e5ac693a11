/* How long a worker that was asked to leave goes on serving its stage. */
#include "base/clock.h"
#include "swarm/worker/state.h"
#include "unit/stage/pair.h"

#define S INT64_C(1000000000)

static struct worker w;
static struct pair pair;
static _Atomic int64_t ahead_ns; // of the clock, which the threads of the meshes read too

int64_t __real_strait_clock_ns(void);
int64_t __wrap_strait_clock_ns(void);
int64_t __wrap_strait_clock_ns(void) {
    return __real_strait_clock_ns() + ahead_ns;
}

const strait_run_plan *__wrap_strait_service_plan(const struct strait_service *service);
const strait_run_plan *__wrap_strait_service_plan(const struct strait_service *service) {
    static strait_run_plan plan;
    (void)service;
    return &plan;
}

static int must_stop(void *user) {
    (void)user;
    return 1;
}

/* The owner of a stage was asked to leave just now, and has told the coordinator. */
static void ask_to_leave(void) {
    static const strait_worker_spec spec = {.events = {.must_stop = must_stop}};
    pair_open(&pair);
    w = (struct worker){.spec = &spec, .has_stage = 1, .prev = -1, .next_peer = pair.peers[0]};
    w.mesh = w.control.mesh = pair.meshes[0];
    strait_worker_leave_if_asked(&w);
    struct strait_msg *msg = pair_take(&pair, 1);
    assert_int_equal(msg->type, STRAIT_MSG_LEAVE);
    strait_msg_close(&msg);
}

static void leaves_when_the_stage_is_handed_over(void **state) {
    (void)state;
    ask_to_leave();
    CHECK_OK(strait_worker_check_leaving(&w));
    w.has_stage = 0;
    assert_int_equal(strait_worker_check_leaving(&w), STRAIT_EINTERRUPTED);
    pair_close(&pair);
}

static void leaves_when_nothing_happens_for_long(void **state) {
    (void)state;
    ask_to_leave();
    ahead_ns += 100 * S;
    CHECK_OK(strait_worker_check_leaving(&w));
    ahead_ns += 21 * S;
    assert_int_equal(strait_worker_check_leaving(&w), STRAIT_EINTERRUPTED);
    pair_close(&pair);
}

static void stays_while_it_sends_the_copy_of_its_stage(void **state) {
    (void)state;
    static unsigned char data[1000];
    const struct strait_snapshot snapshot = {
        .data = data, .bytes = sizeof data, .filled = sizeof data};
    ask_to_leave();
    for (int is_urgent = 1; is_urgent >= 0; is_urgent--) {
        ahead_ns += 100 * S;
        w.snapshots.sending = &snapshot;
        w.snapshots.sent = 0;
        w.snapshots.is_urgent = is_urgent;
        strait_worker_send_copy(&w);
        assert_null(w.snapshots.sending);
        CHECK_OK(strait_worker_check_leaving(&w));
    }
    ahead_ns += 21 * S; // nobody waits for a copy in the background
    assert_int_equal(strait_worker_check_leaving(&w), STRAIT_EINTERRUPTED);
    pair_close(&pair);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_when_the_stage_is_handed_over),
        cmocka_unit_test(leaves_when_nothing_happens_for_long),
        cmocka_unit_test(stays_while_it_sends_the_copy_of_its_stage)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
