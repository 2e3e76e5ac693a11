/* Bounds on what workers report. */
#include "swarm/host/verify/claims.h"

#include "check.h"
#include "stage/commands.h"
#include "swarm/protocol.h"

#include <math.h>

static const strait_claims_limits limits = {.is_last = 1,
                                            .elapsed_s = 2.0,
                                            .tokens = 100.0,
                                            .crossing_bytes = 1000.0,
                                            .snapshot_bytes = 125e3,
                                            .n_squares = 3,
                                            .n_basis = 2};

static void has_bounds(const strait_layout *layout) {
    for (int i = 0; i < layout->n_fields; i++)
        if (!strait_claims_has_bound(layout->fields[i].name))
            fail_msg("%s: the field %s has no row in swarm/host/verify/claims.c", layout->name,
                     layout->fields[i].name);
}

static void bounds_every_field_that_a_worker_sends(void **state) {
    (void)state;
    has_bounds(&strait_stage_reply_header);
    for (int k = 1; k < STRAIT_COMMAND_KINDS; k++)
        has_bounds(strait_stage_reply_layout((strait_stage_command_kind)k));
    for (int k = 1; k < STRAIT_TASK_KINDS; k++)
        has_bounds(strait_task_reply_layout((strait_task_kind)k));
    for (int i = 0; strait_swarm_layout(i) != NULL; i++) {
        const char *name = strait_swarm_layout(i)->name;
        if (strcmp(name, "join") == 0 || strcmp(name, "heartbeat") == 0 ||
            strcmp(name, "task_reply") == 0 || strcmp(name, "commitment") == 0 ||
            strcmp(name, "work") == 0 || strcmp(name, "given") == 0)
            has_bounds(strait_swarm_layout(i));
    }
    assert_false(strait_claims_has_bound("gradients.los"));
    assert_false(strait_claims_has_bound("gradients.loss_sum2"));
}

static const float some_squares[] = {1.0f, 0.0f, INFINITY};

static strait_stage_reply honest(void) {
    strait_stage_reply reply = {.kind = STRAIT_COMMAND_GRADIENTS};
    reply.gradients.loss_sum = 500.0;
    reply.gradients.times = (strait_step_times){0.1, 0.2, 0.3, 0.0, 1.0, 1.9};
    reply.gradients.forward_bytes = reply.gradients.backward_bytes = 1000;
    reply.gradients.residual_forward = NAN;
    reply.gradients.squares = (strait_floats){some_squares, 3};
    return reply;
}

static strait_claims_finding check(strait_stage_reply *reply, const strait_claims_limits *with) {
    strait_claims_finding finding = {0};
    strait_claims_check(&strait_stage_reply_header, reply, with, &finding);
    strait_claims_check(strait_stage_reply_layout(reply->kind), reply, with, &finding);
    return finding;
}

static void accepts_what_honest_workers_report(void **state) {
    (void)state;
    strait_stage_reply reply = honest();
    assert_null(check(&reply, &limits).field);
    reply.gradients.loss_sum = NAN; // verified by recomputing the step
    assert_null(check(&reply, &limits).field);
    reply = (strait_stage_reply){.kind = STRAIT_COMMAND_UPDATE, .update = {0.1, INFINITY}};
    assert_int_equal(check(&reply, &limits).is_impossible, 0); // no bandwidth measured yet
    assert_true(reply.update.copy_s == 11.0);
}

static void is_impossible(strait_stage_reply reply, const char *field) {
    const strait_claims_finding finding = check(&reply, &limits);
    if (finding.field == NULL) fail_msg("%s was accepted", field);
    assert_string_equal(finding.field, field);
    assert_int_equal(finding.is_impossible, 1);
}

static void finds_impossible_values(void **state) {
    (void)state;
    static const double wrong[] = {-1.0, NAN, INFINITY, -INFINITY};
    static const float negative[] = {1.0f, -1.0f, 1.0f};
    for (int i = 0; i < 4; i++) {
        strait_stage_reply reply = honest();
        reply.gradients.times.weights = wrong[i];
        is_impossible(reply, "gradients.times.weights");
        reply = honest();
        reply.gradients.faults.rejected_next = wrong[i];
        is_impossible(reply, "gradients.faults.rejected_next");
    }
    strait_stage_reply reply = honest();
    reply.gradients.loss_sum = -1.0;
    is_impossible(reply, "gradients.loss_sum");
    reply = honest();
    reply.gradients.squares.n = 2;
    is_impossible(reply, "gradients.squares");
    reply.gradients.squares = (strait_floats){negative, 3};
    is_impossible(reply, "gradients.squares");
    reply = honest();
    reply.rejected_copies_next = -1;
    is_impossible(reply, "rejected_copies_next");
    reply = (strait_stage_reply){.kind = STRAIT_COMMAND_PROPOSE_BASIS};
    reply.propose_basis.basis = (strait_floats){some_squares, 2};
    assert_null(check(&reply, &limits).field);
    reply.propose_basis.basis = (strait_floats){some_squares + 1, 2};
    is_impossible(reply, "propose_basis.basis");
}

static void accepts_a_loss_from_the_last_stage_only(void **state) {
    (void)state;
    strait_claims_limits first = limits;
    first.is_last = 0;
    strait_stage_reply reply = honest();
    assert_int_equal(check(&reply, &first).is_impossible, 1);
    reply.gradients.loss_sum = 0.0;
    assert_null(check(&reply, &first).field);
    reply = (strait_stage_reply){.kind = STRAIT_COMMAND_VALIDATE, .validate = {.loss_sum = 1.0}};
    assert_string_equal(check(&reply, &first).field, "validate.loss_sum");
    assert_null(check(&reply, &limits).field);
}

static void clamps_what_may_be_an_error(void **state) {
    (void)state;
    strait_stage_reply reply = honest();
    reply.gradients.times.wall = 1e300;
    reply.gradients.forward_bytes = UINT64_MAX;
    reply.device_free = UINT64_MAX;
    const strait_claims_finding finding = check(&reply, &limits);
    assert_string_equal(finding.field, "device_free"); // the first
    assert_int_equal(finding.is_impossible, 0);
    assert_true(reply.gradients.times.wall == 2.0);
    assert_int_equal(reply.gradients.forward_bytes, 1000);
    assert_int_equal(reply.device_free, (uint64_t)1e15);
    reply.gradients.times.wall = -1.0; // an impossible value is the one that is reported
    reply.device_free = UINT64_MAX;
    assert_string_equal(check(&reply, &limits).field, "gradients.times.wall");
    strait_join join = {.report = {.flops = 1e29, .memory_bytes = 1e29}};
    strait_claims_finding joined = {0};
    strait_claims_check(strait_swarm_layout(STRAIT_LAYOUT_JOIN), &join, &limits, &joined);
    assert_true(join.report.flops == 1e18);
    assert_true(join.report.memory_bytes == 1e15);
}

static void compares_values_with_recent_ones(void **state) {
    (void)state;
    strait_claims_level level = {0};
    for (int i = 0; i < 40; i++) { // falls quickly, as at the start of a run
        const double value = 100.0 / (1.0 + 0.3 * i);
        assert_true(strait_claims_is_plausible(&level, 0.7, value));
        strait_claims_accept(&level, value);
    }
    assert_true(strait_claims_is_plausible(&level, 0.7, 100.0 / 13.0));
    assert_false(strait_claims_is_plausible(&level, 0.7, 2.0 * 100.0 / 10.0));
    assert_false(strait_claims_is_plausible(&level, 0.7, 0.5 * 100.0 / 13.0));
    assert_false(strait_claims_is_plausible(&level, 0.7, 0.0));
    assert_false(strait_claims_is_plausible(&level, 0.7, NAN));
    assert_false(strait_claims_is_plausible(&level, 0.7, INFINITY));
    strait_claims_accept(&level, 60.0); // a spike that was confirmed
    for (int i = 0; i < 20; i++) {      // back again, and another spike as high
        assert_true(strait_claims_is_plausible(&level, 0.7, 8.0));
        strait_claims_accept(&level, 8.0);
    }
    assert_true(strait_claims_is_plausible(&level, 0.7, 48.0));
    strait_claims_accept(&level, 48.0);
    for (int i = 0; i < 3; i++)
        strait_claims_accept(&level, 8.0);
    assert_true(strait_claims_is_plausible(&level, 0.7, 70.0));
    level.widest = 0.0;
    assert_true(strait_claims_is_plausible(&level, 0.7, 70.0));
    level.window = 3; // the spike no longer counts
    assert_false(strait_claims_is_plausible(&level, 0.7, 48.0));
    assert_false(strait_claims_is_plausible(&level, 0.7, 600.0));
}

/* Recorded from honest runs: three stages, batches of 16 and 128 tokens, codecs none and strait. */
static const float honest_sums[][10] = {
    {1.09f, 0.0861f, 0.0566f, 0.0633f, 0.0315f, 0.353f, 0.0375f, 0.0546f, 9.65e+04f, 3.66e+03f},
    {1.29e-05f, 0.00577f, 0.00653f, 0.0183f, 0.000987f, 0.00189f, 0.00227f, 0.00277f, 7.78f,
     0.00958f},
    {0.541f, 0.668f, 0.326f, 3.0f, 0.238f, 8.97f, 0.289f, 157.0f, 1.2f, 12.8f},
};
static const double honest_losses[] = {4.81271, 4.68652, 4.64628, 4.33161, 4.43198, 4.31416,
                                       4.16957, 7.3896,  6.03077, 4.20567, 3.96555};

enum {
    N_SHARES = 5 // of a sum, for single parameters
};

/* Squares of a stage that have this sum, nearly. */
static strait_floats split(float *into, float sum) {
    static const float shares[N_SHARES] = {0.9f, 0.1f, 1e-3f, 1e-5f, 0.0f};
    for (int i = 0; i < N_SHARES; i++)
        into[i] = sum * shares[i];
    return (strait_floats){into, N_SHARES};
}

static void believes_recorded_jumps_of_honest_runs(void **state) {
    (void)state;
    float memory[N_SHARES];
    for (int k = 0; k < 3; k++) {
        strait_claims_level level = {0};
        for (int i = 0; i < 10; i++) {
            const strait_floats squares = split(memory, honest_sums[k][i]);
            if (!strait_claims_are_squares_plausible(&level, &squares))
                fail_msg("run %d, value %d: honest squares are suspected", k, i);
            strait_claims_accept_squares(&level, &squares);
        }
    }
    strait_claims_level level = {0};
    for (int i = 0; i < 11; i++) {
        if (!strait_claims_is_loss_plausible(&level, honest_losses[i]))
            fail_msg("value %d: an honest loss is suspected", i);
        strait_claims_accept_loss(&level, honest_losses[i]);
    }
    level = (strait_claims_level){0};
    for (int i = 0; i < 8; i++) // of a model that knows its data by heart
        strait_claims_accept_loss(&level, 0.02);
    assert_true(strait_claims_is_loss_plausible(&level, 0.1));
}

/* An honest stage may get its first gradients late, and single parameters none in most steps. */
static void believes_parameters_without_gradients(void **state) {
    (void)state;
    static const float none[] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    static const float few[] = {0.0f, 2.0f, 0.0f, 0.0f, 2.0f};
    static const float all[] = {1e-6f, 2.0f, 1e-9f, 0.1f, 2.0f};
    strait_claims_level level = {0};
    assert_true(strait_claims_are_squares_plausible(&level, &(strait_floats){none, 5}));
    strait_claims_accept_squares(&level, &(strait_floats){none, 5});
    for (int i = 0; i < 12; i++) {
        const strait_floats squares = {i % 4 == 3 ? all : few, 5};
        assert_true(strait_claims_are_squares_plausible(&level, &squares));
        strait_claims_accept_squares(&level, &squares);
    }
}

static void suspects_what_no_run_reports(void **state) {
    (void)state;
    static const float alike[] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f}; // with a sum that may be true
    static const float factors[] = {1e34f, 1e10f, 1e-12f, 0.0f};
    float memory[N_SHARES];
    strait_claims_level squares = {0};
    strait_claims_level loss = {0};
    for (int i = 0; i < 7; i++) {
        const strait_floats honest_squares = split(memory, honest_sums[2][i]);
        strait_claims_accept_squares(&squares, &honest_squares);
        strait_claims_accept_loss(&loss, honest_losses[i]);
    }
    for (int i = 0; i < 4; i++) {
        const strait_floats wrong = split(memory, factors[i]);
        assert_false(strait_claims_are_squares_plausible(&squares, &wrong));
    }
    assert_false(strait_claims_are_squares_plausible(&squares, &(strait_floats){alike, 5}));
    assert_false(strait_claims_is_loss_plausible(&loss, 2.0 * honest_losses[6]));
    assert_false(strait_claims_is_loss_plausible(&loss, 0.5 * honest_losses[6]));
    assert_false(strait_claims_is_loss_plausible(&loss, 0.0));
    assert_false(strait_claims_is_loss_plausible(&loss, 1e300));
    assert_false(strait_claims_is_valid_loss_plausible(&loss, &loss, 1.7 * honest_losses[6]));
    strait_claims_level jumped = loss;
    strait_claims_accept_loss(&jumped, honest_losses[7]); // training shows that it may be true
    assert_true(strait_claims_is_valid_loss_plausible(&loss, &jumped, 1.7 * honest_losses[6]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_every_field_that_a_worker_sends),
        cmocka_unit_test(accepts_what_honest_workers_report),
        cmocka_unit_test(finds_impossible_values),
        cmocka_unit_test(accepts_a_loss_from_the_last_stage_only),
        cmocka_unit_test(clamps_what_may_be_an_error),
        cmocka_unit_test(compares_values_with_recent_ones),
        cmocka_unit_test(believes_recorded_jumps_of_honest_runs),
        cmocka_unit_test(believes_parameters_without_gradients),
        cmocka_unit_test(suspects_what_no_run_reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
