/* cmd_trace.c - strait trace RUN.yaml: records what every stage does as a Chrome trace. */
#include <strait/trainer.h>

#include "codec_note.h"
#include "commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *out_path = "trace.json";
static int64_t n_before = 2, n_steps = 1;
/* Flags are static: a process runs one command. */
static strait_flag_list sets;

static const strait_flag flags[] = {
    {"out", 'o', STRAIT_FLAG_TEXT, &out_path, "FILE", "the trace (default trace.json)"},
    {"after", 0, STRAIT_FLAG_INT, &n_before, "N", "steps to run before recording (default 2)"},
    {"steps", 'n', STRAIT_FLAG_INT, &n_steps, "N",
     "steps to record (default 1); a stage keeps its last 65,536 actions"},
    {"set", 's', STRAIT_FLAG_LIST, &sets, "KEY=VALUE", "override an option of the run file"},
    {0},
};

/* Prints every step, because a trace of a slow step is only useful with its numbers. */
static strait_err take_steps(struct strait_trainer *trainer, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        strait_trainer_report report;
        STRAIT_TRY(strait_trainer_step(trainer, &report));
        fprintf(stderr, "step %lld  loss %.4f  %.0f tok/s  bubble %.0f%%  limit %s\n",
                (long long)report.step, report.loss, report.tokens_per_s, 100.0 * report.bubble,
                report.limit);
    }
    return STRAIT_OK;
}

/* The first steps are slower than later ones, since they allocate and measure links. */
static strait_err record(struct strait_trainer *trainer, const char *path) {
    STRAIT_TRY(take_steps(trainer, n_before));
    STRAIT_TRY(strait_trainer_trace_begin(trainer));
    STRAIT_TRY(take_steps(trainer, n_steps));
    return strait_trainer_trace_end(trainer, path);
}

/* Stages are processes that may run in other folders, so they get an absolute path. */
static strait_err whole_path(char out[4096]) {
    char here[2048] = "";
    char *got = out_path[0] == '/' ? here : realpath(".", NULL);
    const int n = snprintf(out, 4096, "%s%s%s", out_path[0] == '/' ? "" : got,
                           out_path[0] == '/' ? "" : "/", out_path);
    if (got != here) free(got);
    if (n < 0 || n >= 4096) return STRAIT_FAIL(STRAIT_ECONFIG, "--out: too long a path");
    return STRAIT_OK;
}

/* The output is checked first: recording may take minutes. */
static strait_err run_trace(int n_args, const char **args) {
    struct strait_run *run = NULL;
    struct strait_trainer *trainer = NULL;
    char path[4096];
    STRAIT_TRY(strait_args_expect_one(&strait_cmd_trace, "run file",
                                      "--set KEY=VALUE overrides keys of the file", n_args, args));
    if (n_before < 0 || n_steps < 1)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--after must be at least 0 and --steps at least 1");
    STRAIT_TRY(strait_args_check_output("out", out_path));
    STRAIT_TRY(whole_path(path));
    STRAIT_TRY(strait_args_name_set(strait_run_load(args[0], sets.items, sets.n, &run), &sets));
    strait_err err = strait_codec_choose(run, NULL, 0);
    if (err == STRAIT_OK) err = strait_trainer_open(run, &trainer);
    if (err == STRAIT_OK) err = record(trainer, path);
    strait_trainer_close(&trainer);
    strait_run_close(&run);
    if (err == STRAIT_OK) printf("%s\n", out_path);
    return err;
}

const strait_command strait_cmd_trace = {
    .name = "trace",
    .usage = "RUN.yaml [flags]",
    .summary = "record a timeline of all stages for a few steps",
    .about =
        "Trains for a few steps without saving checkpoints and writes what each stage computed\n"
        "and waited for as a Chrome trace, for chrome://tracing or ui.perfetto.dev.",
    .flags = flags,
    .run = run_trace,
    .examples = (const strait_example[]){{"strait trace run.yaml --steps 3 --out trace.json",
                                          "Records three steps, for ui.perfetto.dev."},
                                         {0}},
};
