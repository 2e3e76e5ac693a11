/* cmd_generate.c - strait generate DIR --prompt TEXT */
#include <strait/model.h>
#include <strait/strait.h>

#include "commands.h"
#include "files.h"
#include "generate_prompts.h"
#include "json_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *prompts_path;
static strait_flag_list prompts, stops;
static int hides_prompt, as_json, shows_time;
static int64_t n_at_once = 32;
static strait_model_params opening = {.device = "auto"};
static int64_t threads;
/* Flags write into the library's own parameters; these are their defaults. */
static strait_generate_params params = {
    .n_tokens = 100, .temperature = 0.8, .top_p = 1.0, .seed = 1, .repetition_penalty = 1.0};

static const strait_flag flags[] = {
    {"prompt", 'p', STRAIT_FLAG_LIST, &prompts, "TEXT",
     "the text to continue (default: none); may be given several times"},
    {"prompts", 0, STRAIT_FLAG_TEXT, &prompts_path, "FILE",
     "a prompt per line, or JSON Lines (.jsonl) with the key \"prompt\""},
    {"tokens", 'n', STRAIT_FLAG_INT, &params.n_tokens, "N", "how many tokens to add (default 100)"},
    {"temperature", 't', STRAIT_FLAG_REAL, &params.temperature, "T",
     "0 takes the most likely token, 1 samples the model's own distribution (default 0.8)"},
    {"top-k", 0, STRAIT_FLAG_INT, &params.top_k, "K",
     "sample from the K most likely tokens (default: all)"},
    {"top-p", 0, STRAIT_FLAG_REAL, &params.top_p, "P",
     "sample from the most likely tokens that together reach probability P (default 1)"},
    {"min-p", 0, STRAIT_FLAG_REAL, &params.min_p, "P",
     "sample from tokens at least P times as likely as the most likely one (default 0)"},
    {"repetition-penalty", 0, STRAIT_FLAG_REAL, &params.repetition_penalty, "R",
     "above 1: tokens that occurred before become less likely (default 1)"},
    {"stop", 0, STRAIT_FLAG_LIST, &stops, "TEXT",
     "stop before this text; may be given several times"},
    {"seed", 0, STRAIT_FLAG_INT, &params.seed, "S",
     "the same seed gives the same text (default 1)"},
    {"batch", 0, STRAIT_FLAG_INT, &n_at_once, "N",
     "prompts to continue at a time; the texts do not depend on it (default 32)"},
    {"tokenizer", 0, STRAIT_FLAG_TEXT, &opening.tokenizer, "FILE",
     "tokenizer.json (default: the one in the run's folder)"},
    {"keep-going", 0, STRAIT_FLAG_SWITCH, &params.ignores_end, NULL,
     "do not stop at the end-of-text token"},
    {"no-prompt", 0, STRAIT_FLAG_SWITCH, &hides_prompt, NULL, "print only the text that was added"},
    {"device", 0, STRAIT_FLAG_TEXT, &opening.device, "KIND",
     "compute on cpu, cuda, or auto: cuda where there is one (default auto)"},
    {"precision", 0, STRAIT_FLAG_TEXT, &opening.precision, "P",
     "fp32, bf16, or auto: bf16 on cuda (default auto)"},
    {"threads", 0, STRAIT_FLAG_INT, &threads, "N", "threads (default 0: one per core)"},
    {"json", 0, STRAIT_FLAG_SWITCH, &as_json, NULL, "print one JSON object per prompt"},
    {"time", 0, STRAIT_FLAG_SWITCH, &shows_time, NULL,
     "report tokens per second, from the first token on, on standard error"},
    {0},
};

/* The text of one prompt, kept until those before it are complete. */
typedef struct output {
    struct printer *printer;
    char *text;
    size_t n, capacity;
    int64_t n_prompt; // tokens of the prompt
    int64_t n_tokens;
    int is_ended;
    strait_generate_end why;
} output;

/* Prints the texts in the order of their prompts; the first that is not complete as it comes. */
typedef struct printer {
    const strait_prompt_list *prompts;
    output *outputs;
    int current;
    int64_t context; // of the model
    int64_t n_tokens;
    double began; // when the first token came; 0: not yet
} printer;

static strait_err write_text(const char *text, size_t n) {
    if (fwrite(text, 1, n, stdout) != n || fflush(stdout) != 0)
        return STRAIT_FAIL(STRAIT_EIO, "cannot write the text to standard output");
    return STRAIT_OK;
}

static strait_err keep_text(output *o, const char *text, size_t n) {
    if (n == 0) return STRAIT_OK;
    if (o->n + n > o->capacity) {
        const size_t capacity = 2 * (o->n + n);
        char *larger = realloc(o->text, capacity);
        if (larger == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "the text of a prompt");
        o->text = larger;
        o->capacity = capacity;
    }
    memcpy(o->text + o->n, text, n);
    o->n += n;
    return STRAIT_OK;
}

static void print_heading(const printer *p) {
    if (p->prompts->n > 1) printf("== prompt %d ==\n", p->current + 1);
}

static strait_err print_json(const printer *p, const output *o) {
    const char *prompt = p->prompts->items[p->current];
    printf("{\"prompt\": ");
    strait_json_text_print(stdout, prompt, strlen(prompt));
    printf(", \"text\": ");
    strait_json_text_print(stdout, o->text != NULL ? o->text : "", o->n);
    printf(", \"tokens\": %lld, \"finish_reason\": \"%s\"}\n", (long long)o->n_tokens,
           o->why == STRAIT_GENERATE_STOPPED ? "stop" : "length");
    return write_text("", 0);
}

/* After the current text ended: those that are complete, and what there is of the next. */
static strait_err print_next(printer *p) {
    for (; p->current < p->prompts->n && p->outputs[p->current].is_ended; p->current++) {
        output *o = &p->outputs[p->current];
        if (as_json) {
            STRAIT_TRY(print_json(p, o));
            continue;
        }
        /* A text rarely ends with a newline, and a shell prompt should not follow it. */
        STRAIT_TRY(write_text("\n", 1));
        if (p->current + 1 == p->prompts->n) continue;
        const output *next = o + 1;
        p->current++;
        print_heading(p);
        p->current--;
        STRAIT_TRY(write_text(next->text != NULL ? next->text : "", next->n));
    }
    return STRAIT_OK;
}

/* A model that never saw the beginning of a prompt continues something else than was asked. */
static void note_long_prompt(const output *o) {
    const printer *p = o->printer;
    char which[32] = "";
    if (o->n_prompt <= p->context) return;
    if (p->prompts->n > 1) (void)snprintf(which, sizeof which, " %d", (int)(o - p->outputs) + 1);
    fprintf(stderr,
            "note: prompt%s has %lld tokens, more than the model's context of %lld: only the last "
            "%lld are read\n",
            which, (long long)o->n_prompt, (long long)p->context, (long long)(p->context + 1) / 2);
}

static strait_err take_text(void *user, const char *text, size_t n, int is_prompt) {
    output *o = user;
    if (is_prompt) o->n_prompt++; // it is called once per token
    if (!is_prompt && o->printer->began == 0) o->printer->began = strait_files_seconds();
    if (is_prompt && (hides_prompt || as_json)) return STRAIT_OK;
    if (!as_json && o == &o->printer->outputs[o->printer->current]) return write_text(text, n);
    return keep_text(o, text, n);
}

static strait_err take_end(void *user, strait_generate_end why, int64_t n_tokens) {
    output *o = user;
    o->is_ended = 1;
    o->why = why;
    o->n_tokens = n_tokens;
    o->printer->n_tokens += n_tokens;
    STRAIT_TRY(print_next(o->printer));
    note_long_prompt(o);
    return STRAIT_OK;
}

/* The first token of each text is left out: it waits for the weights and for the prompt. */
static void report_time(const printer *p, const char *device) {
    const double seconds = strait_files_seconds() - p->began;
    const double n = (double)(p->n_tokens - p->prompts->n);
    fprintf(stderr, "%lld tokens, %.1f per second (%s)\n", (long long)p->n_tokens,
            seconds > 0 && n > 0 ? n / seconds : 0.0, device);
}

/* The note goes to standard error: standard output is the text alone. */
static strait_err generate(struct strait_model *model, printer *p, strait_generate_params *each) {
    strait_model_info info;
    strait_model_describe(model, &info);
    if (info.note != NULL) fprintf(stderr, "note: %s\n", info.note);
    p->context = info.context;
    for (int i = 0; i < p->prompts->n; i++) {
        p->outputs[i].printer = p;
        each[i] = params;
        each[i].prompt = p->prompts->items[i];
        each[i].user = &p->outputs[i];
    }
    if (!as_json) print_heading(p);
    const strait_err err = strait_model_generate_batch(model, each, p->prompts->n, (int)n_at_once);
    if (err == STRAIT_ECONFIG && info.tokenizer == NULL)
        return strait_args_hint(err, "--tokenizer FILE");
    if (err == STRAIT_OK && shows_time) report_time(p, info.device);
    return err;
}

static strait_err generate_all(struct strait_model *model, const strait_prompt_list *list) {
    const size_t n = (size_t)list->n;
    strait_generate_params *each = calloc(n, sizeof *each);
    printer p = {.prompts = list, .outputs = calloc(n, sizeof *p.outputs)};
    strait_err err = STRAIT_OK;
    if (each != NULL && p.outputs != NULL)
        err = generate(model, &p, each);
    else
        err = STRAIT_FAIL(STRAIT_ENOMEM, "%d prompts", list->n);
    for (size_t i = 0; p.outputs != NULL && i < n; i++)
        free(p.outputs[i].text);
    free(p.outputs);
    free(each);
    return err;
}

static strait_err check_flags(void) {
    if (params.n_tokens < 0) return STRAIT_FAIL(STRAIT_ECONFIG, "--tokens must not be negative");
    if (n_at_once < 1 || n_at_once > 1024)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--batch %lld: expected 1 to 1024",
                           (long long)n_at_once);
    if (prompts.n > 0 && prompts_path != NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "use either --prompt or --prompts");
    STRAIT_TRY(strait_args_check_device(opening.device, 1));
    return strait_args_check_threads(threads);
}

/* Flags are checked before the model is opened, because hashing a large checkpoint takes a while.
 */
static strait_err run_generate(int n_args, const char **args) {
    STRAIT_TRY(strait_args_expect_one(&strait_cmd_generate, "run or checkpoint folder",
                                      "name the text to continue with --prompt TEXT", n_args,
                                      args));
    STRAIT_TRY(check_flags());
    struct strait_model *model = NULL;
    strait_prompt_list list = {0};
    opening.n_threads = (int)threads;
    params.stops = stops.items;
    params.n_stops = stops.n;
    params.on_text = take_text;
    params.on_end = take_end;
    strait_err err = strait_prompts_read(&prompts, prompts_path, &list);
    if (err == STRAIT_OK)
        err = strait_args_device_advice(strait_model_open(args[0], &opening, &model));
    if (err == STRAIT_OK) err = generate_all(model, &list);
    strait_model_close(&model);
    strait_prompts_free(&list);
    return err;
}

const strait_command strait_cmd_generate = {
    .name = "generate",
    .usage = "DIR --prompt TEXT [flags]",
    .summary = "sample text from a trained model",
    .about = "Prints the prompt and continues it, token by token. DIR is a run's folder, whose\n"
             "newest undamaged checkpoint is used, or one checkpoint's. A note names damaged\n"
             "checkpoints that were skipped. Several prompts are continued at a time and printed\n"
             "in their order; each text is the one that its prompt gets alone.",
    .flags = flags,
    .run = run_generate,
    .examples =
        (const strait_example[]){
            {"strait generate runs/tiny --prompt 'In the' --tokens 60", "Continues a text."},
            {"strait generate runs/tiny --prompts prompts.txt --temperature 0 --json",
             "Continues every line of a file by its likeliest tokens."},
            {0}},
};
