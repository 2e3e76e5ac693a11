/* Tests the rule of codec strait: the settings that follow from its ratio, whose settings win, and
 * that runs keep the rule they began with. */
#include "codec/strait/rule.h"

#include "base/alloc.h"
#include "check.h"
#include "codec/ladder.h"
#include "config/run_plan.h"
#include "config/run_rule.h"

#include <stdio.h>
#include <string.h>

enum {
    VOCAB = 512
};

static const char text[] = "model: {width: 1024, layers: 8, heads: 8, context: 16}\n"
                           "train: {batch_tokens: 32, optimizer: muon, learning_rate: 0.06}\n"
                           "stages: {count: 8, microbatch: 1}\n"
                           "link: {codec: {name: strait, rule: 2}}\n";
static strait_run run, again;
static strait_run_plan plan;

/* Loads the run with up to four overrides; the first NULL ends them. */
static strait_err load(const char *a, const char *b, const char *c, const char *d) {
    const char *sets[] = {a, b, c, d};
    int n = 0;
    while (n < 4 && sets[n] != NULL)
        n++;
    return strait_run_init_text("r.yaml", text, sizeof text - 1, sets, n, &run);
}

/* Whether the record of the run has this line. */
static void check_record(const char *line) {
    char *record = NULL;
    size_t bytes = 0;
    CHECK_OK(strait_run_render(&run, &record, &bytes));
    if (strstr(record, line) == NULL) fail_msg("no \"%s\" in %s", line, record);
    strait_alloc_free(record);
}

static void the_ratio_decides_learning_rates(void **state) {
    (void)state;
    static const struct {
        const char *ratio, *residual_out, *half;
        int keep, half_keep;
    } at[] = {{"link.codec.ratio=16", "0.03", "0.02", 255, 127},
              {"link.codec.ratio=64", "0.015", "0.01", 63, 31},
              {"link.codec.ratio=128", "0.011", "0.0071", 31, 15},
              {"link.codec.ratio=256", "0.0075", "0.005", 15, 7}};
    char line[96];
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        CHECK_OK(load(at[i].ratio, NULL, NULL, NULL));
        (void)snprintf(line, sizeof line, "  # residual_out_learning_rate: %s\n",
                       at[i].residual_out);
        check_record(line);
        check_record("  # gate_learning_rate: 0.04\n");
        check_record("  # mixing_learning_rate: 0\n");
        check_record("  # encoder_basis_learning_rate: 0\n");
        check_record("  # boundary_learning_rate: 0.004\n");
        check_record("    # gate_width: 128\n");
        check_record("    # encoder_basis: 1\n");
        check_record("    # gains: false\n");
        check_record("    rule: 2\n");
        CHECK_OK(strait_run_plan_init(&run, VOCAB, &plan));
        CHECK(plan.codec.keep == at[i].keep && plan.codec.gate_width == 128);
        CHECK(plan.codec.bits == 4 && !plan.codec.has_gates);
        CHECK_OK(load(at[i].ratio, "model.width=512", "train.learning_rate=0.04", NULL));
        (void)snprintf(line, sizeof line, "  # residual_out_learning_rate: %s\n", at[i].half);
        check_record(line);
        check_record("  # gate_learning_rate: 0.027\n");
        check_record("    # gate_width: 64\n");
        CHECK_OK(strait_run_plan_init(&run, VOCAB, &plan));
        CHECK(plan.codec.keep == at[i].half_keep);
    }
}

/* A width of the code, and bytes, say the same as a ratio. */
static void other_words_for_a_ratio_give_the_same(void **state) {
    (void)state;
    CHECK_OK(load(NULL, NULL, NULL, NULL)); // the codec's default: 31 values
    CHECK(run.train.residual_out_learning_rate == 0.011);
    CHECK_OK(load("link.codec.keep=255", NULL, NULL, NULL));
    CHECK(run.train.residual_out_learning_rate == 0.03);
    CHECK_OK(load("link.codec.bytes_per_token=32", NULL, NULL, NULL));
    CHECK(run.train.residual_out_learning_rate == 0.015);
    CHECK_OK(load("link.codec.ratio=32", "link.codec.bits=8", NULL, NULL)); // half as many values
    CHECK(run.train.residual_out_learning_rate == 0.015);
    CHECK_OK(load("link.codec.encoder_gain=0.5", NULL, NULL, NULL)); // the code moves as fast
    CHECK(run.train.residual_out_learning_rate == 0.021);
    CHECK_OK(load("link.codec.encoder_gain=0.01", NULL, NULL, NULL)); // as fast as other matrices
    CHECK(run.train.residual_out_learning_rate == 0.06);
    CHECK_OK(load("link.codec.ratio=64", "link.codec.bytes_per_token=32", NULL, NULL));
    CHECK_FAILS(strait_run_plan_init(&run, VOCAB, &plan), STRAIT_ECONFIG,
                "ratio, bytes_per_token and keep (or rank) exclude each other");
}

static void what_the_user_sets_wins(void **state) {
    (void)state;
    CHECK_OK(load("link.codec.gains=true", "train.residual_out_learning_rate=0.0045",
                  "train.encoder_basis_learning_rate=0.002", "link.codec.encoder_basis=0"));
    CHECK(run.link.codec.gains && run.link.codec.gate_width == 0);
    CHECK(run.train.residual_out_learning_rate == 0.0045 && run.link.codec.encoder_basis == 0);
    CHECK(run.train.encoder_basis_learning_rate == 0.002);
    CHECK(run.train.mixing_learning_rate == 0.001);
    CHECK_OK(load("link.codec.gate_width=64", "train.gate_learning_rate=0.01",
                  "train.mixing_learning_rate=0.002", NULL));
    CHECK(run.link.codec.gate_width == 64 && run.train.gate_learning_rate == 0.01);
    CHECK(run.train.mixing_learning_rate == 0.002);
    CHECK_OK(load("link.codec.gate_width=0", NULL, NULL, NULL));
    CHECK(run.link.codec.gate_width == 0 && !run.link.codec.gains);
    CHECK_OK(load("train.optimizer=adamw", "train.learning_rate=0.001", NULL, NULL));
    CHECK(run.train.residual_out_learning_rate == 0.001 && run.link.codec.gate_width == 128);
}

/* Gates are computed from token tables. */
static void without_tables_there_are_no_gates(void **state) {
    (void)state;
    CHECK_OK(load("model.anchors=false", NULL, NULL, NULL));
    CHECK(run.link.codec.gate_width == 0 && run.link.codec.encoder_basis == 1);
    CHECK_OK(strait_run_plan_init(&run, VOCAB, &plan));
    CHECK_OK(load("model.local_every=2", "stages.count=3", "stages.split=3,1,4", NULL));
    CHECK(run.link.codec.gate_width == 0); // layer 3 is not local
    CHECK_OK(strait_run_plan_init(&run, VOCAB, &plan));
    CHECK_OK(load("model.local_every=2", "stages.count=3", "stages.split=2,2,4", NULL));
    CHECK(run.link.codec.gate_width == 128);
    CHECK_OK(strait_run_plan_init(&run, VOCAB, &plan));
}

static void check_stream(const char *ratio, const char *name) {
    CHECK_OK(load(ratio, NULL, NULL, NULL));
    CHECK_OK(strait_run_plan_init(&run, VOCAB, &plan));
    assert_string_equal(plan.codec.name, name);
    CHECK(run.train.residual_out_learning_rate == 0.06 && run.model.anchors);
}

static void wide_codes_are_the_stream(void **state) {
    (void)state;
    char words[256];
    check_stream("link.codec.ratio=1", "none");
    assert_string_equal(plan.codec.variant, "bf16");
    check_stream("link.codec.ratio=1.5", "int8");
    check_stream("link.codec.ratio=2", "int8");
    check_stream("link.codec.ratio=3", "int4");
    check_stream("link.codec.bytes_per_token=512", "int4");
    check_stream("link.codec.ratio=4", "int4");
    strait_run_describe_rule(&run, words, sizeof words);
    assert_non_null(strstr(words, "at ratio 4: the residual stream itself crosses, as codec int4"));
    check_record("    name: \"strait\"\n");
    check_record("    ratio: 4\n");
    CHECK_OK(load("link.codec.ratio=4.5", NULL, NULL, NULL));
    CHECK_OK(strait_run_plan_init(&run, VOCAB, &plan));
    assert_string_equal(plan.codec.name, "strait");
    CHECK_OK(load("link.codec.ratio=4", "link.codec.variant=context", NULL, NULL));
    CHECK_OK(strait_run_plan_init(&run, VOCAB, &plan));
    CHECK(strcmp(plan.codec.name, "strait") == 0 && plan.codec.keep == 1023);
    CHECK_FAILS(load("link.codec.ratio=4", "link.codec.bits=8", NULL, NULL), STRAIT_ECONFIG,
                "link.codec.bits: codec strait at ratio 4 sends the stream itself, as codec int4");
    CHECK_FAILS(load("link.codec.ratio=1", "link.codec.gate_width=8", NULL, NULL), STRAIT_ECONFIG,
                "link.codec.gate_width: codec strait at ratio 1");
}

/* The codes that auto chooses from begin with those that the rule has at ratios 1, 2 and 4. */
static void the_ladder_follows_the_rule(void **state) {
    (void)state;
    int n = 0;
    const strait_codec_rung *ladder = strait_codec_ladder(&n);
    for (int i = 0; i < 3; i++)
        assert_string_equal(ladder[i + 1].name, strait_codec_rule_stream(1 << i));
    for (int i = 4; i < n; i++)
        CHECK(strait_codec_has_rule(ladder[i].name, ladder[i].variant) &&
              strait_codec_rule_stream(ladder[i].ratio) == NULL &&
              ladder[i].ratio > ladder[i - 1].ratio);
}

/* Loads what `run` is recorded as, without the line that names the rule, as older versions wrote
 * it. */
static void load_old_record(const char *const *sets, int n_sets) {
    char *record = NULL;
    size_t bytes = 0;
    CHECK_OK(strait_run_render(&run, &record, &bytes));
    char *line = strstr(record, "    rule: ");
    assert_non_null(line);
    memmove(line, strchr(line, '\n') + 1, strlen(strchr(line, '\n') + 1) + 1);
    CHECK_OK(strait_run_init_text("old", record, strlen(record), sets, n_sets, &again));
    strait_alloc_free(record);
}

static void a_run_keeps_its_rule(void **state) {
    (void)state;
    char *record = NULL;
    size_t bytes = 0;
    const char *const ratio[] = {"link.codec.ratio=64"}, *const name[] = {"link.codec.name=strait"};
    CHECK_OK(load("link.codec.rule=1", NULL, NULL, NULL));
    load_old_record(NULL, 0);
    CHECK(again.link.codec.rule == 1 && again.link.codec.gains && again.link.codec.gate_width == 0);
    CHECK(again.train.residual_out_learning_rate == 0.0045 && again.link.codec.encoder_basis == 0);
    CHECK(again.train.encoder_basis_learning_rate == 0.004);
    load_old_record(ratio, 1);
    CHECK(again.link.codec.rule == 1 && again.train.residual_out_learning_rate == 0.0045);
    CHECK_OK(load(NULL, NULL, NULL, NULL));
    CHECK_OK(strait_run_render(&run, &record, &bytes));
    CHECK_OK(strait_run_init_text("new", record, bytes, ratio, 1, &again));
    strait_alloc_free(record);
    CHECK(again.link.codec.rule == 2 && again.train.residual_out_learning_rate == 0.015);
    /* A run that gets the codec later, as from auto, is new. */
    CHECK_OK(strait_run_init_text("none", "", 0, NULL, 0, &again));
    CHECK(again.link.codec.rule == 0);
    CHECK_OK(strait_run_change(&again, name, 1));
    CHECK(again.link.codec.rule == STRAIT_CODEC_RULE_NEW);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ratio_decides_learning_rates),
        cmocka_unit_test(other_words_for_a_ratio_give_the_same),
        cmocka_unit_test(what_the_user_sets_wins),
        cmocka_unit_test(without_tables_there_are_no_gates),
        cmocka_unit_test(wide_codes_are_the_stream),
        cmocka_unit_test(the_ladder_follows_the_rule),
        cmocka_unit_test(a_run_keeps_its_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
