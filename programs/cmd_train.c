/* cmd_train.c - strait train RUN.yaml */
#include "base/clock.h"
#include "base/file.h"
#include "commands.h"
#include "pipeline/session.h"
#include "progress.h"

#include <signal.h>
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

static volatile sig_atomic_t n_interrupts;

static void interrupted(int number) {
    (void)number;
    n_interrupts = n_interrupts + 1;
}

/* What the events need to tell a good story. */
struct teller {
    strait_progress progress;
    const strait_run *run;
    const char *folder;
    double began;
    int64_t first_step;
    double valid_loss;
    int has_valid, was_warned;
};

static void print_facts(const strait_run *run, const strait_trainer_facts *facts) {
    char text[32];
    printf("model        %.2fM parameters: %s, %lld layers, width %lld, vocabulary %lld\n",
           (double)facts->parameters / 1e6,
           run->model.family == STRAIT_RUN_LLAMA ? "llama" : "yardstick",
           (long long)run->model.layers, (long long)run->model.width, (long long)facts->vocab);
    printf("data         %.2fM tokens, %.2f epochs\n", (double)facts->train_tokens / 1e6,
           (double)(run->train.steps * run->train.batch_tokens) / (double)facts->train_tokens);
    printf("step         %lld tokens in %lld microbatches of %lld sequences, %.1f GFLOP\n",
           (long long)run->train.batch_tokens, (long long)facts->n_microbatches,
           (long long)facts->microbatch,
           facts->flops_per_token * (double)run->train.batch_tokens / 1e9);
    const struct {
        const char *name;
        size_t bytes;
    } parts[] = {{"weights", facts->memory.weights},     {"gradients", facts->memory.gradients},
                 {"optimizer", facts->memory.optimizer}, {"activations", facts->memory.activations},
                 {"data", facts->memory.data},           {"peak memory", facts->memory.total}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        strait_progress_bytes((double)parts[i].bytes, text);
        printf("%-12s %s (%zu bytes)\n", parts[i].name, text, parts[i].bytes);
    }
}

static void on_opened(void *user, const strait_trainer_facts *facts, int64_t step) {
    struct teller *t = user;
    char text[32];
    strait_progress_bytes((double)facts->memory.total, text);
    strait_progress_say(&t->progress, "%s: %.2fM parameters on %s, %s; %lld steps of %lld tokens",
                        t->folder, (double)facts->parameters / 1e6, facts->device, text,
                        (long long)t->run->train.steps, (long long)t->run->train.batch_tokens);
    if (step > 0) strait_progress_say(&t->progress, "going on after step %lld", (long long)step);
    t->began = strait_clock_seconds();
    t->first_step = step;
}

/* What crosses the boundaries, where there are any: MB/s each way, ratios, waiting, the limit. */
static void describe_links(const strait_trainer_report *report, char *out, size_t room) {
    out[0] = '\0';
    if (report->forward_bytes_per_token <= 0.0) return;
    const double rate = report->tokens_per_s / 1e6;
    (void)snprintf(out, room, "  %.3g+%.3g MB/s (%.3gx, %.3gx)  bubble %.0f%%  limit %s",
                   rate * report->forward_bytes_per_token, rate * report->backward_bytes_per_token,
                   report->ratio_forward, report->ratio_backward, 100.0 * report->bubble,
                   report->limit);
}

static void on_stepped(void *user, const strait_trainer_report *report) {
    struct teller *t = user;
    const int64_t n_steps = t->run->train.steps;
    const double elapsed = strait_clock_seconds() - t->began;
    const double done = (double)(report->step - t->first_step);
    char left[32];
    char valid[48] = "";
    char links[160];
    strait_progress_duration(elapsed / done * (double)(n_steps - report->step), left);
    if (t->has_valid) (void)snprintf(valid, sizeof valid, "  valid %.4f", t->valid_loss);
    describe_links(report, links, sizeof links);
    const int is_due = report->step % t->run->train.log_every == 0 || report->step == n_steps;
    strait_progress_show(
        &t->progress, is_due, report->step == n_steps,
        "step %lld/%lld  loss %.4f%s  rate %.3g  norm %.3g  %.0f tok/s%s  left %s%s",
        (long long)report->step, (long long)n_steps, report->loss, valid, report->rate,
        report->grad_norm, report->tokens_per_s, links, left,
        report->is_skipped ? "  skipped: not finite" : "");
}

static void on_validated(void *user, int64_t step, double loss) {
    struct teller *t = user;
    t->valid_loss = loss;
    t->has_valid = 1;
    strait_progress_say(&t->progress, "step %lld  validation loss %.4f", (long long)step, loss);
}

static void on_noted(void *user, const char *text) {
    struct teller *t = user;
    strait_progress_say(&t->progress, "note: %s", text);
}

static int must_stop(void *user) {
    struct teller *t = user;
    if (n_interrupts > 0 && !t->was_warned)
        strait_progress_say(&t->progress, "interrupted: saving (interrupt again to stop at once)");
    t->was_warned = n_interrupts > 0;
    return t->was_warned;
}

/* The first signal asks for a tidy end, the second takes its ordinary course. */
static void listen_for_signals(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = interrupted;
    action.sa_flags = (int)SA_RESETHAND;
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

static strait_err folder_of(const strait_run *run, char out[STRAIT_PATH_MAX]) {
    if (out_folder != NULL) return strait_file_path(out, "%s", out_folder);
    return strait_file_path(out, "runs/%s", run->name);
}

static void print_how_to_go_on(const char *path, const char *folder) {
    fprintf(stderr, "to go on: strait train %s --out %s --resume", path, folder);
    for (int i = 0; i < sets.n; i++)
        fprintf(stderr, " --set %s", sets.items[i]);
    fputc('\n', stderr);
}

static strait_err train(const char *path, const strait_run *run) {
    char folder[STRAIT_PATH_MAX];
    STRAIT_TRY(folder_of(run, folder));
    struct teller teller = {.run = run, .folder = folder};
    strait_progress_init(&teller.progress);
    listen_for_signals();
    const strait_session_spec spec = {
        .run = run,
        .folder = folder,
        .resumes = resumes,
        .events = {&teller, on_opened, on_stepped, on_validated, NULL, on_noted, must_stop}};
    const strait_err err = strait_session_run(&spec);
    if (err == STRAIT_EINTERRUPTED) print_how_to_go_on(path, folder);
    if (err == STRAIT_OK) strait_progress_say(&teller.progress, "done: %s", folder);
    return err;
}

static strait_err run_train(int n_words, const char **words) {
    if (n_words != 1)
        return STRAIT_FAIL(STRAIT_ECONFIG, "train wants one run file: strait train RUN.yaml");
    static strait_run run; // large, and there is one
    STRAIT_TRY(strait_run_load(words[0], sets.items, sets.n, &run));
    if (!is_dry) return train(words[0], &run);
    strait_trainer_facts facts;
    STRAIT_TRY(strait_trainer_plan(&run, &facts));
    print_facts(&run, &facts);
    return STRAIT_OK;
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
