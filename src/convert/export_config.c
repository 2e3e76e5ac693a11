/* export_config.c - config.json, tokenizer_config.json and generation_config.json. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "config/description.h"
#include "convert/export_files.h"
#include "convert/floats.h"
#include "convert/remote/remote_code.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* JSON of the double would have more digits. */
static json_t *number(float value) {
    char text[32];
    strait_floats_text(value, text);
    return json_real(strtod(text, NULL));
}

/* Writes a document, taking it over, with indentation, as transformers does. */
static strait_err write_json(const char *folder, const char *name, json_t *document) {
    char path[STRAIT_PATH_MAX];
    strait_err err = strait_file_path(path, "%s/%s", folder, name);
    char *text = document != NULL ? json_dumps(document, JSON_INDENT(2) | JSON_PRESERVE_ORDER |
                                                             JSON_REAL_PRECISION(12))
                                  : NULL;
    json_decref(document);
    if (text == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "%s/%s", folder, name);
    if (err == STRAIT_OK) err = strait_file_write(path, text, strlen(text));
    free(text);
    return err;
}

/* Today's spelling of the rope; earlier versions of transformers read the second one. */
static void add_rope(json_t *config, const strait_shape *s) {
    json_t *rope = json_pack("{s:s, s:o}", "rope_type", "default", "rope_theta",
                             number(s->rope_theta));
    if (s->rope_scaling != STRAIT_ROPE_UNSCALED) {
        const int is_linear = s->rope_scaling == STRAIT_ROPE_LINEAR;
        (void)json_object_set_new(rope, "rope_type", json_string(is_linear ? "linear" : "llama3"));
        (void)json_object_set_new(rope, "factor", number(s->rope_factor));
        if (!is_linear) {
            (void)json_object_set_new(rope, "low_freq_factor", number(s->rope_low));
            (void)json_object_set_new(rope, "high_freq_factor", number(s->rope_high));
            (void)json_object_set_new(rope, "original_max_position_embeddings",
                                      json_integer(s->rope_original));
        }
        (void)json_object_set(config, "rope_scaling", rope);
    }
    (void)json_object_set_new(config, "rope_theta", number(s->rope_theta));
    (void)json_object_set_new(config, "rope_parameters", rope);
}

/* What all classes have. */
static json_t *common_config(const strait_export_about *about) {
    const strait_shape *s = &about->plan->shape;
    const strait_hf_class class = about->class;
    json_t *config = json_pack(
        "{s:[s], s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:s, s:o, s:b, s:b, s:s, s:s}",
        "architectures", strait_hf_class_architecture(class), "model_type",
        strait_hf_class_model_type(class), "hidden_size", s->width, "intermediate_size", s->ffn,
        "num_hidden_layers", s->layers, "num_attention_heads", s->heads, "num_key_value_heads",
        s->kv_heads, "head_dim", s->head_dim, "vocab_size", (json_int_t)s->vocab,
        "max_position_embeddings", (json_int_t)s->context, "hidden_act", "silu", "rms_norm_eps",
        number(s->norm_epsilon), "tie_word_embeddings", s->is_tied, "attention_bias", 0, "dtype",
        about->dtype, "torch_dtype", about->dtype);
    if (config == NULL) return NULL;
    add_rope(config, s);
    if (about->end_id >= 0)
        (void)json_object_set_new(config, "eos_token_id", json_integer(about->end_id));
    /* The classes have defaults for these that may be tokens of another vocabulary. */
    if (about->end_id < 0) (void)json_object_set_new(config, "eos_token_id", json_null());
    (void)json_object_set_new(config, "bos_token_id", json_null());
    return config;
}

/* Everything that the manifest says about the model, under its own keys: modeling_strait.py reads
 * them. */
static strait_err add_description(const strait_run_plan *plan, json_t *config) {
    strait_description *description = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *description, "description", (void **)&description));
    strait_describe(plan, description);
    json_t *model = json_object();
    for (int i = 0; i < description->n; i++)
        (void)json_object_set_new(model, description->pairs[i].key,
                                  json_string(description->pairs[i].value));
    strait_alloc_free(description);
    (void)json_object_set_new(config, "strait", model);
    (void)json_object_set_new(config, "auto_map",
                              json_pack("{s:s, s:s}", "AutoConfig",
                                        "configuration_strait.StraitConfig", "AutoModelForCausalLM",
                                        "modeling_strait.StraitForCausalLM"));
    return STRAIT_OK;
}

strait_err strait_export_config(const strait_export_about *about, const char *out) {
    json_t *config = common_config(about);
    if (config == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "%s/config.json", out);
    if (about->class == STRAIT_HF_STRAIT) {
        const strait_err err = add_description(about->plan, config);
        if (err != STRAIT_OK) {
            json_decref(config);
            return err;
        }
    }
    return write_json(out, "config.json", config);
}

static int has_file(const char *folder, const char *name) {
    char path[STRAIT_PATH_MAX];
    return strait_file_path(path, "%s/%s", folder, name) == STRAIT_OK && strait_file_exists(path);
}

strait_err strait_export_companions(const strait_export_about *about, const char *out) {
    if (about->has_tokenizer && !has_file(out, "tokenizer_config.json")) {
        json_t *config = json_pack("{s:s, s:I, s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                                   "model_max_length", (json_int_t)about->plan->shape.context,
                                   "clean_up_tokenization_spaces", 0);
        if (config != NULL && about->end != NULL)
            (void)json_object_set_new(config, "eos_token", json_string(about->end));
        STRAIT_TRY(write_json(out, "tokenizer_config.json", config));
    }
    if (has_file(out, "generation_config.json")) return STRAIT_OK;
    json_t *generation = json_object();
    if (about->end_id >= 0)
        (void)json_object_set_new(generation, "eos_token_id", json_integer(about->end_id));
    return write_json(out, "generation_config.json", generation);
}

strait_err strait_export_remote_code(const char *out) {
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(path, "%s/configuration_strait.py", out));
    STRAIT_TRY(strait_file_write(path, strait_configuration_py, strait_configuration_py_bytes));
    STRAIT_TRY(strait_file_path(path, "%s/modeling_strait.py", out));
    return strait_file_write(path, strait_modeling_py, strait_modeling_py_bytes);
}
