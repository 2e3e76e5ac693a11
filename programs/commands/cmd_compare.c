/* cmd_compare.c - strait compare RUN...: models, losses, traffic and time to a loss, side by side.
 */
#include "base/alloc.h"
#include "base/json.h"
#include "base/text/text.h"
#include "commands.h"
#include "compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    RUNS_MAX = STRAIT_COMPARE_RUNS,
    RUN_COLUMNS = 24,   // of the names of runs; longer ones are not cut
    DIFFERENCES = 1024, // bytes of a list of them
    COLUMNS = 15,
    CELL = 40,   // bytes
    UPRIGHT = 14 // columns of a run in a table with a line per figure
};

static double target = INFINITY; // not given
static int as_markdown, as_json, by_training;
static const char *plot_path, *against = "step";

static const strait_flag flags[] = {
    {"loss", 'l', STRAIT_FLAG_REAL, &target, "X",
     "the target loss (default: the highest final loss of all runs)"},
    {"markdown", 'm', STRAIT_FLAG_SWITCH, &as_markdown, NULL, "print the table as Markdown"},
    {"json", 0, STRAIT_FLAG_SWITCH, &as_json, NULL, "print one JSON object per line"},
    {"training", 0, STRAIT_FLAG_SWITCH, &by_training, NULL,
     "compare training losses, not those of validations"},
    {"plot", 'p', STRAIT_FLAG_TEXT, &plot_path, "FILE",
     "draw losses into FILE.svg or FILE.png, with means and ranges over seeds, or write all points "
     "into FILE.csv"},
    {"against", 0, STRAIT_FLAG_TEXT, &against, "WHAT",
     "x axis of the plot: step (default), tokens, seconds, meter, traffic (bytes since the "
     "beginning) or bytes (per token)"},
    {0},
};

typedef strait_compare_row row;

static row rows[RUNS_MAX];

static const char *quantity(void) {
    return by_training ? "training loss" : "validation loss";
}

/* The last part of a path. */
static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

/* A folder may have any name, but JSON and SVG hold only UTF-8 without control characters. */
static void set_name(row *r, const char *path) {
    strait_text_copy(r->name, sizeof r->name, name_of(path));
    strait_text_tame(r->name);
}

static void close_row(row *r) {
    strait_history_close(&r->history);
    strait_alloc_free(r->run);
    *r = (row){0};
}

/* A run that has no loss to compare is left out, with a note. */
static strait_err read_row(const char *path, int *n) {
    row *r = &rows[*n];
    set_name(r, path);
    STRAIT_TRY(strait_history_read_any(path, &r->history));
    if (by_training) STRAIT_TRY(strait_history_use_training(&r->history));
    if (r->history.n_valid == 0) {
        fprintf(stderr,
                "note: %s has no validation yet and is left out; --training compares training "
                "losses\n",
                r->name);
        close_row(r);
        return STRAIT_OK;
    }
    strait_compare_read_run(path, r);
    r->loss = strait_history_loss(&r->history);
    ++*n;
    return STRAIT_OK;
}

/* By default the target is the highest final loss, which every run has reached. */
static strait_err read_rows(int n_paths, const char **paths, int *n) {
    double highest = -(double)INFINITY;
    for (int i = 0; i < n_paths; i++)
        STRAIT_TRY(read_row(paths[i], n));
    if (*n == 0) return STRAIT_FAIL(STRAIT_EDATA, "no run has a validation yet");
    for (int i = 0; i < *n; i++)
        if (rows[i].loss > highest) highest = rows[i].loss;
    if (!isfinite(target)) target = highest;
    for (int i = 0; i < *n; i++) {
        const strait_history *h = &rows[i].history;
        rows[i].steps_to = strait_history_steps_to(h, target);
        rows[i].seconds_to = rows[i].steps_to * h->seconds;
        rows[i].meter_to = h->meter_seconds > 0.0 ? rows[i].steps_to * h->meter_seconds
                                                  : (double)NAN;
    }
    strait_compare_group(rows, *n);
    return STRAIT_OK;
}

/* A run of one stage has a codec in its file that it does not use. */
static const char *codec_of(const row *r) {
    if (r->run == NULL) return "-";
    return r->run->stages.count > 1 ? r->run->link.codec.name : "one stage";
}

static void put_number(char out[CELL], double value, const char *format) {
    (void)snprintf(out, CELL, "-");
    if (isfinite(value)) (void)snprintf(out, CELL, format, value);
}

static const char *const heads[COLUMNS] = {"steps",      "params",   "MFLOP/tok", "codec",
                                           "seed",       "loss",     "to first",  "bytes out",
                                           "bytes back", "tokens/s", "steps to",  "seconds to",
                                           "sooner",     "meter to", "sooner"};

/* The cells of a run, in the order of the heads. A dash stands for what is unknown. Losses are
 * relative to the first run, so that the baseline is the one that the user named first. */
static void fill_cells(const row *r, char out[COLUMNS][CELL]) {
    int n = 0;
    put_number(out[n++], (double)r->history.steps, "%.0f");
    put_number(out[n++], 1e-6 * r->parameters, "%.2fM");
    put_number(out[n++], 1e-6 * r->flops, "%.3g");
    (void)snprintf(out[n++], CELL, "%s", codec_of(r));
    put_number(out[n++], r->run != NULL ? (double)r->run->train.seed : (double)NAN, "%.0f");
    put_number(out[n++], r->loss, "%.4f");
    put_number(out[n++], 100.0 * (r->loss / rows[0].loss - 1.0), "%+.2f%%");
    put_number(out[n++], r->history.forward_bytes, "%.2f");
    put_number(out[n++], r->history.backward_bytes, "%.2f");
    put_number(out[n++], r->history.tokens_per_s, "%.0f");
    put_number(out[n++], r->steps_to, "%.0f");
    put_number(out[n++], r->seconds_to, "%.1f");
    put_number(out[n++], rows[0].seconds_to / r->seconds_to, "%.2fx");
    put_number(out[n++], r->meter_to, "%.1f");
    put_number(out[n++], rows[0].meter_to / r->meter_to, "%.2fx");
}

static void print_head(int n_columns) {
    if (as_markdown)
        printf("| run |");
    else
        printf("%-*s", RUN_COLUMNS, "run");
    for (int i = 0; i < n_columns; i++)
        printf(as_markdown ? " %s |" : " %12s", heads[i]);
    printf(as_markdown ? "\n| --- |" : "\n");
    for (int i = 0; as_markdown && i < n_columns; i++)
        printf(" --- |");
    if (as_markdown) printf("\n");
}

static void print_row(const row *r, int n_columns) {
    const int columns = strait_text_columns(r->name);
    char cells[COLUMNS][CELL];
    fill_cells(r, cells);
    if (as_markdown)
        printf("| %s |", r->name);
    else
        printf("%s%*s", r->name, columns < RUN_COLUMNS ? RUN_COLUMNS - columns : 0, "");
    for (int i = 0; i < n_columns; i++)
        printf(as_markdown ? " %s |" : " %12s", cells[i]);
    printf("\n");
}

/* A terminal that would wrap the table gets a line per figure, with a column per run. */
static void print_upright(int first, int n, int n_columns) {
    static char cells[RUNS_MAX][COLUMNS][CELL];
    printf("%-10s", "run");
    for (int k = first; k < n; k++) {
        char name[UPRIGHT * 4];
        fill_cells(&rows[k], cells[k]);
        strait_text_cell(name, sizeof name, rows[k].name, UPRIGHT - 2);
        printf("  %s", name);
    }
    printf("\n");
    for (int i = 0; i < n_columns; i++) {
        printf("%-10s", heads[i]);
        for (int k = first; k < n; k++)
            printf("  %-*s", UPRIGHT - 2, cells[k][i]);
        printf("\n");
    }
}

/* The columns of the terminal on standard output; 0: there is none. */
static int terminal_columns(void) {
    struct winsize size = {0};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* What else differs decides what a comparison of losses means. */
static void print_differences(int n) {
    char text[DIFFERENCES];
    for (int i = 1; i < n; i++) {
        strait_compare_differences(&rows[0], &rows[i], text, sizeof text);
        if (text[0] != '\0') printf("\n%s differs in: %s\n", rows[i].name, text);
        if (rows[0].run == NULL || rows[i].run == NULL)
            printf("\n%s: what differs from %s is unknown without run.yaml\n", rows[i].name,
                   rows[0].name);
    }
}

static void print_means(int n) {
    for (int i = 0; i < n; i++) {
        if (rows[i].n_seeds < 2) continue;
        const strait_compare_mean m = strait_compare_mean_of(rows, n, i);
        printf("\n%s and runs of other seeds, %d in all: mean loss %.4f, range %.4f to %.4f\n",
               rows[i].name, m.n, m.mean, m.low, m.high);
    }
}

/* Seconds are steps times the median time of a step: interruptions of a run do not count. */
static void print_table(int n) {
    int has_meter = 0;
    for (int i = 0; i < n; i++)
        has_meter |= rows[i].history.meter_seconds > 0.0;
    const int n_columns = has_meter ? COLUMNS : COLUMNS - 2, terminal = terminal_columns();
    const int is_upright = !as_markdown && terminal > 0 && terminal < RUN_COLUMNS + 13 * n_columns;
    const int n_side = terminal > 10 + 2 * UPRIGHT ? (terminal - 10) / UPRIGHT : 1;
    if (!is_upright) print_head(n_columns);
    for (int i = 0; i < n && !is_upright; i++)
        print_row(&rows[i], n_columns);
    for (int i = 0; i < n && is_upright; i += n_side)
        print_upright(i, i + n_side < n ? i + n_side : n, n_columns);
    print_means(n);
    print_differences(n);
    if (isfinite(target))
        printf("\n\"to\": until the %s fell to %.4f, at the median time of a step.\n", quantity(),
               target);
    else
        printf("\n\"to\" is empty: no run has a finite %s.\n", quantity());
}

/* JSON has no infinity; null says that the value is not known. */
static json_t *real_or_null(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static void add_facts(const row *r, int n, json_t *o) {
    char text[DIFFERENCES];
    const strait_compare_mean m = strait_compare_mean_of(rows, n, r->group);
    strait_compare_differences(&rows[0], r, text, sizeof text);
    json_object_set_new(o, "parameters", real_or_null(r->parameters));
    json_object_set_new(o, "flops_per_token", real_or_null(r->flops));
    json_object_set_new(o, "codec", json_string(codec_of(r)));
    json_object_set_new(
        o, "seed", r->run != NULL ? json_integer((json_int_t)r->run->train.seed) : json_null());
    json_object_set_new(o, "differs_in", json_string(text));
    json_object_set_new(o, "seeds", json_integer(m.n));
    json_object_set_new(o, "mean_loss", real_or_null(m.mean));
    json_object_set_new(o, "lowest_loss", real_or_null(m.low));
    json_object_set_new(o, "highest_loss", real_or_null(m.high));
}

/* json_pack fails on non-finite numbers; those that may be are passed as null instead. */
static strait_err print_json(const row *r, int n) {
    json_t *o = json_pack("{s:s,s:I,s:o,s:f,s:f,s:f,s:f,s:f,s:o}", "run", r->name, "steps",
                          (json_int_t)r->history.steps, "valid_loss", real_or_null(r->loss),
                          "seconds", r->history.seconds, "meter_seconds", r->history.meter_seconds,
                          "tokens_per_s", r->history.tokens_per_s, "forward_bytes_per_token",
                          r->history.forward_bytes, "backward_bytes_per_token",
                          r->history.backward_bytes, "target", real_or_null(target));
    if (o == NULL)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s: metrics.jsonl has non-finite values and cannot be printed as JSON",
                           r->name);
    json_object_set_new(o, "steps_to", real_or_null(r->steps_to));
    json_object_set_new(o, "seconds_to", real_or_null(r->seconds_to));
    json_object_set_new(o, "meter_seconds_to", real_or_null(r->meter_to));
    add_facts(r, n, o);
    char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (text != NULL) printf("%s\n", text);
    free(text);
    json_decref(o);
    return STRAIT_OK;
}

/* A run that sent nothing has no place on an axis of bytes. */
static strait_err draw(int n) {
    const int by_bytes = strcmp(against, "bytes") == 0 || strcmp(against, "traffic") == 0;
    for (int i = 0; i < n && by_bytes; i++)
        if (!(rows[i].history.forward_bytes + rows[i].history.backward_bytes > 0.0))
            fprintf(stderr, "note: %s sent no bytes and is not in the plot\n", rows[i].name);
    return strait_compare_draw(plot_path, against, quantity(), rows, n);
}

/* Checked before anything is drawn, because a plot without one of the runs would mislead. */
static strait_err check_meters(int n) {
    for (int i = 0; i < n; i++)
        if (strcmp(against, "meter") == 0 && !(rows[i].history.meter_seconds > 0.0))
            return STRAIT_FAIL(
                STRAIT_ECONFIG,
                "--against meter: %s was trained without a meter; set link.meter.rate",
                rows[i].name);
    return STRAIT_OK;
}

/* Everything that can be refused without reading a run is refused first. */
static strait_err check_flags(int n_args) {
    if (target <= 0.0) return STRAIT_FAIL(STRAIT_ECONFIG, "--loss %g: expected above 0", target);
    STRAIT_TRY(strait_compare_check_axis(against));
    if (plot_path != NULL) STRAIT_TRY(strait_args_check_output("plot", plot_path));
    if (plot_path != NULL) STRAIT_TRY(strait_compare_check_path(plot_path));
    if (n_args < 1 || n_args > RUNS_MAX)
        return STRAIT_FAIL(STRAIT_ECONFIG, "compare needs 1 to %d runs: strait compare RUN...",
                           RUNS_MAX);
    return STRAIT_OK;
}

/* The table is printed before the plot is drawn: a plot that cannot be written loses nothing. */
static strait_err run_compare(int n_args, const char **args) {
    STRAIT_TRY(check_flags(n_args));
    int n = 0;
    strait_err err = read_rows(n_args, args, &n);
    if (err == STRAIT_OK && plot_path != NULL) err = check_meters(n);
    if (err == STRAIT_OK && !as_json) print_table(n);
    for (int i = 0; i < n && as_json && err == STRAIT_OK; i++)
        err = print_json(&rows[i], n);
    if (err == STRAIT_OK && plot_path != NULL) err = draw(n);
    for (int i = 0; i < RUNS_MAX; i++)
        close_row(&rows[i]);
    return err;
}

const strait_command strait_cmd_compare = {
    .name = "compare",
    .usage = "RUN... [flags]",
    .summary = "compare models, losses, traffic and time to a loss of several runs",
    .about =
        "Reads the metrics of runs (their folders) and prints the final loss of each, the bytes\n"
        "it sent, and the steps and seconds it took to reach a target loss, with the parameters,\n"
        "FLOPs, codec and seed of each, and the keys in which it differs from the first run, the\n"
        "baseline. Runs that differ in their seed alone are also averaged.",
    .flags = flags,
    .run = run_compare,
    .examples =
        (const strait_example[]){
            {"strait compare runs/dense runs/int4 --plot losses.png",
             "Prints both side by side and draws their losses."},
            {"strait compare runs/seed-1 runs/seed-2 --against tokens --plot a.svg",
             "Averages runs that differ in the seed; the axis is tokens."},
            {0}},
};
