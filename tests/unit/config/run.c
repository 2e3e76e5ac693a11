#include "config/run.h"

#include "base/alloc.h"
#include "base/file.h"
#include "check.h"
#include "config/run_plan.h"
#include "optim/optimizer.h"
#include "scratch.h"

#include <stdio.h>

static strait_run run;

static strait_err parse(const char *text) {
    return strait_run_init_text("R.yaml", text, strlen(text), NULL, 0, &run);
}

static strait_err parse_set(const char *set) {
    return strait_run_init_text("R.yaml", "", 0, &set, 1, &run);
}

static void test_table_is_consistent(void **state) {
    (void)state;
    const strait_options *table = strait_run_options();
    for (int i = 0; i < table->n_rows; i++) {
        const strait_option *row = &table->rows[i];
        assert_ptr_equal(strait_options_find(table, row->key), row);
        CHECK(row->help[0] != '\0' && row->capacity > 0);
        CHECK(row->offset + row->capacity <= sizeof(strait_run));
        CHECK((row->kind == STRAIT_OPTION_CHOICE) == (row->choices != NULL));
        const int is_number = row->kind == STRAIT_OPTION_INT || row->kind == STRAIT_OPTION_REAL;
        CHECK(!is_number || row->min < row->max);
        for (int k = 0; k < i; k++)
            CHECK(row->offset >= table->rows[k].offset + table->rows[k].capacity ||
                  table->rows[k].offset >= row->offset + row->capacity);
    }
}

static void test_llama_is_the_default(void **state) {
    (void)state;
    CHECK_OK(parse(""));
    assert_string_equal(run.name, "R");
    CHECK(run.model.family == STRAIT_RUN_LLAMA && run.model.activation == STRAIT_SWIGLU);
    CHECK(run.model.rope == STRAIT_ROPE_FULL && run.model.rope_theta == 10000);
    CHECK(!run.model.qk_norm && !run.model.qk_gain && run.model.softcap == 0);
    CHECK(!run.model.tied && run.model.norm_epsilon == 1e-5);
    CHECK(run.model.init == STRAIT_INIT_LLAMA);
    CHECK(run.model.kv_heads == 4 && run.model.head_dim == 64 && run.model.ffn == 688);
    CHECK(run.model.attention_scale == 0.125 && run.model.vocab == 0);
    CHECK(strcmp(strait_optimizer_names[run.train.optimizer], "adamw") == 0 &&
          run.train.learning_rate == 0.001);
    CHECK(run.train.embedding_learning_rate == 0.001 && run.train.head_learning_rate == 0.001);
    CHECK(run.train.gain_learning_rate == 0.001 && run.train.embedding_weight_decay == 0.1);
    CHECK(run.train.warmup == 50 && run.train.schedule == STRAIT_LR_COSINE);
    assert_string_equal(run.device.kind, "cpu");
    CHECK_OK(parse_set("train.steps=1000000"));
    assert_int_equal(run.train.warmup, 1000);
}

static const char *const families[] = {
    "model: {family: yardstick, width: 1024, heads: 8, softcap: 30}\ntrain: {optimizer: muon}",
    "train: {optimizer: muon}\nmodel: {softcap: 30, heads: 8, width: 1024, family: yardstick}"};

static void test_presets_apply_wherever_they_are_chosen(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(parse(families[i]));
        CHECK(run.model.softcap == 30 && run.model.activation == STRAIT_RELU2);
        CHECK(run.model.rope == STRAIT_ROPE_HALF && run.model.qk_norm);
        CHECK(run.model.attention_scale == 0.12 && run.model.norm_epsilon == 1e-6);
        CHECK(run.model.init == STRAIT_INIT_YARDSTICK && run.model.ffn == 4096);
        CHECK(run.train.learning_rate == 0.02 && run.train.weight_decay == 0.05 &&
              run.train.clip == 0);
        CHECK_NEAR(run.train.embedding_learning_rate, 0.3, 1e-15);
        CHECK_NEAR(run.train.head_learning_rate, 0.003, 1e-17);
        CHECK_NEAR(run.train.gain_learning_rate, 0.01, 1e-16);
        CHECK(run.train.embedding_weight_decay == 0.001 && run.train.beta1 == 0.8);
        CHECK(run.train.beta2 == 0.95 && run.train.epsilon == 1e-10 && run.train.warmup == 0);
        CHECK(run.train.schedule == STRAIT_LR_LINEAR && run.train.final_learning_rate == 0);
    }
    CHECK_OK(parse_set("model.family=yardstick"));
    CHECK(run.model.softcap == 15);
}

/* The default variant of strait has the same presets as a named one, however the file omits it. */
static void test_omitted_variant_applies_its_presets(void **state) {
    (void)state;
    static const char *const texts[] = {
        "train: {optimizer: muon}\nlink: {codec: {name: strait, variant: context}}",
        "train: {optimizer: muon}\nlink: {codec: {name: strait}}",
        "link: {codec: {variant: \"\", name: strait}}\ntrain: {optimizer: muon}",
        "link: {codec: {variant: fp32}}"};
    const char *const sets[] = {"train.optimizer=muon", "link.codec.name=strait",
                                "link.codec.variant="};
    for (int i = 0; i < 4; i++) {
        CHECK_OK(
            strait_run_init_text("R.yaml", texts[i], strlen(texts[i]), sets, i == 3 ? 3 : 0, &run));
        assert_string_equal(run.link.codec.variant, "context");
        CHECK(run.train.learning_rate == 0.06 && run.train.residual_out_learning_rate == 0.021);
        CHECK(run.train.boundary_learning_rate == 0.004 && run.train.value_learning_rate == 0.03);
        CHECK(run.train.embedding_learning_rate == 0.3 && run.train.head_learning_rate == 0.003);
        CHECK(run.train.conv_learning_rate == 0.02 && run.train.mixing_learning_rate == 0);
        CHECK(run.train.encoder_basis_learning_rate == 0 && run.link.codec.encoder_basis == 1);
        CHECK(run.train.gain_learning_rate == 0.01 && run.train.weight_decay == 0.05 &&
              run.model.conv == 4);
        CHECK(run.model.anchors && run.model.value_tables && run.model.qkv_conv);
        CHECK(!run.link.codec.gains && run.link.codec.gate_width == 32);
    }
    CHECK_OK(parse("link: {codec: {name: strait}}")); // AdamW keeps its own learning rates
    CHECK(run.train.learning_rate == 0.001 && run.train.residual_out_learning_rate == 0.001 &&
          run.model.conv == 4);
    CHECK_OK(parse("link: {codec: {name: strait}}\nmodel: {conv: 2, anchors: false}"));
    CHECK(run.model.conv == 2 && !run.model.anchors && run.model.value_tables);
}

static void test_other_variants_have_no_presets(void **state) {
    (void)state;
    static const char *const texts[] = {"link: {codec: {name: strait, variant: tied}}",
                                        "link: {codec: {name: strait, variant: free}}", "",
                                        "link: {codec: {name: resbm}}"};
    static const char *const variants[] = {"tied", "free", "", ""};
    const char *const muon = "train.optimizer=muon";
    for (int i = 0; i < 4; i++) {
        CHECK_OK(strait_run_init_text("R.yaml", texts[i], strlen(texts[i]), &muon, 1, &run));
        assert_string_equal(run.link.codec.variant, variants[i]);
        CHECK(run.train.learning_rate == 0.02 && run.train.residual_out_learning_rate == 0.02 &&
              run.model.conv == 0);
        CHECK(!run.model.anchors && !run.model.value_tables && !run.model.qkv_conv);
        CHECK(!run.link.codec.gains);
    }
}

static void test_given_values_are_not_derived(void **state) {
    (void)state;
    CHECK_OK(
        parse("name: big one\n"
              "model: {width: 100, heads: 6, kv_heads: 2, head_dim: 18, ffn: 7, vocab: 300,\n"
              "        attention_scale: 0.5, context: 8, qk_norm: true, qk_gain: true}\n"
              "train: {batch_tokens: 64, embedding_learning_rate: 0.5, head_learning_rate: 0.25,\n"
              "        gain_learning_rate: 0.125, embedding_weight_decay: 0, warmup: 0, schedule: "
              "constant,\n"
              "        decay_steps: 1000, optimizer: adamw-rows, recompute: true}\n"
              "stages: {microbatch: 2}\n"));
    assert_string_equal(run.name, "big one");
    CHECK(run.model.kv_heads == 2 && run.model.head_dim == 18 && run.model.ffn == 7);
    CHECK(run.model.attention_scale == 0.5 && run.model.qk_gain && run.model.vocab == 300);
    CHECK(run.train.embedding_learning_rate == 0.5 && run.train.head_learning_rate == 0.25);
    CHECK(run.train.gain_learning_rate == 0.125 && run.train.embedding_weight_decay == 0);
    CHECK(run.train.warmup == 0 && run.train.decay_steps == 1000);
    CHECK(strcmp(strait_optimizer_names[run.train.optimizer], "adamw-rows") == 0 &&
          run.train.recompute);
    CHECK(run.stages.microbatch == 2);
}

#define REFUSES(text, words) CHECK_FAILS(parse(text), STRAIT_ECONFIG, "R.yaml: " words)

static void test_rejects_conflicting_keys(void **state) {
    (void)state;
    REFUSES("model: {heads: 3}", "model.heads: 3 does not divide model.width 256");
    REFUSES("model: {head_dim: 7}", "model.head_dim: 7 is not a multiple of 2");
    REFUSES("model: {head_dim: 6, rope: half}",
            "model.head_dim: 6 is not a multiple of 4, which model.rope needs");
    REFUSES("model: {kv_heads: 3}", "model.kv_heads: 3 does not divide model.heads 4");
    REFUSES("model: {kv_heads: 8}", "model.kv_heads: 8 does not divide model.heads 4");
    REFUSES("model: {qk_gain: true}", "model.qk_gain: needs model.qk_norm");
    REFUSES("train: {batch_tokens: 1000}",
            "train.batch_tokens: 1000 is not a multiple of model.context 256; try 1024");
    REFUSES("stages: {microbatch: 3}", "stages.microbatch: 3 sequences of model.context 256 do not "
                                       "divide train.batch_tokens 8192");
    REFUSES("train: {anchor_learning_rate: -0.5}",
            "train.anchor_learning_rate: -0.5 is neither -1 nor 0 or more");
    REFUSES("train: {embedding_weight_decay: -0.1}",
            "train.embedding_weight_decay: -0.1 is neither -1 nor 0");
    REFUSES("train: {decay_steps: 5}", "train.decay_steps: needs train.schedule constant");
    REFUSES("train: {steps: 10, warmup: 11}", "train.warmup 11 and train.decay_steps 0 exceed");
    REFUSES("train: {steps: 10, warmup: 6, decay_steps: 5, schedule: constant}",
            "train.warmup 6 and train.decay_steps 5 exceed train.steps 10");
    REFUSES("data: {valid_tokens: 256}",
            "data.valid_tokens: 256 is not more than model.context 256");
    REFUSES("name: a/b", "name: \"a/b\" cannot name a folder");
    REFUSES("name: .hidden", "name: \".hidden\" cannot name a folder");
    REFUSES("device: {ordinal: [0, 1]}",
            "device.ordinal: 2 devices for 1 stage; expected one for all stages, one per stage, or "
            "auto");
    REFUSES("device: {ordinal: [0, 1]}\nstages: {count: 3}",
            "device.ordinal: 2 devices for 3 stages");
    REFUSES("device: {kind: gpu}",
            "device.kind: \"gpu\" is not a device kind; expected cpu or cuda");
    REFUSES("link: {codec: {name: zip}}", "there is no codec 'zip'; choose one of");
    CHECK_FAILS(parse("train: {learning_rate: fast}"), STRAIT_ECONFIG,
                "R.yaml:1:24: train.learning_rate: \"fast\" is not a number");
    CHECK_FAILS(parse_set("train.learning_rate=fast"), STRAIT_ECONFIG,
                "train.learning_rate=fast: \"fast\" is not a number");
}

/* Loads the file `text` with overrides, as the program does. */
static strait_err load_sets(const char *text, const char *const *sets, int n) {
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "F.yaml");
    CHECK_OK(strait_file_write(path, text, strlen(text)));
    const strait_err err = strait_run_init_file(path, sets, n, &run);
    scratch_close(&dir);
    return err;
}

#define REFUSES_SETS(text, words, ...)                                                        \
    do {                                                                                      \
        const char *const sets[] = {__VA_ARGS__};                                             \
        CHECK_FAILS(load_sets(text, sets, (int)(sizeof sets / sizeof *sets)), STRAIT_ECONFIG, \
                    words);                                                                   \
    } while (0)

/* Who is sent to a file that is right finds nothing there. */
static void test_names_the_override_that_does_not_fit(void **state) {
    (void)state;
    REFUSES_SETS("", "train.steps=soon: \"soon\"", "train.steps=soon");
    CHECK(strncmp(strait_err_detail(), "train.steps", 11) == 0);
    REFUSES_SETS("", "model.heads=3: model.heads: 3 does not divide", "train.steps=9",
                 "model.heads=3");
    CHECK(strncmp(strait_err_detail(), "model.heads", 11) == 0);
    REFUSES_SETS("", "train.steps=9, train.warmup=10: train.warmup 10", "train.steps=9",
                 "train.seed=2", "train.warmup=10");
    /* Two that are wrong: the first error is that of the second override. */
    REFUSES_SETS("", "model.heads=3: model.heads: 3 does", "train.batch_tokens=1000",
                 "model.heads=3");
    REFUSES_SETS("", "model.heads=3, model.heads=3: model.heads", "model.heads=3", "model.heads=3");
    /* The file is wrong without it, too. */
    REFUSES_SETS("model: {heads: 3}", "F.yaml: model.heads: 3 does not divide", "train.steps=9");
    CHECK(strstr(strait_err_detail(), "train.steps") == NULL);
}

/* An old key is refused wherever it is given, and the error names a key that exists. */
static void test_ordinals_place_stages(void **state) {
    (void)state;
    CHECK_OK(parse("stages: {count: 3}\ndevice: {ordinal: 4}"));
    CHECK(strait_run_ordinal(&run, 0) == 4 && strait_run_ordinal(&run, 2) == 4);
    CHECK_OK(parse("stages: {count: 3}\ndevice: {ordinal: [0, 0, 2]}"));
    CHECK(strait_run_ordinal(&run, 1) == 0 && strait_run_ordinal(&run, 2) == 2);
    CHECK(strait_run_plan_backend(&run, 2).ordinal == 2);
    /* There is one cpu, which all stages share. */
    CHECK_OK(parse("stages: {count: 3}\ndevice: {ordinal: auto}"));
    CHECK(run.device.ordinal.n == 0 && strait_run_ordinal(&run, 2) == 0);
    assert_int_equal(strait_backend_count("cpu"), 1);
    assert_int_equal(strait_backend_count("none"), 0);
}

static void test_rejects_renamed_keys_with_their_new_names(void **state) {
    (void)state;
    const strait_options *table = strait_run_options();
    CHECK(table->n_renames > 0);
    for (int i = 0; i < table->n_renames; i++) {
        char set[STRAIT_RUN_TEXT];
        char expected[2 * STRAIT_RUN_TEXT];
        const strait_option_rename *rename = &table->renames[i];
        CHECK(strait_options_find(table, rename->old_key) == NULL);
        CHECK(strait_options_find(table, rename->key) != NULL);
        (void)snprintf(set, sizeof set, "%s=1", rename->old_key);
        (void)snprintf(expected, sizeof expected, "%s: %s was renamed: use %s", set,
                       rename->old_key, rename->key);
        CHECK_FAILS(parse_set(set), STRAIT_ECONFIG, expected);
    }
    CHECK_FAILS(parse("train:\n  steps: 5\n  rate: 0.1\n"), STRAIT_ECONFIG,
                "R.yaml:3:3: train.rate was renamed: use train.learning_rate");
    CHECK_FAILS(parse("link: {emulate: {cut_after: 1s}}"), STRAIT_ECONFIG,
                "R.yaml:1:18: link.emulate.cut_after was renamed: use link.emulate.drop_after");
}

static void test_error_leaves_the_run_unchanged(void **state) {
    (void)state;
    CHECK_OK(parse("model: {width: 512}"));
    CHECK(parse("model: {width: 768}\ntrain: {batch_tokens: 1}") == STRAIT_ECONFIG);
    assert_int_equal(run.model.width, 512);
}

static void test_file_gives_name_and_folder(void **state) {
    (void)state;
    scratch dir = scratch_open();
    static const char text[] = "data: {train: a/t.bin, valid: /v.bin}\n";
    const char *path = scratch_at(&dir, "small.run.yaml");
    CHECK_OK(strait_file_write(path, text, sizeof text - 1));
    const char *const sets[] = {"data.tokenizer=tok.json"};
    CHECK_OK(strait_run_init_file(path, sets, 1, &run));
    assert_string_equal(run.name, "small.run");
    assert_string_equal(run.data.train, scratch_at(&dir, "a/t.bin"));
    assert_string_equal(run.data.valid, "/v.bin");
    char here[STRAIT_PATH_MAX];
    char expected[2 * STRAIT_PATH_MAX];
    CHECK(getcwd(here, sizeof here) != NULL);
    (void)snprintf(expected, sizeof expected, "%s/tok.json", here);
    assert_string_equal(run.data.tokenizer, expected);
    CHECK(chdir(dir.path) == 0);
    CHECK_OK(strait_run_init_file("small.run.yaml", NULL, 0, &run));
    assert_string_equal(run.data.train, scratch_at(&dir, "a/t.bin"));
    CHECK_OK(strait_run_init_file("./small.run.yaml", NULL, 0, &run));
    assert_string_equal(run.data.train, scratch_at(&dir, "./a/t.bin"));
    CHECK(chdir(here) == 0);
    CHECK_FAILS(strait_run_init_file(scratch_at(&dir, "none.yaml"), NULL, 0, &run), STRAIT_ECONFIG,
                "none.yaml: cannot open: No such file");
    CHECK_FAILS(strait_run_init_file(dir.path, NULL, 0, &run), STRAIT_ECONFIG,
                "is a folder; name a file");
    CHECK_FAILS(
        strait_run_init_text("a123456789b123456789c123456789d123456789e123456789f1234567890123"
                             ".yaml",
                             "", 0, NULL, 0, &run),
        STRAIT_ECONFIG, "name: the file's name is longer than 63 bytes");
    scratch_close(&dir);
}

/* Compares one row of docs/run-file.md with what `strait options --markdown` prints. */
static void check_row(const char *document, const char *row) {
    if (strstr(document, row) == NULL)
        fail_msg("docs/run-file.md is stale: run tools/update-run-file-docs; it lacks %s", row);
}

static int count_rows(const char *document) {
    int n = 0;
    for (const char *at = document; (at = strstr(at, "\n| `")) != NULL; at++)
        n++;
    return n;
}

/* The document has a row for every option and every renamed key, and no others. */
static void test_run_file_docs_are_up_to_date(void **state) {
    (void)state;
    const strait_options *table = strait_run_options();
    char row[3 * STRAIT_OPTION_TEXT_MAX];
    char *text = NULL;
    CHECK_OK(strait_file_read("docs/run-file.md", 1 << 20, &text, NULL));
    for (int i = 0; i < table->n_rows; i++) {
        char what[STRAIT_OPTION_TEXT_MAX];
        char initial[STRAIT_OPTION_TEXT_MAX];
        strait_options_describe(&table->rows[i], what);
        strait_options_describe_default(table, &table->rows[i], initial);
        (void)snprintf(row, sizeof row, "\n| `%s` | %s | %s | %s |\n", table->rows[i].key, what,
                       initial, table->rows[i].help);
        check_row(text, row);
    }
    for (int i = 0; i < table->n_renames; i++) {
        (void)snprintf(row, sizeof row, "\n| `%s` | `%s` |\n", table->renames[i].old_key,
                       table->renames[i].key);
        check_row(text, row);
    }
    assert_int_equal(count_rows(text), table->n_rows + table->n_renames);
    strait_alloc_free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_is_consistent),
        cmocka_unit_test(test_llama_is_the_default),
        cmocka_unit_test(test_presets_apply_wherever_they_are_chosen),
        cmocka_unit_test(test_omitted_variant_applies_its_presets),
        cmocka_unit_test(test_other_variants_have_no_presets),
        cmocka_unit_test(test_given_values_are_not_derived),
        cmocka_unit_test(test_rejects_conflicting_keys),
        cmocka_unit_test(test_names_the_override_that_does_not_fit),
        cmocka_unit_test(test_ordinals_place_stages),
        cmocka_unit_test(test_rejects_renamed_keys_with_their_new_names),
        cmocka_unit_test(test_error_leaves_the_run_unchanged),
        cmocka_unit_test(test_file_gives_name_and_folder),
        cmocka_unit_test(test_run_file_docs_are_up_to_date),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
