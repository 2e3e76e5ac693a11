/* cmd_train.c - strait train RUN.yaml */
#include <strait/session.h>

#include "commands.h"
#include "config/run.h"
#include "files.h"
#include "progress_log.h"
#include "signals.h"

#include <stdio.h>
#include <string.h>

static const char *out_folder;
static int resumes, is_dry;
static strait_flag_list sets;

static const strait_flag flags[] = {
    {"out", 'o', STRAIT_FLAG_TEXT, &out_folder, "DIR", "the run's folder (default runs/NAME)"},
    {"set", 's', STRAIT_FLAG_LIST, &sets, "KEY=VALUE", "override an option of the run file"},
    {"resume", 0, STRAIT_FLAG_SWITCH, &resumes, NULL, "go on from the last checkpoint in DIR"},
    {"dry-run", 0, STRAIT_FLAG_SWITCH, &is_dry, NULL, "check everything, print the plan, stop"},
    {0},
};

static void print_facts(const strait_run *run, const strait_trainer_info *facts) {
    char text[32];
    printf("model        %.2fM parameters: %s, %lld layer%s, width %lld, vocabulary %lld\n",
           (double)facts->parameters / 1e6,
           run->model.family == STRAIT_RUN_LLAMA ? "llama" : "yardstick",
           (long long)run->model.layers, strait_progress_plural(run->model.layers),
           (long long)run->model.width, (long long)facts->vocab);
    printf("data         %.2fM tokens, %.2f epochs\n", (double)facts->train_tokens / 1e6,
           (double)(run->train.steps * run->train.batch_tokens) / (double)facts->train_tokens);
    printf("step         %lld tokens in %lld microbatch%s of %lld sequence%s, %.1f GFLOP\n",
           (long long)run->train.batch_tokens, (long long)facts->n_microbatches,
           facts->n_microbatches == 1 ? "" : "es", (long long)facts->microbatch,
           strait_progress_plural(facts->microbatch),
           facts->flops_per_token * (double)run->train.batch_tokens / 1e9);
    printf("precision    %s\n", facts->precision);
    const struct {
        const char *name;
        size_t bytes;
    } parts[] = {{"weights", facts->memory.weights},     {"gradients", facts->memory.gradients},
                 {"optimizer", facts->memory.optimizer}, {"activations", facts->memory.activations},
                 {"data", facts->memory.data},           {"codecs", facts->memory.codecs},
                 {"messages", facts->memory.messages},   {"program", facts->memory.program},
                 {"peak memory", facts->memory.total}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        strait_progress_bytes((double)parts[i].bytes, text);
        printf("%-12s %s (%zu bytes)\n", parts[i].name, text, parts[i].bytes);
    }
    for (int i = 0; i < facts->n_stages; i++) {
        strait_progress_bytes((double)facts->stages[i].planned, text);
        printf("stage %-6d %s: %d layer%s, %d microbatch%s in flight\n", i, text,
               facts->stages[i].layers, strait_progress_plural(facts->stages[i].layers),
               facts->stages[i].slots, facts->stages[i].slots == 1 ? "" : "es");
    }
}

static strait_err folder_of(const strait_run *run, char out[STRAIT_FILES_PATH]) {
    if (out_folder != NULL) return strait_files_path(out, "%s", out_folder);
    return strait_files_path(out, "runs/%s", run->name);
}

/* A word as a shell reads it again. */
static void print_word(const char *word) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "._-+=:,/@%";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        fprintf(stderr, " %s", word);
        return;
    }
    fputs(" '", stderr);
    for (; *word != '\0'; word++)
        if (*word == '\'')
            fputs("'\\''", stderr);
        else
            fputc(*word, stderr);
    fputc('\'', stderr);
}

static void print_how_to_go_on(const char *path, const char *folder) {
    fputs("to go on: strait train", stderr);
    print_word(path);
    fputs(" --out", stderr);
    print_word(folder);
    fputs(" --resume", stderr);
    for (int i = 0; i < sets.n; i++) {
        fputs(" --set", stderr);
        print_word(sets.items[i]);
    }
    fputc('\n', stderr);
}

static strait_err train(const char *path, const strait_run *run) {
    char folder[STRAIT_FILES_PATH];
    STRAIT_TRY(folder_of(run, folder));
    strait_progress_log log;
    strait_progress_log_init(&log, run, folder);
    strait_signals_listen(1);
    const strait_session_spec spec = {.run = run,
                                      .folder = folder,
                                      .resumes = resumes,
                                      .events = strait_progress_log_events(&log)};
    const strait_err err = strait_session_run(&spec);
    const int is_lost = strait_err_scope(err) == STRAIT_SCOPE_LINK || err == STRAIT_ETIMEDOUT;
    if (err == STRAIT_EINTERRUPTED || (is_lost && log.began > 0.0))
        print_how_to_go_on(path, folder);
    if (err == STRAIT_OK) strait_progress_say(&log.progress, "done: %s", folder);
    return err;
}

static strait_err run_train(int n_words, const char **words) {
    STRAIT_TRY(strait_args_one_word(&strait_cmd_train, "run file",
                                    "--set KEY=VALUE overrides keys of the file", n_words, words));
    static strait_run run; // large, and there is one
    STRAIT_TRY(strait_run_init_file(words[0], sets.items, sets.n, &run));
    if (!is_dry) return train(words[0], &run);
    strait_trainer_info facts;
    char folder[STRAIT_FILES_PATH];
    STRAIT_TRY(strait_trainer_plan(&run, &facts));
    print_facts(&run, &facts);
    STRAIT_TRY(folder_of(&run, folder));
    return strait_session_check_folder(folder, resumes);
}

const strait_command strait_cmd_train = {
    .name = "train",
    .usage = "RUN.yaml [flags]",
    .summary = "train the model a run file describes",
    .about =
        "Trains, validates and saves checkpoints into the run's folder. Ctrl-C finishes the\n"
        "step, saves, and says how to go on. \"strait options\" lists what a run file may say.",
    .flags = flags,
    .run = run_train,
};
