/* The command to sum, with a replica that lets its messages trickle. */
#include "base/clock.h"
#include "outer_rig.h"
#include "stage/outer/outer_command.h"
#include "stage/runner_state.h"

enum {
    DEADLINE_S = 60,
    LATE_S = 50 // when the only message arrives
};

static _Atomic int64_t added_ns; // to the time of this machine; threads of the links read it
static int n_drained, n_named;
static struct strait_msg *late;

int64_t __real_strait_clock_ns(void);
int64_t __wrap_strait_clock_ns(void);
int64_t __wrap_strait_clock_ns(void) {
    return __real_strait_clock_ns() + added_ns;
}

strait_err __wrap_strait_runner_poll(const struct strait_runner *runner);
strait_err __wrap_strait_runner_poll(const struct strait_runner *runner) {
    (void)runner;
    return STRAIT_OK;
}

/* Links may be lost in seconds that do not really pass. */
int __wrap_strait_mesh_is_up(struct strait_mesh *mesh, int peer);
int __wrap_strait_mesh_is_up(struct strait_mesh *mesh, int peer) {
    (void)mesh;
    (void)peer;
    return 1;
}

/* A second passes. */
strait_err __wrap_strait_runner_drain(struct strait_runner *runner, int timeout_ms);
strait_err __wrap_strait_runner_drain(struct strait_runner *runner, int timeout_ms) {
    (void)timeout_ms;
    added_ns += INT64_C(1000000000);
    n_named += runner->awaited_replica == 2; // the other one, from 1
    if (++n_drained == LATE_S) CHECK_OK(strait_outer_deliver(sides[0].outer, &late));
    return STRAIT_ETIMEDOUT;
}

/* It waits for a deadline and for what the bytes take, and names whom it waits for meanwhile. */
static void names_one_that_trickles_and_waits_no_longer(void **state) {
    (void)state;
    static struct strait_runner runner; // large, and zeroed
    strait_stage_reply reply = {0};
    const strait_stage_command command = {.kind = STRAIT_COMMAND_OUTER,
                                          .outer = {.phase = STRAIT_OUTER_SUM}};
    int is_blocked = 0;
    is_wary = 1;
    open_both(32, 1, 0);
    for (int r = 0; r < 2; r++) {
        train(r);
        begin(r, (strait_outer_exchange){.step = 1, .members = BOTH});
    }
    CHECK_OK(strait_outer_progress(sides[1].outer, &is_blocked));
    do { // others are about the link
        strait_msg_close(&late);
        CHECK_OK(strait_mesh_receive(pair.meshes[0], 10000, &late));
    } while (late->type != STRAIT_MSG_OUTER);
    runner.outer = sides[0].outer;
    runner.mesh = pair.meshes[0];
    runner.deadline_ms = DEADLINE_S * 1000;
    CHECK_OK(strait_runner_outer(&runner, &command, &reply));
    CHECK(!reply.outer.is_complete && reply.outer.missing == 2);
    CHECK(n_drained > DEADLINE_S && n_drained < DEADLINE_S + 10);
    CHECK(n_named == n_drained && runner.awaited_replica == 0);
    close_both();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_one_that_trickles_and_waits_no_longer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
