/* Two replicas that train on their own average their weights over real links: the outer step's
 * formula, error feedback, one that is late, one that is left out, and what they refuse. */
#include "outer_rig.h"
#include "stage/replicas/quantize.h"

static void takes_the_step_of_the_formula(void **state) {
    (void)state;
    open_both(32, 1, 0);
    for (int64_t step = 1; step <= 2; step++) {
        train(0);
        train(1);
        average(step, BOTH);
        CHECK(are_equal());
    }
    for (int i = 0; i < VALUES; i += 7) {
        double v = 0.0, w = (double)initial(i);
        for (int k = 0; k < 2; k++) {
            const double d = ((double)learnt(0, i) + (double)learnt(1, i)) / 2.0;
            v = (double)momentum * v + d;
            w -= (double)rate * (d + (double)momentum * v);
        }
        CHECK(fabs((double)sides[0].weights[i] - w) < 1e-6);
    }
    for (int i = VALUES; i < VALUES + 5; i++)
        CHECK(sides[1].weights[i] == initial(i)); // never learns
    close_both();
}

/* Fragments cover everything once, and what was learnt while they crossed is kept. */
static void keeps_what_was_learnt_meanwhile(void **state) {
    (void)state;
    open_both(32, 3, 1);
    for (int f = 0; f < 3; f++) {
        if (f == 0) {
            train(0);
            train(1);
        }
        for (int r = 0; r < 2; r++)
            begin(r, (strait_outer_exchange){.step = 1 + f, .fragment = f, .members = BOTH});
        for (int r = 0; r < 2 && f == 2; r++)
            train(r);
        exchange();
        apply();
    }
    for (int i = 0; i < VALUES; i += 7) {
        const double d = ((double)learnt(0, i) + (double)learnt(1, i)) / 2.0;
        const double anchor = (double)initial(i) - (double)rate * (1.0 + (double)momentum) * d;
        for (int r = 0; r < 2; r++)
            CHECK(fabs((double)sides[r].weights[i] - (anchor - (double)learnt(r, i))) < 1e-6);
    }
    close_both();
}

/* The first weight is a matrix of attention: it is no longer in a fragment. */
static void averages_attention_alone(void **state) {
    (void)state;
    const int half = (VALUES - 1000) / 2, second = 1000 + half - half % STRAIT_QUANTIZE_BLOCK;
    attention_every = 5;
    open_both(32, 2, 0);
    train(0);
    train(1);
    for (int part = 2; part >= 0; part--) {
        for (int r = 0; r < 2; r++)
            begin(r, (strait_outer_exchange){.step = 3 - part, .fragment = part, .members = BOTH});
        exchange();
        apply();
        for (int i = 0; i < VALUES; i += 7) {
            const double d = ((double)learnt(0, i) + (double)learnt(1, i)) / 2.0;
            const double averaged = (double)initial(i) -
                                    (double)rate * (1.0 + (double)momentum) * d;
            const int is_done = i < 1000 || part == 0 || (part == 1 && i >= second);
            for (int r = 0; r < 2; r++) {
                const double own = (double)initial(i) - (double)learnt(r, i);
                CHECK(fabs((double)sides[r].weights[i] - (is_done ? averaged : own)) < 1e-6);
            }
        }
    }
    CHECK(are_equal());
    close_both();
    attention_every = 0;
}

/* Distance of the sum of many averages from the exact one, relative to it. */
static double drift(int bits, int times) {
    double error = 0.0, size = 0.0;
    open_both(bits, 1, 0);
    for (int t = 0; t < times; t++) {
        train(0);
        train(1);
        average(t + 1, BOTH);
        CHECK(are_equal());
    }
    for (int i = 0; i < VALUES; i++) {
        const double d = ((double)learnt(0, i) + (double)learnt(1, i)) / 2.0;
        double v = 0.0, w = 0.0;
        for (int t = 0; t < times; t++) {
            v = (double)momentum * v + d;
            w += (double)rate * (d + (double)momentum * v);
        }
        const double apart = (double)initial(i) - (double)sides[0].weights[i] - w;
        error += apart * apart;
        size += w * w;
    }
    close_both();
    return sqrt(error / size);
}

static void feedback_returns_what_rounding_lost(void **state) {
    (void)state;
    const double once = drift(4, 1), often = drift(4, 12);
    CHECK(once > 0.01 && once < 0.1);
    CHECK(often < once / 3.0);
    CHECK(drift(2, 1) > drift(2, 12) && drift(2, 12) < 0.15);
}

/* Replica 1 is late twice: all apply the same, and its work counts in the next average. */
static void a_late_replica_catches_up(void **state) {
    (void)state;
    open_both(32, 1, 0);
    train(0);
    train(1);
    average(1, 1);
    CHECK(are_equal());
    for (int i = 0; i < VALUES; i += 7) {
        const double d = (double)learnt(0, i);
        const double w = (double)initial(i) - (double)rate * (1.0 + (double)momentum) * d;
        CHECK(fabs((double)sides[1].weights[i] - w) < 1e-6);
    }
    average(2, BOTH); // nothing was trained since: only what replica 1 had left
    for (int i = 0; i < VALUES; i += 7) {
        const double d0 = (double)learnt(0, i), d1 = (double)learnt(1, i) / 2.0,
                     m = (double)momentum;
        const double v = m * d0 + d1;
        const double w = (double)initial(i) - (double)rate * ((1.0 + m) * d0 + d1 + m * v);
        CHECK(fabs((double)sides[0].weights[i] - w) < 1e-6);
    }
    CHECK(are_equal());
    close_both();
}

/* Replica 1 is lost in the middle of an exchange: the next attempt is replica 0's alone, and gives
 * what it would have given without the first. */
static void an_exchange_is_begun_again_without_the_lost(void **state) {
    (void)state;
    for (int bits = 4; bits <= 32; bits += 28) {
        open_both(bits, 1, 0);
        train(0);
        begin(0, (strait_outer_exchange){.step = 1, .members = BOTH});
        int is_blocked = 0;
        CHECK_OK(strait_outer_progress(sides[0].outer, &is_blocked));
        CHECK(!strait_outer_is_complete(sides[0].outer));
        CHECK(strait_outer_missing(sides[0].outer) == 2);
        begin(0, (strait_outer_exchange){
                     .step = 1, .attempt = 1, .members = 1, .alive = 1, .is_resent = 1});
        CHECK_OK(strait_outer_progress(sides[0].outer, &is_blocked));
        strait_outer_result result;
        CHECK_OK(strait_outer_apply(sides[0].outer, &sides[0].stream, &result));
        for (int i = 0; i < VALUES; i += 7) {
            const double w = (double)initial(i) -
                             (double)rate * (1.0 + (double)momentum) * (double)learnt(0, i);
            CHECK(fabs((double)sides[0].weights[i] - w) < 1e-6);
        }
        close_both();
    }
}

/* Between the sum and the step replica 1 gets another number, and is told to apply twice, as when
 * a worker of a swarm is lost meanwhile: both end with what they would have without that. */
static void a_complete_exchange_survives_another_number(void **state) {
    (void)state;
    float *expected = malloc(VALUES * sizeof *expected);
    assert_non_null(expected);
    for (int is_renumbered = 0; is_renumbered < 2; is_renumbered++) {
        open_both(4, 1, 0);
        for (int64_t step = 1; step <= 2; step++) {
            strait_outer_result result;
            for (int r = 0; r < 2; r++) {
                train(r);
                begin(r, (strait_outer_exchange){.step = step, .members = BOTH});
            }
            exchange();
            if (is_renumbered) strait_outer_set_replica(sides[1].outer, 0);
            CHECK(!strait_outer_has_applied(sides[1].outer, step, 0));
            apply();
            CHECK(strait_outer_has_applied(sides[1].outer, step, 0));
            CHECK(!strait_outer_has_applied(sides[1].outer, step, 1));
            CHECK_FAILS(strait_outer_apply(sides[1].outer, &sides[1].stream, &result),
                        STRAIT_EPROTO, "no exchange is complete");
            if (is_renumbered) strait_outer_set_replica(sides[1].outer, 1);
        }
        CHECK(are_equal());
        if (!is_renumbered) memcpy(expected, sides[1].weights, VALUES * sizeof *expected);
        CHECK(memcmp(expected, sides[1].weights, VALUES * sizeof *expected) == 0);
        close_both();
    }
    free(expected);
}

/* One that is not complete is forgotten: the same step is begun once more from the first attempt,
 * and its messages are not taken for old ones. */
static void an_incomplete_exchange_is_forgotten_with_the_number(void **state) {
    (void)state;
    open_both(32, 1, 0);
    train(0);
    train(1);
    for (int r = 0; r < 2; r++)
        begin(r, (strait_outer_exchange){.step = 1, .attempt = 1, .members = BOTH});
    for (int r = 0; r < 2; r++)
        strait_outer_set_replica(sides[r].outer, r);
    CHECK(!strait_outer_is_begun(sides[0].outer));
    begin(0, (strait_outer_exchange){.step = 1, .members = BOTH});
    int is_blocked = 0;
    CHECK_OK(strait_outer_progress(sides[0].outer, &is_blocked));
    struct strait_msg *msg = NULL; // arrives before replica 1 begins
    while (msg == NULL || msg->type != STRAIT_MSG_OUTER) {
        strait_msg_close(&msg);
        CHECK_OK(strait_mesh_receive(pair.meshes[1], 10000, &msg));
    }
    CHECK_OK(strait_outer_deliver(sides[1].outer, &msg));
    begin(1, (strait_outer_exchange){.step = 1, .members = BOTH});
    exchange();
    apply();
    CHECK(are_equal());
    close_both();
}

/* A newcomer that was given all state of replica 0 continues from the average, and what rounding
 * lost of replica 0 is not sent twice. */
static void a_copy_catches_up(void **state) {
    (void)state;
    open_both(4, 1, 0);
    train(0);
    train(1);
    average(1, BOTH);
    memcpy(sides[1].weights, sides[0].weights, VALUES * sizeof(float));
    float *averaged = malloc(VALUES * sizeof *averaged);
    assert_non_null(averaged);
    memcpy(averaged, sides[0].weights, VALUES * sizeof *averaged);
    train(1);
    CHECK_OK(strait_outer_catch_up(sides[1].outer, &sides[1].stream));
    CHECK(memcmp(averaged, sides[1].weights, VALUES * sizeof *averaged) == 0);
    CHECK(strait_outer_get(sides[1].outer, STRAIT_OUTER_RESIDUAL, 0, 0).data == NULL);
    average(2, BOTH);
    CHECK(are_equal());
    free(averaged);
    close_both();
}

/* Fields of a message that replica 1 sends to replica 0. */
struct claim {
    int flags, chunk, basis, stage;
    int64_t step;
    size_t bytes;
    strait_err err;
};

static void rejects_what_cannot_be(void **state) {
    (void)state;
    static const size_t full = STRAIT_OUTER_CHUNK * sizeof(float), rest = 77 * sizeof(float);
    const struct claim claims[] = {
        {0, 0, 0, 3, 5, full, STRAIT_EPROTO}, // another stage
        {0, 9, 0, 4, 5, full, STRAIT_EPROTO}, // no such chunk
        {0, 1, 0, 4, 5, full, STRAIT_EPROTO}, // a part of a chunk of its own
        {1, 0, 0, 4, 5, full, STRAIT_EPROTO}, // a result of a chunk of ours
        {0, 0, 0, 4, 5, rest, STRAIT_EPROTO}, // too short
        {3, 0, 0, 4, 5, full, STRAIT_EPROTO}, // no such kind
        {2, 0, 0, 4, 5, full, STRAIT_EPROTO}, // no results, but values
        {0, 0, 0, 4, 4, full, STRAIT_OK},     // of an earlier exchange: dropped
        {0, 0, 1, 4, 5, full, STRAIT_OK},     // of the next attempt: kept
        {0, 0, 0, 4, 5, full, STRAIT_OK},     // a part
        {0, 0, 0, 4, 5, full, STRAIT_EPROTO}, // the same once more
        {1, 1, 0, 4, 5, full, STRAIT_OK},     // a result
        {1, 1, 0, 4, 5, full, STRAIT_EPROTO}, {1, 3, 0, 4, 5, rest, STRAIT_OK},
    };
    open_both(32, 1, 0);
    begin(0, (strait_outer_exchange){.step = 5, .members = BOTH});
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        const struct claim *c = &claims[i];
        struct strait_msg *msg = NULL;
        CHECK_OK(
            strait_msg_open(strait_mesh_pool(pair.meshes[0]), STRAIT_MSG_OUTER, c->bytes, &msg));
        memset(msg->body, 0, msg->size);
        msg->flags = (uint8_t)c->flags;
        msg->microbatch = (uint16_t)c->chunk;
        msg->basis = (uint16_t)c->basis;
        msg->boundary = (uint16_t)c->stage;
        msg->step = (uint32_t)c->step;
        msg->peer = pair.peers[0];
        assert_int_equal(strait_outer_deliver(sides[0].outer, &msg), c->err);
        strait_msg_close(&msg);
    }
    close_both();
}

static void rejects_exchanges_that_cannot_be(void **state) {
    (void)state;
    static const strait_outer_exchange bad[] = {
        {.fragment = -1, .members = BOTH, .alive = BOTH},
        {.fragment = 2, .members = BOTH, .alive = BOTH}, // there are two
        {.attempt = -1, .members = BOTH, .alive = BOTH},
        {.attempt = UINT8_MAX + 1, .members = BOTH, .alive = BOTH},
        {.members = 0, .alive = BOTH},
        {.members = BOTH, .alive = BOTH | 4}, // there is no third
        {.members = BOTH, .alive = 1},
        {.members = 2, .alive = 2}}; // without this replica
    open_both(32, 2, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_FAILS(strait_outer_begin(sides[0].outer, &sides[0].stream, &bad[i]), STRAIT_EPROTO,
                    "no exchange of fragment");
        CHECK(!strait_outer_is_begun(sides[0].outer));
    }
    begin(0, (strait_outer_exchange){.fragment = 1, .attempt = UINT8_MAX, .members = BOTH});
    close_both();
}

/* A frame has 16 bits for the number of a chunk. */
static void rejects_more_chunks_than_a_frame_can_number(void **state) {
    (void)state;
    struct strait_outer *outer = NULL;
    const strait_param huge = {
        .value = {NULL, STRAIT_F32, UINT16_MAX + 1, STRAIT_OUTER_CHUNK}}; // nobody reads it
    open_both(32, 1, 0);
    const strait_outer_spec spec = {
        .n_replicas = 2, .params.schedule.fragments = 1, .weights = &huge, .n_weights = 1};
    CHECK_FAILS(strait_outer_open(&spec, sides[0].backend, &outer), STRAIT_ECONFIG,
                "has 65536 chunks, more than 65535");
    close_both();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_the_step_of_the_formula),
        cmocka_unit_test(keeps_what_was_learnt_meanwhile),
        cmocka_unit_test(averages_attention_alone),
        cmocka_unit_test(feedback_returns_what_rounding_lost),
        cmocka_unit_test(a_late_replica_catches_up),
        cmocka_unit_test(an_exchange_is_begun_again_without_the_lost),
        cmocka_unit_test(a_complete_exchange_survives_another_number),
        cmocka_unit_test(an_incomplete_exchange_is_forgotten_with_the_number),
        cmocka_unit_test(a_copy_catches_up),
        cmocka_unit_test(rejects_what_cannot_be),
        cmocka_unit_test(rejects_exchanges_that_cannot_be),
        cmocka_unit_test(rejects_more_chunks_than_a_frame_can_number)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
