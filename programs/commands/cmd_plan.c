/* cmd_plan.c - strait plan RUN.yaml: memory, speed, bubbles and bytes before training. */
#include "commands.h"
#include "plan_print.h"
#include "progress.h"
#include "train/outlook/choose.h"

#include <math.h>
#include <stdio.h>

static double gflops = INFINITY; // not given
static int is_json;
static strait_flag_list sets;

static const strait_flag flags[] = {
    {"gflops", 'g', STRAIT_FLAG_REAL, &gflops, "N",
     "plan for stages of this speed instead of measuring this machine"},
    {"json", 0, STRAIT_FLAG_SWITCH, &is_json, NULL, "print one JSON object"},
    {"set", 's', STRAIT_FLAG_LIST, &sets, "KEY=VALUE", "override an option of the run file"},
    {0},
};

/* Each stage has a device of its own here, also where training would share one. */
static strait_err choose_codec(strait_run *run) {
    const strait_choose_params params = {.flops_per_s = isfinite(gflops) ? gflops * 1e9 : 0.0};
    char text[STRAIT_CHOICE_TEXT];
    strait_choice choice;
    STRAIT_TRY(strait_choose_codec(run, &params, &choice));
    strait_choice_describe(&choice, text);
    if (text[0] != '\0') fprintf(stderr, "%s\n", text);
    return STRAIT_OK;
}

/* Only the vocabulary may need the data, if the run file does not state it. */
static strait_err read_run(const char *path, strait_run *run, strait_outlook *o) {
    int64_t vocab = 0;
    STRAIT_TRY(strait_args_name_set(strait_run_init_file(path, sets.items, sets.n, run), &sets));
    STRAIT_TRY(strait_outlook_vocab(run, &vocab));
    strait_progress progress;
    strait_progress_init(&progress);
    if (!isfinite(gflops))
        strait_progress_say(&progress,
                            "measuring one block, the head and the codec; a large model takes "
                            "minutes on a CPU (--gflops N skips this)");
    STRAIT_TRY(choose_codec(run));
    STRAIT_TRY(strait_run_plan_init(run, vocab, &o->plan));
    if (isfinite(gflops)) return strait_stage_times_estimate(&o->plan, gflops * 1e9, &o->times);
    return strait_stage_times_measure(run, &o->plan, &o->times);
}

static strait_err run_plan(int n_args, const char **args) {
    static strait_run run; // large, and there is one of each
    static strait_outlook o;
    STRAIT_TRY(strait_args_expect_one(&strait_cmd_plan, "run file",
                                      "--set KEY=VALUE overrides keys of the file", n_args, args));
    if (gflops <= 0) return STRAIT_FAIL(STRAIT_ECONFIG, "--gflops %g: expected above 0", gflops);
    STRAIT_TRY(read_run(args[0], &run, &o));
    STRAIT_TRY(strait_outlook_predict(&run, &o));
    if (is_json)
        strait_plan_print_json(&run, &o);
    else
        strait_plan_print(args[0], &run, &o);
    return STRAIT_OK;
}

const strait_command strait_cmd_plan = {
    .name = "plan",
    .usage = "RUN.yaml [flags]",
    .summary = "predict memory, speed, bubbles and bytes before training",
    .about = "Measures one block, the head and the codec on this machine, simulates a step of the\n"
             "pipeline over the links of the run file, and prints what limits it. Bytes are those\n"
             "on the link: payload, frame, TLS and TCP/IP headers. Token ids are not counted.",
    .flags = flags,
    .run = run_plan,
    .examples =
        (const strait_example[]){
            {"strait plan run.yaml",
             "Says how fast the pipeline of a run file would be, and what limits it."},
            {"strait plan run.yaml --set link.emulate.rate=20mbit", "Tries slower links."},
            {0}},
};
