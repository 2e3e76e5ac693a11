/* What a replica of a swarm takes from another in an exchange of weights: usual differences, those
 * of newcomers and of replicas that were late; no value that is not finite, no difference or
 * average that is far too large, and no more messages ahead of time than one sender may have. */
#include "base/clock.h"
#include "outer_rig.h"
#include "stage/outer/outer_command.h"
#include "stage/outer/outer_state.h"

enum {
    SYNC_EVERY = 20 // of the rig
};

/* Delivers until neither side waits for anything: all is there, or known not to come. */
static void settle(void) {
    while (!strait_outer_is_settled(sides[0].outer) || !strait_outer_is_settled(sides[1].outer))
        pass_messages();
}

static void begin_both(int64_t step) {
    for (int r = 0; r < 2; r++)
        begin(r, (strait_outer_exchange){.step = step, .members = BOTH});
}

/* Replica 1 has learnt `factor` times what it should have. Returns what replica 0 rejected of it.
 */
static uint64_t rejected_at(int bits, float factor, int n_averages) {
    open_both(bits, 1, 0);
    for (int step = 1; step <= n_averages; step++) {
        train(0);
        train(1);
        average(step, BOTH);
    }
    train(0);
    for (int i = 0; i < VALUES; i++)
        sides[1].weights[i] -= factor * learnt(1, i);
    begin_both(n_averages + 1);
    settle();
    const uint64_t rejected = strait_outer_rejected(sides[0].outer);
    if (rejected != 0) {
        CHECK(strait_outer_missing(sides[0].outer) == 2);
        CHECK(strait_outer_withheld(sides[0].outer) == 0); // it has no results itself
        CHECK(!strait_outer_is_complete(sides[0].outer));
        CHECK(strait_outer_withheld(sides[1].outer) == 1); // and was told so
    }
    close_both();
    return rejected;
}

static void rejects_a_difference_far_larger_than_its_own(void **state) {
    (void)state;
    for (int bits = 4; bits <= 32; bits += 28) {
        CHECK(rejected_at(bits, 1.0f, 1) == 0);
        CHECK(rejected_at(bits, 0.01f, 1) == 0);
        CHECK(rejected_at(bits, STRAIT_OUTER_MOST / 2.0f, 1) == 0); // it was late a few times
        CHECK(rejected_at(bits, 4.0f * STRAIT_OUTER_MOST, 1) == 2);
        CHECK(rejected_at(bits, 4.0f * STRAIT_OUTER_MOST, 0) == 2); // all begin with the run
        CHECK(rejected_at(bits, 1e30f, 1) == 2);
        CHECK(rejected_at(bits, INFINITY, 1) == 2);
        CHECK(rejected_at(bits, NAN, 1) == 2);
    }
}

/* In a local run all replicas are the user's own: nothing is compared. */
static void only_a_wary_replica_checks(void **state) {
    (void)state;
    is_wary = 0;
    CHECK(rejected_at(32, 1e6f, 1) == 0);
    CHECK(rejected_at(32, NAN, 1) == 0);
    is_wary = 1;
}

/* A newcomer has taken one step of the interval, and takes what others learnt in all of them. */
static void a_newcomer_judges_by_earlier_averages(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {
        const int n_averages = k / 2, has_just_come = k % 2; // then it has learnt nothing
        open_both(32, 1, 0);
        for (int step = 1; step <= n_averages; step++) {
            train(0);
            train(1);
            average(step, BOTH);
        }
        CHECK_OK(strait_outer_catch_up(sides[0].outer, &sides[0].stream));
        for (int i = 0; i < VALUES && !has_just_come; i++)
            sides[0].weights[i] -= learnt(0, i) / SYNC_EVERY;
        train(1);
        average(n_averages + 1, BOTH);
        CHECK(are_equal());
        close_both();
    }
}

static void begin_part(int64_t step, int part) {
    for (int r = 0; r < 2; r++)
        begin(r, (strait_outer_exchange){.step = step, .fragment = part, .members = BOTH});
}

/* The part of attention is averaged more often: that says nothing of what is usual in the rest. */
static void a_newcomer_judges_each_part_by_itself(void **state) {
    (void)state;
    attention_every = 2;
    open_both(32, 1, 0);
    train(0);
    train(1);
    average(1, BOTH);
    CHECK_OK(strait_outer_catch_up(sides[0].outer, &sides[0].stream));
    for (int step = 2; step <= 4; step++) {
        for (int i = 0; i < VALUES; i++) // the first weight is attention's
            sides[0].weights[i] -= learnt(0, i) / (i < 1000 ? 1 : SYNC_EVERY);
        train(1);
        begin_part(step, step == 4 ? 0 : 1);
        settle();
        CHECK(strait_outer_rejected(sides[0].outer) == 0);
        exchange();
        apply();
    }
    close_both();
    attention_every = 0;
}

/* The owner of a chunk averaged it wrongly. */
static void rejects_an_average_that_cannot_be(void **state) {
    (void)state;
    static const float values[] = {NAN, INFINITY, 1e30f, 0.5f, 0.001f};
    for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
        struct strait_msg *msg = NULL;
        open_both(32, 1, 0);
        train(0);
        begin(0, (strait_outer_exchange){.step = 1, .members = BOTH});
        CHECK_OK(strait_msg_open(strait_mesh_pool(pair.meshes[0]), STRAIT_MSG_OUTER,
                                 STRAIT_OUTER_CHUNK * sizeof(float), &msg));
        float *body = (float *)(void *)msg->body;
        for (int i = 0; i < STRAIT_OUTER_CHUNK; i++)
            body[i] = values[k];
        msg->flags = 1; // a result
        msg->microbatch = 1;
        msg->boundary = 4;
        msg->step = 1;
        msg->peer = pair.peers[0];
        CHECK_OK(strait_outer_deliver(sides[0].outer, &msg));
        CHECK(msg == NULL);
        const int is_usual = values[k] == 0.001f;
        CHECK(strait_outer_rejected(sides[0].outer) == (is_usual ? 0 : 2));
        close_both();
    }
}

/* What one sender may have waiting does not depend on the others, and what is too much is dropped
 * without an error of the receiver. */
static void limits_messages_ahead_of_time_by_sender(void **state) {
    (void)state;
    open_both(32, 1, 0);
    begin(0, (strait_outer_exchange){.step = 1, .members = BOTH});
    int n_kept = 0;
    for (int i = 0; i < 100; i++) {
        deliver(make_message(0, 0, 2, STRAIT_OUTER_CHUNK * sizeof(float)));
        n_kept += strait_outer_rejected(sides[0].outer) == 0;
    }
    CHECK(n_kept >= 8 && n_kept <= 16); // parts and results of four chunks, and one to spare
    CHECK(strait_outer_rejected(sides[0].outer) == 2);
    close_both();
}

/* The limit is one of bytes: no message of an exchange is larger than a chunk in 32 bits. */
static void drops_messages_ahead_of_time_larger_than_a_chunk(void **state) {
    (void)state;
    open_both(4, 1, 0);
    begin(0, (strait_outer_exchange){.step = 1, .members = BOTH});
    deliver(make_message(0, 0, 2, STRAIT_OUTER_CHUNK * sizeof(float)));
    CHECK(strait_outer_rejected(sides[0].outer) == 0);
    deliver(make_message(0, 0, 2, STRAIT_OUTER_CHUNK * sizeof(float) + 1));
    CHECK(strait_outer_rejected(sides[0].outer) == 2);
    close_both();
}

/* Replica 1 sends chunks 1 and 3 as results, or chunks 0 and 2 as parts, each of which is below the
 * limit. Returns how many of them replica 0 takes. */
static int taken_of_two(int is_result, double of_limit) {
    double squares = 0.0;
    open_both(32, 1, 0);
    train(0);
    begin(0, (strait_outer_exchange){.step = 1, .members = BOTH});
    for (int i = 0; i < VALUES; i++)
        squares += (double)learnt(0, i) * (double)learnt(0, i);
    const double most = STRAIT_OUTER_MOST * sqrt(squares) * (is_result ? 2.0 : 1.0);
    int n_taken = 0;
    for (int k = 0; k < 2; k++) {
        const int chunk = 2 * k + is_result;
        const int n = chunk == 3 ? 77 : STRAIT_OUTER_CHUNK;
        struct strait_msg *msg = make_message(is_result, chunk, 1, (size_t)n * sizeof(float));
        *(float *)(void *)msg->body = (float)(of_limit * most);
        deliver(msg);
        n_taken += strait_outer_rejected(sides[0].outer) == 0;
    }
    close_both();
    return n_taken;
}

static void limits_the_sum_over_chunks_of_a_sender(void **state) {
    (void)state;
    for (int is_result = 0; is_result < 2; is_result++) {
        CHECK(taken_of_two(is_result, 0.6) == 2);
        CHECK(taken_of_two(is_result, 0.8) == 1);
        CHECK(taken_of_two(is_result, 1.1) == 0);
    }
}

/* A sender cannot make its receiver fail: what cannot be is dropped, and held against it. */
static void drops_messages_that_cannot_be(void **state) {
    (void)state;
    const size_t whole = STRAIT_OUTER_CHUNK * sizeof(float);
    static const struct {
        int flags, chunk, boundary, cut;
    } cases[] = {{0, 0, 4, 1},  // another size
                 {0, 9, 4, 0},  // no such chunk
                 {0, 1, 4, 0},  // the part of a chunk that is the sender's
                 {1, 0, 4, 0},  // the result of one that is the receiver's
                 {2, 0, 4, 0},  // nothing, in many bytes
                 {3, 0, 4, 0},  // unknown
                 {0, 0, 3, 0}}; // of another stage
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        open_both(32, 1, 0);
        begin_both(1);
        struct strait_msg *msg = make_message(cases[k].flags, cases[k].chunk, 1,
                                              whole - (size_t)cases[k].cut);
        msg->boundary = (uint16_t)cases[k].boundary;
        deliver(msg);
        settle();
        CHECK(strait_outer_rejected(sides[0].outer) == 2);
        CHECK(strait_outer_missing(sides[0].outer) == 2);  // also of what came later
        CHECK(strait_outer_withheld(sides[1].outer) == 1); // and was told so
        close_both();
    }
    open_both(32, 1, 0);
    begin(0, (strait_outer_exchange){.step = 1, .members = BOTH});
    struct strait_msg *msg = make_message(0, 0, 1, whole);
    msg->peer = -1; // of a stage before or after
    deliver(msg);
    CHECK(strait_outer_rejected(sides[0].outer) == 0);
    CHECK(strait_outer_delivered(sides[0].outer) == 0);
    close_both();
}

/* Its parts are here already, so there are results for others, and nobody is told otherwise: they
 * would report that this replica withholds them. */
static void sends_results_despite_a_repeated_part(void **state) {
    (void)state;
    int is_blocked = 0;
    open_both(32, 1, 0);
    begin_both(1);
    for (int chunk = 0; chunk < 4; chunk += 2)
        deliver(make_message(0, chunk, 1, STRAIT_OUTER_CHUNK * sizeof(float)));
    deliver(make_message(0, 0, 1, STRAIT_OUTER_CHUNK * sizeof(float)));
    CHECK(strait_outer_rejected(sides[0].outer) == 2);
    CHECK(strait_outer_missing(sides[0].outer) == 0);
    CHECK_OK(strait_outer_progress(sides[0].outer, &is_blocked));
    while (!strait_outer_is_complete(sides[1].outer)) {
        struct strait_msg *msg = NULL;
        for (int r = 0; r < 2; r++)
            CHECK_OK(strait_outer_progress(sides[r].outer, &is_blocked));
        if (strait_mesh_receive(pair.meshes[1], 1, &msg) != STRAIT_OK) continue;
        CHECK(msg->flags != 2);
        if (msg->type == STRAIT_MSG_OUTER) CHECK_OK(strait_outer_deliver(sides[1].outer, &msg));
        strait_msg_close(&msg);
    }
    close_both();
}

/* Replica 1 sends no part, but at every poll of replica 0 something else. */
enum {
    STALLS_MS = 100000 // then it gives up
};
static int64_t stalls_until;
static int has_parts; // as many of them as there are polls

static strait_err stall(void *user) {
    (void)user;
    struct strait_msg *msg = NULL;
    if (strait_clock_ns() > stalls_until) return STRAIT_OK;
    if (has_parts) {
        sides[0].outer->n_delivered++; // a model of thousands of chunks has a part for every poll
        return STRAIT_OK;
    }
    CHECK_OK(strait_msg_open(strait_mesh_pool(pair.meshes[1]), STRAIT_MSG_OUTER, 0, &msg));
    msg->flags = HOLDS_NOTHING;
    msg->boundary = 4;
    msg->step = 1;
    CHECK_OK(strait_mesh_send(pair.meshes[1], pair.peers[1], &msg));
    return STRAIT_OK;
}

static strait_err ignore(void *user, struct strait_msg **msg) {
    (void)user;
    strait_msg_close(msg);
    return STRAIT_OK;
}

static void a_stalling_sender_does_not_extend_the_wait(void **state) {
    (void)state;
    for (has_parts = 0; has_parts < 2; has_parts++) {
        struct strait_runner runner = {.deadline_ms = 500, .on_poll = stall, .on_message = ignore};
        const strait_stage_command command = {.kind = STRAIT_COMMAND_OUTER,
                                              .outer = {.phase = STRAIT_OUTER_SUM}};
        strait_stage_reply reply = {0};
        is_wary = has_parts; // in a local run the wait has no limit but the deadline
        open_both(2, 1, 0);
        runner.outer = sides[0].outer;
        runner.mesh = pair.meshes[0];
        begin(0, (strait_outer_exchange){.step = 1, .members = BOTH});
        stalls_until = strait_clock_ns() + STALLS_MS * INT64_C(1000000);
        CHECK_OK(strait_runner_outer(&runner, &command, &reply));
        CHECK(strait_clock_ns() < stalls_until);
        CHECK(!reply.outer.is_complete && reply.outer.missing == 2);
        close_both();
    }
    is_wary = 1;
}

/* The time follows from the bytes, and is longer for those that only wait for results. */
static void waits_as_long_as_the_bytes_take_on_a_slow_link(void **state) {
    (void)state;
    const int64_t second = INT64_C(1000000000);
    open_both(32, 1, 0);
    begin(0, (strait_outer_exchange){.step = 1, .members = BOTH});
    const double bytes = (double)VALUES * sizeof(float); // half as parts, half as results
    const int64_t limit = strait_outer_limit_ns(sides[0].outer, 5 * second);
    CHECK_NEAR((double)limit / 1e9, 5.0 + bytes / STRAIT_OUTER_SLOWEST, 1e-3);
    for (int chunk = 0; chunk < 4; chunk += 2)
        deliver(make_message(0, chunk, 1, STRAIT_OUTER_CHUNK * sizeof(float)));
    CHECK(strait_outer_limit_ns(sides[0].outer, 5 * second) == 2 * limit);
    close_both();
    is_wary = 0;
    open_both(32, 1, 0);
    begin(0, (strait_outer_exchange){.step = 1, .members = BOTH});
    CHECK(strait_outer_limit_ns(sides[0].outer, 5 * second) == INT64_MAX);
    close_both();
    is_wary = 1;
}

int main(void) {
    is_wary = 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rejects_a_difference_far_larger_than_its_own),
        cmocka_unit_test(only_a_wary_replica_checks),
        cmocka_unit_test(a_newcomer_judges_by_earlier_averages),
        cmocka_unit_test(a_newcomer_judges_each_part_by_itself),
        cmocka_unit_test(rejects_an_average_that_cannot_be),
        cmocka_unit_test(limits_messages_ahead_of_time_by_sender),
        cmocka_unit_test(drops_messages_ahead_of_time_larger_than_a_chunk),
        cmocka_unit_test(limits_the_sum_over_chunks_of_a_sender),
        cmocka_unit_test(drops_messages_that_cannot_be),
        cmocka_unit_test(sends_results_despite_a_repeated_part),
        cmocka_unit_test(a_stalling_sender_does_not_extend_the_wait),
        cmocka_unit_test(waits_as_long_as_the_bytes_take_on_a_slow_link)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
