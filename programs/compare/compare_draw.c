/* compare_draw.c - losses against steps, tokens, time or bytes, as an image or as numbers. */
#include "base/alloc.h"
#include "base/file.h"
#include "compare.h"
#include "report/plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    POINTS_MAX = 4096
};

/* The axes by the names of --against. */
static const struct {
    const char *name, *label;
} axes[] = {{"step", "step"},
            {"tokens", "tokens"},
            {"seconds", "seconds"},
            {"meter", "seconds on the meter"},
            {"traffic", "bytes over the busiest boundary, both directions"},
            {"bytes", "bytes per token on the socket, both directions"}};

enum {
    N_AXES = sizeof axes / sizeof *axes
};

strait_err strait_compare_check_axis(const char *axis) {
    for (int i = 0; i < N_AXES; i++)
        if (strcmp(axis, axes[i].name) == 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG,
                       "--against %s: expected step, tokens, seconds, meter, traffic or bytes",
                       axis);
}

static const char *label_of(const char *axis) {
    for (int i = 0; i < N_AXES; i++)
        if (strcmp(axis, axes[i].name) == 0) return axes[i].label;
    return axis;
}

/* The x value of a validation. Seconds are steps times the median time of a step. */
static double x_value(const strait_history *h, const char *axis, int64_t step) {
    const strait_history_step *at = strait_history_at(h, step);
    if (strcmp(axis, "seconds") == 0) return (double)step * h->seconds;
    if (strcmp(axis, "meter") == 0) return (double)step * h->meter_seconds;
    if (strcmp(axis, "bytes") == 0) return h->forward_bytes + h->backward_bytes;
    if (strcmp(axis, "tokens") == 0) return at != NULL ? at->tokens : (double)NAN;
    if (strcmp(axis, "traffic") == 0) return at != NULL ? at->bytes : (double)NAN;
    return (double)step;
}

/* The points of one line, with the range over its seeds. */
struct curve {
    double x[POINTS_MAX], y[POINTS_MAX], low[POINTS_MAX], high[POINTS_MAX];
    char name[STRAIT_COMPARE_NAME + 32];
};

/* Whether all runs of a group were validated at the same steps. */
static int has_same_steps(const strait_compare_row *rows, int n, int group) {
    const strait_history *first = &rows[group].history;
    for (int i = 0; i < n; i++) {
        const strait_history *h = &rows[i].history;
        if (rows[i].group != group) continue;
        if (h->n_valid != first->n_valid) return 0;
        for (int k = 0; k < h->n_valid; k++)
            if (h->valid[k].step != first->valid[k].step) return 0;
    }
    return 1;
}

/* Mean and range of the k-th validation over the runs of a group, or one run alone. */
static void put_point(struct curve *c, int at, const strait_compare_row *rows, int n, int row,
                      int is_mean, int k) {
    int n_runs = 0;
    c->y[at] = 0.0;
    c->low[at] = (double)INFINITY;
    c->high[at] = -(double)INFINITY;
    for (int i = 0; i < n; i++) {
        if (is_mean ? rows[i].group != row : i != row) continue;
        const double loss = rows[i].history.valid[k].loss;
        c->y[at] += loss;
        c->low[at] = fmin(c->low[at], loss);
        c->high[at] = fmax(c->high[at], loss);
        n_runs++;
    }
    c->y[at] /= n_runs;
}

/* Long runs have more validations than a line needs points: they are thinned evenly. */
static int fill(struct curve *c, const char *axis, const strait_compare_row *rows, int n, int row,
                int is_mean) {
    const strait_history *h = &rows[row].history;
    const int is_one = strcmp(axis, "bytes") == 0;
    const int n_points = is_one ? 1 : h->n_valid < POINTS_MAX ? h->n_valid : POINTS_MAX;
    for (int k = 0; k < n_points; k++) { // the last always; the first where there are two
        const int64_t left = n_points - 1 - k, last = h->n_valid - 1;
        const int at = (int)(last - (n_points > 1 ? left * last / (n_points - 1) : 0));
        c->x[k] = x_value(h, axis, h->valid[at].step);
        put_point(c, k, rows, n, row, is_mean, at);
    }
    if (is_mean)
        (void)snprintf(c->name, sizeof c->name, "%s, mean of %d seeds", rows[row].name,
                       rows[row].n_seeds);
    else
        (void)snprintf(c->name, sizeof c->name, "%s", rows[row].name);
    return n_points;
}

static strait_err draw_image(const char *path, const char *axis, const char *quantity,
                             const strait_compare_row *rows, int n) {
    strait_plot_line lines[STRAIT_COMPARE_RUNS];
    strait_plot_band bands[STRAIT_COMPARE_RUNS];
    struct curve *curves = NULL;
    int n_lines = 0;
    STRAIT_TRY(strait_alloc((size_t)n, sizeof *curves, "plot", (void **)&curves));
    for (int i = 0; i < n; i++) {
        const strait_compare_row *leader = &rows[rows[i].group];
        const int is_mean = leader->n_seeds > 1 && has_same_steps(rows, n, rows[i].group);
        struct curve *c = &curves[n_lines];
        if (is_mean && rows[i].group != i) continue;
        const int n_points = fill(c, axis, rows, n, i, is_mean);
        lines[n_lines] = (strait_plot_line){c->name, c->x, c->y, n_points};
        bands[n_lines++] = is_mean ? (strait_plot_band){c->low, c->high}
                                   : (strait_plot_band){NULL, NULL};
    }
    const strait_plot plot = {.title = quantity,
                              .x_label = label_of(axis),
                              .y_label = "loss",
                              .is_log_x = strcmp(axis, "bytes") == 0,
                              .lines = lines,
                              .n_lines = n_lines,
                              .bands = bands};
    const strait_err err = strait_plot_write(path, &plot);
    strait_alloc_free(curves);
    return err;
}

/* Quotes a name as RFC 4180 wants it. */
static void put_name(FILE *file, const char *name) {
    fputc('"', file);
    for (; *name != '\0'; name++) {
        if (*name == '"') fputc('"', file);
        fputc(*name, file);
    }
    fputc('"', file);
}

/* One line per step, with the validation after it if there was one. */
static void put_rows(FILE *file, const strait_compare_row *row) {
    const strait_history *h = &row->history;
    int at = 0;
    for (int i = 0; i < h->n_train; i++) {
        const strait_history_step *s = &h->train[i];
        put_name(file, row->name);
        fprintf(file, ",%lld,%lld,%.0f,%.6g,%.0f,%.9g,",
                row->run != NULL ? (long long)row->run->train.seed : -1LL, (long long)s->step,
                s->tokens, s->seconds, s->bytes, s->loss);
        while (at < h->n_valid && h->valid[at].step < s->step)
            at++;
        if (at < h->n_valid && h->valid[at].step == s->step)
            fprintf(file, "%.9g", h->valid[at].loss);
        fputc('\n', file);
    }
}

static strait_err write_csv(const char *path, const strait_compare_row *rows, int n) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    if (file == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "no memory for %s", path);
    fputs("run,seed,step,tokens,seconds,bytes,loss,valid_loss\n", file);
    for (int i = 0; i < n; i++)
        put_rows(file, &rows[i]);
    strait_err err = STRAIT_OK;
    if (fclose(file) != 0)
        err = STRAIT_FAIL(STRAIT_ENOMEM, "no memory for %s", path);
    else
        err = strait_file_replace(path, text, bytes);
    free(text);
    return err;
}

static const char *ending_of(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot != NULL ? dot : "";
}

strait_err strait_compare_check_path(const char *path) {
    static const char *const endings[] = {".svg", ".png", ".csv"};
    for (int i = 0; i < 3; i++)
        if (strcmp(ending_of(path), endings[i]) == 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG, "--plot %s: expected a name that ends in .svg, .png or .csv",
                       path);
}

strait_err strait_compare_draw(const char *path, const char *axis, const char *quantity,
                               const strait_compare_row *rows, int n) {
    if (strcmp(ending_of(path), ".csv") == 0) return write_csv(path, rows, n);
    return draw_image(path, axis, quantity, rows, n);
}
