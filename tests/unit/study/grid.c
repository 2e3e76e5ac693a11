#include "check.h"
#include "scratch.h"
#include "study/run_key.h"
#include "study/sections/time_to_loss.h"
#include "study/study.h"

static strait_err read_with(const char *text, strait_study_size size, const char *const *sets,
                            int n_sets, strait_study *out) {
    const strait_study_source source = {.name = "s.yaml",
                                        .text = text,
                                        .bytes = strlen(text),
                                        .folder = "/data",
                                        .size = size,
                                        .sets = sets,
                                        .n_sets = n_sets};
    return strait_study_read(&source, out);
}

static strait_err read_text(const char *text, strait_study *out) {
    return read_with(text, STRAIT_STUDY_SMALL, NULL, 0, out);
}

static int has(const strait_study_row *row, const char *set) {
    return strait_strings_find(&row->sets, set) >= 0;
}

static void test_axes_multiply_variants(void **state) {
    (void)state;
    strait_study s = {0};
    CHECK_OK(read_text("control: a\n"
                       "run: {train: {steps: 5}, data.train: t.bin}\n"
                       "sets: {wide: {model.width: 64}}\n"
                       "variants:\n"
                       "  a:\n"
                       "  b: {use: wide, link.codec.name: int8}\n"
                       "axes:\n"
                       "  link.emulate.rate: [10mbit, 80mbit]\n"
                       "  x: [{name: deep, model.layers: 8}, {name: flat, model.layers: 2},"
                       " {name: flatter, model.layers: 1}]\n",
                       &s));
    CHECK(s.n_rows == 12);
    CHECK(strcmp(s.rows[0].name, "a rate=10mbit deep") == 0 && s.rows[0].control[0] == '\0');
    CHECK(strcmp(s.rows[11].name, "b rate=80mbit flatter") == 0);
    CHECK(strcmp(s.rows[11].control, "a rate=80mbit flatter") == 0);
    CHECK(has(&s.rows[11], "model.width=64") && has(&s.rows[11], "link.emulate.rate=80mbit"));
    CHECK(has(&s.rows[11], "model.layers=1") && has(&s.rows[11], "train.steps=5"));
    CHECK(has(&s.rows[0], "data.train=/data/t.bin")); // relative to the file
    CHECK(!has(&s.rows[0], "model.width=64"));
    CHECK(s.rows[0].is_control && !s.rows[11].is_control);
    strait_study_close(&s);
}

static const char sized[] =
    "seeds: [1, 2]\n"
    "run: {train.steps: 5}\n"
    "tune: {steps: 3, train.learning_rate: [0.1, 0.2], train.clip: [1, 2]}\n"
    "variants:\n"
    "  a: {small: {model.width: 8}, full: {model.width: 16}}\n"
    "  b: {tune: none, model.width: 4}\n"
    "  c: {tune: {train.beta1: [0.8, 0.9]}}\n"
    "small: {seeds: [7]}\n"
    "full: {only: [a], run: {train.steps: 9}}\n";

static void test_sizes_change_seeds_options_and_variants(void **state) {
    (void)state;
    strait_study s = {0};
    CHECK_OK(read_with(sized, STRAIT_STUDY_SMALL, NULL, 0, &s));
    CHECK(s.n_rows == 3 && s.seeds.n == 1 && s.seeds.items[0] == 7);
    CHECK(has(&s.rows[0], "model.width=8") && has(&s.rows[0], "train.steps=5"));
    strait_study_close(&s);
    CHECK_OK(read_with(sized, STRAIT_STUDY_FULL, NULL, 0, &s));
    CHECK(s.n_rows == 1 && s.seeds.n == 2);
    CHECK(has(&s.rows[0], "model.width=16") && has(&s.rows[0], "train.steps=9"));
    strait_study_close(&s);
}

static void test_tuning_lists_every_combination(void **state) {
    (void)state;
    strait_study s = {0};
    const char *sets[] = {"seeds=3,4", "tune.steps=2", "train.steps=7"};
    CHECK_OK(read_with(sized, STRAIT_STUDY_SMALL, sets, 3, &s));
    const strait_study_tune *t = &s.rows[0].tune;
    CHECK(t->steps == 2 && t->choices.n == 4);
    CHECK(strcmp(t->choices.items[0], "train.learning_rate=0.1 train.clip=1") == 0);
    CHECK(strcmp(t->choices.items[3], "train.learning_rate=0.2 train.clip=2") == 0);
    CHECK(s.rows[1].tune.choices.n == 0);
    CHECK(s.rows[2].tune.choices.n == 2 && s.rows[2].tune.steps == 2);
    CHECK(s.seeds.n == 2 && s.seeds.items[1] == 4);
    CHECK(strcmp(s.rows[0].sets.items[s.rows[0].sets.n - 1], "train.steps=7") == 0); // wins
    strait_study_close(&s);
}

static void test_only_keeps_controls_of_controls(void **state) {
    (void)state;
    strait_study s = {0};
    const char *text = "control: a\nvariants: {a: {}, b: {control: a}, c: {control: b}, d: {}}\n";
    const char *only[] = {"c"};
    const strait_study_source source = {
        .name = "s.yaml", .text = text, .bytes = strlen(text), .only = only, .n_only = 1};
    CHECK_OK(strait_study_read(&source, &s));
    CHECK(s.n_rows == 3 && strait_study_find(&s, "d") < 0 && strait_study_find(&s, "a") == 0);
    strait_study_close(&s);
}

static void test_broken_files_are_rejected_with_their_place(void **state) {
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "variants: expected at least one"},
        {"variants: [a]\n", "variants: expected at least one"},
        {"variants: {a: {}}\nvariant: {}\n", "s.yaml:2:10: variant: unknown key"},
        {"variants: {a: {trian.steps: 5}}\n", "s.yaml:1:29: unknown"},
        {"variants: {a: {train.steps: many}}\n", "s.yaml:1:29: train.steps"},
        {"variants: {a: {train.steps: 0}}\n", "train.steps"},
        {"variants: {a: {}, a: {}}\n", "s.yaml:1:19: a: given twice"},
        {"variants: {a: {use: x}}\n", "x is not one of the sets"},
        {"variants: {a: {control: b}}\n", "its control b is not a variant"},
        {"variants: {a: 5}\n", "a: expected a map of options"},
        {"seeds: []\nvariants: {a: {}}\n", "seeds: expected a list"},
        {"seeds: [1, 1]\nvariants: {a: {}}\n", "1 is given twice"},
        {"seeds: [x]\nvariants: {a: {}}\n", "expected whole numbers"},
        {"axes: {train.steps: 5}\nvariants: {a: {}}\n", "axes.train.steps: expected a list"},
        {"axes: {steps: [5]}\nvariants: {a: {}}\n", "s.yaml:1:16: "},
        {"tune: {steps: 0, train.clip: [1, 2]}\nvariants: {a: {}}\n", "tune.steps: expected"},
        {"tune: {steps: 2, train.clip: 1}\nvariants: {a: {}}\n",
         "tune.train.clip: expected a list"},
        {"small: {vraiants: {}}\nvariants: {a: {}}\n", "s.yaml:1:19: vraiants: unknown key"},
        {"more_seeds: {best: 2}\nvariants: {a: {}}\n", "more_seeds: expected {best"},
        {"time_to_loss: {against: [b], stages: 2, gflops: 1}\nvariants: {a: {}}\n",
         "b is not a variant"},
        {"time_to_loss: {against: [a], stages: 1, gflops: 1}\nvariants: {a: {}}\n",
         "expected 2 to 64 stages"},
        {"time_to_loss: {against: [a]}\nvariants: {a: {}}\n", "time_to_loss: expected {against"},
        {"variants: {a: &x {}}\n", "anchors are not supported"},
        {"variants: {a: {}\n", "not valid YAML"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strait_study s = {0};
        CHECK_FAILS(read_text(cases[i].text, &s), STRAIT_ECONFIG, cases[i].error);
    }
    const char *sets[] = {"nothing"};
    strait_study s = {0};
    CHECK_FAILS(read_with("variants: {a: {}}\n", STRAIT_STUDY_SMALL, sets, 1, &s), STRAIT_ECONFIG,
                "--set nothing");
}

/* Equal runs have equal keys on every machine; anything that matters changes the key. */
static void test_key_follows_contents_not_paths(void **state) {
    (void)state;
    scratch dir = scratch_open();
    char sets_text[4][300];
    char keys[4][STRAIT_HASH_TEXT];
    CHECK_OK(strait_file_write(scratch_at(&dir, "a.bin"), "same", 4));
    CHECK_OK(strait_file_write(scratch_at(&dir, "b.bin"), "same", 4));
    CHECK_OK(strait_file_write(scratch_at(&dir, "c.bin"), "else", 4));
    static const char *const files[] = {"a", "b", "c", "a"};
    for (int i = 0; i < 4; i++) {
        json_t *settings = NULL;
        (void)snprintf(sets_text[i], sizeof sets_text[i], "data.train=%s/%s.bin", dir.path,
                       files[i]);
        const char *sets[] = {sets_text[i], "train.save_every=7", "name=whatever",
                              i == 3 ? "train.seed=2" : "train.seed=1"};
        CHECK_OK(strait_run_key_settings(sets, i == 0 ? 1 : 4, &settings));
        CHECK_OK(strait_run_key(settings, keys[i]));
        json_decref(settings);
    }
    CHECK(strcmp(keys[0], keys[1]) == 0); // another path, another name, seed 1 is the default
    CHECK(strcmp(keys[0], keys[2]) != 0);
    CHECK(strcmp(keys[0], keys[3]) != 0);
    scratch_close(&dir);
}

static void test_steps_to_a_loss_are_interpolated(void **state) {
    (void)state;
    int is_bound = -1;
    json_t *curve = json_pack("[[i,f],[i,f],[i,n],[i,f]]", 100, 4.0, 200, 3.5, 300, 400, 3.0);
    CHECK(curve != NULL);
    CHECK_NEAR(strait_time_steps_to(curve, 3.75, &is_bound), 150.0, 1e-9);
    CHECK(is_bound == 0);
    CHECK_NEAR(strait_time_steps_to(curve, 3.5, &is_bound), 200.0, 1e-9);
    CHECK_NEAR(strait_time_steps_to(curve, 3.25, &is_bound), 400.0, 1e-9); // the one before is none
    CHECK_NEAR(strait_time_steps_to(curve, 4.5, &is_bound), 100.0, 1e-9);
    CHECK(is_bound == 1); // it was there at the first point already
    CHECK(isnan(strait_time_steps_to(curve, 2.9, &is_bound)));
    CHECK(isnan(strait_time_steps_to(NULL, 2.9, &is_bound)));
    json_decref(curve);
}

static void key_of(const char *const *sets, int n_sets, char out[STRAIT_HASH_TEXT]) {
    json_t *settings = NULL;
    CHECK_OK(strait_run_key_settings(sets, n_sets, &settings));
    CHECK_OK(strait_run_key(settings, out));
    json_decref(settings);
}

/* Results of runs that name what the rule of a codec sets, or what it stands for, are found. */
static void test_key_sees_what_a_rule_sets(void **state) {
    (void)state;
    char by_hand[STRAIT_HASH_TEXT], by_rule[STRAIT_HASH_TEXT];
    static const char *const code[] = {"link.codec.name=strait", "link.codec.ratio=64",
                                       "model.width=1024",       "train.learning_rate=0.06",
                                       "train.optimizer=muon",   "link.codec.rule=2"};
    static const char *const set[] = {"link.codec.name=strait",
                                      "link.codec.ratio=64",
                                      "model.width=1024",
                                      "train.learning_rate=0.06",
                                      "train.optimizer=muon",
                                      "link.codec.rule=1",
                                      "link.codec.gains=false",
                                      "link.codec.gate_width=128",
                                      "link.codec.encoder_basis=1",
                                      "train.encoder_basis_learning_rate=0",
                                      "train.mixing_learning_rate=0",
                                      "train.residual_out_learning_rate=0.015",
                                      "train.gate_learning_rate=0.04"};
    key_of(code, 6, by_rule);
    key_of(set, 13, by_hand);
    assert_string_equal(by_rule, by_hand);
    key_of(set, 12, by_hand);
    CHECK(strcmp(by_rule, by_hand) != 0);
    static const char *const stream[] = {"model.conv=4",           "model.qkv_conv=true",
                                         "model.anchors=true",     "model.value_tables=true",
                                         "link.codec.name=strait", "link.codec.ratio=4",
                                         "link.codec.rule=2"};
    static const char *const int4[] = {"model.conv=4", "model.qkv_conv=true", "model.anchors=true",
                                       "model.value_tables=true", "link.codec.name=int4"};
    key_of(stream, 7, by_rule);
    key_of(int4, 5, by_hand);
    assert_string_equal(by_rule, by_hand);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_axes_multiply_variants),
        cmocka_unit_test(test_sizes_change_seeds_options_and_variants),
        cmocka_unit_test(test_tuning_lists_every_combination),
        cmocka_unit_test(test_only_keeps_controls_of_controls),
        cmocka_unit_test(test_broken_files_are_rejected_with_their_place),
        cmocka_unit_test(test_steps_to_a_loss_are_interpolated),
        cmocka_unit_test(test_key_follows_contents_not_paths),
        cmocka_unit_test(test_key_sees_what_a_rule_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
