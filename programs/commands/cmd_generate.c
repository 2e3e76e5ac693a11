/* cmd_generate.c - strait generate DIR --prompt TEXT */
#include <strait/model.h>

#include "commands.h"

#include <stdio.h>
#include <string.h>

static const char *tokenizer_path;
static int hides_prompt;
static int64_t threads;
/* Flags write into the library's own parameters; these are their defaults. */
static strait_generate_params params = {
    .prompt = "", .n_tokens = 100, .temperature = 0.8, .top_p = 1.0, .seed = 1};

static const strait_flag flags[] = {
    {"prompt", 'p', STRAIT_FLAG_TEXT, &params.prompt, "TEXT", "the text to continue"},
    {"tokens", 'n', STRAIT_FLAG_INT, &params.n_tokens, "N", "how many tokens to add (default 100)"},
    {"temperature", 't', STRAIT_FLAG_REAL, &params.temperature, "T",
     "0 takes the most likely token, 1 samples the model's own distribution (default 0.8)"},
    {"top-k", 0, STRAIT_FLAG_INT, &params.top_k, "K",
     "sample from the K most likely tokens (default: all)"},
    {"top-p", 0, STRAIT_FLAG_REAL, &params.top_p, "P",
     "sample from the most likely tokens that together reach probability P (default 1)"},
    {"seed", 0, STRAIT_FLAG_INT, &params.seed, "S",
     "the same seed gives the same text (default 1)"},
    {"tokenizer", 0, STRAIT_FLAG_TEXT, &tokenizer_path, "FILE",
     "tokenizer.json (default: the one in the run's folder)"},
    {"keep-going", 0, STRAIT_FLAG_SWITCH, &params.ignores_end, NULL,
     "do not stop at the end-of-text token"},
    {"no-prompt", 0, STRAIT_FLAG_SWITCH, &hides_prompt, NULL, "print only the text that was added"},
    {"threads", 0, STRAIT_FLAG_INT, &threads, "N", "threads (default 0: one per core)"},
    {0},
};

/* Flushes after every token, so that text appears as it is sampled. */
static strait_err print_text(void *user, const char *text, size_t n, int is_prompt) {
    (void)user;
    if (is_prompt && hides_prompt) return STRAIT_OK;
    if (fwrite(text, 1, n, stdout) != n || fflush(stdout) != 0)
        return STRAIT_FAIL(STRAIT_EIO, "cannot write the text to standard output");
    return STRAIT_OK;
}

/* The note goes to standard error: standard output is the text alone. */
static strait_err generate(struct strait_model *model) {
    strait_model_info info;
    strait_model_describe(model, &info);
    if (info.note != NULL) fprintf(stderr, "note: %s\n", info.note);
    params.on_text = print_text;
    const strait_err err = strait_model_generate(model, &params);
    if (err == STRAIT_ECONFIG && info.tokenizer == NULL)
        return strait_args_hint(err, "--tokenizer FILE");
    STRAIT_TRY(err);
    /* The text of a model rarely ends with a newline, and a shell prompt should not follow it. */
    putchar('\n');
    return STRAIT_OK;
}

/* Flags are checked before the model is opened, because hashing a large checkpoint takes a while.
 */
static strait_err run_generate(int n_args, const char **args) {
    STRAIT_TRY(strait_args_expect_one(&strait_cmd_generate, "run or checkpoint folder",
                                      "name the text to continue with --prompt TEXT", n_args,
                                      args));
    if (params.n_tokens < 0) return STRAIT_FAIL(STRAIT_ECONFIG, "--tokens must not be negative");
    STRAIT_TRY(strait_args_check_threads(threads));
    const strait_model_params opening = {.tokenizer = tokenizer_path, .n_threads = (int)threads};
    struct strait_model *model = NULL;
    STRAIT_TRY(strait_model_open(args[0], &opening, &model));
    const strait_err err = generate(model);
    strait_model_close(&model);
    return err;
}

const strait_command strait_cmd_generate = {
    .name = "generate",
    .usage = "DIR --prompt TEXT [flags]",
    .summary = "sample text from a trained model",
    .about = "Prints the prompt and continues it, token by token. DIR is a run's folder, whose\n"
             "newest undamaged checkpoint is used, or one checkpoint's. A note names damaged\n"
             "checkpoints that were skipped.",
    .flags = flags,
    .run = run_generate,
};
