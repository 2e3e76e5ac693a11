/* convert.h - bring a model of Hugging Face's format into a run's folder, and take one out.
 *
 *     strait_import_hf("Qwen3-0.6B", "runs/qwen", NULL, NULL, NULL);
 *     strait_export_hf("runs/mine", "mine-hf", NULL, NULL, NULL);
 *
 * Neither needs more memory than the largest tensor of the model. Both write beside the target,
 * into TARGET.tmp, and rename at the end: after an error nothing is left, and what a killed process
 * left is removed by the next one. */
#pragma once

#include <strait/error.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Called with a message for people: what was converted, and what was not. Valid during the call. */
typedef void (*strait_convert_note)(void *user, const char *text);

/* Called before each tensor, with the bytes that were written so far and all that will be. A result
 * other than 0 ends the conversion with STRAIT_EINTERRUPTED. */
typedef int (*strait_convert_progress)(void *user, int64_t done, int64_t total);

typedef struct strait_import_params {
    int64_t context;                  // longest sequence; 0: max_position_embeddings of config.json
    strait_convert_progress progress; // gets the `user` of the note; may be NULL
} strait_import_params;

/* Reads the folder of a Llama, Mistral, Qwen2 or Qwen3 model and writes a run's folder with one
 * checkpoint, of step 0: weights, tokenizer, and a run.yaml that describes the model. `run` must
 * not exist. `params` and `note` may be NULL. STRAIT_EDATA names what the folder lacks, what is
 * damaged, or what Strait has no part for. */
STRAIT_API strait_err strait_import_hf(const char *folder, const char *run,
                                       const strait_import_params *params, strait_convert_note note,
                                       void *user);

typedef struct strait_export_params {
    const char *dtype;   // "f32", "bf16" or "f16" (GGUF: also "q8_0"); NULL: f32 (GGUF: f16)
    int64_t shard_bytes; // largest file of weights; 0: 5 GB. GGUF has one file
    strait_convert_progress progress; // gets the `user` of the note; may be NULL
} strait_export_params;

/* Writes the newest undamaged checkpoint of a run, or one checkpoint, as a folder that transformers
 * loads. `out` must not exist. `params` and `note` may be NULL. */
STRAIT_API strait_err strait_export_hf(const char *run, const char *out,
                                       const strait_export_params *params, strait_convert_note note,
                                       void *user);

/* Writes the same as one GGUF file for llama.cpp, with its tokenizer. `out` must not exist.
 * STRAIT_ENOTSUP: llama.cpp has no architecture for the model, or no such tokenizer. */
STRAIT_API strait_err strait_export_gguf(const char *run, const char *out,
                                         const strait_export_params *params,
                                         strait_convert_note note, void *user);

/* Writes the adapters of a run that was trained with train.lora as a folder that the Python library
 * PEFT loads: adapter_config.json and adapter_model.safetensors. `out` must not exist.
 * STRAIT_ENOTSUP: the run has no adapters, or transformers no class for its model. The other two
 * exports merge adapters into the weights. */
STRAIT_API strait_err strait_export_peft(const char *run, const char *out, strait_convert_note note,
                                         void *user);

#ifdef __cplusplus
}
#endif
