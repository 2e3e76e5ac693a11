/* cmd_compare.c - strait compare RUN...: losses, traffic and time to a loss, side by side. */
#include "base/json.h"
#include "commands.h"
#include "data/tokenizer/utf8.h"
#include "report/history.h"
#include "report/plot.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RUNS_MAX = 64,
    NAME_MAX_BYTES = 1024,
    POINTS_MAX = 4096
};

static double target = INFINITY; // not given
static int as_markdown, as_json;
static const char *plot_path, *against = "step";

static const strait_flag flags[] = {
    {"loss", 'l', STRAIT_FLAG_REAL, &target, "X",
     "the target loss (default: the highest final loss of all runs)"},
    {"markdown", 'm', STRAIT_FLAG_SWITCH, &as_markdown, NULL, "print the table as Markdown"},
    {"json", 0, STRAIT_FLAG_SWITCH, &as_json, NULL, "print one JSON object per line"},
    {"plot", 'p', STRAIT_FLAG_TEXT, &plot_path, "FILE", "draw losses into an SVG file"},
    {"against", 0, STRAIT_FLAG_TEXT, &against, "WHAT",
     "x axis of the plot: step, seconds, meter or bytes (default step)"},
    {0},
};

typedef struct row {
    char name[NAME_MAX_BYTES]; // UTF-8 without control characters, whatever the folder is called
    strait_history history;
    double loss, steps_to, seconds_to, meter_to;
} row;

static row rows[RUNS_MAX];

/* The last part of a path. */
static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

/* Replaces invalid UTF-8 and control characters, which JSON and SVG cannot hold. */
static void set_name(row *r, const char *path) {
    static const char unknown[] = "\xef\xbf\xbd"; // U+FFFD
    const char *at = name_of(path);
    size_t used = 0, left = strlen(at);
    while (left > 0 && used + 5 < sizeof r->name) {
        const size_t length = strait_utf8_length((const unsigned char *)at, left);
        const int is_kept = length > 1 || (length == 1 && !iscntrl((unsigned char)*at));
        const size_t n = is_kept ? length : sizeof unknown - 1, taken = is_kept ? length : 1;
        memcpy(r->name + used, is_kept ? at : unknown, n);
        used += n;
        at += taken;
        left -= taken;
    }
    r->name[used] = '\0';
}

/* By default the target is the highest final loss, which every run has reached. */
static strait_err read_rows(int n, const char **paths) {
    double highest = -(double)INFINITY;
    for (int i = 0; i < n; i++) {
        set_name(&rows[i], paths[i]);
        STRAIT_TRY(strait_history_read(paths[i], &rows[i].history));
        rows[i].loss = strait_history_loss(&rows[i].history);
        if (rows[i].loss > highest) highest = rows[i].loss;
    }
    if (!isfinite(target)) target = highest;
    for (int i = 0; i < n; i++) {
        const strait_history *h = &rows[i].history;
        rows[i].steps_to = strait_history_steps_to(h, target);
        rows[i].seconds_to = rows[i].steps_to * h->seconds;
        rows[i].meter_to = h->meter_seconds > 0.0 ? rows[i].steps_to * h->meter_seconds
                                                  : (double)NAN;
    }
    return STRAIT_OK;
}

/* Prints a cell, or a dash for a value that is unknown. */
static void print_cell(double value, const char *format) {
    char cell[40] = "-";
    if (isfinite(value)) (void)snprintf(cell, sizeof cell, format, value);
    printf(as_markdown ? " %s |" : " %12s", cell);
}

/* Columns of the meter appear only if a run was trained with one. */
static void print_head(int has_meter) {
    static const char *const heads[] = {"steps",      "loss",     "to first", "bytes out",
                                        "bytes back", "tokens/s", "steps to", "seconds to",
                                        "sooner",     "meter to", "sooner"};
    const int n = has_meter ? 11 : 9;
    printf(as_markdown ? "| run |" : "%-24s", "run");
    for (int i = 0; i < n; i++)
        printf(as_markdown ? " %s |" : " %12s", heads[i]);
    printf(as_markdown ? "\n| --- |" : "\n");
    for (int i = 0; as_markdown && i < n; i++)
        printf(" --- |");
    if (as_markdown) printf("\n");
}

/* Losses are relative to the first run, so that the baseline is the one that the user named first.
 */
static void print_row(const row *r, int has_meter) {
    printf(as_markdown ? "| %s |" : "%-24s", r->name);
    print_cell((double)r->history.steps, "%.0f");
    print_cell(r->loss, "%.4f");
    print_cell(100.0 * (r->loss / rows[0].loss - 1.0), "%+.2f%%");
    print_cell(r->history.forward_bytes, "%.2f");
    print_cell(r->history.backward_bytes, "%.2f");
    print_cell(r->history.tokens_per_s, "%.0f");
    print_cell(r->steps_to, "%.0f");
    print_cell(r->seconds_to, "%.1f");
    print_cell(rows[0].seconds_to / r->seconds_to, "%.2fx");
    if (has_meter) {
        print_cell(r->meter_to, "%.1f");
        print_cell(rows[0].meter_to / r->meter_to, "%.2fx");
    }
    printf("\n");
}

/* Seconds are steps times the median time of a step: interruptions of a run do not count. */
static void print_table(int n) {
    int has_meter = 0;
    for (int i = 0; i < n; i++)
        has_meter |= rows[i].history.meter_seconds > 0.0;
    print_head(has_meter);
    for (int i = 0; i < n; i++)
        print_row(&rows[i], has_meter);
    if (isfinite(target))
        printf("\n\"to\": until the validation loss fell to %.4f, at the median time of a step.\n",
               target);
    else
        printf("\n\"to\" is empty: no run has a finite validation loss.\n");
}

/* JSON has no infinity; null says that the value is not known. */
static json_t *real_or_null(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

/* json_pack fails on non-finite numbers; those that may be are passed as null instead. */
static strait_err print_json(const row *r) {
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
    char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (text != NULL) printf("%s\n", text);
    free(text);
    json_decref(o);
    return STRAIT_OK;
}

/* The x value of a validation in the plot. */
static double x_value(const strait_history *h, int64_t step) {
    if (strcmp(against, "seconds") == 0) return (double)step * h->seconds;
    if (strcmp(against, "meter") == 0) return (double)step * h->meter_seconds;
    return (double)step;
}

/* Long runs have more validations than a line needs points: they are thinned evenly. */
static strait_err draw(int n) {
    static double x[RUNS_MAX][POINTS_MAX], y[RUNS_MAX][POINTS_MAX];
    static strait_plot_line lines[RUNS_MAX];
    const int by_bytes = strcmp(against, "bytes") == 0;
    for (int i = 0; i < n; i++) {
        const strait_history *h = &rows[i].history;
        if (by_bytes && !(h->forward_bytes + h->backward_bytes > 0.0))
            fprintf(stderr, "note: %s sent no bytes and is not in the plot\n", rows[i].name);
        const int n_points = by_bytes ? 1 : h->n_valid < POINTS_MAX ? h->n_valid : POINTS_MAX;
        lines[i] = (strait_plot_line){rows[i].name, x[i], y[i], n_points};
        for (int k = 0; k < n_points; k++) { // the last always; the first where there are two
            const int64_t left = n_points - 1 - k, last = h->n_valid - 1;
            const int at = (int)(last - (n_points > 1 ? left * last / (n_points - 1) : 0));
            x[i][k] = by_bytes ? h->forward_bytes + h->backward_bytes
                               : x_value(h, h->valid[at].step);
            y[i][k] = h->valid[at].loss;
        }
    }
    const strait_plot plot = {.title = "validation loss",
                              .x_label = by_bytes ? "bytes per token on the socket, both directions"
                                         : strcmp(against, "meter") == 0 ? "seconds on the meter"
                                                                         : against,
                              .y_label = "loss",
                              .is_log_x = by_bytes,
                              .lines = lines,
                              .n_lines = n};
    return strait_plot_write(plot_path, &plot);
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
    static const char *const kinds[] = {"step", "seconds", "meter", "bytes"};
    if (target <= 0.0) return STRAIT_FAIL(STRAIT_ECONFIG, "--loss %g: expected above 0", target);
    if (plot_path != NULL) STRAIT_TRY(strait_args_check_output("plot", plot_path));
    if (n_args < 1 || n_args > RUNS_MAX)
        return STRAIT_FAIL(STRAIT_ECONFIG, "compare needs 1 to %d runs: strait compare RUN...",
                           RUNS_MAX);
    for (int i = 0; i < 4; i++)
        if (strcmp(against, kinds[i]) == 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG, "--against %s: expected step, seconds, meter or bytes",
                       against);
}

/* The table is printed before the plot is drawn: a plot that cannot be written loses nothing. */
static strait_err run_compare(int n_args, const char **args) {
    STRAIT_TRY(check_flags(n_args));
    strait_err err = read_rows(n_args, args);
    if (err == STRAIT_OK && plot_path != NULL) err = check_meters(n_args);
    if (err == STRAIT_OK && !as_json) print_table(n_args);
    for (int i = 0; i < n_args && as_json && err == STRAIT_OK; i++)
        err = print_json(&rows[i]);
    if (err == STRAIT_OK && plot_path != NULL) err = draw(n_args);
    for (int i = 0; i < n_args; i++)
        strait_history_close(&rows[i].history);
    return err;
}

const strait_command strait_cmd_compare = {
    .name = "compare",
    .usage = "RUN... [flags]",
    .summary = "compare losses, traffic and time to a loss of several runs",
    .about =
        "Reads the metrics of runs (their folders) and prints the final loss of each, the bytes\n"
        "it sent, and the steps and seconds it took to reach a target loss. The first run is\n"
        "the baseline that others are compared with.",
    .flags = flags,
    .run = run_compare,
};
