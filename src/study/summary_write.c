/* Writes the report of a study. Sections with nothing to say are left out. */
#include "base/alloc.h"
#include "report/document.h"
#include "study/sections/bandwidth.h"
#include "study/sections/gap.h"
#include "study/sections/pareto.h"
#include "study/sections/time_to_loss.h"
#include "study/stable_rank.h"
#include "study/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINES_MAX = 40, // of a plot; more cannot be told apart
    POINTS_MAX = 512,
    FIGURES_MAX = 12
};

typedef struct writer {
    const strait_study *study;
    const struct strait_queue *queue;
    struct strait_document *document;
    int has_test;
} writer;

/* ---- tables ---- */

static void put_estimate(struct strait_document *d, const strait_estimate *e) {
    strait_document_number(d, "%.4f", e->mean);
    strait_document_number(d, "%.4f", e->half);
}

static void put_difference(const writer *w, const strait_summary *s) {
    struct strait_document *d = w->document;
    strait_document_number(d, "%+.4f", s->against.mean);
    strait_document_number(d, "%.4f", s->against.half);
    strait_document_number(d, "%+.2f%%", 100.0 * s->against.mean / s->control_loss);
    strait_document_number(d, "%.2f%%", 100.0 * s->against.half / s->control_loss);
}

/* Costs are those of the first run; they do not depend on the seed, except for the times. */
static void put_costs(const writer *w, const strait_summary *s) {
    static const struct {
        const char *key, *format;
        double scale;
    } columns[] = {
        {"parameters", "%.2fM", 1e-6},
        {"flops_per_token", "%.1f", 1e-6},
        {"forward_bytes_per_token", "%.2f", 1},
        {"backward_bytes_per_token", "%.2f", 1},
        {"ratio_forward", "%.1fx", 1},
        {"ratio_backward", "%.1fx", 1},
        {"steps", "%.0f", 1},
        {"step_seconds", "%.4f", 1},
        {"seconds", "%.1f", 1},
        {"learning_rate", "%g", 1},
    };
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        const double value = s->first != NULL ? strait_summary_value(s->first, columns[i].key)
                                              : (double)NAN;
        const int is_absent = value == 0.0; // one stage sends nothing and has no ratio
        strait_document_number(w->document, columns[i].format,
                               is_absent ? (double)NAN : columns[i].scale * value);
    }
}

/* "+2.17% +/- 0.31% of dense", as far as there are runs. */
static void put_comparison(const writer *w, int row, const strait_summary *s) {
    const double scale = 100.0 / s->control_loss;
    const char *control = w->study->rows[row].control;
    if (s->against.n == 0)
        strait_document_cell(w->document, "-");
    else if (s->against.n == 1)
        strait_document_cell(w->document, "%+.2f%% of %s", scale * s->against.mean, control);
    else
        strait_document_cell(w->document, "%+.2f%% +/- %.2f%% of %s", scale * s->against.mean,
                             scale * s->against.half, control);
}

/* Says which losses cannot be compared with the others, and which runs a difference leaves out. */
static void put_other_texts(const writer *w) {
    for (int row = 0; row < w->study->n_rows; row++) {
        const char *name = w->study->rows[row].name;
        strait_summary s;
        strait_summary_of(w->study, w->queue, row, &s);
        if (s.is_on_other_text)
            strait_document_text(
                w->document, "%s: its test loss is of another test text than most others.", name);
        if (s.n_unpaired > 0)
            strait_document_text(w->document,
                                 "%s: %d of its runs and the control's runs of the same seeds were "
                                 "evaluated on different test texts. The difference leaves them "
                                 "out.",
                                 name, s.n_unpaired);
    }
}

/* What a reader needs first; everything else is in the large table. */
static void put_short_table(const writer *w) {
    static const char *const heads[] = {
        "variant",     "seeds",      "bytes/token", "parameters",
        "MFLOP/token", "valid loss", "test loss",   "against its control"};
    strait_document_table(w->document, "summary", heads, 8);
    for (int row = 0; row < w->study->n_rows; row++) {
        strait_summary s;
        strait_summary_of(w->study, w->queue, row, &s);
        const strait_job *run = s.first;
        const double bytes = run == NULL ? (double)NAN
                                         : (strait_summary_value(run, "forward_bytes_per_token") +
                                            strait_summary_value(run, "backward_bytes_per_token")) /
                                               2.0;
        strait_document_cell(w->document, "%s", w->study->rows[row].name);
        if (run == NULL)
            strait_document_cell(w->document, s.n_failed > 0 ? "failed" : "not run");
        else
            strait_document_cell(w->document, "%d", s.n_runs);
        strait_document_number(w->document, "%.1f", bytes > 0.0 ? bytes : (double)NAN);
        strait_document_number(w->document, "%.1fM",
                               run != NULL ? 1e-6 * strait_summary_value(run, "parameters")
                                           : (double)NAN);
        strait_document_number(w->document, "%.1f",
                               run != NULL ? 1e-6 * strait_summary_value(run, "flops_per_token")
                                           : (double)NAN);
        strait_document_number(w->document, "%.4f", s.valid.mean);
        strait_document_number(w->document, "%.4f", s.test.mean);
        put_comparison(w, row, &s);
    }
    strait_document_text(w->document,
                         "Bytes are per token, boundary and direction, at the socket; a dash: one "
                         "stage. Differences are of the %s loss, paired by seed, with half of a "
                         "95%% confidence interval where there are several seeds.",
                         w->has_test ? "test" : "validation");
    put_other_texts(w);
}

static void put_main_table(const writer *w) {
    static const char *const heads[] = {
        "variant",    "seeds",         "parameters", "MFLOP/token", "bytes/token forward",
        "backward",   "ratio forward", "backward",   "steps",       "s/step",
        "seconds",    "learning rate", "valid loss", "+/-",         "control",
        "difference", "+/-",           "percent",    "+/-",         "test loss",
        "+/-"};
    const int n = w->has_test ? 21 : 19;
    strait_document_table(w->document, "table", heads, n);
    for (int row = 0; row < w->study->n_rows; row++) {
        strait_summary s;
        strait_summary_of(w->study, w->queue, row, &s);
        strait_document_cell(w->document, "%s", w->study->rows[row].name);
        if (s.n_failed > 0)
            strait_document_cell(w->document, "%d (%d failed)", s.n_runs, s.n_failed);
        else
            strait_document_cell(w->document, "%d", s.n_runs);
        put_costs(w, &s);
        put_estimate(w->document, &s.valid);
        strait_document_cell(w->document, "%s", w->study->rows[row].control);
        put_difference(w, &s);
        if (w->has_test) put_estimate(w->document, &s.test);
    }
    strait_document_text(
        w->document,
        "+/- is half of a 95%% confidence interval (Student's t) and needs two seeds. Differences "
        "are of the %s loss, paired by seed (the same tokens in the same order), against the "
        "control named beside them. FLOPs count forward and backward of one token on all stages; "
        "bytes are those at the socket, per token and boundary; a ratio is 2 bytes per feature "
        "divided by them. s/step is the median of the later half of a run on the machine that "
        "trained it, beside whatever else ran there; seconds are of all steps.",
        w->has_test ? "test" : "validation");
}

/* Trials and runs, in the order in which they were planned. */
static void put_runs(const writer *w) {
    static const char *const heads[] = {"run",     "state",    "steps", "learning rate",
                                        "valid",   "test",     "train", "s/step",
                                        "seconds", "tokens/s", "key"};
    static const char *const states[] = {"waiting", "not run", "running", "done", "failed"};
    strait_document_heading(w->document, "Every run");
    strait_document_table(w->document, "runs", heads, 11);
    for (int i = 0; i < strait_queue_count(w->queue); i++) {
        const strait_job *job = strait_queue_at(w->queue, i);
        struct strait_document *d = w->document;
        strait_document_cell(d, "%s", job->name);
        strait_document_cell(d, "%s%s", states[job->state],
                             job->state == STRAIT_JOB_DONE && job->was_known ? " before" : "");
        strait_document_number(d, "%.0f", strait_summary_value(job, "steps"));
        strait_document_number(d, "%g", strait_summary_value(job, "learning_rate"));
        strait_document_number(d, "%.6f", strait_summary_value(job, "valid_loss"));
        strait_document_number(d, "%.6f", strait_summary_value(job, "test_loss"));
        strait_document_number(d, "%.6f", strait_summary_value(job, "train_loss"));
        strait_document_number(d, "%.4f", strait_summary_value(job, "step_seconds"));
        strait_document_number(d, "%.1f", strait_summary_value(job, "seconds"));
        strait_document_number(d, "%.0f", strait_summary_value(job, "tokens_per_s"));
        strait_document_cell(d, "%s", job->key);
    }
    for (int i = 0; i < strait_queue_count(w->queue); i++) {
        const strait_job *job = strait_queue_at(w->queue, i);
        if (job->state == STRAIT_JOB_FAILED)
            strait_document_text(w->document, "Failed: %s: %s", job->name, job->error);
    }
}

/* What someone needs to repeat a row by hand, without where the data lies on this machine. */
static void put_settings(const writer *w) {
    static const char *const heads[] = {"variant", "options, later ones win"};
    strait_document_heading(w->document, "Options of each variant");
    strait_document_table(w->document, NULL, heads, 2);
    for (int row = 0; row < w->study->n_rows; row++) {
        const strait_strings *sets = &w->study->rows[row].sets;
        char text[3800] = "";
        size_t used = 0;
        for (int i = 0; i < sets->n && used + 1 < sizeof text; i++) {
            if (strstr(sets->items[i], "=/") != NULL) continue;
            const int n = snprintf(text + used, sizeof text - used, "%s%s", used > 0 ? " " : "",
                                   sets->items[i]);
            used += n > 0 ? (size_t)n : 0;
        }
        strait_document_cell(w->document, "%s", w->study->rows[row].name);
        strait_document_cell(w->document, "%s", text);
    }
}

/* Basis updates of codec subspace, where rows have any. */
static void put_basis(const writer *w) {
    static const char *const heads[] = {
        "variant",           "updates",     "largest angle",      "mean angle",
        "largest |U'U - I|", "corrections", "loss after - before"};
    int n = 0;
    for (int row = 0; row < w->study->n_rows; row++) {
        strait_summary s;
        strait_summary_of(w->study, w->queue, row, &s);
        if (s.first == NULL || !isfinite(strait_summary_value(s.first, "basis_updates"))) continue;
        if (n++ == 0) {
            strait_document_heading(w->document, "Basis updates");
            strait_document_text(w->document,
                                 "Principal angles in radians between the bases before and after "
                                 "an update; the loss is the mean of three training steps after "
                                 "an update minus that of the three steps before it. It falls "
                                 "between any two steps, so compare rows with each other.");
            strait_document_table(w->document, "basis", heads, 7);
        }
        strait_document_cell(w->document, "%s", w->study->rows[row].name);
        strait_document_number(w->document, "%.0f", strait_summary_value(s.first, "basis_updates"));
        strait_document_number(w->document, "%.4f", strait_summary_value(s.first, "basis_angle"));
        strait_document_number(w->document, "%.4f",
                               strait_summary_value(s.first, "basis_mean_angle"));
        strait_document_number(w->document, "%.2e", strait_summary_value(s.first, "basis_error"));
        strait_document_number(w->document, "%.0f", strait_summary_value(s.first, "corrections"));
        strait_document_number(w->document, "%+.4f",
                               strait_summary_value(s.first, "rise_at_update"));
    }
}

/* ---- plots ---- */

typedef enum plot_kind {
    AGAINST_STEPS,
    AGAINST_SECONDS,
} plot_kind;

/* Memory of one plot. */
typedef struct canvas {
    double x[LINES_MAX][POINTS_MAX], y[LINES_MAX][POINTS_MAX];
    strait_plot_line lines[LINES_MAX];
    int n;
} canvas;

static void add_curve(canvas *c, const char *name, const strait_job *job, double scale) {
    const json_t *curve = json_object_get(job->figures, "curve");
    const int total = (int)json_array_size(curve);
    const int n = total < POINTS_MAX ? total : POINTS_MAX;
    for (int i = 0; i < n; i++) { // thinned evenly; the last point always
        const size_t at = (size_t)(total - 1 - (int64_t)(n - 1 - i) * total / n);
        const json_t *point = json_array_get(curve, at);
        const json_t *loss = json_array_get(point, 1);
        c->x[c->n][i] = scale * json_number_value(json_array_get(point, 0));
        c->y[c->n][i] = json_is_number(loss) ? json_number_value(loss) : (double)NAN;
    }
    c->lines[c->n] = (strait_plot_line){name, c->x[c->n], c->y[c->n], n};
    c->n++;
}

static strait_err put_plot(const writer *w, plot_kind kind) {
    static const struct {
        const char *file, *title, *x;
    } texts[] = {
        {"curves", "validation loss against steps", "step"},
        {"seconds", "validation loss against time", "seconds at the median time of a step"},
    };
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(canvas), "plot", &memory));
    canvas *c = memory;
    for (int row = 0; row < w->study->n_rows && c->n < LINES_MAX; row++) {
        strait_summary s;
        strait_summary_of(w->study, w->queue, row, &s);
        const char *name = w->study->rows[row].name;
        if (s.first == NULL) continue;
        add_curve(c, name, s.first,
                  kind == AGAINST_STEPS ? 1.0 : strait_summary_value(s.first, "step_seconds"));
    }
    const strait_plot plot = {.title = texts[kind].title,
                              .x_label = texts[kind].x,
                              .y_label = "loss",
                              .lines = c->lines,
                              .n_lines = c->n};
    const strait_err err = strait_document_plot(w->document, texts[kind].file, &plot);
    strait_alloc_free(c);
    return err;
}

/* One metric of all rows over the steps. */
static strait_err put_series(const writer *w, const char *key) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(canvas), "plot", &memory));
    canvas *c = memory;
    for (int row = 0; row < w->study->n_rows && c->n < LINES_MAX; row++) {
        strait_summary s;
        strait_summary_of(w->study, w->queue, row, &s);
        if (s.first == NULL) continue;
        const json_t *all = json_object_get(s.first->figures, "series");
        const json_t *points = json_object_get(all, key);
        int n = 0;
        for (size_t i = 0; i < json_array_size(points) && n < POINTS_MAX; i++, n++) {
            const json_t *point = json_array_get(points, i);
            c->x[c->n][n] = json_number_value(json_array_get(point, 0));
            c->y[c->n][n] = json_number_value(json_array_get(point, 1));
        }
        if (n == 0) continue;
        c->lines[c->n] = (strait_plot_line){w->study->rows[row].name, c->x[c->n], c->y[c->n], n};
        c->n++;
    }
    const strait_plot plot = {
        .title = key, .x_label = "step", .y_label = key, .lines = c->lines, .n_lines = c->n};
    const strait_err err = strait_document_plot(w->document, key, &plot);
    strait_alloc_free(c);
    return err;
}

/* The further figures that the study file names. */
static void put_figures(const writer *w) {
    const strait_strings *columns = &w->study->columns;
    const char *heads[FIGURES_MAX + 1] = {"variant"};
    const int n = columns->n < FIGURES_MAX ? columns->n : FIGURES_MAX;
    if (n == 0) return;
    for (int i = 0; i < n; i++)
        heads[i + 1] = columns->items[i];
    strait_document_heading(w->document, "Further figures");
    strait_document_table(w->document, "figures", heads, n + 1);
    for (int row = 0; row < w->study->n_rows; row++) {
        strait_summary s;
        strait_summary_of(w->study, w->queue, row, &s);
        strait_document_cell(w->document, "%s", w->study->rows[row].name);
        for (int i = 0; i < n; i++)
            strait_document_number(w->document, "%.4g",
                                   s.first != NULL ? strait_summary_value(s.first, heads[i + 1])
                                                   : (double)NAN);
    }
}

static strait_err put_plots(const writer *w) {
    strait_document_heading(w->document, "Plots");
    if (w->study->n_rows > LINES_MAX)
        strait_document_text(w->document, "The first %d variants, first seed.", LINES_MAX);
    STRAIT_TRY(put_plot(w, AGAINST_STEPS));
    STRAIT_TRY(put_plot(w, AGAINST_SECONDS));
    for (int i = 0; i < w->study->series.n; i++)
        STRAIT_TRY(put_series(w, w->study->series.items[i]));
    return STRAIT_OK;
}

strait_err strait_summary_write(const strait_study *study, const struct strait_queue *queue,
                                const json_t *more, const char *folder) {
    writer w = {.study = study, .queue = queue, .has_test = study->test[0] != '\0'};
    char title[STRAIT_STUDY_NAME + 16];
    (void)snprintf(title, sizeof title, "Study: %s", study->name);
    STRAIT_TRY(strait_document_open(folder, title, &w.document));
    if (study->about != NULL) strait_document_text(w.document, "%s", study->about);
    put_short_table(&w);
    const int has_gap = strait_study_has(study, "gap"); // its curves join models of other sizes
    strait_err err = has_gap ? strait_gap_write(study, queue, w.document)
                             : strait_pareto_write(study, queue, w.document);
    if (err == STRAIT_OK && study->time.against.n > 0)
        err = strait_time_write(study, queue, w.document);
    put_main_table(&w);
    if (err == STRAIT_OK) err = put_plots(&w);
    if (err == STRAIT_OK && strait_study_has(study, "bandwidth"))
        err = strait_bandwidth_write(study, queue, w.document);
    if (err == STRAIT_OK && strait_study_has(study, "stable-rank"))
        err = strait_stable_rank_write(study, queue, more, w.document);
    put_figures(&w);
    put_basis(&w);
    put_runs(&w);
    put_settings(&w);
    const strait_err closed = strait_document_close(&w.document, err == STRAIT_OK);
    return err != STRAIT_OK ? err : closed;
}
