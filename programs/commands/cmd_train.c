/* cmd_train.c - strait train RUN.yaml */
#include <strait/cluster.h>
#include <strait/session.h>

#include "codec_note.h"
#include "commands.h"
#include "files.h"
#include "launcher.h"
#include "page.h"
#include "progress_log.h"
#include "run_source.h"
#include "signals.h"

#include <stdio.h>
#include <string.h>

static const char *out_folder;
static int resumes, is_dry, is_forced;
static strait_flag_list sets;

static const strait_flag flags[] = {
    {"out", 'o', STRAIT_FLAG_TEXT, &out_folder, "DIR", "the run's folder (default runs/NAME)"},
    {"set", 's', STRAIT_FLAG_LIST, &sets, "KEY=VALUE", "override an option of the run file"},
    {"resume", 0, STRAIT_FLAG_SWITCH, &resumes, NULL,
     "continue the run in DIR from its last checkpoint, with its own run file or another"},
    {"dry-run", 0, STRAIT_FLAG_SWITCH, &is_dry, NULL,
     "check the run, print its plan and memory, and stop"},
    {"force", 0, STRAIT_FLAG_SWITCH, &is_forced, NULL,
     "train even if memory or disk space seem too small; never replaces a run"},
    STRAIT_PROGRESS_FLAGS,
    STRAIT_PAGE_FLAGS,
    {0},
};

/* What the plan needs of the run itself. */
typedef struct run_facts {
    char name[STRAIT_RUN_VALUE_BYTES], family[STRAIT_RUN_VALUE_BYTES],
        device[STRAIT_RUN_VALUE_BYTES];
    int64_t layers, width, steps, batch_tokens;
} run_facts;

/* The public interface has no access to the fields of a run, so values are read by key. */
static strait_err read_facts(const struct strait_run *run, run_facts *out) {
    STRAIT_TRY(strait_run_get_text(run, "name", out->name, sizeof out->name));
    STRAIT_TRY(strait_run_get_text(run, "model.family", out->family, sizeof out->family));
    STRAIT_TRY(strait_run_get_text(run, "device.kind", out->device, sizeof out->device));
    STRAIT_TRY(strait_run_get_int(run, "model.layers", &out->layers));
    STRAIT_TRY(strait_run_get_int(run, "model.width", &out->width));
    STRAIT_TRY(strait_run_get_int(run, "train.steps", &out->steps));
    return strait_run_get_int(run, "train.batch_tokens", &out->batch_tokens);
}

/* Purposes are listed separately, since each has another remedy. */
static void print_memory(const strait_trainer_memory *memory) {
    const struct {
        const char *name;
        size_t bytes;
    } parts[] = {{"weights", memory->weights},     {"gradients", memory->gradients},
                 {"optimizer", memory->optimizer}, {"activations", memory->activations},
                 {"data", memory->data},           {"codecs", memory->codecs},
                 {"messages", memory->messages},   {"program", memory->program},
                 {"peak memory", memory->total}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char text[32];
        strait_progress_bytes((double)parts[i].bytes, text);
        printf("%-12s %s (%zu bytes)\n", parts[i].name, text, parts[i].bytes);
    }
}

/* The dry run prints exact bytes beside rounded ones: tests compare them with the memory used. */
static void print_plan(const run_facts *run, const strait_trainer_info *info) {
    printf("model        %.2fM parameters: %s, %lld layer%s, width %lld, vocabulary %lld\n",
           (double)info->parameters / 1e6, run->family, (long long)run->layers,
           strait_progress_plural(run->layers), (long long)run->width, (long long)info->vocab);
    printf("data         %.2fM tokens, %.2f epochs\n", (double)info->train_tokens / 1e6,
           (double)(run->steps * run->batch_tokens) / (double)info->train_tokens);
    if (info->sources[0] != '\0') printf("sources      %s\n", info->sources);
    printf("step         %lld tokens in %lld microbatch%s of %lld sequence%s, %.1f GFLOP\n",
           (long long)run->batch_tokens, (long long)info->n_microbatches,
           info->n_microbatches == 1 ? "" : "es", (long long)info->microbatch,
           strait_progress_plural(info->microbatch),
           info->flops_per_token * (double)run->batch_tokens / 1e9);
    printf("precision    %s\n", info->precision);
    if (info->staleness > 0)
        printf("updates      one step late (train.staleness), stages 0 to %d\n", info->n_late - 1);
    print_memory(&info->memory);
    for (int i = 0; i < info->n_stages; i++) {
        char text[32];
        strait_progress_bytes((double)info->stages[i].planned, text);
        printf("stage %-6d %s: %d layer%s, %d microbatch%s in flight", i, text,
               info->stages[i].layers, strait_progress_plural(info->stages[i].layers),
               info->stages[i].slots, info->stages[i].slots == 1 ? "" : "es");
        const int averages = info->stages[i].averaged > 0;
        strait_progress_bytes(averages ? info->stages[i].averaged : info->stages[i].reduced, text);
        if (info->stages[i].replicas > 1)
            printf("; %d replicas, each sends %s %s", info->stages[i].replicas, text,
                   averages ? "per average" : "of gradients per step");
        printf(", on %s:%d\n", run->device, info->stages[i].ordinal);
    }
}

/* Prints an argument so that a shell reads it back as the same word. */
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

/* Printed after an interruption and after a lost stage, where resuming is the remedy. The folder
 * has the run file with all overrides. */
static void print_resume_command(const char *folder) {
    fprintf(stderr, "to resume: %sstrait train --resume", strait_launcher_prefix());
    print_word(folder);
    fputc('\n', stderr);
}

/* The session checks the folder too, but only the command knows the flags that choose another. */
static strait_err check_folder(const char *folder) {
    return strait_args_hint(strait_session_check_folder(folder, resumes),
                            is_forced ? "--force does not replace a run; --resume continues it, "
                                        "--out DIR chooses the folder"
                                      : "--resume continues a run, --out DIR chooses the folder");
}

/* Memory is checked before it is taken, but another program may take it meanwhile. */
static strait_err hint_at_force(strait_err err) {
    if (err != STRAIT_ENOMEM) return err;
    return strait_args_hint(err, is_forced ? "--dry-run lists the memory of a run"
                                           : "--dry-run lists the memory; --force tries anyway");
}

/* Says where each stage is, so that a machine that fails is known by its stage. */
static void note_ranks(const struct strait_run *run, strait_progress_log *log) {
    const char *text = NULL;
    if (strait_cluster_describe(run, &text) != STRAIT_OK) return; // the session reports it
    for (size_t n = 0; *text != '\0'; text += n + (text[n] == '\n')) {
        char line[256];
        n = strcspn(text, "\n");
        (void)snprintf(line, sizeof line, "%.*s", (int)n, text);
        strait_progress_log_event(log, line);
    }
}

/* A stage that is lost before the first step is a fault of the configuration: resuming would fail
 * in the same way, so the command to resume is printed only after it. */
static strait_err train(const struct strait_run *run, const char *folder) {
    strait_progress_log log;
    struct strait_page *page = NULL;
    STRAIT_TRY(check_folder(folder));
    STRAIT_TRY(strait_progress_log_init(&log, run, folder));
    STRAIT_TRY(strait_page_open(run, &log, &page));
    if (strait_cluster_size() > 1) note_ranks(run, &log);
    strait_signals_listen(1);
    const strait_session_spec spec = {.run = run,
                                      .folder = folder,
                                      .resumes = resumes,
                                      .is_forced = is_forced,
                                      .events = strait_page_events(page, &log)};
    strait_err err = strait_session_run(&spec);
    strait_page_close(&page, err);
    err = hint_at_force(err);
    const int is_lost = strait_err_scope(err) == STRAIT_SCOPE_LINK || err == STRAIT_ETIMEDOUT;
    if (err == STRAIT_OK) strait_progress_log_done(&log);
    strait_progress_log_close(&log);
    if (err == STRAIT_EINTERRUPTED || (is_lost && log.began > 0.0)) print_resume_command(folder);
    return err;
}

/* Also checks the folder, so that a dry run finds every error that the run would. */
static strait_err plan(const struct strait_run *run, const run_facts *facts, const char *folder) {
    strait_trainer_info info;
    STRAIT_TRY(strait_trainer_plan(run, &info));
    print_plan(facts, &info);
    STRAIT_TRY(check_folder(folder));
    if (is_forced) return STRAIT_OK;
    STRAIT_TRY(hint_at_force(strait_trainer_check_memory(run)));
    return strait_session_check_disk(run, folder, 0);
}

/* The run is loaded once; dry runs and real ones then take the same path as far as possible. */
static strait_err run_train(int n_args, const char **args) {
    int rank = 0;
    STRAIT_TRY(strait_launcher_join(&rank));
    if (rank > 0) return strait_cluster_serve(); // rank 0 reads the run file for all
    STRAIT_TRY(strait_args_expect_one(&strait_cmd_train, "run file",
                                      "--set KEY=VALUE overrides keys of the file", n_args, args));
    struct strait_run *run = NULL;
    run_facts facts;
    static strait_run_source source; // large
    STRAIT_TRY(strait_run_source_find(args[0], resumes, out_folder, &source));
    STRAIT_TRY(strait_args_name_set(strait_run_load(source.file, sets.items, sets.n, &run), &sets));
    strait_err err = read_facts(run, &facts);
    if (err == STRAIT_OK) err = strait_run_source_name(&source, facts.name);
    if (err == STRAIT_OK) err = strait_codec_choose(run, source.folder, 0);
    if (err == STRAIT_OK) strait_codec_note(run);
    if (err == STRAIT_OK)
        err = is_dry ? plan(run, &facts, source.folder) : train(run, source.folder);
    strait_run_close(&run);
    return err;
}

const strait_command strait_cmd_train = {
    .name = "train",
    .usage = "RUN.yaml | --resume DIR [flags]",
    .summary = "train the model a run file describes",
    .about =
        "Trains, validates and saves checkpoints into the run's folder. Ctrl-C finishes the\n"
        "step, saves a checkpoint and prints the command that resumes: \"strait train --resume\n"
        "DIR\" takes the run file from the folder, --set changes it, and what changed is printed\n"
        "and kept in DIR/changes.jsonl. \"strait options\" lists the keys of a run file.\n\n"
        "Stages over links with rates (link.emulate) get a codec that fits them, unless the run\n"
        "file names one (link.codec.name: auto); it is measured before training and printed.\n\n"
        "\"mpirun -n N strait train RUN.yaml\" and \"srun --mpi=pmix strait train RUN.yaml\" put "
        "the\n"
        "stages (stages.count) onto the ranks of the job (docs/cluster.md).",
    .flags = flags,
    .run = run_train,
    .examples =
        (const strait_example[]){
            {"strait train examples/tiny.yaml", "Trains the model of a run file into runs/tiny."},
            {"strait train run.yaml --out runs/a --set train.steps=2000",
             "Names the folder and changes a key of the run file."},
            {"strait train run.yaml --page 127.0.0.1:7777",
             "Shows the run in a browser while it trains."},
            {"strait train run.yaml --dry-run",
             "Prints model, memory and traffic without training."},
            {"strait train --resume runs/a", "Continues after Ctrl-C or a crash."},
            {0}},
};
