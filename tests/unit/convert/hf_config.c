/* hf_config.c - config.json of Hugging Face folders, in both spellings, good and bad. */
#include "convert/hf_config.h"

#include "check.h"

#include <stdio.h>

#define SIZES                                                                     \
    "\"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"  \
    "\"num_key_value_heads\": 2, \"intermediate_size\": 96, \"vocab_size\": 100," \
    "\"max_position_embeddings\": 512"

static strait_err parse(const char *type, const char *more, strait_hf_config *out) {
    char text[2048];
    const int n = snprintf(text, sizeof text, "{\"model_type\": \"%s\", " SIZES "%s%s}", type,
                           more[0] != '\0' ? ", " : "", more);
    return strait_hf_config_parse(text, (size_t)n, out);
}

static void reads_sizes_with_the_defaults_of_the_class(void **state) {
    (void)state;
    strait_hf_config config;
    CHECK_OK(parse("llama", "", &config));
    const strait_shape *s = &config.shape;
    assert_int_equal(config.class, STRAIT_HF_LLAMA);
    assert_true(s->width == 64 && s->layers == 2 && s->heads == 4 && s->kv_heads == 2);
    assert_true(s->ffn == 96 && s->vocab == 100 && s->context == 512 && s->head_dim == 16);
    assert_true(!s->has_qkv_bias && !s->has_qk_norm && !s->is_tied);
    CHECK_NEAR((double)s->rope_theta, 10000.0, 0.0);
    CHECK_NEAR((double)s->norm_epsilon, 1e-6, 1e-12);
    CHECK_NEAR((double)s->attention_scale, 0.25, 0.0);
    CHECK_OK(parse("qwen2", "\"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": true", &config));
    assert_true(s->has_qkv_bias && !s->has_qk_norm && s->is_tied);
    CHECK_OK(parse("qwen3", "\"head_dim\": 32", &config));
    assert_true(!s->has_qkv_bias && s->has_qk_norm && s->has_qk_gain && s->head_dim == 32);
    CHECK_FAILS(parse("qwen3", "", &config), STRAIT_EDATA, "\"head_dim\" is missing");
}

static void both_spellings_of_the_rope_mean_the_same(void **state) {
    (void)state;
    static const char numbers[] = "\"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4, "
                                  "\"original_max_position_embeddings\": 128";
    char today[512], before[512], first[512];
    strait_hf_config a, b, c;
    (void)snprintf(today, sizeof today,
                   "\"rope_parameters\": {\"rope_type\": \"llama3\", \"rope_theta\": 5e5, %s}",
                   numbers);
    (void)snprintf(before, sizeof before,
                   "\"rope_theta\": 500000, \"rope_scaling\": {\"rope_type\": \"llama3\", %s}",
                   numbers);
    (void)snprintf(first, sizeof first,
                   "\"rope_theta\": 500000, \"rope_scaling\": {\"type\": \"llama3\", %s}", numbers);
    CHECK_OK(parse("llama", today, &a));
    CHECK_OK(parse("llama", before, &b));
    CHECK_OK(parse("llama", first, &c));
    assert_int_equal(a.shape.rope_scaling, STRAIT_ROPE_LLAMA3);
    CHECK_NEAR((double)a.shape.rope_theta, 5e5, 0.0);
    assert_true(a.shape.rope_original == 128 && a.shape.rope_high == 4.0f);
    assert_memory_equal(&a, &b, sizeof a);
    assert_memory_equal(&a, &c, sizeof a);
    CHECK_OK(parse("llama", "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}", &a));
    assert_true(a.shape.rope_scaling == STRAIT_ROPE_LINEAR && a.shape.rope_factor == 2.0f);
    CHECK_OK(parse("llama", "\"rope_scaling\": null, \"rope_theta\": 1e6", &a));
    assert_true(a.shape.rope_scaling == STRAIT_ROPE_UNSCALED && a.shape.rope_theta == 1e6f);
}

static void only_a_window_in_use_counts(void **state) {
    (void)state;
    strait_hf_config config;
    CHECK_OK(parse("mistral", "\"sliding_window\": 128", &config));
    assert_int_equal(config.sliding_window, 128);
    CHECK_OK(parse("mistral", "\"sliding_window\": null", &config));
    assert_int_equal(config.sliding_window, 0);
    CHECK_OK(parse("qwen2", "\"use_sliding_window\": false, \"sliding_window\": 128", &config));
    assert_int_equal(config.sliding_window, 0);
    CHECK_OK(parse("qwen2", "\"use_sliding_window\": true, \"sliding_window\": 128", &config));
    assert_int_equal(config.sliding_window, 128);
}

/* Each of these would give another model if it were overlooked. */
static void refuses_what_no_part_computes(void **state) {
    (void)state;
    static const struct {
        const char *more, *error;
    } cases[] = {
        {"\"hidden_act\": \"gelu\"", "\"hidden_act\" is \"gelu\""},
        {"\"attention_bias\": true", "\"attention_bias\" is true"},
        {"\"mlp_bias\": true", "\"mlp_bias\" is true"},
        {"\"quantization_config\": {\"bits\": 4}", "quantized"},
        {"\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}", "\"yarn\" is not known"},
        {"\"rope_scaling\": {\"type\": \"linear\"}", "\"factor\" is missing"},
        {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0.5}", "model.rope_factor"},
        {"\"rope_scaling\": 2", "\"rope_scaling\" is not an object"},
        {"\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\" is 0.5"},
        {"\"rms_norm_eps\": -1", "\"rms_norm_eps\" is not a positive number"},
        {"\"tie_word_embeddings\": 1", "not true or false"},
        {"\"head_dim\": 15", "must be even"},
        {"\"architectures\": [\"LlamaForSequenceClassification\"]", "Classification"},
        {"\"architectures\": [3]", "\"architectures\" is not a list of names"},
        {"\"architectures\": \"LlamaForCausalLM\"", "\"architectures\" is not a list"},
        {"\"rope_scaling\": {\"rope_type\": 5}", "\"rope_type\" is not a text"},
    };
    strait_hf_config config;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_FAILS(parse("llama", cases[i].more, &config), STRAIT_EDATA, cases[i].error);
    CHECK_FAILS(parse("gpt2", "", &config), STRAIT_EDATA, "\"gpt2\" is not known");
}

static void refuses_files_that_are_no_config(void **state) {
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"[]", "not a JSON object"},
        {"{}", "model_type"},
        {"{\"model_type\": \"llama\"}", "\"hidden_size\" is missing"},
        {"{\"model_type\": \"llama\", \"hidden_size\": 1e9}", "\"hidden_size\" is not a whole"},
        {"{\"model_type\": \"llama\", \"hidden_size\": 4, \"num_hidden_layers\": 1, "
         "\"num_attention_heads\": 8, \"intermediate_size\": 4}",
         "less than"},
    };
    strait_hf_config config;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_FAILS(strait_hf_config_parse(cases[i].text, strlen(cases[i].text), &config),
                    STRAIT_EDATA, cases[i].error);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_sizes_with_the_defaults_of_the_class),
        cmocka_unit_test(both_spellings_of_the_rope_mean_the_same),
        cmocka_unit_test(only_a_window_in_use_counts),
        cmocka_unit_test(refuses_what_no_part_computes),
        cmocka_unit_test(refuses_files_that_are_no_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
