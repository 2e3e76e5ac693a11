/* cmd_study.c - strait study NAME|FILE.yaml: trains many runs and reports how they compare. */
#include "base/alloc.h"
#include "base/file.h"
#include "commands.h"
#include "progress.h"
#include "signals.h"
#include "study/builtin.h"
#include "study/runner.h"
#include "study/summary.h"
#include "study/vision/vision.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FILE_MAX = 1 << 20,
    PROGRESS_SECONDS = 20 // between lines where there is no terminal
};

static const char *out_folder, *data_folder;
static int lists, is_small, is_full, is_dry, only_reports, keeps_weights;
static int64_t n_parallel = 1;
static strait_flag_list sets, speed, only, retest, merges;

static const strait_flag flags[] = {
    {"list", 'l', STRAIT_FLAG_SWITCH, &lists, NULL, "list the studies that are built in"},
    {"out", 'o', STRAIT_FLAG_TEXT, &out_folder, "DIR", "output (default runs/study-NAME)"},
    {"data", 'd', STRAIT_FLAG_TEXT, &data_folder, "DIR",
     "train.bin, valid.bin, tokenizer.json and, if there is one, test.bin"},
    {"jobs", 'j', STRAIT_FLAG_INT, &n_parallel, "N", "runs at a time (default 1)"},
    {"small", 0, STRAIT_FLAG_SWITCH, &is_small, NULL, "minutes on two cores (the default)"},
    {"full", 0, STRAIT_FLAG_SWITCH, &is_full, NULL, "the size that needs a GPU"},
    {"only", 0, STRAIT_FLAG_LIST, &only, "VARIANT", "run this variant and its control"},
    {"retest", 0, STRAIT_FLAG_LIST, &retest, "VARIANT",
     "train this variant again where it was not evaluated on this test text"},
    {"set", 's', STRAIT_FLAG_LIST, &sets, "KEY=VALUE",
     "override an option of all runs, or seeds=1,2,3, or tune.steps=N"},
    {"speed", 0, STRAIT_FLAG_LIST, &speed, "KEY=VALUE",
     "stages.microbatch, stages.window or device.threads of the runs that are left, which stay the "
     "same runs"},
    {"merge", 0, STRAIT_FLAG_LIST, &merges, "FILE", "take over a results.jsonl of another machine"},
    {"report", 0, STRAIT_FLAG_SWITCH, &only_reports, NULL, "write the report without training"},
    {"keep-weights", 0, STRAIT_FLAG_SWITCH, &keeps_weights, NULL,
     "do not remove checkpoints of finished runs"},
    {"dry-run", 0, STRAIT_FLAG_SWITCH, &is_dry, NULL, "check and list the runs, and stop"},
    {0},
};

/* ---- which study ---- */

static strait_study_source source_of(void) {
    return (strait_study_source){.size = is_full ? STRAIT_STUDY_FULL : STRAIT_STUDY_SMALL,
                                 .sets = sets.items,
                                 .n_sets = sets.n,
                                 .speed = speed.items,
                                 .n_speed = speed.n,
                                 .data = data_folder,
                                 .only = only.items,
                                 .n_only = only.n,
                                 .retest = retest.items,
                                 .n_retest = retest.n};
}

/* A built-in study has no data of its own; that of the demo will do. */
static strait_err read_builtin(const strait_embedded_file *builtin, strait_study *out) {
    static const char demo[] = "runs/demo/data";
    if (data_folder == NULL && strait_file_is_folder(demo)) data_folder = demo;
    if (data_folder == NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "%s: no data: name a folder with train.bin, valid.bin and "
                           "tokenizer.json by --data DIR (make demo writes %s)",
                           builtin->name, demo);
    strait_study_source source = source_of();
    source.name = builtin->name;
    source.text = builtin->text;
    source.bytes = builtin->bytes;
    return strait_study_read(&source, out);
}

static strait_err read_file(const char *path, strait_study *out) {
    strait_study_source source = source_of();
    char named[STRAIT_PATH_MAX] = ".";
    char folder[STRAIT_PATH_MAX]; // absolute: runs are started from files in other folders
    char *text = NULL;
    const char *slash = strrchr(path, '/');
    if (slash != NULL) STRAIT_TRY(strait_file_path(named, "%.*s", (int)(slash - path) + 1, path));
    if (realpath(named, folder) == NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s: its folder cannot be read", path);
    if (strait_file_read(path, FILE_MAX, &text, &source.bytes) != STRAIT_OK)
        return STRAIT_ECONFIG; // the user named a wrong file
    source.name = path;
    source.text = text;
    source.folder = folder;
    const strait_err err = strait_study_read(&source, out);
    strait_alloc_free(text);
    return err;
}

static strait_err read_study(const char *name, strait_study *out) {
    const strait_embedded_file *builtin = strait_builtin_find(name);
    if (builtin != NULL) return read_builtin(builtin, out);
    if (strait_file_exists(name)) return read_file(name, out);
    return STRAIT_FAIL(STRAIT_ECONFIG,
                       "%s: neither a built-in study (strait study --list) nor a file", name);
}

static strait_err print_list(void) {
    for (const strait_embedded_file *s = strait_builtin_studies; s->name != NULL; s++) {
        strait_yaml_node root = {0};
        STRAIT_TRY(strait_yaml_tree_read(s->name, s->text, s->bytes, &root));
        const strait_yaml_node *about = strait_yaml_tree_find(&root, "about");
        const strait_yaml_node *minutes = strait_yaml_tree_find(&root, "minutes");
        char text[512];
        (void)snprintf(text, sizeof text, "[%s min] %s",
                       minutes != NULL && minutes->text != NULL ? minutes->text : "?",
                       about != NULL && about->text != NULL ? about->text : "");
        strait_args_print_item(s->name, text);
        strait_yaml_tree_close(&root);
    }
    printf("\nIn brackets: minutes of --small on two free cores, one run at a time.\n");
    return STRAIT_OK;
}

/* ---- progress ---- */

typedef struct monitor {
    strait_progress progress;
    double shown; // when the last line was printed
} monitor;

static void on_finished(void *user, const strait_job *job) {
    monitor *m = user;
    char spent[32];
    strait_progress_duration(strait_summary_value(job, "seconds"), spent);
    if (isfinite(strait_summary_value(job, "test_loss")))
        strait_progress_say(&m->progress, "%s: loss %.4f, test %.4f, in %s", job->name,
                            strait_summary_value(job, "valid_loss"),
                            strait_summary_value(job, "test_loss"), spent);
    else
        strait_progress_say(&m->progress, "%s: loss %.4f, in %s", job->name,
                            strait_summary_value(job, "valid_loss"), spent);
}

static void on_failed(void *user, const strait_job *job) {
    strait_progress_say(&((monitor *)user)->progress, "%s: FAILED: %s", job->name, job->error);
}

static void on_progress(void *user, const strait_study_progress *p) {
    monitor *m = user;
    char left[32] = "unknown";
    const int is_due = p->seconds - m->shown >= PROGRESS_SECONDS;
    if (isfinite(p->seconds_left)) strait_progress_duration(p->seconds_left, left);
    if (is_due) m->shown = p->seconds;
    strait_progress_show(&m->progress, is_due, 0,
                         "%d of %d runs done, %d running, %d failed, %s left", p->n_done, p->n_jobs,
                         p->n_running, p->n_failed, left);
}

static int must_stop(void *user) {
    (void)user;
    return strait_signals_count() > 0;
}

/* ---- results ---- */

static void print_rows(const strait_study *study, const struct strait_queue *queue) {
    printf("%-40s %5s %10s %8s  %s\n", "variant", "seeds", "loss", "+/-", "against its control");
    for (int row = 0; row < study->n_rows; row++) {
        strait_summary s;
        strait_summary_of(study, queue, row, &s);
        const strait_estimate *loss = s.test.n > 0 ? &s.test : &s.valid;
        printf("%-40s %5d ", study->rows[row].name, s.n_runs);
        if (s.n_runs == 0) {
            printf("%s\n", s.n_failed > 0 ? "failed" : "not run");
            continue;
        }
        printf("%10.4f ", loss->mean);
        if (isfinite(loss->half))
            printf("%8.4f  ", loss->half);
        else
            printf("%8s  ", "-");
        if (s.against.n > 0)
            printf("%+.2f%% of %s", 100.0 * s.against.mean / s.control_loss,
                   study->rows[row].control);
        if (s.against.n > 1) printf(", +/- %.2f%%", 100.0 * s.against.half / s.control_loss);
        printf("\n");
    }
}

static void print_jobs(const struct strait_queue *queue) {
    static const char *const states[] = {"after its trials", "to run", "running", "done", "failed"};
    double work = 0.0;
    for (int i = 0; i < strait_queue_count(queue); i++) {
        const strait_job *job = strait_queue_at(queue, i);
        printf("%-60s %-16s %8.2fM parameters %9.1f MFLOP/token %6lld steps\n", job->name,
               states[job->state], (double)job->parameters / 1e6, job->flops_per_token / 1e6,
               (long long)job->run->train.steps);
        if (job->state != STRAIT_JOB_DONE) work += strait_job_work(job);
    }
    printf("to do: %.3g TFLOP\n", work / 1e12);
}

static int count_jobs(const struct strait_queue *queue, strait_job_state state) {
    int n = 0;
    for (int i = 0; i < strait_queue_count(queue); i++)
        n += strait_queue_at(queue, i)->state == state;
    return n;
}

/* Keys of runs depend on the data and on --small or --full. With others every row would be "not
 * run", in place of a table that may have taken days. */
static strait_err check_report(const struct strait_queue *queue,
                               const struct strait_results *results, const char *path) {
    const int n = strait_results_count(results);
    if (!only_reports || n == 0 || count_jobs(queue, STRAIT_JOB_DONE) > 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA,
                       "%s: has results of %d run%s, none of them of this study with this --data, "
                       "%s and --set; nothing was written",
                       path, n, strait_progress_plural(n), is_full ? "--full" : "--small");
}

static strait_err merge_results(struct strait_results *results) {
    for (int i = 0; i < merges.n; i++) {
        int n_new = 0;
        STRAIT_TRY(strait_results_merge(results, merges.items[i], is_dry, &n_new));
        fprintf(stderr, "%s: %d new result%s\n", merges.items[i], n_new,
                strait_progress_plural(n_new));
    }
    return STRAIT_OK;
}

/* The report is written after an interruption too: what is done is worth reading. */
static strait_err train(const strait_study *study, struct strait_queue *queue,
                        struct strait_results *results, const char *folder) {
    monitor m = {0};
    strait_progress_init(&m.progress);
    const strait_runner_spec spec = {.study = study,
                                     .queue = queue,
                                     .folder = folder,
                                     .n_parallel = (int)n_parallel,
                                     .keeps_weights = keeps_weights,
                                     .events = {.user = &m,
                                                .finished = on_finished,
                                                .failed = on_failed,
                                                .progressed = on_progress,
                                                .must_stop = must_stop}};
    strait_signals_listen(1);
    strait_err err = only_reports ? STRAIT_OK : strait_runner_run(&spec);
    json_t *more = NULL;
    if (err == STRAIT_OK && strait_study_has(study, "stable-rank") && !only_reports)
        err = strait_vision_results(results, is_full ? 800 : 160, must_stop, NULL, &more);
    if (err != STRAIT_OK && err != STRAIT_EINTERRUPTED) return err;
    strait_summary_choose(study, queue);
    const strait_err written = strait_summary_write(study, queue, more, folder);
    json_decref(more);
    STRAIT_TRY(written);
    if (err == STRAIT_EINTERRUPTED)
        return STRAIT_FAIL(err, "interrupted: run the same command again to continue");
    print_rows(study, queue);
    strait_progress_say(&m.progress, "report: %s/report.html", folder);
    const int n_failed = count_jobs(queue, STRAIT_JOB_FAILED);
    if (n_failed == 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA, "%d run%s failed; the same command tries again", n_failed,
                       strait_progress_plural(n_failed));
}

static strait_err run_in(const strait_study *study, const char *folder) {
    char path[STRAIT_PATH_MAX];
    struct strait_results *results = NULL;
    struct strait_queue *queue = NULL;
    STRAIT_TRY(strait_file_path(path, "%s/results.jsonl", folder));
    STRAIT_TRY(strait_results_open(path, &results));
    strait_err err = merge_results(results);
    if (err == STRAIT_OK) err = strait_queue_open(study, results, &queue);
    if (err == STRAIT_OK) err = check_report(queue, results, path);
    if (err == STRAIT_OK && is_dry)
        print_jobs(queue);
    else if (err == STRAIT_OK)
        err = train(study, queue, results, folder);
    strait_queue_close(&queue);
    strait_results_close(&results);
    return err;
}

/* Two studies in one folder would train the same runs. */
static strait_err run_locked(const strait_study *study, const char *folder) {
    char path[STRAIT_PATH_MAX];
    int lock = 0;
    if (is_dry) return run_in(study, folder);
    STRAIT_TRY(strait_file_make_folders(folder));
    STRAIT_TRY(strait_file_path(path, "%s/.lock", folder));
    STRAIT_TRY(strait_file_lock(path, &lock));
    const strait_err err = run_in(study, folder);
    strait_file_unlock(&lock);
    return err;
}

static strait_err check_flags(int n_args, const char **args) {
    if (is_small && is_full) return STRAIT_FAIL(STRAIT_ECONFIG, "choose one of --small and --full");
    if (n_parallel < 1 || n_parallel > STRAIT_RUNNER_PARALLEL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--jobs %lld: expected 1 to %d", (long long)n_parallel,
                           STRAIT_RUNNER_PARALLEL);
    return strait_args_expect_one(&strait_cmd_study, "study or study file",
                                  "--list shows the studies that are built in", n_args, args);
}

static strait_err run_study(int n_args, const char **args) {
    if (lists) return print_list();
    STRAIT_TRY(check_flags(n_args, args));
    strait_study study = {0};
    char folder[STRAIT_PATH_MAX];
    STRAIT_TRY(read_study(args[0], &study));
    strait_err err = out_folder != NULL ? strait_file_path(folder, "%s", out_folder)
                                        : strait_file_path(folder, "runs/study-%s", study.name);
    if (err == STRAIT_OK) err = run_locked(&study, folder);
    strait_study_close(&study);
    return err;
}

static void print_names(FILE *to) {
    for (const strait_embedded_file *s = strait_builtin_studies; s->name != NULL; s++)
        fprintf(to, " %s", s->name);
}

const strait_command strait_cmd_study = {
    .name = "study",
    .usage = "NAME|FILE.yaml [flags]",
    .summary = "train many runs and compare them: codecs, bandwidths, options",
    .about =
        "Trains every run of a study as \"strait train\" does, and writes table.md, table.csv,\n"
        "plots and report.html: losses with intervals over seeds, against named controls, with\n"
        "parameters, FLOPs, bytes and seconds. Interrupted or killed, the same command continues;\n"
        "what results.jsonl has is not trained again. docs/studies.md describes study files.",
    .flags = flags,
    .run = run_study,
    .print_completions = print_names,
    .examples = (const strait_example[]){{"strait study --list",
                                          "Lists the studies that come with the program."},
                                         {"strait study exactness --data corpus --small",
                                          "Runs one of them, small."},
                                         {0}},
};
