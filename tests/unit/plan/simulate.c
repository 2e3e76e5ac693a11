/* Timelines computed by hand, with links that cost little or nothing. */
#include "base/alloc.h"
#include "rig.h"

static const strait_pipe_link free_link = {0};

static void check_span(const strait_simulate_span *s, strait_simulate_what what, int stage,
                       int microbatch, double start) {
    if (s->what != what || s->stage != stage || s->microbatch != microbatch || s->start_s != start)
        fail_msg("found %d of stage %d, microbatch %d at %g; expected %d, %d, %d at %g", s->what,
                 s->stage, s->microbatch, s->start_s, what, stage, microbatch, start);
}

/* stage 0   F0 F1 .. B0 B0 .. B1 B1        forward 1, backward 2
 * stage 1   .. F0 B0 B0 F1 B1 B1 ..        at times 0, 1, 2, ... */
static void matches_a_timeline_by_hand(void **state) {
    (void)state;
    rig r;
    rig_make(&r, 2, 2, (strait_pipe_stage){1, 1, 1, 0}, free_link);
    CHECK_OK(strait_schedule_windows(&r.pipe, STRAIT_SCHEDULE_1F1B, NULL, r.windows));
    strait_simulate_span spans[16], moves[16] = {0};
    const strait_simulate_params params = {STRAIT_SCHEDULE_1F1B, r.windows, 1, spans, 16};
    strait_simulate_result result;
    strait_simulate_stage stages[2];
    CHECK_OK(strait_simulate(&r.pipe, &params, stages, &result));
    CHECK(result.n_spans == 4 + 4 + 2 + 4); // forward, backward, update, crossings
    int n = 0;
    for (int i = 0; i < result.n_spans; i++)
        if (spans[i].what <= STRAIT_SIM_BACKWARD) moves[n++] = spans[i];
    CHECK(n == 8);
    check_span(&moves[0], STRAIT_SIM_FORWARD, 0, 0, 0);
    check_span(&moves[1], STRAIT_SIM_FORWARD, 0, 1, 1);
    check_span(&moves[2], STRAIT_SIM_FORWARD, 1, 0, 1);
    check_span(&moves[3], STRAIT_SIM_BACKWARD, 1, 0, 2);
    check_span(&moves[4], STRAIT_SIM_BACKWARD, 0, 0, 4);
    check_span(&moves[5], STRAIT_SIM_FORWARD, 1, 1, 4);
    check_span(&moves[6], STRAIT_SIM_BACKWARD, 1, 1, 5);
    check_span(&moves[7], STRAIT_SIM_BACKWARD, 0, 1, 7);
    CHECK_NEAR(result.seconds, 9, 0);
    CHECK_NEAR(result.tokens_per_s, 2.0 / 9, 1e-15);
    CHECK_NEAR(stages[0].bubble, 3.0 / 9, 1e-15);
    CHECK_NEAR(stages[1].bubble, 3.0 / 9, 1e-15);
    CHECK(stages[0].most_in_flight == 2 && stages[1].most_in_flight == 1);
}

static void bubble_of_fill_drain_and_1f1b(void **state) {
    (void)state;
    for (int s = 1; s <= 8; s++)
        for (int m = 1; m <= 20; m++) {
            rig r;
            rig_make(&r, s, m, (strait_pipe_stage){2, 3, 1, 0}, free_link);
            const double wanted = (double)(s - 1) / (m + s - 1);
            for (int k = STRAIT_SCHEDULE_FILL; k <= STRAIT_SCHEDULE_1F1B; k++) {
                const strait_schedule_kind kind = (strait_schedule_kind)k;
                CHECK_OK(strait_schedule_windows(&r.pipe, kind, NULL, r.windows));
                strait_simulate_stage stages[MOST_STAGES];
                const strait_simulate_result result = rig_run(&r, kind, stages);
                CHECK_NEAR(result.bubble, wanted, 1e-12);
                for (int i = 0; i < s; i++)
                    CHECK_NEAR(stages[i].bubble, wanted, 1e-12);
            }
        }
}

static void counts_slots_of_each_schedule(void **state) {
    (void)state;
    rig r;
    strait_simulate_stage stages[MOST_STAGES];
    rig_make(&r, 4, 10, (strait_pipe_stage){1, 1, 1, 0}, free_link);
    rig_seconds(&r, STRAIT_SCHEDULE_FILL);
    rig_run(&r, STRAIT_SCHEDULE_FILL, stages);
    for (int i = 0; i < 4; i++)
        CHECK(stages[i].most_in_flight == (i < 3 ? 10 : 1));
    rig_seconds(&r, STRAIT_SCHEDULE_1F1B);
    rig_run(&r, STRAIT_SCHEDULE_1F1B, stages);
    for (int i = 0; i < 4; i++)
        CHECK(stages[i].most_in_flight == 4 - i);
}

/* A stage that takes three times as long receives eight inputs, which are queued there. Over a wire
 * that takes ten times as long they are queued at the sender, including the one being sent. */
static void messages_queue_at_the_bottleneck(void **state) {
    (void)state;
    rig r;
    strait_simulate_stage stages[MOST_STAGES];
    rig_make(&r, 2, 8, (strait_pipe_stage){1, 1, 1, 0}, free_link);
    rig_seconds(&r, STRAIT_SCHEDULE_FILL);
    rig_run(&r, STRAIT_SCHEDULE_FILL, stages);
    CHECK(stages[0].most_out[0] == 0 && stages[0].most_in[0] == 0);
    CHECK(stages[1].most_in[0] == 5); // at 8 the last has arrived and the third is being computed
    CHECK(stages[1].most_messages == 5 && stages[1].most_in[1] == 0);
    CHECK(stages[0].most_in[1] == 2); // of 4 and 7: until 8 it goes forward
    r.links[0] = (strait_pipe_link){.forward_bytes = 10, .forward_bps = 8};
    rig_run(&r, STRAIT_SCHEDULE_FILL, stages);
    CHECK(stages[0].most_out[0] == 8 && stages[1].most_in[0] == 0);
}

/* The drain over S stages is shorter by the weight gradients of S - 1 of them. */
static void split_drains_faster(void **state) {
    (void)state;
    rig r;
    rig_make(&r, 4, 1, (strait_pipe_stage){1, 1, 1, 0}, free_link);
    CHECK_NEAR(rig_seconds(&r, STRAIT_SCHEDULE_1F1B), 12, 0);
    CHECK_NEAR(rig_seconds(&r, STRAIT_SCHEDULE_SPLIT), 9, 0);
    r.pipe.n_microbatches = 16;
    CHECK(rig_seconds(&r, STRAIT_SCHEDULE_SPLIT) < rig_seconds(&r, STRAIT_SCHEDULE_1F1B) - 1);
}

/* Stage 1 is done at 3 and updates until 8, stage 0 at 4 until 9; the clip holds stage 1 until 4.
 */
static void updates_wait_for_clipping(void **state) {
    (void)state;
    rig r;
    rig_make(&r, 2, 1, (strait_pipe_stage){1, 1, 0, 5}, free_link);
    CHECK_NEAR(rig_seconds(&r, STRAIT_SCHEDULE_1F1B), 9, 0);
    r.stages[0].update_s = 0;
    CHECK_NEAR(rig_seconds(&r, STRAIT_SCHEDULE_1F1B), 8, 0);
    r.pipe.clips = 1;
    CHECK_NEAR(rig_seconds(&r, STRAIT_SCHEDULE_1F1B), 9, 0);
    /* With 10 s of delay: forward at 1, back at 23 on stage 0; 3 s there and back for the norms. */
    r.links[0].delay_s = 10;
    CHECK_NEAR(rig_seconds(&r, STRAIT_SCHEDULE_1F1B), 24 + 5, 0);
    r.pipe.control_s = 3;
    CHECK_NEAR(rig_seconds(&r, STRAIT_SCHEDULE_1F1B), 24 + 6 + 5, 0);
}

/* A second step starts on stage 0 while stage 1 still updates. */
static void overlaps_consecutive_steps(void **state) {
    (void)state;
    rig r;
    rig_make(&r, 2, 3, (strait_pipe_stage){1, 1, 1, 0}, free_link);
    r.stages[1].update_s = 4; // from 10 to 14; stage 0 ends at 12 and its next forward at 13
    CHECK_NEAR(rig_seconds(&r, STRAIT_SCHEDULE_1F1B), 14, 0);
    strait_simulate_params params = {STRAIT_SCHEDULE_1F1B, r.windows, 2, NULL, 0};
    strait_simulate_result result;
    CHECK_OK(strait_simulate(&r.pipe, &params, NULL, &result));
    CHECK_NEAR(result.seconds, 13, 0); // 14 to 27
    params.n_steps = 6;
    CHECK_OK(strait_simulate(&r.pipe, &params, NULL, &result));
    CHECK_NEAR(result.seconds, 13, 1e-12);
    CHECK(result.n_spans == 6 * (6 + 6 + 2 + 6));
}

/* A device is never idle while a stage of it can compute, and slows nobody down who is alone. */
static void stages_on_one_device_share_it(void **state) {
    (void)state;
    static const int apart[] = {0, 1, 2, 3}, pairs[] = {0, 0, 2, 2};
    rig r;
    rig_make(&r, 4, 1, (strait_pipe_stage){1, 1, 1, 0}, free_link);
    r.pipe.at_once = 1;
    CHECK_NEAR(rig_seconds(&r, STRAIT_SCHEDULE_1F1B), 4 * 3, 1e-9);
    r.pipe.n_microbatches = 16;
    CHECK_NEAR(rig_seconds(&r, STRAIT_SCHEDULE_1F1B), 4 * 16 * 3, 1e-9);
    r.stages[2].forward_s = 5; // the slowest stage gets more than a quarter of the device
    CHECK_NEAR(rig_seconds(&r, STRAIT_SCHEDULE_1F1B), (3 * 3 + 7) * 16, 1e-9);
    r.pipe.devices = apart;
    const double shared = rig_seconds(&r, STRAIT_SCHEDULE_1F1B);
    r.pipe.at_once = 0;
    CHECK_NEAR(rig_seconds(&r, STRAIT_SCHEDULE_1F1B), shared, 0);
    /* The second device has 10 s for each microbatch. It begins after 2 forward passes and ends
     * before 2 backward passes. */
    r.pipe.at_once = 1;
    r.pipe.devices = pairs;
    const double paired = rig_seconds(&r, STRAIT_SCHEDULE_1F1B);
    CHECK(paired >= 10 * 16 + 2 + 4 && paired < 10 * 16 + 12);
}

static void speed_follows_the_number_of_busy_stages(void **state) {
    (void)state;
    rig r;
    rig_make(&r, 2, 2, (strait_pipe_stage){1, 0, 0, 0}, free_link);
    r.pipe.at_once = 1.5;
    r.windows[0] = 2;
    r.windows[1] = 1;
    /* 1 s alone, then both at 0.75 of their speed for 4/3 s, then 1 s alone. */
    CHECK_NEAR(rig_run(&r, STRAIT_SCHEDULE_FILL, NULL).seconds, 2 + 4.0 / 3.0, 1e-9);
}

static void rejects_invalid_numbers(void **state) {
    (void)state;
    rig r;
    strait_simulate_result result;
    rig_make(&r, 2, 2, (strait_pipe_stage){1, 1, 1, 0}, free_link);
    rig_seconds(&r, STRAIT_SCHEDULE_1F1B);
    strait_simulate_params params = {STRAIT_SCHEDULE_1F1B, r.windows, 0, NULL, 0};
    CHECK_FAILS(strait_simulate(&r.pipe, &params, NULL, &result), STRAIT_EINVAL, "0 steps");
    params.n_steps = 100000000;
    CHECK_FAILS(strait_simulate(&r.pipe, &params, NULL, &result), STRAIT_EINVAL, "fewer steps");
    params.n_steps = 1;
    r.stages[1].input_s = -1;
    CHECK_FAILS(strait_simulate(&r.pipe, &params, NULL, &result), STRAIT_EINVAL, "stage 1");
    r.stages[1].input_s = 1;
    r.links[0].delay_s = (double)NAN;
    CHECK_FAILS(strait_simulate(&r.pipe, &params, NULL, &result), STRAIT_EINVAL,
                "link of stages 0 and 1");
    r.links[0].delay_s = 0;
    r.pipe.at_once = -1;
    CHECK_FAILS(strait_simulate(&r.pipe, &params, NULL, &result), STRAIT_EINVAL, "share");
    r.pipe.at_once = 1;
    r.pipe.devices = (const int[]){0, 2};
    CHECK_FAILS(strait_simulate(&r.pipe, &params, NULL, &result), STRAIT_EINVAL,
                "stage 1: there is no device 2");
    r.pipe.devices = NULL;
    r.windows[1] = 0;
    CHECK_FAILS(strait_simulate(&r.pipe, &params, NULL, &result), STRAIT_EINVAL, "window of 0");
    r.pipe.n_stages = 0;
    CHECK_FAILS(strait_simulate(&r.pipe, &params, NULL, &result), STRAIT_EINVAL, "0 stages");
}

/* Seconds per step in a long run. */
static double long_run(rig *r, strait_schedule_kind kind, int staleness) {
    strait_simulate_result result;
    r->pipe.staleness = staleness;
    r->pipe.clips = 1;
    CHECK_OK(strait_window_fit(&r->pipe, kind, NULL, 0, r->windows));
    const strait_simulate_params params = {
        .kind = kind, .windows = r->windows, .n_steps = strait_pipe_steps(&r->pipe, 3)};
    CHECK_OK(strait_simulate(&r->pipe, &params, NULL, &result));
    return result.seconds;
}

/* With late updates only the work of a stage counts, as long as a step takes longer than half of
 * the way there and back. Otherwise two steps share one such way. */
static void late_updates_hide_the_drain(void **state) {
    (void)state;
    rig r;
    rig_make(&r, 4, 16, (strait_pipe_stage){1, 1, 1, 0}, (strait_pipe_link){.delay_s = 2});
    CHECK(long_run(&r, STRAIT_SCHEDULE_WINDOW, 0) > 16 * 3 + 6 * 2);
    CHECK_NEAR(long_run(&r, STRAIT_SCHEDULE_WINDOW, 1), 16 * 3, 0);
    rig_make(&r, 4, 2, (strait_pipe_stage){1, 1, 1, 0}, (strait_pipe_link){.delay_s = 1000});
    const double drained = long_run(&r, STRAIT_SCHEDULE_WINDOW, 0);
    CHECK_NEAR(drained, 6000, 30);
    CHECK_NEAR(long_run(&r, STRAIT_SCHEDULE_WINDOW, 1), drained / 2, 10);
    r.pipe.control_s = 500; // the norm goes to the coordinator and back
    CHECK_NEAR(long_run(&r, STRAIT_SCHEDULE_WINDOW, 1), drained / 2 + 500, 10);
}

/* The last stages need no late updates: their gradients are back before the next step arrives. */
static void last_stages_update_at_once_for_free(void **state) {
    (void)state;
    rig r;
    rig_make(&r, 4, 2, (strait_pipe_stage){1, 1, 1, 0}, (strait_pipe_link){.delay_s = 1000});
    const double late = long_run(&r, STRAIT_SCHEDULE_WINDOW, 1);
    r.pipe.n_prompt = 2; // 2,000 there and back, and a step takes 3,000
    CHECK_NEAR(long_run(&r, STRAIT_SCHEDULE_WINDOW, 1), late, 1);
    CHECK(r.windows[1] > 2 && r.windows[2] <= 2); // they hold microbatches of one step alone
    r.pipe.n_prompt = 3;
    CHECK_NEAR(long_run(&r, STRAIT_SCHEDULE_WINDOW, 1), 4000, 20);
    r.pipe.n_prompt = 4;
    const double drained = long_run(&r, STRAIT_SCHEDULE_WINDOW, 1);
    CHECK_NEAR(drained, long_run(&r, STRAIT_SCHEDULE_WINDOW, 0), 20);
}

static void late_updates_never_take_longer(void **state) {
    (void)state;
    dice d = {7, 0};
    for (int i = 0; i < 200; i++) {
        rig r;
        rig_make(&r, 2 + dice_roll(&d, 6), 1 + dice_roll(&d, 12), (strait_pipe_stage){0},
                 free_link);
        for (int k = 0; k < r.pipe.n_stages; k++) {
            r.stages[k] = (strait_pipe_stage){dice_real(&d), dice_real(&d), dice_real(&d),
                                              dice_real(&d) / 4};
            r.links[k] = (strait_pipe_link){.delay_s = 5 * dice_real(&d)};
        }
        const strait_schedule_kind kind = dice_roll(&d, 2) ? STRAIT_SCHEDULE_WINDOW
                                                           : STRAIT_SCHEDULE_SPLIT;
        const double drained = long_run(&r, kind, 0), late = long_run(&r, kind, 1);
        if (late > drained * 1.02)
            fail_msg("pipeline %d: %g s late, %g s drained", i, late, drained);
    }
}

static void survives_failing_allocations(void **state) {
    (void)state;
    rig r;
    strait_simulate_result result;
    rig_make(&r, 2, 2, (strait_pipe_stage){1, 1, 1, 0}, free_link);
    CHECK_OK(strait_schedule_windows(&r.pipe, STRAIT_SCHEDULE_WINDOW, NULL, r.windows));
    const strait_simulate_params params = {STRAIT_SCHEDULE_WINDOW, r.windows, 1, NULL, 0};
    for (int n = 1; n <= 4; n++) {
        strait_alloc_fail_at(n);
        CHECK_FAILS(strait_simulate(&r.pipe, &params, NULL, &result), STRAIT_ENOMEM, "simulation");
    }
    strait_alloc_fail_at(0);
    CHECK_OK(strait_simulate(&r.pipe, &params, NULL, &result));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_a_timeline_by_hand),
        cmocka_unit_test(bubble_of_fill_drain_and_1f1b),
        cmocka_unit_test(counts_slots_of_each_schedule),
        cmocka_unit_test(messages_queue_at_the_bottleneck),
        cmocka_unit_test(split_drains_faster),
        cmocka_unit_test(updates_wait_for_clipping),
        cmocka_unit_test(overlaps_consecutive_steps),
        cmocka_unit_test(stages_on_one_device_share_it),
        cmocka_unit_test(speed_follows_the_number_of_busy_stages),
        cmocka_unit_test(late_updates_hide_the_drain),
        cmocka_unit_test(last_stages_update_at_once_for_free),
        cmocka_unit_test(late_updates_never_take_longer),
        cmocka_unit_test(rejects_invalid_numbers),
        cmocka_unit_test(survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
