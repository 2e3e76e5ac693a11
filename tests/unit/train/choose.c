/* Tests link.codec.name auto: which runs have it, what it chooses, and that the same by hand is the
 * same run. */
#include "train/outlook/choose.h"

#include "base/alloc.h"
#include "check.h"
#include "config/run_auto.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static const char text[] = "model: {width: 256, layers: 8, heads: 4, context: 64, vocab: 2048}\n"
                           "train: {batch_tokens: 4096, optimizer: muon}\n"
                           "stages: {count: 4, microbatch: 2}\n";
static const strait_choose_params fast = {.flops_per_s = 2e10};

static strait_run run;
static strait_choice choice;

/* Loads the run with up to four overrides; the first NULL ends them. */
static strait_err load(const char *a, const char *b, const char *c, const char *d) {
    const char *sets[] = {a, b, c, d};
    int n = 0;
    while (n < 4 && sets[n] != NULL)
        n++;
    return strait_run_init_text("r.yaml", text, sizeof text - 1, sets, n, &run);
}

static void choose(const strait_choose_params *params) {
    CHECK_OK(strait_choose_codec(&run, params, &choice));
}

static void runs_without_rates_or_with_a_codec_do_not_choose(void **state) {
    (void)state;
    CHECK_OK(load(NULL, NULL, NULL, NULL));
    assert_string_equal(run.link.codec.name, "none");
    CHECK_OK(load("stages.count=1", "link.emulate.rate=1mbit", NULL, NULL));
    assert_string_equal(run.link.codec.name, "none");
    CHECK_OK(load("link.emulate.rate=1mbit", "link.codec.variant=fp32", NULL, NULL));
    assert_string_equal(run.link.codec.name, "none");
    CHECK_OK(load("link.emulate.rate=1mbit", "link.codec.name=int8", NULL, NULL));
    assert_string_equal(run.link.codec.name, "int8");
    CHECK_OK(load("link.emulate.rate=1mbit", NULL, NULL, NULL));
    CHECK(strait_run_is_auto(&run));
    CHECK_OK(load("link.emulate.up=0,0,3mbit,0", NULL, NULL, NULL));
    CHECK(strait_run_is_auto(&run));
    CHECK_FAILS(load("link.codec.name=auto", "link.codec.keep=8", NULL, NULL), STRAIT_ECONFIG,
                "link.codec.keep: link.codec.name auto chooses the codec");
}

static void without_limits_boundaries_are_exact(void **state) {
    (void)state;
    CHECK_OK(load("link.codec.name=auto", NULL, NULL, NULL));
    choose(&fast);
    assert_string_equal(run.link.codec.name, "none");
    assert_string_equal(run.link.codec.variant, "fp32");
    CHECK(!choice.has_limits && run.link.codec.chosen_for[0] == '\0');
    CHECK_OK(load("link.codec.name=auto", "device.precision=bf16", NULL, NULL));
    choose(&fast);
    assert_string_equal(run.link.codec.variant, "");
}

/* Every code is chosen at some rate, and a slower link never gets a wider one. */
static void slower_links_never_get_wider_codes(void **state) {
    (void)state;
    double last = INFINITY, narrowest = 0.0;
    int n_codes = 0;
    for (int i = 0; i < 42; i++) {
        char rate[64];
        (void)snprintf(rate, sizeof rate, "link.emulate.rate=%.0fbit", 1e9 * pow(1.3, -i));
        CHECK_OK(load(rate, "link.emulate.delay=25ms", NULL, NULL));
        choose(&fast);
        CHECK(choice.bytes_per_token <= last);
        CHECK(choice.is_too_slow || choice.seconds <= 1.03 * choice.infinite_s);
        CHECK(choice.bytes_per_token == 1024.0 ? choice.decided_by[0] == '\0'
                                               : strncmp(choice.decided_by, "link ", 5) == 0);
        n_codes += choice.bytes_per_token < last;
        last = choice.bytes_per_token;
        narrowest = choice.rung.ratio;
    }
    CHECK(n_codes == 9);
    CHECK_NEAR(narrowest, 256, 0);
    CHECK(choice.is_too_slow);
    CHECK(isnan(choice.price.percent) && choice.excludes_exports);
}

/* A home that is slow decides, wherever it is. */
static void slowest_home_decides(void **state) {
    (void)state;
    CHECK_OK(load("link.emulate.up=1gbit,1gbit,700kbit,1gbit", NULL, NULL, NULL));
    choose(&fast);
    assert_string_equal(choice.decided_by, "the uplink of stage 2 (700kbit)");
    CHECK(choice.rung.is_learned);
    assert_string_equal(run.link.codec.chosen_for, "1gbit,700kbit,700kbit");
}

/* 16 tokens of two bytes, a scale, and the headers of a frame, a TLS record and a packet. */
static void small_messages_count_with_their_headers(void **state) {
    (void)state;
    CHECK_OK(load("link.emulate.rate=50kbit", "link.codec.ratio=256", "model.context=16",
                  "stages.microbatch=1"));
    choose(&fast);
    CHECK(choice.seconds > 256 * (16 * 2 + 32 + 22 + 66) * 8 / 50e3);
}

/* Ids and copies of snapshots take their share of a swarm's links. */
static void swarm_plans_other_traffic(void **state) {
    (void)state;
    strait_choose_params swarm = fast;
    swarm.is_swarm = 1;
    CHECK_OK(load("link.emulate.rate=1mbit", "link.codec.ratio=32", NULL, NULL));
    choose(&fast);
    const double alone = choice.seconds, alone_free = choice.infinite_s;
    CHECK_OK(load("link.emulate.rate=1mbit", "link.codec.ratio=32", NULL, NULL));
    choose(&swarm);
    CHECK(choice.seconds > alone);
    CHECK_NEAR(choice.infinite_s, alone_free, 1e-9);
}

static void ratio_limits_the_compression(void **state) {
    (void)state;
    CHECK_OK(load("link.emulate.rate=50kbit", "link.codec.ratio=100", NULL, NULL));
    choose(&fast);
    CHECK_NEAR(run.link.codec.ratio, 100, 0);
    CHECK(choice.is_too_slow);
    CHECK_OK(load("link.emulate.rate=50kbit", "link.codec.bytes_per_token=8", NULL, NULL));
    choose(&fast);
    CHECK_NEAR(run.link.codec.ratio, 64, 0);
    CHECK_NEAR(run.link.codec.bytes_per_token, 0, 0);
    CHECK_OK(load("link.emulate.rate=50kbit", "link.codec.ratio=3", NULL, NULL));
    choose(&fast);
    CHECK(!choice.rung.is_learned && choice.bytes_per_token >= 2.0 * 256 / 3);
}

/* Trained weights stay those of their model. */
static void trained_weights_get_no_learned_code(void **state) {
    (void)state;
    CHECK_OK(load("link.emulate.rate=50kbit", "train.init_from=/nowhere", NULL, NULL));
    choose(&fast);
    assert_string_equal(run.link.codec.name, "int4");
    CHECK(choice.is_too_slow && !choice.excludes_exports);
}

/* Prices come from comparisons of the same code at the same width, with about as many stages. */
static void price_is_known_where_it_was_measured(void **state) {
    (void)state;
    char out[STRAIT_CHOICE_TEXT];
    CHECK_OK(load("link.emulate.rate=50kbit", "train.init_from=/nowhere", NULL, NULL));
    choose(&fast);
    CHECK_NEAR(choice.price.percent, 0.8, 0);
    CHECK_OK(load("link.emulate.rate=50kbit", "train.init_from=/nowhere", "stages.count=8", NULL));
    choose(&fast);
    CHECK(isnan(choice.price.percent));
    CHECK_OK(load("link.emulate.rate=50kbit", "link.codec.ratio=128", "model.width=1024",
                  "stages.count=8"));
    choose(&fast);
    CHECK_NEAR(choice.price.percent, 2.2, 0);
    strait_choice_describe(&choice, out);
    CHECK(strstr(out, "about +2.2%, against dense with the same additions") != NULL);
}

/* Apart from the rates that the choice records, the run is the one that names the code. */
static void choice_equals_the_same_by_hand(void **state) {
    (void)state;
    char *chosen = NULL, *named = NULL;
    size_t n_chosen = 0, n_named = 0;
    CHECK_OK(load("link.emulate.rate=600kbit", NULL, NULL, NULL));
    choose(&fast);
    CHECK(choice.rung.is_learned);
    CHECK_OK(strait_run_set(&run, "link.codec.chosen_for", ""));
    CHECK_OK(strait_run_render(&run, &chosen, &n_chosen));
    char ratio[64];
    (void)snprintf(ratio, sizeof ratio, "link.codec.ratio=%g", choice.rung.ratio);
    CHECK_OK(load("link.emulate.rate=600kbit", "link.codec.name=strait", ratio,
                  "link.codec.chosen_for="));
    CHECK_OK(strait_run_render(&run, &named, &n_named));
    assert_string_equal(chosen, named);
    strait_alloc_free(chosen);
    strait_alloc_free(named);
}

static void misjudged_links_are_named_once_they_differ_by_two(void **state) {
    (void)state;
    char out[STRAIT_CHOICE_TEXT];
    uint64_t told = 0;
    CHECK_OK(load("link.emulate.rate=1mbit", NULL, NULL, NULL));
    choose(&fast);
    CHECK_OK(strait_run_set(&run, "link.emulate.rate", "510kbit"));
    CHECK_OK(strait_choose_check(&run, &fast, &told, out));
    assert_string_equal(out, "");
    CHECK_OK(strait_run_set(&run, "link.emulate.rate", "500kbit"));
    CHECK_OK(strait_choose_check(&run, &fast, &told, out));
    CHECK(strstr(out, "link 0-1 has 500kbit instead of the 1mbit") == out);
    CHECK(strstr(out, "strait at ratio ") != NULL);
    CHECK(told == 1); // the next call looks for other links
    told = 0;
    CHECK_OK(strait_run_set(&run, "link.emulate.rate", "2gbit"));
    CHECK_OK(strait_choose_check(&run, &fast, &told, out));
    CHECK(strstr(out, "the next one should take none (fp32)") != NULL);
}

static void measures_this_machine(void **state) {
    (void)state;
    const strait_choose_params here = {.shares_device = 1};
    char out[STRAIT_CHOICE_TEXT];
    CHECK_OK(load("link.emulate.rate=300kbit", "model.width=64", "model.context=16",
                  "train.batch_tokens=256"));
    choose(&here);
    CHECK(choice.n_sharing == 4 && choice.seconds > 0.0 && choice.tokens_per_s > 0.0);
    CHECK(run.device.threads == 0); // measured with a share of the cores, trained as the user says
    strait_choice_describe(&choice, out);
    CHECK(strstr(out, "shared by 4 stages") != NULL);
}

/* Stages with as many threads as there are cores take turns: a step takes all their work, not that
 * of the slowest stage four times. Its wire then counts for more. */
static void stages_that_share_cores_take_turns(void **state) {
    (void)state;
    strait_choose_params here = fast;
    char threads[64];
    (void)snprintf(threads, sizeof threads, "device.threads=%ld", sysconf(_SC_NPROCESSORS_ONLN));
    CHECK_OK(load("link.emulate.rate=10gbit", "stages.split=[1,1,5,1]", threads, NULL));
    choose(&fast);
    const double alone = choice.infinite_s;
    here.shares_device = 1;
    CHECK_OK(load("link.emulate.rate=10gbit", "stages.split=[1,1,5,1]", threads, NULL));
    choose(&here);
    CHECK(choice.n_sharing == 4);
    CHECK(choice.infinite_s > 1.2 * alone && choice.infinite_s < 2.0 * alone);
}

/* The wires of 3 links are waited for in both directions, and cost as much again. */
static void wires_count_twice_where_stages_compete_for_cores(void **state) {
    (void)state;
    strait_choose_params here = fast;
    const double byte_s = 128.0 * 8.0 / 1e9; // of a byte of each token
    char threads[64];
    (void)snprintf(threads, sizeof threads, "device.threads=%ld", sysconf(_SC_NPROCESSORS_ONLN));
    here.shares_device = 1;
    CHECK_OK(load("link.emulate.rate=1gbit", "link.codec.ratio=1", threads, NULL));
    choose(&here);
    assert_string_equal(choice.rung.name, "none");
    CHECK(choice.seconds >= choice.infinite_s + 2 * 6 * byte_s * choice.bytes_per_token);
    CHECK_NEAR(choice.tokens_per_s * choice.seconds, 4096, 1e-6);
    CHECK_OK(load("link.emulate.rate=1gbit", "link.codec.ratio=1", NULL, NULL));
    choose(&fast);
    CHECK(choice.seconds < choice.infinite_s + 2 * 6 * byte_s * choice.bytes_per_token);
}

/* Training takes the smallest windows that are at most 2% slower than the largest. The step at
 * infinite rate has the windows of the slow links: with its own it would be slower, and the wire
 * would seem to take less. */
static void wire_is_compared_at_equal_windows(void **state) {
    (void)state;
    double own = 0.0, least = INFINITY;
    for (int i = 0; i < 24; i++) {
        char rate[64];
        (void)snprintf(rate, sizeof rate, "link.emulate.rate=%.0fbit", 1e10 * pow(1.25, -i));
        CHECK_OK(load(rate, "link.emulate.delay=25ms", "link.codec.ratio=1", NULL));
        choose(&fast);
        assert_string_equal(choice.rung.name, "none");
        if (i == 0) own = choice.infinite_s;
        CHECK(choice.infinite_s <= own);
        least = fmin(least, choice.infinite_s);
    }
    CHECK(least < 0.999 * own);
}

/* ---- links that workers have measured ---- */

static strait_measured measured;
static const strait_choose_params swarm = {.is_swarm = 1, .measured = &measured};

/* All links of 4 stages have this rate, and stages compute as fast as in the other tests. */
static void measure(double bps) {
    for (int i = 0; i < 4; i++) {
        measured.flops_per_s[i] = 2e10;
        measured.forward_bps[i] = measured.backward_bps[i] = i < 3 ? bps : 0.0;
        measured.delay_s[i] = 0.025;
    }
}

static void swarms_without_rates_wait_for_a_measurement(void **state) {
    (void)state;
    CHECK_OK(load("link.codec.name=auto", NULL, NULL, NULL));
    CHECK_OK(strait_choose_codec(&run, &(strait_choose_params){.is_swarm = 1}, &choice));
    CHECK(strait_run_is_auto(&run) && choice.rung.name == NULL);
    measure(0.0);
    choose(&swarm);
    assert_string_equal(run.link.codec.name, "none");
    CHECK(!choice.has_limits && run.link.codec.chosen_for[0] == '\0');
}

/* The same rates give the same choice, whether they are emulated or measured. */
static void measured_rates_choose_as_emulated_ones_do(void **state) {
    (void)state;
    strait_choose_params emulated = fast;
    emulated.is_swarm = 1;
    for (int i = 0; i < 6; i++) {
        const double bps = round(2e8 * pow(8.0, -i));
        char rate[64];
        (void)snprintf(rate, sizeof rate, "link.emulate.rate=%.0fbit", bps);
        CHECK_OK(load(rate, "link.emulate.delay=25ms", NULL, NULL));
        choose(&emulated);
        const strait_choice by_rate = choice;
        CHECK_OK(load("link.codec.name=auto", NULL, NULL, NULL));
        measure(bps);
        choose(&swarm);
        CHECK(choice.rung.name == by_rate.rung.name && choice.rung.ratio == by_rate.rung.ratio);
        CHECK_NEAR(choice.seconds / by_rate.seconds, 1.0, 1e-4);
        assert_string_equal(choice.decided_by, by_rate.decided_by);
    }
}

static void slowest_measured_direction_decides(void **state) {
    (void)state;
    char out[STRAIT_CHOICE_TEXT];
    uint64_t told = 0;
    CHECK_OK(load("link.codec.name=auto", NULL, NULL, NULL));
    measure(1e9);
    measured.backward_bps[1] = 7e5;
    choose(&swarm);
    assert_string_equal(choice.decided_by, "link 1-2 (700kbit)");
    assert_string_equal(run.link.codec.chosen_for, "1gbit,700kbit,1gbit");
    CHECK(choice.rung.is_learned);
    /* A measurement of the running session is compared with the rates of the record. */
    CHECK_OK(strait_choose_check(&run, &swarm, &told, out));
    assert_string_equal(out, "");
    measured.backward_bps[1] = 1.5e6;
    measured.forward_bps[2] = 4e8;
    CHECK_OK(strait_choose_check(&run, &swarm, &told, out));
    CHECK(strstr(out, "link 1-2 has 1500kbit instead of the 700kbit") == out);
    CHECK_OK(strait_choose_check(&run, &swarm, &told, out));
    CHECK(strstr(out, "link 2-3 has 400mbit instead of the 1gbit") == out);
    CHECK_OK(strait_choose_check(&run, &swarm, &told, out));
    assert_string_equal(out, "");
    /* Without a measurement real links have nothing to compare. */
    told = 0;
    CHECK_OK(strait_choose_check(&run, &(strait_choose_params){.is_swarm = 1}, &told, out));
    assert_string_equal(out, "");
}

/* A worker that claims to be slow changes nothing while the other end is honest. */
static void honest_end_is_believed_about_a_slow_link(void **state) {
    (void)state;
    int differ = 0;
    CHECK_NEAR(strait_measured_judge(1.234e6, 1.19e6, &differ), 1.23e6, 1.0);
    CHECK(!differ);
    CHECK_NEAR(strait_measured_judge(1.0, 1e8, &differ), 1e8, 1.0);
    CHECK(differ);
    CHECK_NEAR(strait_measured_judge(1e8, 0.0, &differ), 1e8, 1.0);
    CHECK(differ);
    CHECK_NEAR(strait_measured_judge(0.0, 0.0, &differ), 16e3, 1e-6); // the floor
    CHECK(!differ);
}

static void stages_without_a_time_count_like_the_others(void **state) {
    (void)state;
    const double batch_s[] = {0.5, 0.0, 0.5, 0.5};
    strait_run_plan plan;
    CHECK_OK(load("link.codec.name=auto", NULL, NULL, NULL));
    CHECK_OK(strait_run_plan_init(&run, run.model.vocab, &plan));
    CHECK_OK(strait_measured_set_speeds(&plan, batch_s, &measured));
    CHECK_NEAR(measured.flops_per_s[0] / measured.flops_per_s[2], 1.0, 1e-9);
    CHECK(measured.flops_per_s[1] >= measured.flops_per_s[0]);
    CHECK(measured.flops_per_s[3] > measured.flops_per_s[0]); // it has the head as well
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_without_rates_or_with_a_codec_do_not_choose),
        cmocka_unit_test(without_limits_boundaries_are_exact),
        cmocka_unit_test(slower_links_never_get_wider_codes),
        cmocka_unit_test(slowest_home_decides),
        cmocka_unit_test(small_messages_count_with_their_headers),
        cmocka_unit_test(swarm_plans_other_traffic),
        cmocka_unit_test(ratio_limits_the_compression),
        cmocka_unit_test(trained_weights_get_no_learned_code),
        cmocka_unit_test(price_is_known_where_it_was_measured),
        cmocka_unit_test(choice_equals_the_same_by_hand),
        cmocka_unit_test(misjudged_links_are_named_once_they_differ_by_two),
        cmocka_unit_test(measures_this_machine),
        cmocka_unit_test(stages_that_share_cores_take_turns),
        cmocka_unit_test(wires_count_twice_where_stages_compete_for_cores),
        cmocka_unit_test(wire_is_compared_at_equal_windows),
        cmocka_unit_test(swarms_without_rates_wait_for_a_measurement),
        cmocka_unit_test(measured_rates_choose_as_emulated_ones_do),
        cmocka_unit_test(slowest_measured_direction_decides),
        cmocka_unit_test(honest_end_is_believed_about_a_slow_link),
        cmocka_unit_test(stages_without_a_time_count_like_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
