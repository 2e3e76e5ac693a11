/* cmd_bench.c - strait bench: times training steps, single kernels and codecs on this machine. */
#include <strait/cluster.h>
#include <strait/trainer.h>

#include "base/file.h"
#include "base/rng/rng.h"
#include "bench.h"
#include "bench_against.h"
#include "codec_note.h"
#include "commands.h"
#include "data/shard.h"
#include "launcher.h"
#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    STEPS_MAX = 1000,
    BENCH_VOCAB = 4096 // if the run file does not set it
};

static int64_t n_steps = 15, n_warm = 3;
static int64_t n_repeats = 7, n_pairs = 5;
static const char *only, *against;
static strait_flag_list sets;

static const strait_flag flags[] = {
    {"steps", 'n', STRAIT_FLAG_INT, &n_steps, "N", "timed steps (default 15)"},
    {"warm", 'w', STRAIT_FLAG_INT, &n_warm, "N", "warm-up steps before (default 3)"},
    {"repeats", 'r', STRAIT_FLAG_INT, &n_repeats, "N",
     "kernels, codec: how often each is timed (default 7)"},
    {"only", 0, STRAIT_FLAG_TEXT, &only, "PART",
     "kernels, codec: only those whose names contain PART"},
    {"against", 0, STRAIT_FLAG_TEXT, &against, "COMMAND",
     "step: run this command in turn with ours, and print the ratio of their speeds"},
    {"pairs", 0, STRAIT_FLAG_INT, &n_pairs, "N", "runs of each with --against (default 5)"},
    {"set", 's', STRAIT_FLAG_LIST, &sets, "KEY=VALUE", "override an option of the run file"},
    {0},
};

/* qsort needs an order of doubles; times are never NaN. */
static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median, because other programs on the machine make some steps slow. */
static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, by_value);
    return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

/* Writes a shard of random tokens, enough for two steps. */
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

/* The first steps allocate and fill caches, so they are not timed. */
static strait_err time_steps(struct strait_trainer *trainer, double *seconds, double *loss) {
    strait_trainer_report report = {0};
    for (int64_t i = -n_warm; i < n_steps; i++) {
        STRAIT_TRY(strait_trainer_step(trainer, &report));
        if (i >= 0) seconds[i] = report.seconds;
    }
    *loss = report.loss;
    return STRAIT_OK;
}

/* One JSON line, so that results of several runs can be collected in a file and compared. */
static void print_line(const struct strait_trainer *trainer, const strait_run *run, double *seconds,
                       double loss) {
    strait_trainer_info info;
    struct rusage usage;
    strait_trainer_describe(trainer, &info);
    (void)getrusage(RUSAGE_SELF, &usage);
    const double step = median(seconds, (int)n_steps);
    const double tokens_per_s = (double)run->train.batch_tokens / step;
    printf("{\"bench\": \"step\", \"tokens_per_s\": %.1f, \"seconds_per_step\": %.6f, "
           "\"best_seconds\": %.6f, \"gflops\": %.1f, \"model_parameters\": %lld, "
           "\"peak_bytes\": %lld, \"planned_bytes\": %zu, \"device_bytes\": %zu, \"device\": "
           "\"%s\", \"steps\": %lld, \"loss\": %.6f, \"stages\": [",
           tokens_per_s, step, seconds[0], info.flops_per_token * tokens_per_s / 1e9,
           (long long)info.parameters, (long long)usage.ru_maxrss * 1024, info.memory.total,
           info.device_bytes, info.device, (long long)n_steps, loss);
    for (int i = 0; i < info.n_stages; i++)
        printf("%s{\"layers\": %d, \"slots\": %d, \"planned_bytes\": %zu, \"device_bytes\": %zu}",
               i > 0 ? ", " : "", info.stages[i].layers, info.stages[i].slots,
               info.stages[i].planned, info.stages[i].used);
    printf("]}\n");
}

/* The memory of a process counts only while the trainer is open, so the line is printed before it
 * closes. */
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

/* Trains on random tokens, so that the benchmark needs no data. */
static strait_err bench_step(strait_run *run) {
    char folder[] = "/tmp/strait-bench-XXXXXX";
    if (mkdtemp(folder) == NULL)
        return STRAIT_FAIL(STRAIT_EIO, "%s: cannot create a folder", folder);
    (void)snprintf(run->data.train, sizeof run->data.train, "%s/random.bin", folder);
    run->data.valid[0] = run->data.tokenizer[0] = '\0';
    strait_err err = write_tokens(run->data.train, run);
    if (err == STRAIT_OK) err = strait_codec_choose(run, NULL, 0);
    if (err == STRAIT_OK) err = bench_run(run);
    (void)unlink(run->data.train);
    (void)rmdir(folder);
    return err;
}

/* The times are kept in an array of fixed size. */
static strait_err check_flags(void) {
    if (n_steps < 1 || n_steps > STEPS_MAX)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--steps must be between 1 and %d", STEPS_MAX);
    if (n_warm < 0 || n_warm > STEPS_MAX)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--warm must be between 0 and %d", STEPS_MAX);
    if (n_repeats < 1 || n_repeats > STEPS_MAX)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--repeats must be between 1 and %d", STEPS_MAX);
    if (n_pairs < 1 || n_pairs > STRAIT_BENCH_PAIRS)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--pairs must be between 1 and %d", STRAIT_BENCH_PAIRS);
    return STRAIT_OK;
}

/* The vocabulary must be known without data, so it gets a value here. */
static strait_err load(const char *action, int n_args, const char **args, strait_run *run) {
    STRAIT_TRY(check_flags());
    if (against != NULL && strcmp(action, "step") != 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--against compares steps: strait bench step RUN.yaml");
    if (n_args != 1)
        return STRAIT_FAIL(STRAIT_ECONFIG, "bench %s needs one run file: strait bench %s RUN.yaml",
                           action, action);
    STRAIT_TRY(strait_args_name_set(strait_run_init_file(args[0], sets.items, sets.n, run), &sets));
    if (run->model.vocab == 0) run->model.vocab = BENCH_VOCAB;
    return STRAIT_OK;
}

static strait_run run; // large, and there is one

/* The run is static, because it is too large for the stack of a small machine. */
static strait_err run_step(int n_args, const char **args) {
    int rank = 0;
    if (against == NULL) STRAIT_TRY(strait_launcher_join(&rank));
    if (rank > 0) return strait_cluster_serve();
    STRAIT_TRY(load("step", n_args, args, &run));
    return against != NULL ? strait_bench_against(against, (int)n_pairs) : bench_step(&run);
}

/* Kernels and codecs are timed in files of their own; here they only share the flags. */
static strait_err run_kernels(int n_args, const char **args) {
    STRAIT_TRY(load("kernels", n_args, args, &run));
    return strait_bench_kernels(&run, (int)n_repeats, only);
}

/* Codecs are timed for a stage in the middle of a pipeline, which has two boundaries. */
static strait_err run_codec(int n_args, const char **args) {
    STRAIT_TRY(load("codec", n_args, args, &run));
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
        "step trains the run file's model on random tokens, so that no data is needed, and\n"
        "prints the median speed and the memory used. If the file does not set the vocabulary\n"
        "(model.vocab), it is 4,096. Under mpirun its stages are on the ranks of the job, which\n"
        "must share /tmp. With --against the same command line and another command run in turn,\n"
        "each beginning every other pair; both print a JSON line with tokens_per_s. The last line\n"
        "has the medians, the median ratio, the least and the most, and the mean with half the\n"
        "width of its 95% confidence interval.\n\n"
        "kernels calls every kernel alone, on random numbers, with the shapes of a microbatch of\n"
        "the run file's model. It prints microseconds (median, least, most), the bytes and\n"
        "operations that a call needs at least, and the share of the time that these would take\n"
        "at the device's best speed (of_floor), which the first line states. Kernels whose data\n"
        "fit into caches may be faster than that.\n\n"
        "codec prints what a stage in the middle of the pipeline (stages.count) spends on its\n"
        "boundaries at compression ratios of about 100 and 128, in microseconds and as a share\n"
        "of its step.",
    .flags = flags,
    .actions = actions,
    .examples = (const strait_example[]){{"strait bench step run.yaml",
                                          "Measures whole training steps."},
                                         {"strait bench kernels run.yaml --only attention",
                                          "Measures the kernels whose names contain a word."},
                                         {0}},
};
