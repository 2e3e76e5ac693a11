/* Who computes how many groups: given speeds, measured ones, and noise. */
#include "train/shares.h"

#include "check.h"
#include "train/report/step_details.h"

static int count(const strait_group_owners *owners, int replica) {
    int n = 0;
    for (int i = 0; i < 8; i++)
        n += owners->replica[i] == replica;
    return n;
}

static void follows_speeds_but_not_noise(void **state) {
    (void)state;
    static strait_run run;
    static strait_run_plan plan;
    strait_group_owners out[2];
    plan = (strait_run_plan){.n_stages = 2,
                             .replicas = {1, 2},
                             .n_members = 3,
                             .groups = strait_groups_make(8, 8, 2),
                             .sums_pairwise = 1};
    const strait_step_times noisy[] = {{.forward = 9}, {.forward = 1.0}, {.forward = 1.3}};
    const strait_step_times uneven[] = {{.forward = 9}, {.forward = 1.0}, {.forward = 3.0}};
    strait_shares_choose(&run, &plan, NULL, out);
    CHECK(count(&out[0], 0) == 8 && count(&out[1], 0) == 4);
    strait_shares_choose(&run, &plan, noisy, out);
    CHECK(count(&out[1], 0) == 4);
    strait_shares_choose(&run, &plan, uneven, out);
    CHECK(count(&out[1], 0) == 6 && count(&out[1], 1) == 2);
    plan.sums_pairwise = 0; // shares would change the result, and measurements are never the same
    strait_shares_choose(&run, &plan, uneven, out);
    CHECK(count(&out[1], 0) == 4);
    run.stages.speeds = (strait_option_ints){{1, 1, 7}, 3};
    strait_shares_choose(&run, &plan, uneven, out);
    CHECK(count(&out[1], 0) == 1 && count(&out[1], 1) == 7);
}

/* Only the stage with replicas takes long after its last microbatch. */
static void names_sums_of_replicas_as_the_limit(void **state) {
    (void)state;
    static strait_run_plan plan;
    plan = (strait_run_plan){.n_stages = 3, .replicas = {1, 2, 1}, .n_members = 4};
    const strait_step_times times[] = {{.wall = 0.2}, {.wall = 1.0}, {.wall = 0.1}};
    const strait_simulate_span spans[] = {{.end_s = 0.3}};
    strait_step_measure measure = {.times = times, .knows_links = 1};
    strait_step_limit limit = {.name = "compute", .n_spans = 1};
    strait_step_details_reduction(&plan, &measure, spans, &limit);
    CHECK_NEAR(limit.reduction_s, 0.7, 1e-12);
    assert_string_equal(limit.name, "reduction");
    assert_int_equal(limit.where, 1);
    /* Links that are not emulated: what other stages do not need is due to the sums. */
    measure.knows_links = 0;
    limit = (strait_step_limit){.name = "links", .where = -1, .links_s = 0.9, .n_spans = 1};
    strait_step_details_reduction(&plan, &measure, spans, &limit);
    CHECK_NEAR(limit.reduction_s, 0.8, 1e-12);
    CHECK_NEAR(limit.links_s, 0.1, 1e-12);
    assert_string_equal(limit.name, "reduction");
    /* Something else outweighs it; without replicas there is none. */
    limit = (strait_step_limit){.name = "compute", .seconds = {0.85}, .n_spans = 1};
    strait_step_details_reduction(&plan, &measure, spans, &limit);
    assert_string_equal(limit.name, "compute");
    plan.replicas[1] = 1;
    limit = (strait_step_limit){.name = "bubble"};
    strait_step_details_reduction(&plan, &measure, spans, &limit);
    assert_string_equal(limit.name, "bubble");
    CHECK(limit.reduction_s == 0.0);
}

/* Where crossing takes longer than computing, the homes decide. */
static void follows_the_rates_of_homes(void **state) {
    (void)state;
    static const char text[] = "model: {width: 32, layers: 3, heads: 2, context: 16, vocab: 64}\n"
                               "train: {batch_tokens: 128}\n"
                               "stages: {count: 3, microbatch: 1, replicas: [1, 2, 1]}\n"
                               "link: {emulate: {up: [0, 3mbit, 1mbit, 0]}}\n";
    static strait_run run;
    static strait_run_plan plan;
    strait_group_owners out[3];
    CHECK_OK(strait_run_init_text("r.yaml", text, sizeof text - 1, NULL, 0, &run));
    CHECK_OK(strait_run_plan_init(&run, 64, &plan));
    const strait_step_times quick[] = {
        {.forward = 1e-4}, {.forward = 5e-4}, {.forward = 1e-4}, {.forward = 1e-4}};
    strait_shares_choose(&run, &plan, quick, out);
    CHECK(count(&out[1], 0) == 6 && count(&out[1], 1) == 2);
    const strait_step_times slow[] = {
        {.forward = 1}, {.forward = 3}, {.forward = 1}, {.forward = 1}};
    strait_shares_choose(&run, &plan, slow, out);
    CHECK(count(&out[1], 0) == 2 && count(&out[1], 1) == 6);
}

static void means_divide_among_replicas(void **state) {
    (void)state;
    const strait_step_times times[] = {{.forward = 1, .wall = 4}, {.forward = 3, .wall = 8}};
    CHECK(strait_shares_mean(times, 2, 1).forward == 2.0);
    CHECK(strait_shares_mean(times, 2, 2).forward == 1.0);
    CHECK(strait_shares_mean(times, 2, 1).wall == 6.0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_speeds_but_not_noise),
        cmocka_unit_test(names_sums_of_replicas_as_the_limit),
        cmocka_unit_test(follows_the_rates_of_homes),
        cmocka_unit_test(means_divide_among_replicas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
