/* hf_config.h - config.json of a Hugging Face folder: from it to the shape of a model, and back.
 *
 * Four classes compute what a model of this program computes: Llama, Mistral, Qwen2 and Qwen3.
 * Both spellings are read: `rope_parameters` and `dtype` of today, `rope_theta`, `rope_scaling` and
 * `torch_dtype` of earlier files. Anything that would change the mathematics and is not known is
 * refused, with the key and its value. */
#pragma once

#include "base/json.h"
#include "model/shape.h"

typedef enum strait_hf_class {
    STRAIT_HF_LLAMA,
    STRAIT_HF_MISTRAL,
    STRAIT_HF_QWEN2,
    STRAIT_HF_QWEN3,
    STRAIT_HF_STRAIT, // of modeling_strait.py: only written
} strait_hf_class;

typedef struct strait_hf_config {
    strait_hf_class class;
    strait_shape shape;     // context is max_position_embeddings; checked
    int64_t sliding_window; // tokens that attention sees; 0: all
} strait_hf_config;

/* "LlamaForCausalLM", "llama" and so on. */
const char *strait_hf_class_architecture(strait_hf_class class);
const char *strait_hf_class_model_type(strait_hf_class class);

/* Reads the text of a config.json. STRAIT_EDATA names the key that is missing, has a wrong value,
 * or asks for something that no model of this program has. */
strait_err strait_hf_config_parse(const char *text, size_t bytes, strait_hf_config *out);

/* The same for a folder; the error names the file. */
strait_err strait_hf_config_load(const char *folder, strait_hf_config *out);
