#include "convert/hf_config.h"

#include "base/alloc.h"
#include "base/file.h"

#include <math.h>
#include <string.h>

enum {
    CONFIG_BYTES = 4 << 20 // far more than any config.json
};

#define WRONG(...) STRAIT_FAIL(STRAIT_EDATA, __VA_ARGS__)

static const struct {
    const char *architecture, *model_type;
} classes[] = {[STRAIT_HF_LLAMA] = {"LlamaForCausalLM", "llama"},
               [STRAIT_HF_MISTRAL] = {"MistralForCausalLM", "mistral"},
               [STRAIT_HF_QWEN2] = {"Qwen2ForCausalLM", "qwen2"},
               [STRAIT_HF_QWEN3] = {"Qwen3ForCausalLM", "qwen3"},
               [STRAIT_HF_STRAIT] = {"StraitForCausalLM", "strait"}};

const char *strait_hf_class_architecture(strait_hf_class class) {
    return classes[class].architecture;
}

const char *strait_hf_class_model_type(strait_hf_class class) {
    return classes[class].model_type;
}

/* A member that is neither absent nor null. */
static const json_t *given(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

/* A whole number from 1 to `most`; `absent` where the key is not given, 0: it must be. */
static strait_err read_int(const json_t *object, const char *key, int64_t absent, int64_t most,
                           int64_t *out) {
    const json_t *value = given(object, key);
    if (value == NULL && absent != 0) {
        *out = absent;
        return STRAIT_OK;
    }
    if (value == NULL) return WRONG("\"%s\" is missing", key);
    if (!json_is_integer(value) || json_integer_value(value) < 1 ||
        json_integer_value(value) > most)
        return WRONG("\"%s\" is not a whole number from 1 to %lld", key, (long long)most);
    *out = json_integer_value(value);
    return STRAIT_OK;
}

/* A positive number; `absent` where the key is not given, 0: it must be. */
static strait_err read_real(const json_t *object, const char *key, double absent, float *out) {
    const json_t *value = given(object, key);
    const double number = value != NULL ? json_number_value(value) : absent;
    if (value == NULL && absent == 0) return WRONG("\"%s\" is missing", key);
    if ((value != NULL && !json_is_number(value)) || !(number > 0 && number < 1e12))
        return WRONG("\"%s\" is not a positive number", key);
    *out = (float)number;
    return STRAIT_OK;
}

static strait_err read_bool(const json_t *object, const char *key, int *out) {
    const json_t *value = given(object, key);
    if (value != NULL && !json_is_boolean(value)) return WRONG("\"%s\" is not true or false", key);
    *out = json_is_true(value);
    return STRAIT_OK;
}

/* Refuses a switch that no model of this program has. */
static strait_err expect_off(const json_t *object, const char *key) {
    int is_on = 0;
    STRAIT_TRY(read_bool(object, key, &is_on));
    return is_on ? WRONG("\"%s\" is true, which Strait has no part for", key) : STRAIT_OK;
}

/* The class by "model_type", and "architectures" where it is given: a classifier has the same
 * type. */
static strait_err read_class(const json_t *config, strait_hf_class *out) {
    const json_t *list = given(config, "architectures");
    const char *name = json_string_value(json_array_get(list, 0)), *type = NULL;
    if (list != NULL && name == NULL) return WRONG("\"architectures\" is not a list of names");
    STRAIT_TRY(strait_json_string(config, "model_type", &type));
    for (int i = 0; i < STRAIT_HF_STRAIT; i++) {
        if (strcmp(classes[i].model_type, type) != 0) continue;
        if (name != NULL && strcmp(classes[i].architecture, name) != 0)
            return WRONG("architecture \"%.60s\" is not known: Strait reads %s", name,
                         classes[i].architecture);
        *out = (strait_hf_class)i;
        return STRAIT_OK;
    }
    return WRONG("model_type \"%.60s\" is not known: Strait reads llama, mistral, qwen2 and qwen3",
                 type);
}

static strait_err read_scaling(const json_t *rope, strait_shape *shape) {
    const json_t *named = given(rope, "rope_type");
    if (named == NULL) named = given(rope, "type"); // in earlier files
    const char *type = named != NULL ? json_string_value(named) : "default";
    if (type == NULL) return WRONG("\"rope_type\" is not a text");
    if (strcmp(type, "default") == 0) return STRAIT_OK;
    if (strcmp(type, "linear") == 0) {
        shape->rope_scaling = STRAIT_ROPE_LINEAR;
        return read_real(rope, "factor", 0, &shape->rope_factor);
    }
    if (strcmp(type, "llama3") != 0)
        return WRONG("rope scaling \"%.40s\" is not known: Strait reads linear and llama3", type);
    shape->rope_scaling = STRAIT_ROPE_LLAMA3;
    STRAIT_TRY(read_real(rope, "factor", 0, &shape->rope_factor));
    STRAIT_TRY(read_real(rope, "low_freq_factor", 0, &shape->rope_low));
    STRAIT_TRY(read_real(rope, "high_freq_factor", 0, &shape->rope_high));
    return read_int(rope, "original_max_position_embeddings", 0, INT32_MAX, &shape->rope_original);
}

/* Today's files have everything in "rope_parameters"; in earlier ones "rope_theta" stands alone
 * and "rope_scaling" has the rest. */
static strait_err read_rope(const json_t *config, strait_shape *shape) {
    const json_t *today = given(config, "rope_parameters");
    const json_t *rope = today != NULL ? today : given(config, "rope_scaling");
    float partial = 1.0f;
    if (rope != NULL && !json_is_object(rope))
        return WRONG("\"%s\" is not an object", today != NULL ? "rope_parameters" : "rope_scaling");
    const int has_theta = today != NULL && given(today, "rope_theta") != NULL;
    STRAIT_TRY(read_real(has_theta ? today : config, "rope_theta", 10000.0, &shape->rope_theta));
    STRAIT_TRY(read_real(config, "partial_rotary_factor", 1.0, &partial));
    if (rope != NULL) STRAIT_TRY(read_real(rope, "partial_rotary_factor", partial, &partial));
    if (partial != 1.0f)
        return WRONG("\"partial_rotary_factor\" is %g, and Strait rotates all features",
                     (double)partial);
    return rope != NULL ? read_scaling(rope, shape) : STRAIT_OK;
}

/* Defaults of absent keys are those of the classes in transformers. */
static strait_err read_sizes(const json_t *config, strait_hf_class class, strait_shape *shape) {
    const struct {
        const char *key;
        int64_t absent, most;
        int *out;
    } sizes[] = {{"hidden_size", 0, 65536, &shape->width},
                 {"num_hidden_layers", 0, 4096, &shape->layers},
                 {"num_attention_heads", 0, 1024, &shape->heads},
                 {"intermediate_size", 0, 1048576, &shape->ffn}};
    int64_t n = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        STRAIT_TRY(read_int(config, sizes[i].key, sizes[i].absent, sizes[i].most, &n));
        *sizes[i].out = (int)n;
    }
    /* Llama's files before grouped heads have no number of key heads; the other classes would
     * take a number of their own. */
    const int64_t key_heads = class == STRAIT_HF_LLAMA ? shape->heads : 0;
    STRAIT_TRY(read_int(config, "num_key_value_heads", key_heads, 1024, &n));
    shape->kv_heads = (int)n;
    const int64_t head_dim = class == STRAIT_HF_QWEN3 ? 0 : shape->width / shape->heads;
    if (head_dim < 1 && class != STRAIT_HF_QWEN3)
        return WRONG("\"hidden_size\" %d is less than \"num_attention_heads\" %d", shape->width,
                     shape->heads);
    STRAIT_TRY(read_int(config, "head_dim", head_dim, 65536, &n));
    shape->head_dim = (int)n;
    STRAIT_TRY(read_int(config, "vocab_size", 0, 16777216, &shape->vocab));
    return read_int(config, "max_position_embeddings", 0, INT32_MAX, &shape->context);
}

/* What would change the mathematics if it were overlooked. */
static strait_err check_switches(const json_t *config) {
    const json_t *act = given(config, "hidden_act");
    const char *name = json_string_value(act);
    if (act != NULL && (name == NULL || strcmp(name, "silu") != 0))
        return WRONG("\"hidden_act\" is \"%.40s\", and Strait's SwiGLU needs \"silu\"",
                     name != NULL ? name : "not a text");
    STRAIT_TRY(expect_off(config, "attention_bias"));
    STRAIT_TRY(expect_off(config, "mlp_bias"));
    if (given(config, "quantization_config") != NULL)
        return WRONG("the weights are quantized (\"quantization_config\"): Strait reads f32, f16 "
                     "and bf16");
    return STRAIT_OK;
}

/* Mistral's window holds unless it is null; Qwen's only where a switch says so. */
static strait_err read_window(const json_t *config, strait_hf_config *out) {
    int uses = out->class == STRAIT_HF_MISTRAL;
    if (given(config, "use_sliding_window") != NULL)
        STRAIT_TRY(read_bool(config, "use_sliding_window", &uses));
    if (!uses || given(config, "sliding_window") == NULL) return STRAIT_OK;
    return read_int(config, "sliding_window", 0, INT32_MAX, &out->sliding_window);
}

static strait_err read_config(const json_t *config, strait_hf_config *out) {
    strait_shape *shape = &out->shape;
    if (!json_is_object(config)) return WRONG("it is not a JSON object");
    STRAIT_TRY(read_class(config, &out->class));
    STRAIT_TRY(read_sizes(config, out->class, shape));
    STRAIT_TRY(check_switches(config));
    STRAIT_TRY(read_rope(config, shape));
    STRAIT_TRY(read_real(config, "rms_norm_eps", 1e-6, &shape->norm_epsilon));
    STRAIT_TRY(read_bool(config, "tie_word_embeddings", &shape->is_tied));
    STRAIT_TRY(read_window(config, out));
    shape->has_qkv_bias = out->class == STRAIT_HF_QWEN2;
    shape->has_qk_norm = shape->has_qk_gain = out->class == STRAIT_HF_QWEN3;
    /* Written out, as a run's options are, so that the two compare equal. */
    shape->attention_scale = (float)(1 / sqrt((double)shape->head_dim));
    shape->local_every = 1;
    const strait_err err = strait_shape_check(shape);
    /* The message names options of a run file; to the reader this is a fault of a file. */
    return err == STRAIT_ECONFIG ? STRAIT_EDATA : err;
}

strait_err strait_hf_config_parse(const char *text, size_t bytes, strait_hf_config *out) {
    strait_hf_config config = {0};
    json_t *document = NULL;
    STRAIT_TRY(strait_json_parse(text, bytes, &document));
    const strait_err err = read_config(document, &config);
    json_decref(document);
    if (err == STRAIT_OK) *out = config;
    return err;
}

strait_err strait_hf_config_load(const char *folder, strait_hf_config *out) {
    char path[STRAIT_PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    STRAIT_TRY(strait_file_path(path, "%s/config.json", folder));
    if (!strait_file_exists(path)) {
        STRAIT_TRY(strait_file_path(path, "%s/adapter_config.json", folder));
        if (strait_file_exists(path))
            return WRONG("%s: has only adapters (adapter_config.json): merge them into their model "
                         "with PEFT's merge_and_unload(), and import that",
                         folder);
        return WRONG("%s: has no config.json: not a Hugging Face folder", folder);
    }
    STRAIT_TRY(strait_file_read(path, CONFIG_BYTES, &text, &bytes));
    const strait_err err = strait_hf_config_parse(text, bytes, out);
    strait_alloc_free(text);
    if (err != STRAIT_OK) strait_err_prefix("%s", path);
    return err;
}
