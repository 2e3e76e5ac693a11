/* cmd_import.c - strait import HF_DIR --out RUN */
#include <strait/convert.h>

#include "commands.h"
#include "conversion.h"

static const char *out;
static int64_t context;

static const strait_flag flags[] = {
    {"out", 'o', STRAIT_FLAG_TEXT, &out, "RUN", "the run's folder to create"},
    {"context", 0, STRAIT_FLAG_INT, &context, "N",
     "longest sequence (default: max_position_embeddings of config.json)"},
    {0},
};

static strait_err run_import(int n_args, const char **args) {
    STRAIT_TRY(strait_args_expect_one(&strait_cmd_import, "Hugging Face folder",
                                      "name the run's folder with --out RUN", n_args, args));
    if (out == NULL) return STRAIT_FAIL(STRAIT_ECONFIG, "import needs --out RUN");
    if (context < 0) return STRAIT_FAIL(STRAIT_ECONFIG, "--context must not be negative");
    strait_conversion conversion;
    strait_conversion_init(&conversion, "import");
    const strait_import_params params = {.context = context, .progress = strait_conversion_show};
    return strait_import_hf(args[0], out, &params, strait_conversion_say, &conversion);
}

const strait_command strait_cmd_import = {
    .name = "import",
    .usage = "HF_DIR --out RUN [flags]",
    .summary = "make a run's folder of a Hugging Face model",
    .about = "Reads a folder of a Llama, Mistral, Qwen2 or Qwen3 model: config.json, safetensors\n"
             "(one file or shards; f32, f16 or bf16) and tokenizer.json. RUN then has one\n"
             "checkpoint, of step 0, for eval, generate, inspect and train.init_from, and a\n"
             "run.yaml with the options of the model. What Strait cannot compute is refused.",
    .flags = flags,
    .run = run_import,
    .examples =
        (const strait_example[]){
            {"strait import models/llama-1b --out runs/llama",
             "Reads a folder of Hugging Face; train.init_from: runs/llama begins with it."},
            {0}},
};
