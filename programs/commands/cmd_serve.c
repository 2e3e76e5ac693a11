/* cmd_serve.c - strait serve DIR --listen HOST:PORT */
#include "base/alloc.h"
#include "commands.h"
#include "files.h"
#include "infer/model.h"
#include "page.h"
#include "serve/serve.h"
#include "signals.h"

#include <stdio.h>
#include <string.h>

static strait_model_params opening = {.device = "auto"};
static strait_serve_spec spec = {
    .address = "127.0.0.1:8080", .n_sequences = 32, .n_queued = 256, .timeout_s = 300};
static const char *token_file;
static int64_t threads;

static const strait_flag flags[] = {
    {"listen", 'l', STRAIT_FLAG_TEXT, &spec.address, "HOST:PORT",
     "where to listen; port 0: any (default 127.0.0.1:8080)"},
    {"token", 0, STRAIT_FLAG_TEXT, &token_file, "FILE",
     "the token that clients need is in FILE (default off loopback: a new one)"},
    {"name", 0, STRAIT_FLAG_TEXT, &spec.model, "NAME",
     "the model's name in the API (default: the folder's)"},
    {"chat-template", 0, STRAIT_FLAG_TEXT, &spec.template, "TEXT",
     "how messages become text: with {role} and {content}, or in Jinja (default: the model's "
     "template, or ChatML if the tokenizer has it)"},
    {"batch", 0, STRAIT_FLAG_INT, &spec.n_sequences, "N",
     "requests to compute at a time (default 32)"},
    {"context", 0, STRAIT_FLAG_INT, &spec.n_positions, "N",
     "tokens of a request that are kept, prompt included (default: the model's context)"},
    {"queue", 0, STRAIT_FLAG_INT, &spec.n_queued, "N",
     "requests that may wait; more get 429 (default 256)"},
    {"timeout", 0, STRAIT_FLAG_REAL, &spec.timeout_s, "SECONDS",
     "for a request, its wait included (default 300)"},
    {"tokenizer", 0, STRAIT_FLAG_TEXT, &opening.tokenizer, "FILE",
     "tokenizer.json (default: the one in the run's folder)"},
    {"device", 0, STRAIT_FLAG_TEXT, &opening.device, "KIND",
     "compute on cpu, cuda, or auto: cuda where there is one (default auto)"},
    {"precision", 0, STRAIT_FLAG_TEXT, &opening.precision, "P",
     "fp32, bf16, or auto: bf16 on cuda (default auto)"},
    {"threads", 0, STRAIT_FLAG_INT, &threads, "N", "threads (default 0: one per core)"},
    {0},
};

static strait_err check_flags(void) {
    if (spec.n_sequences < 1 || spec.n_sequences > 1024)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--batch %lld: expected 1 to 1024",
                           (long long)spec.n_sequences);
    if (spec.n_positions < 0) return STRAIT_FAIL(STRAIT_ECONFIG, "--context must not be negative");
    if (spec.n_queued < 1 || spec.n_queued > 100000)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--queue %lld: expected 1 to 100000",
                           (long long)spec.n_queued);
    if (!(spec.timeout_s > 0)) return STRAIT_FAIL(STRAIT_ECONFIG, "--timeout must be positive");
    STRAIT_TRY(strait_args_check_device(opening.device, 1));
    return strait_args_check_threads(threads);
}

/* The last part of the path. */
static const char *name_of(const char *folder, char out[256]) {
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    size_t first = n;
    while (first > 0 && folder[first - 1] != '/')
        first--;
    (void)snprintf(out, 256, "%.*s", (int)(n - first < 255 ? n - first : 255), folder + first);
    return out;
}

static strait_err serve(struct strait_model *model) {
    struct strait_serve *server = NULL;
    strait_serve_counts counts;
    spec.trained = model->trained;
    STRAIT_TRY(strait_model_need_tokenizer(model));
    STRAIT_TRY(strait_serve_open(&spec, &server));
    printf("%s on %s: %s\n", spec.model, model->device, strait_serve_url(server));
    (void)fflush(stdout);
    const strait_err err = strait_serve_run(server, strait_signals_count);
    strait_serve_count(server, &counts);
    strait_serve_close(&server);
    printf("%lld requests answered, %lld refused, %lld left by their clients, %lld tokens\n",
           (long long)counts.answered, (long long)counts.refused, (long long)counts.cancelled,
           (long long)counts.tokens);
    return err;
}

static strait_err run_serve(int n_args, const char **args) {
    char name[256];
    char *token = NULL;
    struct strait_model *model = NULL;
    STRAIT_TRY(
        strait_args_expect_one(&strait_cmd_serve, "run or checkpoint folder", NULL, n_args, args));
    STRAIT_TRY(check_flags());
    if (spec.model == NULL) spec.model = name_of(args[0], name);
    opening.n_threads = (int)threads;
    if (token_file != NULL) STRAIT_TRY(strait_page_read_token("token", token_file, &token));
    spec.token = token;
    strait_signals_listen(2);
    strait_err err = strait_args_device_advice(strait_model_open(args[0], &opening, &model));
    if (err == STRAIT_OK) err = serve(model);
    strait_model_close(&model);
    strait_alloc_free(token);
    return err;
}

const strait_command strait_cmd_serve = {
    .name = "serve",
    .usage = "DIR [--listen HOST:PORT] [flags]",
    .summary = "serve a trained model over HTTP, with the API of OpenAI",
    .about =
        "Answers /v1/completions, /v1/chat/completions and /v1/models, with streaming, and has\n"
        "a page to try the model. Requests are computed together. DIR is a run's folder, whose\n"
        "newest undamaged checkpoint is used, or one checkpoint's. Off loopback clients need\n"
        "the token that it prints. Ctrl-C or SIGTERM finishes what is being computed.",
    .flags = flags,
    .run = run_serve,
    .examples =
        (const strait_example[]){
            {"strait serve runs/tiny",
             "Serves the model at http://127.0.0.1:8080, with a page to try it."},
            {"strait serve runs/tiny --listen 0.0.0.0:8080 --token secret.txt",
             "Serves other machines, which need the token of that file."},
            {0}},
};
