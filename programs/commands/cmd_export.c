/* cmd_export.c - strait export RUN --to hf|gguf|peft --out PATH */
#include <strait/convert.h>

#include "commands.h"
#include "conversion.h"

#include <string.h>

static const char *out, *to, *dtype;
static int64_t shard_bytes;

static const strait_flag flags[] = {
    {"to", 0, STRAIT_FLAG_TEXT, &to, "FORMAT",
     "hf: a folder for transformers; gguf: a file for llama.cpp; peft: the adapters of train.lora"},
    {"out", 'o', STRAIT_FLAG_TEXT, &out, "PATH", "the folder or file to create"},
    {"dtype", 0, STRAIT_FLAG_TEXT, &dtype, "TYPE",
     "hf: f32 (default), bf16 or f16; gguf: f16 (default), f32, bf16 or q8_0"},
    {"shard-bytes", 0, STRAIT_FLAG_INT, &shard_bytes, "N",
     "hf: largest file of weights (default 5000000000)"},
    {0},
};

static strait_err run_export(int n_args, const char **args) {
    STRAIT_TRY(strait_args_expect_one(&strait_cmd_export, "run or checkpoint folder",
                                      "name the format and the target with --to hf --out DIR",
                                      n_args, args));
    const int is_gguf = to != NULL && strcmp(to, "gguf") == 0;
    const int is_peft = to != NULL && strcmp(to, "peft") == 0;
    if (to == NULL || (!is_gguf && !is_peft && strcmp(to, "hf") != 0))
        return STRAIT_FAIL(STRAIT_ECONFIG, "export needs --to hf, --to gguf or --to peft");
    if (is_peft && dtype != NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--to peft writes f32 and takes no --dtype");
    if (out == NULL) return STRAIT_FAIL(STRAIT_ECONFIG, "export needs --out PATH");
    if (shard_bytes < 0) return STRAIT_FAIL(STRAIT_ECONFIG, "--shard-bytes must not be negative");
    const strait_export_params params = {
        .dtype = dtype, .shard_bytes = shard_bytes, .progress = strait_conversion_show};
    strait_conversion conversion;
    strait_conversion_init(&conversion, "export");
    if (is_peft) return strait_export_peft(args[0], out, strait_conversion_say, &conversion);
    return (is_gguf ? strait_export_gguf : strait_export_hf)(args[0], out, &params,
                                                             strait_conversion_say, &conversion);
}

const strait_command strait_cmd_export = {
    .name = "export",
    .usage = "RUN --to hf|gguf|peft --out PATH [flags]",
    .summary = "write a trained model for transformers or llama.cpp",
    .about =
        "RUN is a run's folder, whose newest undamaged checkpoint is used, or one\n"
        "checkpoint's. hf writes config.json, the weights as safetensors, the tokenizer and a\n"
        "model card. Models that are a Llama, Qwen2 or Qwen3 load as such; others bring the\n"
        "Python code that computes them, for trust_remote_code=True. gguf writes one file\n"
        "with the tokenizer, for those three only. Both merge the adapters of train.lora into\n"
        "the weights; peft writes them alone, for the Python library PEFT.",
    .flags = flags,
    .run = run_export,
    .examples = (const strait_example[]){{"strait export runs/tiny --to hf --out tiny-hf",
                                          "Writes a folder for transformers."},
                                         {"strait export runs/tiny --to gguf --out tiny.gguf",
                                          "Writes a file for llama.cpp."},
                                         {"strait export runs/adapted --to peft --out adapter",
                                          "Writes the adapters that train.lora trained."},
                                         {0}},
};
