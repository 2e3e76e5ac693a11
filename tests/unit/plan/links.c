/* Links with costs: delay, serialisation, shared wires, the published meter, and properties of any
 * pipeline. */
#include "rig.h"

static void times_both_passes_of_one_microbatch(void **state) {
    (void)state;
    rig r;
    /* 1 s of bits forward, 2 s backward, 0.25 s of delay, codecs of 0.125 s at each end. */
    const strait_pipe_link link = {.forward_bytes = 1,
                                   .backward_bytes = 1,
                                   .forward_bps = 8,
                                   .backward_bps = 4,
                                   .delay_s = 0.25,
                                   .codec_s = 0.125};
    rig_make(&r, 3, 1, (strait_pipe_stage){1, 2, 4, 0}, link);
    const double compute = 3 * (1 + 2 + 4), wires = 2 * (1 + 2 + 2 * 0.25), codecs = 8 * 0.125;
    CHECK_NEAR(rig_seconds(&r, STRAIT_SCHEDULE_FILL), compute + wires + codecs, 0);
    CHECK_NEAR(rig_seconds(&r, STRAIT_SCHEDULE_SPLIT), compute + wires + codecs - 2 * 4, 0);
}

/* Messages are serialised one after another and their delays overlap: M seconds, then one delay. */
static void bits_queue_and_delays_overlap(void **state) {
    (void)state;
    rig r;
    const strait_pipe_link link = {.forward_bytes = 1, .forward_bps = 8, .delay_s = 5};
    rig_make(&r, 2, 10, (strait_pipe_stage){0}, link);
    CHECK_NEAR(rig_seconds(&r, STRAIT_SCHEDULE_FILL), 10 * 1 + 5 + 5, 0);
    r.pipe.wire =
        STRAIT_WIRE_METER; // each waits until the previous one has arrived; 50 s of gradients
    CHECK_NEAR(rig_seconds(&r, STRAIT_SCHEDULE_FILL), 10 * (1 + 5) + 5, 0);
}

static void measured_window_hides_the_delay(void **state) {
    (void)state;
    rig r;
    const strait_pipe_stage stage = {.forward_s = 0.02, .input_s = 0.02, .weights_s = 0.02};
    rig_make(&r, 4, 400, stage, (strait_pipe_link){.delay_s = 0});
    const double near = rig_seconds(&r, STRAIT_SCHEDULE_WINDOW);
    rig_make(&r, 4, 400, stage, (strait_pipe_link){.delay_s = 0.1});
    const double plain = rig_seconds(&r, STRAIT_SCHEDULE_1F1B);
    const double measured = rig_seconds(&r, STRAIT_SCHEDULE_WINDOW);
    const int slots = r.windows[0];
    const double split = rig_seconds(&r, STRAIT_SCHEDULE_SPLIT);
    print_message("100 ms each way, 4 stages, 400 microbatches of 60 ms, against 0 ms: 1f1b %.3f, "
                  "1f1b-window (%d slots) %.3f, 1f1b-split %.3f\n",
                  near / plain, slots, near / measured, near / split);
    CHECK(near / measured >= 0.97 && near / plain < 0.4);
    CHECK(split < measured);
}

static void fitted_windows_are_wide_enough(void **state) {
    (void)state;
    dice d = {.seed = 3};
    for (int trial = 0; trial < 20; trial++) {
        rig r;
        rig_make(&r, 2 + dice_roll(&d, 6), 60, (strait_pipe_stage){0}, (strait_pipe_link){0});
        int widest[MOST_STAGES];
        for (int i = 0; i < r.pipe.n_stages; i++) {
            r.stages[i] = (strait_pipe_stage){0.01 + 0.02 * dice_real(&d), 0.02, 0.01, 0};
            r.links[i].delay_s = 0.05 * dice_real(&d);
            widest[i] = 60;
        }
        const strait_schedule_kind kind = trial % 2 ? STRAIT_SCHEDULE_WINDOW
                                                    : STRAIT_SCHEDULE_SPLIT;
        CHECK_OK(strait_window_fit(&r.pipe, kind, NULL, 0.02, r.windows));
        const double fitted = rig_run(&r, kind, NULL).seconds;
        const strait_simulate_params params = {.kind = kind, .windows = widest, .n_steps = 1};
        strait_simulate_result best;
        CHECK_OK(strait_simulate(&r.pipe, &params, NULL, &best));
        CHECK(fitted <= best.seconds * 1.02 + 1e-12);
        const int caps[] = {5, 5, 5, 5, 5, 5, 5, 5};
        CHECK_OK(strait_window_fit(&r.pipe, kind, caps, 0.02, r.windows));
        for (int i = 0; i < r.pipe.n_stages; i++)
            CHECK(r.windows[i] >= 1 && r.windows[i] <= 5);
    }
}

/* 524,288 tokens per step over 8 stages at 200 Mb/s + 50 ms on the meter, with compute that takes
 * no time. */
static double yardstick(rig *r, int n_microbatches, double bytes_per_token) {
    const double bytes = 524288.0 / n_microbatches * bytes_per_token;
    rig_make(r, 8, n_microbatches, (strait_pipe_stage){0},
             (strait_pipe_link){bytes, bytes, 200e6, 200e6, 0.05, 0});
    r->pipe.wire = STRAIT_WIRE_METER;
    return rig_seconds(r, STRAIT_SCHEDULE_1F1B);
}

static void reproduces_the_published_meter(void **state) {
    (void)state;
    rig r;
    for (int m = 16; m <= 256; m *= 2)
        print_message("meter, 1f1b, %3d microbatches: dense %.3f s, k=160 %.3f s\n", m,
                      yardstick(&r, m, 2048), yardstick(&r, m, 322));
    /* Published: 100.475 s dense, 19.889 s at 644 bytes per token for the round trip. */
    CHECK_NEAR(yardstick(&r, 64, 2048), 100.475, 0.01 * 100.475);
    CHECK_NEAR(yardstick(&r, 32, 322), 19.889, 0.01 * 19.889);
}

enum {
    MOST_SPANS = 4096
};

static const strait_simulate_span *find(const strait_simulate_span *spans, int n,
                                        strait_simulate_what what, int stage, int microbatch) {
    const strait_simulate_span *found = NULL;
    for (int i = 0; i < n; i++)
        if (spans[i].what == what && spans[i].stage == stage && spans[i].microbatch == microbatch) {
            CHECK(found == NULL); // each once
            found = &spans[i];
        }
    return found;
}

static strait_simulate_span get(const strait_simulate_span *spans, int n, strait_simulate_what what,
                                int stage, int microbatch) {
    const strait_simulate_span *found = find(spans, n, what, stage, microbatch);
    assert_non_null(found);
    return *found;
}

/* The backward pass, or the part of a split one that computes the gradient of the input. */
static strait_simulate_span get_backward(const strait_simulate_span *spans, int n, int stage,
                                         int microbatch) {
    const int is_whole = find(spans, n, STRAIT_SIM_BACKWARD, stage, microbatch) != NULL;
    return get(spans, n, is_whole ? STRAIT_SIM_BACKWARD : STRAIT_SIM_INPUT, stage, microbatch);
}

static void check_microbatch(const rig *r, const strait_simulate_span *spans, int n, int m) {
    for (int i = 0; i < r->pipe.n_stages; i++) {
        const strait_simulate_span forward = get(spans, n, STRAIT_SIM_FORWARD, i, m);
        const strait_simulate_span back = get_backward(spans, n, i, m);
        CHECK(back.start_s >= forward.end_s);
        if (back.what == STRAIT_SIM_INPUT)
            CHECK(get(spans, n, STRAIT_SIM_WEIGHTS, i, m).start_s >= back.end_s);
        if (i == 0) continue;
        const strait_simulate_span in = get(spans, n, STRAIT_SIM_ACTIVATION, i - 1, m);
        CHECK(in.start_s >= get(spans, n, STRAIT_SIM_FORWARD, i - 1, m).end_s);
        CHECK(forward.start_s >= in.end_s);
        CHECK(get(spans, n, STRAIT_SIM_GRADIENT, i, m).start_s >= back.end_s);
    }
}

/* A stage computes one action at a time, and no activation is sent while a gradient is queued for
 * the same wire. */
static void check_pairs(const rig *r, const strait_simulate_span *spans, int n) {
    for (int i = 0; i < n; i++)
        for (int k = i + 1; k < n; k++) {
            const strait_simulate_span *a = &spans[i], *b = &spans[k];
            CHECK(a->start_s <= b->start_s);
            if (a->stage != b->stage) continue;
            if (a->what <= STRAIT_SIM_UPDATE && b->what <= STRAIT_SIM_UPDATE)
                CHECK(b->start_s >= a->end_s);
            if (r->pipe.wire != STRAIT_WIRE_UPLINK || a->what != STRAIT_SIM_ACTIVATION ||
                b->what != STRAIT_SIM_GRADIENT)
                continue;
            CHECK(get_backward(spans, n, b->stage, b->microbatch).end_s >= a->start_s);
        }
}

static void properties_hold_for_random_pipelines(void **state) {
    (void)state;
    static strait_simulate_span spans[MOST_SPANS];
    dice d = {.seed = 11};
    for (int trial = 0; trial < 200; trial++) {
        rig r;
        rig_make(&r, 1 + dice_roll(&d, 6), 1 + dice_roll(&d, 12), (strait_pipe_stage){0},
                 (strait_pipe_link){0});
        r.pipe.wire = (strait_pipe_wire)dice_roll(&d, 3);
        r.pipe.clips = dice_roll(&d, 2);
        double least = 0;
        for (int i = 0; i < r.pipe.n_stages; i++) {
            r.stages[i] = (strait_pipe_stage){dice_roll(&d, 4), dice_real(&d), dice_real(&d),
                                              dice_roll(&d, 2)};
            r.links[i] = (strait_pipe_link){dice_roll(&d, 3),
                                            dice_roll(&d, 3),
                                            dice_roll(&d, 10),
                                            dice_roll(&d, 10),
                                            dice_roll(&d, 3) * dice_real(&d),
                                            0};
            const double work = strait_pipe_work_s(&r.pipe, i) * r.pipe.n_microbatches;
            if (work > least) least = work;
        }
        const strait_schedule_kind kind = (strait_schedule_kind)dice_roll(&d, 4);
        CHECK_OK(strait_schedule_windows(&r.pipe, kind, NULL, r.windows));
        const strait_simulate_params params = {kind, r.windows, 1, spans, MOST_SPANS};
        strait_simulate_result result;
        strait_simulate_stage stages[MOST_STAGES];
        CHECK_OK(strait_simulate(&r.pipe, &params, stages, &result));
        CHECK(result.n_spans <= MOST_SPANS && result.seconds >= least - 1e-9);
        for (int m = 0; m < r.pipe.n_microbatches; m++)
            check_microbatch(&r, spans, result.n_spans, m);
        check_pairs(&r, spans, result.n_spans);
        for (int i = 0; i < r.pipe.n_stages; i++)
            CHECK(stages[i].most_in_flight <= r.windows[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_both_passes_of_one_microbatch),
        cmocka_unit_test(bits_queue_and_delays_overlap),
        cmocka_unit_test(measured_window_hides_the_delay),
        cmocka_unit_test(fitted_windows_are_wide_enough),
        cmocka_unit_test(reproduces_the_published_meter),
        cmocka_unit_test(properties_hold_for_random_pipelines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
