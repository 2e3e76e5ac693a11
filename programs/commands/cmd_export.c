/* cmd_export.c - strait export RUN --to hf --out DIR */
#include <strait/convert.h>

#include "commands.h"
#include "progress.h"

#include <string.h>

static const char *out, *to, *dtype;
static int64_t shard_bytes;

static const strait_flag flags[] = {
    {"to", 0, STRAIT_FLAG_TEXT, &to, "FORMAT", "hf: a folder that transformers loads"},
    {"out", 'o', STRAIT_FLAG_TEXT, &out, "DIR", "the folder to create"},
    {"dtype", 0, STRAIT_FLAG_TEXT, &dtype, "TYPE", "f32 (default), bf16 or f16"},
    {"shard-bytes", 0, STRAIT_FLAG_INT, &shard_bytes, "N",
     "largest file of weights (default 5000000000)"},
    {0},
};

static void say(void *user, const char *text) {
    strait_progress_say(user, "%s", text);
}

static strait_err run_export(int n_args, const char **args) {
    STRAIT_TRY(strait_args_expect_one(&strait_cmd_export, "run or checkpoint folder",
                                      "name the format and the folder with --to hf --out DIR",
                                      n_args, args));
    if (to == NULL || strcmp(to, "hf") != 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "export needs --to hf");
    if (out == NULL) return STRAIT_FAIL(STRAIT_ECONFIG, "export needs --out DIR");
    if (shard_bytes < 0) return STRAIT_FAIL(STRAIT_ECONFIG, "--shard-bytes must not be negative");
    const strait_export_params params = {.dtype = dtype, .shard_bytes = shard_bytes};
    strait_progress progress;
    strait_progress_init(&progress);
    return strait_export_hf(args[0], out, &params, say, &progress);
}

const strait_command strait_cmd_export = {
    .name = "export",
    .usage = "RUN --to hf --out DIR [flags]",
    .summary = "write a trained model for transformers",
    .about = "Writes config.json, the weights as safetensors, the tokenizer and a model card. RUN\n"
             "is a run's folder, whose newest undamaged checkpoint is used, or one checkpoint's.\n"
             "Models that are a Llama, Qwen2 or Qwen3 load as such; others bring the Python code\n"
             "that computes them, for trust_remote_code=True.",
    .flags = flags,
    .run = run_export,
};
