/* Lists of actions against lists written by hand, windows against the formula, and errors. */
#include "rig.h"

#include <stdio.h>

/* "F0 B0 I1 W1 .": the list of a stage as text. */
static const char *list(strait_schedule_kind kind, int n_stages, int stage, int n_microbatches,
                        int window) {
    static char text[512];
    strait_schedule_action actions[100];
    int n = 0, at = 0;
    const strait_schedule_spec spec = {kind, n_stages, stage, n_microbatches, window, 0, 0};
    CHECK_OK(strait_schedule_list(&spec, actions, 100, &n));
    for (int i = 0; i < n - 1; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%c%d ", "FBIW"[actions[i].kind],
                       actions[i].microbatch);
    CHECK(actions[n - 1].kind == STRAIT_ACTION_FINISH);
    snprintf(text + at, sizeof text - (size_t)at, ".");
    return text;
}

static void lists_match_those_by_hand(void **state) {
    (void)state;
    assert_string_equal(list(STRAIT_SCHEDULE_FILL, 2, 0, 3, 3), "F0 F1 F2 B0 B1 B2 .");
    assert_string_equal(list(STRAIT_SCHEDULE_FILL, 2, 1, 3, 1), "F0 B0 F1 B1 F2 B2 .");
    assert_string_equal(list(STRAIT_SCHEDULE_1F1B, 4, 0, 6, 4),
                        "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5 .");
    assert_string_equal(list(STRAIT_SCHEDULE_1F1B, 4, 2, 4, 2), "F0 F1 B0 F2 B1 F3 B2 B3 .");
    assert_string_equal(list(STRAIT_SCHEDULE_WINDOW, 2, 0, 4, 3), "F0 F1 F2 B0 F3 B1 B2 B3 .");
    assert_string_equal(list(STRAIT_SCHEDULE_SPLIT, 2, 0, 3, 2), "F0 F1 I0 W0 F2 I1 W1 I2 W2 .");
    /* The last stage waits for no gradients and defers weight gradients while it has slots. */
    assert_string_equal(list(STRAIT_SCHEDULE_SPLIT, 2, 1, 3, 1), "F0 I0 W0 F1 I1 W1 F2 I2 W2 .");
    assert_string_equal(list(STRAIT_SCHEDULE_SPLIT, 2, 1, 3, 2), "F0 I0 F1 I1 W0 F2 I2 W1 W2 .");
}

static void single_stage_alternates(void **state) {
    (void)state;
    for (strait_schedule_kind k = STRAIT_SCHEDULE_FILL; k <= STRAIT_SCHEDULE_SPLIT; k++)
        assert_string_equal(list(k, 1, 0, 3, 3), "F0 B0 F1 B1 F2 B2 .");
}

static void computes_before_it_waits(void **state) {
    (void)state;
    const strait_schedule_spec spec = {STRAIT_SCHEDULE_SPLIT, 3, 1, 8, 3, 0, 0};
    strait_schedule_state s = {.n_inputs = 3, .n_gradients = 1, .n_forward = 2};
    CHECK(strait_schedule_next(&spec, &s).kind == STRAIT_ACTION_INPUT);
    s.n_backward = 1;
    CHECK(strait_schedule_next(&spec, &s).kind == STRAIT_ACTION_FORWARD);
    CHECK(strait_schedule_next(&spec, &s).microbatch == 2);
    s.n_forward = 3; // no slot is free
    s.n_inputs = 4;
    CHECK(strait_schedule_next(&spec, &s).kind == STRAIT_ACTION_WEIGHTS);
    s.n_weights = 1; // one slot is free, for microbatch 3
    CHECK(strait_schedule_next(&spec, &s).kind == STRAIT_ACTION_FORWARD);
    CHECK(strait_schedule_slot(&spec, 3) == strait_schedule_slot(&spec, 0));
    s.n_forward = 4;
    CHECK(strait_schedule_next(&spec, &s).kind == STRAIT_ACTION_WAIT);
}

/* Lets a stage compute until it waits, and returns for which neighbour. */
static int awaited(strait_schedule_kind kind, int stage, int n_inputs, int n_gradients) {
    const strait_schedule_spec spec = {
        kind, 3, stage, 8, kind == STRAIT_SCHEDULE_FILL && stage < 2 ? 8 : 2, 0, 0};
    strait_schedule_state s = {.n_inputs = n_inputs};
    strait_schedule_action action = {STRAIT_ACTION_FORWARD, 0};
    while (action.kind != STRAIT_ACTION_WAIT) {
        s.n_gradients = n_gradients < s.n_forward ? n_gradients : s.n_forward;
        action = strait_schedule_next(&spec, &s);
        strait_schedule_done(&s, action);
    }
    return strait_schedule_awaited(&spec, &s);
}

/* The last of three stages, whose windows are full, returns no gradient, or the first sends no
 * input: in both cases everybody waits towards it. */
static void awaits_the_stage_that_owes_something(void **state) {
    (void)state;
    for (strait_schedule_kind k = STRAIT_SCHEDULE_1F1B; k <= STRAIT_SCHEDULE_SPLIT; k++) {
        assert_int_equal(awaited(k, 0, 8, 0), 1);
        assert_int_equal(awaited(k, 1, 2, 0), 1);
        assert_int_equal(awaited(k, 1, 3, 1), 1);
        assert_int_equal(awaited(k, 1, 2, 2), -1);
        assert_int_equal(awaited(k, 1, 0, 0), -1);
        assert_int_equal(awaited(k, 2, 2, 0), -1);
    }
    /* Gradients come only after all inputs. */
    assert_int_equal(awaited(STRAIT_SCHEDULE_FILL, 1, 2, 0), -1);
    assert_int_equal(awaited(STRAIT_SCHEDULE_FILL, 1, 8, 0), 1);
    assert_int_equal(awaited(STRAIT_SCHEDULE_FILL, 2, 7, 0), -1);
}

static void leading_counts_without_gaps(void **state) {
    (void)state;
    const unsigned char arrived[] = {1, 1, 0, 1};
    CHECK(strait_schedule_leading(arrived, 0, 4) == 2);
    CHECK(strait_schedule_leading(arrived, 3, 4) == 4);
}

/* Late updates: two microbatches per step, of which 2 and 3 belong to the next one. */
static void next_step_begins_where_a_stage_would_wait(void **state) {
    (void)state;
    strait_schedule_spec spec = {STRAIT_SCHEDULE_SPLIT, 3, 0, 2, 4, 0, 0};
    strait_schedule_state s = {.n_gradients = 1, .n_forward = 2};
    s.n_backward = 1;
    CHECK(strait_schedule_next(&spec, &s).kind == STRAIT_ACTION_WEIGHTS);
    s.n_weights = 1;
    CHECK(strait_schedule_next(&spec, &s).kind == STRAIT_ACTION_WAIT);
    spec.n_ahead = 2;
    const strait_schedule_action ahead = strait_schedule_next(&spec, &s);
    CHECK(ahead.kind == STRAIT_ACTION_FORWARD && ahead.microbatch == 2);
    s.n_weights = 0; // what this step still has to do comes first
    CHECK(strait_schedule_next(&spec, &s).kind == STRAIT_ACTION_WEIGHTS);
    s.n_weights = 1;
    s.n_forward = 4;
    CHECK(strait_schedule_next(&spec, &s).kind == STRAIT_ACTION_WAIT);
    s.n_gradients = 2;
    CHECK(strait_schedule_next(&spec, &s).kind == STRAIT_ACTION_INPUT);
    s.n_backward = s.n_weights = 2;
    CHECK(strait_schedule_next(&spec, &s).kind == STRAIT_ACTION_FINISH);
    /* Slots go on from step to step: microbatch 2 is the first of the next one. */
    spec.window = 3;
    CHECK(strait_schedule_slot(&spec, 2) == 2);
    spec.first = 2;
    CHECK(strait_schedule_slot(&spec, 0) == 2 && strait_schedule_slot(&spec, 1) == 0);
}

static void rejects_wrong_specs(void **state) {
    (void)state;
    strait_schedule_spec spec = {STRAIT_SCHEDULE_1F1B, 2, 2, 4, 1, 0, 0};
    CHECK_FAILS(strait_schedule_check(&spec), STRAIT_EINVAL, "stage 2 of 2");
    spec.stage = 0;
    spec.n_microbatches = 0;
    CHECK_FAILS(strait_schedule_check(&spec), STRAIT_EINVAL, "0 microbatches");
    spec.n_microbatches = 4;
    spec.window = 0;
    CHECK_FAILS(strait_schedule_check(&spec), STRAIT_EINVAL, "1f1b needs at least 1");
    spec.kind = STRAIT_SCHEDULE_FILL;
    spec.window = 3;
    CHECK_FAILS(strait_schedule_check(&spec), STRAIT_EINVAL, "fill-drain needs at least 4");
    spec.window = 4;
    strait_schedule_action actions[8];
    int n;
    CHECK_FAILS(strait_schedule_list(&spec, actions, 8, &n), STRAIT_EINVAL, "too short");
}

/* With passes of c seconds each: (stages ahead) (1 + R / 2c), and one for the stage itself, plus
 * half a slot for each link with a delay. */
static void windows_follow_the_delay(void **state) {
    (void)state;
    rig r;
    const strait_pipe_stage stage = {.forward_s = 0.1, .input_s = 0.05, .weights_s = 0.05};
    rig_make(&r, 4, 100, stage, (strait_pipe_link){0});
    CHECK_OK(strait_schedule_windows(&r.pipe, STRAIT_SCHEDULE_WINDOW, NULL, r.windows));
    for (int i = 0; i < 4; i++)
        CHECK(r.windows[i] == 4 - i);
    rig_make(&r, 4, 100, stage, (strait_pipe_link){.delay_s = 0.2}); // R / 2c = 2
    CHECK_OK(strait_schedule_windows(&r.pipe, STRAIT_SCHEDULE_WINDOW, NULL, r.windows));
    const int wanted[] = {12, 8, 5, 1}; // 1 + 3 ahead + ceil(ahead / 2)
    for (int i = 0; i < 4; i++)
        CHECK(r.windows[i] == wanted[i]);
    r.pipe.n_microbatches = 6;
    CHECK_OK(strait_schedule_windows(&r.pipe, STRAIT_SCHEDULE_SPLIT, NULL, r.windows));
    CHECK(r.windows[0] == 6 && r.windows[1] == 6 && r.windows[2] == 5 && r.windows[3] == 1);
    r.pipe.n_microbatches = 3;
    CHECK_OK(strait_schedule_windows(&r.pipe, STRAIT_SCHEDULE_1F1B, NULL, r.windows));
    CHECK(r.windows[0] == 3 && r.windows[1] == 3 && r.windows[2] == 2 && r.windows[3] == 1);
}

static void windows_fit_into_memory(void **state) {
    (void)state;
    rig r;
    rig_make(&r, 3, 50, (strait_pipe_stage){1, 1, 1, 0}, (strait_pipe_link){.delay_s = 9});
    const int caps[] = {4, 100, 2};
    CHECK_OK(strait_schedule_windows(&r.pipe, STRAIT_SCHEDULE_WINDOW, caps, r.windows));
    CHECK(r.windows[0] == 4 && r.windows[1] == 4 && r.windows[2] == 1);
    CHECK_FAILS(strait_schedule_windows(&r.pipe, STRAIT_SCHEDULE_FILL, caps, r.windows),
                STRAIT_ECONFIG,
                "keeps 50 microbatches on stage 0, but only 4 fit into memory: use 1f1b");
    const int none[] = {4, 0, 2};
    CHECK_FAILS(strait_schedule_windows(&r.pipe, STRAIT_SCHEDULE_1F1B, none, r.windows),
                STRAIT_ECONFIG, "stage 1: its memory does not hold one microbatch");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_match_those_by_hand),
        cmocka_unit_test(single_stage_alternates),
        cmocka_unit_test(computes_before_it_waits),
        cmocka_unit_test(awaits_the_stage_that_owes_something),
        cmocka_unit_test(leading_counts_without_gaps),
        cmocka_unit_test(next_step_begins_where_a_stage_would_wait),
        cmocka_unit_test(rejects_wrong_specs),
        cmocka_unit_test(windows_follow_the_delay),
        cmocka_unit_test(windows_fit_into_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
