#include "study/sections/gap.h"

#include "base/alloc.h"
#include "study/sections/planned.h"

#include <math.h>
#include <string.h>

enum {
    ROWS_MAX = 40, // lines of a plot; more cannot be told apart
    POINTS_MAX = 512
};

/* A row and its control. */
typedef struct pair {
    const strait_study_row *row;
    strait_summary ours, control;
    double tokens[POINTS_MAX], gap[POINTS_MAX]; // percent, of the validation losses
    int n;
} pair;

typedef struct gaps {
    pair pairs[ROWS_MAX];
    int n;
    strait_plot_line lines[ROWS_MAX];
    double x[ROWS_MAX][ROWS_MAX], y[ROWS_MAX][ROWS_MAX]; // of the plot over sizes
    double theirs_x[POINTS_MAX], theirs_y[POINTS_MAX];   // the control's curve
} gaps;

/* Validations of both after the same tokens. */
static void join_curves(gaps *g, pair *p) {
    const strait_job *ours = p->ours.first;
    const strait_job *control = p->control.first;
    const int n = strait_planned_curve(ours->figures, (double)ours->run->train.batch_tokens,
                                       POINTS_MAX, p->tokens, p->gap);
    const int m = strait_planned_curve(control->figures, (double)control->run->train.batch_tokens,
                                       POINTS_MAX, g->theirs_x, g->theirs_y);
    for (int i = 0, k = 0; i < n; i++) {
        while (k < m && g->theirs_x[k] < p->tokens[i])
            k++;
        if (k == m || g->theirs_x[k] > p->tokens[i]) continue;
        const double gap = 100.0 * (p->gap[i] / g->theirs_y[k] - 1.0);
        p->tokens[p->n] = 1e-6 * p->tokens[i]; // p->n <= i: nothing unread is overwritten
        p->gap[p->n++] = gap;
    }
}

static void gather(gaps *g, const strait_study *study, const struct strait_queue *queue) {
    for (int row = 0; row < study->n_rows && g->n < ROWS_MAX; row++) {
        const int control = strait_study_find(study, study->rows[row].control);
        pair *p = &g->pairs[g->n];
        if (control < 0) continue;
        p->row = &study->rows[row];
        strait_summary_of(study, queue, row, &p->ours);
        strait_summary_of(study, queue, control, &p->control);
        if (p->ours.first == NULL || p->control.first == NULL) continue;
        join_curves(g, p);
        g->n++;
    }
}

static double final_gap(const pair *p) {
    return 100.0 * p->ours.against.mean / p->ours.control_loss;
}

static double mflops_of(const strait_job *job) {
    return 1e-6 * strait_summary_value(job, "flops_per_token");
}

static void put_table(const gaps *g, struct strait_document *document) {
    static const char *const heads[] = {"variant",
                                        "control",
                                        "width",
                                        "MFLOP/token of the control",
                                        "Mtokens",
                                        "gap of the compared loss",
                                        "gap of the validation loss"};
    strait_document_table(document, "gap", heads, 7);
    for (int i = 0; i < g->n; i++) {
        const pair *p = &g->pairs[i];
        const strait_run *run = p->ours.first->run;
        const double tokens = (double)run->train.batch_tokens * (double)run->train.steps;
        strait_document_cell(document, "%s", p->row->name);
        strait_document_cell(document, "%s", p->row->control);
        strait_document_number(document, "%.0f", (double)run->model.width);
        strait_document_number(document, "%.1f", mflops_of(p->control.first));
        strait_document_number(document, "%.4g", 1e-6 * tokens);
        strait_document_number(document, "%+.3f%%", final_gap(p));
        strait_document_number(document, "%+.3f%%", p->n > 0 ? p->gap[p->n - 1] : (double)NAN);
    }
}

static strait_err plot_tokens(gaps *g, struct strait_document *document) {
    for (int i = 0; i < g->n; i++) {
        const pair *p = &g->pairs[i];
        g->lines[i] = (strait_plot_line){p->row->name, p->tokens, p->gap, p->n};
    }
    const strait_plot plot = {.title = "gap to the control against training time",
                              .x_label = "million tokens",
                              .y_label = "validation loss above the control's, percent",
                              .lines = g->lines,
                              .n_lines = g->n};
    return strait_document_plot(document, "gap-tokens", &plot);
}

static strait_err plot_scale(gaps *g, struct strait_document *document) {
    int n_lines = 0;
    for (int i = 0; i < g->n; i++) {
        const char *name = g->pairs[i].row->curve;
        int line = 0;
        if (name[0] == '\0') continue;
        while (line < n_lines && strcmp(g->lines[line].name, name) != 0)
            line++;
        if (line == n_lines)
            g->lines[n_lines++] = (strait_plot_line){name, g->x[line], g->y[line], 0};
        const int at = g->lines[line].n++;
        g->x[line][at] = mflops_of(g->pairs[i].control.first);
        g->y[line][at] = final_gap(&g->pairs[i]);
    }
    const strait_plot plot = {.title = "gap to the control at the end against its size",
                              .x_label = "MFLOP per token of the control",
                              .y_label = "loss above the control's, percent",
                              .is_log_x = 1,
                              .marks_points = 1,
                              .lines = g->lines,
                              .n_lines = n_lines};
    return strait_document_plot(document, "gap-scale", &plot);
}

static strait_err put_section(gaps *g, struct strait_document *document) {
    strait_document_heading(document, "Gap to the control");
    strait_document_text(document, "How far the loss is above that of the control with the same "
                                   "tokens, in percent of the control's. The compared loss is that "
                                   "of the test text, where there is one.");
    put_table(g, document);
    STRAIT_TRY(plot_scale(g, document));
    return plot_tokens(g, document);
}

strait_err strait_gap_write(const strait_study *study, const struct strait_queue *queue,
                            struct strait_document *document) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(gaps), "study", &memory));
    gaps *g = memory;
    gather(g, study, queue);
    const strait_err err = g->n > 0 ? put_section(g, document) : STRAIT_OK;
    strait_alloc_free(g);
    return err;
}
