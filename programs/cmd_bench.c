/* cmd_bench.c - strait bench: how fast whole training steps, single kernels and codecs are, here
 * and now. */
#include <strait/trainer.h>

#include "base/file.h"
#include "base/rng.h"
#include "bench.h"
#include "commands.h"
#include "data/shard.h"
#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    STEPS_MAX = 1000,
    BENCH_VOCAB = 4096 // where the run file leaves it out
};

static int64_t n_steps = 15, n_warm = 3;
static int64_t n_repeats = 7;
static const char *only;
static strait_flag_list sets;

static const strait_flag flags[] = {
    {"steps", 'n', STRAIT_FLAG_INT, &n_steps, "N", "timed steps (default 15)"},
    {"warm", 'w', STRAIT_FLAG_INT, &n_warm, "N", "steps before, to warm up (default 3)"},
    {"repeats", 'r', STRAIT_FLAG_INT, &n_repeats, "N",
     "kernels, codec: how often each is timed (default 7)"},
    {"only", 0, STRAIT_FLAG_TEXT, &only, "PART", "kernels, codec: those with this in their names"},
    {"set", 's', STRAIT_FLAG_LIST, &sets, "KEY=VALUE", "override an option of the run file"},
    {0},
};

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, by_value);
    return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

/* A shard of random tokens, enough for two steps' worth of windows. */
static strait_err write_tokens(const char *path, const strait_run *run) {
    enum {
        CHUNK = 4096
    };
    const strait_rng rng = {(uint64_t)run->train.seed, strait_rng_stream("bench")};
    struct strait_shard_writer *writer = NULL;
    int32_t ids[CHUNK];
    STRAIT_TRY(
        strait_shard_writer_open(path, (strait_shard_spec){.vocab = run->model.vocab}, &writer));
    strait_err err = STRAIT_OK;
    const int64_t n = 2 * run->train.batch_tokens + run->model.context + 1;
    for (int64_t first = 0; first < n && err == STRAIT_OK; first += CHUNK) {
        for (int64_t i = 0; i < CHUNK; i++)
            ids[i] = (int32_t)(strait_rng_u64(rng, (uint64_t)(first + i)) %
                               (uint64_t)run->model.vocab);
        err = strait_shard_writer_append(writer, ids, CHUNK);
    }
    if (err == STRAIT_OK) return strait_shard_writer_finish(&writer);
    strait_shard_writer_close(&writer);
    return err;
}

static strait_err time_steps(struct strait_trainer *trainer, double *seconds, double *loss) {
    strait_trainer_report report = {0};
    for (int64_t i = -n_warm; i < n_steps; i++) {
        STRAIT_TRY(strait_trainer_step(trainer, &report));
        if (i >= 0) seconds[i] = report.seconds;
    }
    *loss = report.loss;
    return STRAIT_OK;
}

static void print_line(const struct strait_trainer *trainer, const strait_run *run, double *seconds,
                       double loss) {
    strait_trainer_info facts;
    struct rusage usage;
    strait_trainer_describe(trainer, &facts);
    (void)getrusage(RUSAGE_SELF, &usage);
    const double step = median(seconds, (int)n_steps);
    const double tokens_per_s = (double)run->train.batch_tokens / step;
    printf("{\"bench\": \"step\", \"tokens_per_s\": %.1f, \"seconds_per_step\": %.6f, "
           "\"best_seconds\": %.6f, \"gflops\": %.1f, \"model_parameters\": %lld, "
           "\"peak_bytes\": %lld, \"planned_bytes\": %zu, \"device_bytes\": %zu, \"device\": "
           "\"%s\", \"steps\": %lld, \"loss\": %.6f, \"stages\": [",
           tokens_per_s, step, seconds[0], facts.flops_per_token * tokens_per_s / 1e9,
           (long long)facts.parameters, (long long)usage.ru_maxrss * 1024, facts.memory.total,
           facts.device_bytes, facts.device, (long long)n_steps, loss);
    for (int i = 0; i < facts.n_stages; i++)
        printf("%s{\"layers\": %d, \"slots\": %d, \"planned_bytes\": %zu, \"device_bytes\": %zu}",
               i > 0 ? ", " : "", facts.stages[i].layers, facts.stages[i].slots,
               facts.stages[i].planned, facts.stages[i].used);
    printf("]}\n");
}

static strait_err bench_run(const strait_run *run) {
    static double seconds[STEPS_MAX];
    double loss = 0.0;
    struct strait_trainer *trainer = NULL;
    STRAIT_TRY(strait_trainer_open(run, &trainer));
    const strait_err err = time_steps(trainer, seconds, &loss);
    if (err == STRAIT_OK) print_line(trainer, run, seconds, loss);
    strait_trainer_close(&trainer);
    return err;
}

/* Runs on random tokens, so that a bench needs no data. */
static strait_err bench_step(strait_run *run) {
    char folder[] = "/tmp/strait-bench-XXXXXX";
    if (mkdtemp(folder) == NULL)
        return STRAIT_FAIL(STRAIT_EIO, "%s: cannot make a folder there", folder);
    (void)snprintf(run->data.train, sizeof run->data.train, "%s/random.bin", folder);
    run->data.valid[0] = run->data.tokenizer[0] = '\0';
    strait_err err = write_tokens(run->data.train, run);
    if (err == STRAIT_OK) err = bench_run(run);
    (void)unlink(run->data.train);
    (void)rmdir(folder);
    return err;
}

static strait_err check_flags(void) {
    if (n_steps < 1 || n_steps > STEPS_MAX)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--steps must lie between 1 and %d", STEPS_MAX);
    if (n_warm < 0 || n_warm > STEPS_MAX)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--warm must lie between 0 and %d", STEPS_MAX);
    if (n_repeats < 1 || n_repeats > STEPS_MAX)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--repeats must lie between 1 and %d", STEPS_MAX);
    return STRAIT_OK;
}

static strait_err load(const char *action, int n_words, const char **words, strait_run *run) {
    STRAIT_TRY(check_flags());
    if (n_words != 1)
        return STRAIT_FAIL(STRAIT_ECONFIG, "bench %s needs one run file: strait bench %s RUN.yaml",
                           action, action);
    STRAIT_TRY(strait_run_init_file(words[0], sets.items, sets.n, run));
    if (run->model.vocab == 0) run->model.vocab = BENCH_VOCAB;
    return STRAIT_OK;
}

static strait_run run; // large, and there is one

static strait_err run_step(int n_words, const char **words) {
    STRAIT_TRY(load("step", n_words, words, &run));
    return bench_step(&run);
}

static strait_err run_kernels(int n_words, const char **words) {
    STRAIT_TRY(load("kernels", n_words, words, &run));
    return strait_bench_kernels(&run, (int)n_repeats, only);
}

static strait_err run_codec(int n_words, const char **words) {
    STRAIT_TRY(load("codec", n_words, words, &run));
    return strait_bench_codec(&run, (int)n_repeats, only);
}

static const strait_action actions[] = {
    {"step", "RUN.yaml [flags]", run_step},
    {"kernels", "RUN.yaml [flags]", run_kernels},
    {"codec", "RUN.yaml [flags]", run_codec},
    {0},
};

const strait_command strait_cmd_bench = {
    .name = "bench",
    .summary = "time training steps, kernels or codecs; prints JSON lines",
    .about =
        "step trains the run file's model on random tokens, so that no data are needed, and "
        "prints\n"
        "the median speed with what it took in memory. Where the file names no vocabulary "
        "(model.vocab), it is 4,096.\n\n"
        "kernels calls every kernel alone, on made up numbers, at the shapes of a microbatch of "
        "the\n"
        "run file's model: microseconds (median, least, most), bytes and operations that a call\n"
        "cannot do without, and which part of the time that is at the device's best (of_floor),\n"
        "which the first line names. What fits into caches may look better than that.\n\n"
        "codec says what a stage in the middle of the cut (stages.count) pays for its boundaries\n"
        "at about 100 and 128 times, in microseconds and as a share of its step.",
    .flags = flags,
    .actions = actions,
};
