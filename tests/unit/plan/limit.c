/* Finds the limit of pipelines that each have one clear bottleneck. */
#include "plan/limit.h"

#include "rig.h"

static strait_limit limit_of(rig *r, strait_schedule_kind kind) {
    CHECK_OK(strait_schedule_windows(&r->pipe, kind, NULL, r->windows));
    const strait_simulate_params params = {.kind = kind, .windows = r->windows, .n_steps = 1};
    strait_limit limit;
    CHECK_OK(strait_limit_find(&r->pipe, &params, &limit));
    return limit;
}

static void finds_each_limit(void **state) {
    (void)state;
    rig r;
    const strait_pipe_link light = {1000, 1000, 80e6, 80e6, 1e-4, 1e-4};
    rig_make(&r, 4, 100, (strait_pipe_stage){0.1, 0.1, 0.1, 0}, light);
    r.stages[2].forward_s = 0.15;
    strait_limit l = limit_of(&r, STRAIT_SCHEDULE_WINDOW);
    CHECK(l.kind == STRAIT_LIMIT_COMPUTE && l.where == 2);
    CHECK_NEAR(l.saved[STRAIT_LIMIT_COMPUTE], 35, 0.5); // 100 times 0.35

    r.links[1].forward_bytes = 10e6; // 1 s at 80 Mb/s
    l = limit_of(&r, STRAIT_SCHEDULE_WINDOW);
    CHECK(l.kind == STRAIT_LIMIT_SERIALISATION && l.where == 1);
    CHECK(l.saved[STRAIT_LIMIT_SERIALISATION] > 60 && l.saved[STRAIT_LIMIT_COMPUTE] < 5);

    rig_make(&r, 4, 100, (strait_pipe_stage){0.01, 0.01, 0.01, 0}, light);
    r.links[2].delay_s = 0.3;
    l = limit_of(&r, STRAIT_SCHEDULE_1F1B);
    CHECK(l.kind == STRAIT_LIMIT_PROPAGATION && l.where == 2);

    rig_make(&r, 4, 100, (strait_pipe_stage){0.01, 0.01, 0.01, 0}, light);
    r.links[0].codec_s = 0.1;
    l = limit_of(&r, STRAIT_SCHEDULE_WINDOW);
    CHECK(l.kind == STRAIT_LIMIT_CODEC && l.where == 0);

    rig_make(&r, 8, 2, (strait_pipe_stage){1, 1, 1, 0}, light);
    l = limit_of(&r, STRAIT_SCHEDULE_1F1B);
    CHECK(l.kind == STRAIT_LIMIT_BUBBLE && l.where == -1);
    CHECK_NEAR(l.saved[STRAIT_LIMIT_BUBBLE], 7 * 3, 0.1);
    CHECK_NEAR(l.saved[STRAIT_LIMIT_COMPUTE], 2 * 3, 0.1);
    assert_string_equal(strait_limit_name(l.kind), "bubble");
}

static void single_stage_is_limited_by_compute(void **state) {
    (void)state;
    rig r;
    rig_make(&r, 1, 4, (strait_pipe_stage){1, 1, 1, 2}, (strait_pipe_link){0});
    r.pipe.links = NULL;
    const strait_limit l = limit_of(&r, STRAIT_SCHEDULE_1F1B);
    CHECK(l.kind == STRAIT_LIMIT_COMPUTE && l.where == 0);
    CHECK_NEAR(l.saved[STRAIT_LIMIT_COMPUTE], 14, 1e-12);
    CHECK_NEAR(l.saved[STRAIT_LIMIT_BUBBLE], 0, 1e-12);
}

static void wire_is_off_the_path_up_to_three_percent(void **state) {
    (void)state;
    CHECK(strait_limit_is_off_path(1.0, 1.0));
    CHECK(strait_limit_is_off_path(1.03, 1.0));
    CHECK(!strait_limit_is_off_path(1.0300001, 1.0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_each_limit),
        cmocka_unit_test(single_stage_is_limited_by_compute),
        cmocka_unit_test(wire_is_off_the_path_up_to_three_percent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
