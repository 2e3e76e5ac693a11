/* cmd_report.c - strait report RUN...: what was run and what came of it, as one HTML page. */
#include <strait/run.h>

#include "base/alloc.h"
#include "base/file.h"
#include "commands.h"
#include "monitor/follow.h"
#include "report/document.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RUNS_MAX = 8, // curves that can be told apart
    FILE_MAX_BYTES = 1 << 20
};

static const char *out_path, *title, *text_path;

static const strait_flag flags[] = {
    {"out", 'o', STRAIT_FLAG_TEXT, &out_path, "FILE",
     "the page (default report.html in the folder of the first run)"},
    {"title", 0, STRAIT_FLAG_TEXT, &title, "TEXT", "its heading (default: the name of the run)"},
    {"text", 0, STRAIT_FLAG_TEXT, &text_path, "FILE",
     "add this file, for example the output of strait generate"},
    {0},
};

typedef struct entry {
    char name[256], metrics[STRAIT_PATH_MAX], file[STRAIT_PATH_MAX];
    char codec[64];
    int64_t stages;
    strait_follow follow;
} entry;

static entry entries[RUNS_MAX];

/* ---- reading ---- */

static void set_name(entry *e, const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t from = n;
    while (from > 0 && path[from - 1] != '/')
        from--;
    (void)snprintf(e->name, sizeof e->name, "%.*s", (int)(n - from), path + from);
}

static strait_err read_run(entry *e, const char *path) {
    struct strait_run *run = NULL;
    set_name(e, path);
    STRAIT_TRY(strait_file_path(e->metrics, "%s/metrics.jsonl", path));
    STRAIT_TRY(strait_file_path(e->file, "%s/run.yaml", path));
    if (!strait_file_exists(e->metrics) || !strait_file_exists(e->file))
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s: not the folder of a run: no %s", path,
                           strait_file_exists(e->file) ? "metrics.jsonl" : "run.yaml");
    STRAIT_TRY(strait_follow_open(e->metrics, &e->follow));
    strait_follow_read(&e->follow);
    if (e->follow.series.n_points == 0)
        return STRAIT_FAIL(STRAIT_EDATA, "%s: no step yet", e->metrics);
    STRAIT_TRY(strait_run_load(e->file, NULL, 0, &run));
    strait_err err = strait_run_get_text(run, "link.codec.name", e->codec, sizeof e->codec);
    if (err == STRAIT_OK) err = strait_run_get_int(run, "stages.count", &e->stages);
    strait_run_close(&run);
    return err;
}

/* ---- figures ---- */

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median over the later half of a run of the member at `offset` of each point. The first steps
 * are slower than the others. NaN: no value is finite. */
static double median(const strait_series *series, size_t offset) {
    static double values[STRAIT_SERIES_MAX];
    int n = 0;
    for (int i = series->n_points / 2; i < series->n_points; i++) {
        const double value = *(const double *)((const char *)&series->points[i] + offset);
        if (isfinite(value)) values[n++] = value;
    }
    if (n == 0) return (double)NAN;
    qsort(values, (size_t)n, sizeof *values, ascending);
    return values[n / 2];
}

#define MEDIAN(series, member) median(series, offsetof(strait_series_point, member))

static void put_row(struct strait_document *d, const entry *e) {
    const strait_series *s = &e->follow.series;
    const strait_series_point *first = &s->points[0], *last = &s->last;
    const int has_links = e->stages > 1;
    strait_document_cell(d, "%s", e->name);
    strait_document_cell(d, "%lld", (long long)e->stages);
    strait_document_cell(d, "%s", has_links ? e->codec : "-");
    strait_document_number(d, "%.0f", last->step);
    strait_document_number(d, "%.0f", last->tokens);
    strait_document_number(d, "%.1f", last->time - first->time + first->seconds);
    strait_document_number(d, "%.4f", first->loss);
    strait_document_number(d, "%.4f", last->loss);
    strait_document_number(d, "%.4f", s->has_last_valid ? s->last_valid.valid_loss : (double)NAN);
    strait_document_number(d, "%.0f", MEDIAN(s, tokens_per_s));
    const double none = (double)NAN;
    strait_document_number(d, "%.2f", has_links ? MEDIAN(s, forward_bytes_per_token) : none);
    strait_document_number(d, "%.2f", has_links ? MEDIAN(s, backward_bytes_per_token) : none);
    strait_document_number(d, "%.1fx", has_links ? MEDIAN(s, ratio_forward) : none);
    strait_document_number(d, "%.1fx", has_links ? MEDIAN(s, ratio_backward) : none);
}

static void put_table(struct strait_document *d, int n) {
    static const char *const heads[] = {"run",        "stages",    "codec",      "steps",
                                        "tokens",     "seconds",   "first loss", "last loss",
                                        "validation", "tokens/s",  "bytes out",  "bytes back",
                                        "ratio out",  "ratio back"};
    strait_document_table(d, NULL, heads, (int)(sizeof heads / sizeof *heads));
    for (int i = 0; i < n; i++)
        put_row(d, &entries[i]);
    strait_document_text(
        d, "Losses are cross-entropies; \"validation\" is the last one. Speed, bytes per token at "
           "the socket of the busiest boundary (encryption and framing included) and their ratio "
           "to bf16 are medians over the later half of the steps.");
}

/* ---- curves ---- */

/* Draws the member at `offset` over steps, one line per run. Points are thinned by the series. */
static strait_err put_curves(struct strait_document *d, int n, const char *what, size_t offset) {
    static double x[RUNS_MAX][STRAIT_SERIES_MAX], y[RUNS_MAX][STRAIT_SERIES_MAX];
    strait_plot_line lines[RUNS_MAX];
    for (int i = 0; i < n; i++) {
        const strait_series *s = &entries[i].follow.series;
        for (int k = 0; k < s->n_points; k++) {
            x[i][k] = s->points[k].step;
            y[i][k] = *(const double *)((const char *)&s->points[k] + offset);
        }
        lines[i] = (strait_plot_line){entries[i].name, x[i], y[i], s->n_points};
    }
    const strait_plot plot = {
        .title = what, .x_label = "step", .y_label = what, .lines = lines, .n_lines = n};
    return strait_document_plot(d, what, &plot);
}

/* A run that never validated has no line. */
static strait_err put_validation(struct strait_document *d, int n) {
    static double x[RUNS_MAX][STRAIT_SERIES_MAX], y[RUNS_MAX][STRAIT_SERIES_MAX];
    strait_plot_line lines[RUNS_MAX];
    int n_lines = 0;
    for (int i = 0; i < n; i++) {
        const strait_series *s = &entries[i].follow.series;
        for (int k = 0; k < s->n_valid; k++) {
            x[i][k] = s->valid[k].step;
            y[i][k] = s->valid[k].valid_loss;
        }
        if (s->n_valid > 0)
            lines[n_lines++] = (strait_plot_line){entries[i].name, x[i], y[i], s->n_valid};
    }
    if (n_lines == 0) return STRAIT_OK;
    const strait_plot plot = {.title = "validation loss",
                              .x_label = "step",
                              .y_label = "loss",
                              .lines = lines,
                              .n_lines = n_lines};
    return strait_document_plot(d, "validation", &plot);
}

/* ---- what was run ---- */

static int is_comment(const char *line, size_t n) {
    (void)n;
    return line[strspn(line, " ")] == '#';
}

/* A key of a section that the next line does not belong to. */
static int is_empty_section(const char *line, size_t n) {
    const size_t depth = strspn(line, " "), below = strspn(line + n, " ");
    return n >= 2 && line[n - 1] == '\n' && line[n - 2] == ':' &&
           (line[n + below] == '\0' || (below <= depth && line[n + below] != '-'));
}

/* Removes lines. Returns whether there were any. */
static int drop_lines(char *text, int (*is_dropped)(const char *line, size_t n)) {
    char *out = text;
    const char *line = text;
    while (*line != '\0') {
        const char *end = strchr(line, '\n');
        const size_t n = end != NULL ? (size_t)(end - line) + 1 : strlen(line);
        if (!is_dropped(line, n)) {
            memmove(out, line, n);
            out += n;
        }
        line += n;
    }
    const int n_dropped = out != line;
    *out = '\0';
    return n_dropped;
}

/* Comments of run.yaml are defaults: they are left out, and sections that have nothing else. */
static void drop_defaults(char *text) {
    (void)drop_lines(text, is_comment);
    while (drop_lines(text, is_empty_section)) {
    }
}

static strait_err put_file(struct strait_document *d, const char *path, int is_run) {
    char *text = NULL;
    STRAIT_TRY(strait_file_read(path, FILE_MAX_BYTES, &text, NULL));
    if (is_run) drop_defaults(text);
    strait_document_verbatim(d, text);
    strait_alloc_free(text);
    return STRAIT_OK;
}

static strait_err put_runs(struct strait_document *d, int n) {
    char heading[320];
    for (int i = 0; i < n; i++) {
        (void)snprintf(heading, sizeof heading, "What was run: %.255s", entries[i].name);
        strait_document_heading(d, heading);
        strait_document_text(d, "%s, without defaults:", entries[i].file);
        STRAIT_TRY(put_file(d, entries[i].file, 1));
    }
    return STRAIT_OK;
}

static strait_err compose(struct strait_document *d, int n) {
    int has_links = 0;
    for (int i = 0; i < n; i++)
        has_links |= entries[i].stages > 1;
    put_table(d, n);
    STRAIT_TRY(put_curves(d, n, "training loss", offsetof(strait_series_point, loss)));
    STRAIT_TRY(put_validation(d, n));
    STRAIT_TRY(put_curves(d, n, "tokens per second", offsetof(strait_series_point, tokens_per_s)));
    if (has_links)
        STRAIT_TRY(put_curves(d, n, "bytes per token, forward",
                              offsetof(strait_series_point, forward_bytes_per_token)));
    if (text_path != NULL) {
        strait_document_heading(d, "Sampled text");
        STRAIT_TRY(put_file(d, text_path, 0));
    }
    return put_runs(d, n);
}

static strait_err write_report(const char *path, int n) {
    struct strait_document *d = NULL;
    STRAIT_TRY(strait_document_open_page(path, title != NULL ? title : entries[0].name, &d));
    const strait_err err = compose(d, n);
    const strait_err closed = strait_document_close(&d, err == STRAIT_OK);
    return err != STRAIT_OK ? err : closed;
}

static strait_err run_report(int n_args, const char **args) {
    char path[STRAIT_PATH_MAX];
    if (n_args < 1 || n_args > RUNS_MAX)
        return STRAIT_FAIL(STRAIT_ECONFIG, "report needs 1 to %d runs: strait report RUN...",
                           RUNS_MAX);
    if (out_path != NULL)
        STRAIT_TRY(strait_file_path(path, "%s", out_path));
    else
        STRAIT_TRY(strait_file_path(path, "%s/report.html", args[0]));
    if (out_path != NULL) STRAIT_TRY(strait_args_check_output("out", path));
    strait_err err = STRAIT_OK;
    for (int i = 0; i < n_args && err == STRAIT_OK; i++)
        err = read_run(&entries[i], args[i]);
    if (err == STRAIT_OK) err = write_report(path, n_args);
    for (int i = 0; i < n_args; i++)
        strait_follow_close(&entries[i].follow);
    if (err == STRAIT_OK) printf("%s\n", path);
    return err;
}

const strait_command strait_cmd_report = {
    .name = "report",
    .usage = "RUN... [flags]",
    .summary = "write what was run and what came of it as one HTML page",
    .about = "Reads the folders of runs, running or ended, and writes one page that loads nothing\n"
             "from elsewhere: losses, speed, bytes per token and ratios as a table and as curves,\n"
             "and the run file of each. The page can be mailed or put on a web server.",
    .flags = flags,
    .run = run_report,
    .examples = (const strait_example[]){{"strait report runs/tiny",
                                          "Writes runs/tiny/report.html."},
                                         {"strait report runs/dense runs/int4 --out both.html",
                                          "Puts two runs on one page."},
                                         {0}},
};
