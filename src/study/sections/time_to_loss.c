#include "study/sections/time_to_loss.h"

#include "base/alloc.h"
#include "study/sections/planned.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    CELLS = 4,
    ENTRIES_MAX = 64,
    POINTS_MAX = 256
};

static const struct {
    int mbit, delay_ms, is_drawn;
} cells[CELLS] = {{80, 25, 0}, {80, 50, 1}, {200, 25, 0}, {200, 50, 1}};

typedef enum link_kind {
    FULL_DUPLEX,
    METER,
    LINK_KINDS
} link_kind;

typedef struct entry {
    const char *name;
    const strait_job *job; // the run of the first seed; NULL: not run
    const strait_run *run; // what it is or would be; NULL: the study was restricted to others
    int is_drawn;
    double loss, steps; // at its end; NaN: not run
    double seconds[CELLS][LINK_KINDS];
} entry;

typedef struct section {
    const strait_study *study;
    struct strait_document *document;
    entry against[STRAIT_STUDY_AGAINST];
    int n_against;
    entry rows[ENTRIES_MAX];
    int n_rows;
} section;

double strait_time_steps_to(const json_t *curve, double loss, int *is_bound) {
    double step_before = 0.0, loss_before = 0.0;
    *is_bound = 0;
    for (size_t i = 0; i < json_array_size(curve); i++) {
        const json_t *point = json_array_get(curve, i), *value = json_array_get(point, 1);
        const double step = json_number_value(json_array_get(point, 0));
        const double own = json_is_number(value) ? json_number_value(value) : (double)INFINITY;
        if (own <= loss && i == 0) {
            *is_bound = own < loss;
            return step;
        }
        if (own <= loss && !isfinite(loss_before)) return step;
        if (own <= loss)
            return step_before + (step - step_before) * (loss_before - loss) / (loss_before - own);
        step_before = step;
        loss_before = own;
    }
    return (double)NAN;
}

/* ---- which rows ---- */

static void fill(const section *s, const struct strait_queue *queue, int row, entry *out) {
    strait_summary summary;
    *out = (entry){.name = s->study->rows[row].name, .loss = (double)NAN, .steps = (double)NAN};
    strait_summary_of(s->study, queue, row, &summary);
    out->job = summary.first;
    for (int i = 0; i < strait_queue_count(queue) && out->run == NULL; i++)
        if (strait_queue_at(queue, i)->row == row) out->run = strait_queue_at(queue, i)->run;
    out->is_drawn = s->study->rows[row].curve[0] != '\0' && !s->study->rows[row].has_one_seed;
    if (out->job == NULL) return;
    const json_t *curve = json_object_get(out->job->figures, "curve");
    const json_t *last = json_array_get(curve, json_array_size(curve) - 1);
    out->steps = json_number_value(json_array_get(last, 0));
    out->loss = json_number_value(json_array_get(last, 1));
}

/* Those that the others are compared with come first, then finished runs that have boundaries. */
static void choose_rows(section *s, const struct strait_queue *queue) {
    const strait_study_time *time = &s->study->time;
    for (int i = 0; i < time->against.n; i++) {
        entry *out = &s->against[s->n_against++];
        const int row = strait_study_find(s->study, time->against.items[i]);
        *out = (entry){.name = time->against.items[i]};
        if (row >= 0) fill(s, queue, row, out);
        out->is_drawn = 1;
        if (out->run != NULL) s->rows[s->n_rows++] = *out;
    }
    for (int row = 0; row < s->study->n_rows && s->n_rows < ENTRIES_MAX; row++) {
        const strait_study_row *r = &s->study->rows[row];
        if (strcmp(r->control, time->against.items[0]) != 0 ||
            strait_strings_find(&time->against, r->name) >= 0)
            continue;
        fill(s, queue, row, &s->rows[s->n_rows]);
        s->n_rows += s->rows[s->n_rows].job != NULL && s->rows[s->n_rows].run->stages.count > 1;
    }
}

static strait_err plan_entry(const section *s, entry *e) {
    for (int i = 0; i < CELLS; i++) {
        const strait_planned_case at = {.bps = 1e6 * cells[i].mbit,
                                        .delay_s = 1e-3 * cells[i].delay_ms,
                                        .flops_per_s = 1e9 * s->study->time.gflops,
                                        .stages = s->study->time.stages,
                                        .tries_sizes = 1};
        strait_planned step = {(double)NAN, (double)NAN};
        const strait_err err = strait_planned_step(e->run, &at, &step);
        if (err != STRAIT_OK && err != STRAIT_ECONFIG) return err; // it cannot be cut so: dashes
        e->seconds[i][FULL_DUPLEX] = step.seconds;
        e->seconds[i][METER] = step.meter_seconds;
    }
    return STRAIT_OK;
}

static strait_err plan_all(section *s) {
    for (int i = 0; i < s->n_rows; i++) {
        STRAIT_TRY(plan_entry(s, &s->rows[i]));
        for (int k = 0; k < s->n_against; k++)
            if (s->against[k].run == s->rows[i].run) s->against[k] = s->rows[i];
    }
    return STRAIT_OK;
}

/* ---- tables ---- */

/* The steps of another row to the loss of this one; the reason in `why`, if there are none. */
static double steps_of(const entry *other, const entry *row, const char **why, int *is_bound) {
    *why = "not run";
    *is_bound = 0;
    if (other->job == NULL || row->job == NULL) return (double)NAN;
    *why = "not reached";
    return strait_time_steps_to(json_object_get(other->job->figures, "curve"), row->loss, is_bound);
}

/* A number with its format, or why there is none. */
static void put_or(const section *s, const char *why, int is_bound, const char *unit, int digits,
                   double value) {
    if (isfinite(value))
        strait_document_cell(s->document, "%s%.*f%s", is_bound ? "at most " : "", digits, value,
                             unit);
    else
        strait_document_cell(s->document, "%s", why);
}

static void put_steps(const section *s) {
    struct strait_document *d = s->document;
    const char *heads[3 + STRAIT_STUDY_AGAINST] = {"variant", "validation loss at its end",
                                                   "its steps"};
    char texts[STRAIT_STUDY_AGAINST][STRAIT_STUDY_NAME + 16];
    for (int k = 0; k < s->n_against; k++) {
        (void)snprintf(texts[k], sizeof texts[k], "steps of %s", s->against[k].name);
        heads[3 + k] = texts[k];
    }
    strait_document_table(d, "steps-to-loss", heads, 3 + s->n_against);
    for (int i = 0; i < s->n_rows; i++) {
        strait_document_cell(d, "%s", s->rows[i].name);
        strait_document_number(d, "%.4f", s->rows[i].loss);
        strait_document_number(d, "%.0f", s->rows[i].steps);
        for (int k = 0; k < s->n_against; k++) {
            const char *why = NULL;
            int is_bound = 0;
            const double steps = steps_of(&s->against[k], &s->rows[i], &why, &is_bound);
            put_or(s, why, is_bound, "", 0, steps);
        }
    }
}

/* How many times sooner a row reaches its loss than another does. */
static void put_factor(const section *s, const entry *row, const entry *other, int cell,
                       link_kind kind) {
    const char *why = NULL;
    int is_bound = 0;
    const double steps = steps_of(other, row, &why, &is_bound);
    const double factor = steps * other->seconds[cell][kind] /
                          (row->steps * row->seconds[cell][kind]);
    put_or(s, isfinite(steps) ? "-" : why, is_bound, "x", 2, factor);
}

static void put_times(const section *s, link_kind kind) {
    struct strait_document *d = s->document;
    const char *heads[5 + STRAIT_STUDY_AGAINST] = {"variant", "Mb/s", "ms", "s/step",
                                                   "minutes to its loss"};
    char texts[STRAIT_STUDY_AGAINST][STRAIT_STUDY_NAME + 16];
    for (int k = 0; k < s->n_against; k++) {
        (void)snprintf(texts[k], sizeof texts[k], "sooner than %s", s->against[k].name);
        heads[5 + k] = texts[k];
    }
    strait_document_table(d, kind == METER ? "time-meter" : "time-full-duplex", heads,
                          5 + s->n_against);
    for (int i = 0; i < s->n_rows; i++) {
        for (int c = 0; c < CELLS; c++) {
            strait_document_cell(d, "%s", s->rows[i].name);
            strait_document_cell(d, "%d", cells[c].mbit);
            strait_document_cell(d, "%d", cells[c].delay_ms);
            strait_document_number(d, "%.3g", s->rows[i].seconds[c][kind]);
            strait_document_number(d, "%.3g",
                                   s->rows[i].steps * s->rows[i].seconds[c][kind] / 60.0);
            for (int k = 0; k < s->n_against; k++)
                put_factor(s, &s->rows[i], &s->against[k], c, kind);
        }
    }
}

/* ---- plots ---- */

static strait_err put_plot(const section *s, int cell, link_kind kind) {
    typedef struct points {
        double x[ENTRIES_MAX][POINTS_MAX], y[ENTRIES_MAX][POINTS_MAX];
        strait_plot_line lines[ENTRIES_MAX];
        int n;
    } points;
    void *memory = NULL;
    char title[96];
    char name[64];
    STRAIT_TRY(strait_alloc(1, sizeof(points), "plot", &memory));
    points *p = memory;
    for (int i = 0; i < s->n_rows; i++) {
        if (!s->rows[i].is_drawn || s->rows[i].job == NULL) continue;
        const int n = strait_planned_curve(s->rows[i].job->figures,
                                           s->rows[i].seconds[cell][kind] / 60.0, POINTS_MAX,
                                           p->x[p->n], p->y[p->n]);
        p->lines[p->n] = (strait_plot_line){s->rows[i].name, p->x[p->n], p->y[p->n], n};
        p->n++;
    }
    (void)snprintf(title, sizeof title, "loss against planned time at %d Mb/s, %d ms, %s",
                   cells[cell].mbit, cells[cell].delay_ms,
                   kind == METER ? "link meter" : "full duplex");
    (void)snprintf(name, sizeof name, "time-%dmbit-%dms%s", cells[cell].mbit, cells[cell].delay_ms,
                   kind == METER ? "-meter" : "");
    const strait_plot plot = {.title = title,
                              .x_label = "minutes",
                              .y_label = "validation loss",
                              .is_log_x = 1,
                              .marks_points = 1,
                              .lines = p->lines,
                              .n_lines = p->n};
    const strait_err err = strait_document_plot(s->document, name, &plot);
    strait_alloc_free(memory);
    return err;
}

static strait_err write_section(section *s) {
    struct strait_document *d = s->document;
    STRAIT_TRY(plan_all(s));
    strait_document_heading(d, "Time to a loss over slow links");
    strait_document_text(
        d,
        "Every run is planned as a pipeline of %d stages, each a machine of its own that computes "
        "%.0f TFLOP/s, over links of this bandwidth in each direction and this delay one way, in "
        "the way of strait plan: not measured. Each has the fastest microbatch size of 1 to 32 "
        "sequences. Losses are those of the runs above, of the first seed. The goal of a row is "
        "the validation loss that it ends with; the steps of the others to it are interpolated "
        "between their validations. A row is then at the end of its schedule of learning rates, "
        "and the others are in the middle of theirs: with a schedule that ends there they would "
        "need fewer steps.",
        s->study->time.stages, 1e-3 * s->study->time.gflops);
    put_steps(s);
    strait_document_text(d, "Full duplex: each direction of a link has the whole bandwidth.");
    put_times(s, FULL_DUPLEX);
    strait_document_text(d, "The link meter of Protocol NanoGPT: each stage has one inbound wire "
                            "for both directions, and every message holds it for its bits and for "
                            "the delay.");
    put_times(s, METER);
    for (int c = 0; c < CELLS; c++)
        for (int kind = 0; kind < LINK_KINDS && cells[c].is_drawn; kind++)
            STRAIT_TRY(put_plot(s, c, kind));
    return STRAIT_OK;
}

strait_err strait_time_write(const strait_study *study, const struct strait_queue *queue,
                             struct strait_document *document) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(section), "study", &memory));
    section *s = memory;
    s->study = study;
    s->document = document;
    choose_rows(s, queue);
    const strait_err err = s->n_rows > 0 ? write_section(s) : STRAIT_OK;
    strait_alloc_free(s);
    return err;
}
