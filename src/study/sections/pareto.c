#include "study/sections/pareto.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>

enum {
    LINES_MAX = 40, // more cannot be told apart
    POINTS_MAX = 32
};

typedef struct curve {
    const char *name;
    double x[POINTS_MAX], y[POINTS_MAX], low[POINTS_MAX], high[POINTS_MAX];
    int n, is_level;
} curve;

typedef struct canvas {
    curve curves[LINES_MAX];
    strait_plot_line lines[LINES_MAX];
    strait_plot_band bands[LINES_MAX];
    int n, joins; // whether rows have curves
} canvas;

/* The curve that a row belongs to, or NULL: none, or there is no space. */
static curve *find_curve(canvas *c, const strait_study_row *row) {
    const char *name = c->joins ? row->curve : row->name;
    if (name[0] == '\0') return NULL;
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->curves[i].name, name) == 0)
            return c->curves[i].n < POINTS_MAX ? &c->curves[i] : NULL;
    if (c->n == LINES_MAX) return NULL;
    c->curves[c->n].name = name;
    return &c->curves[c->n++];
}

/* Inserted by its bytes. A run without boundaries sends nothing: as a point it stands where bf16
 * would be. */
static void add_point(curve *to, const strait_summary *s, int joins) {
    const double bytes = (strait_summary_value(s->first, "forward_bytes_per_token") +
                          strait_summary_value(s->first, "backward_bytes_per_token")) /
                         2.0;
    const double x = bytes > 0.0 ? bytes : 2.0 * (double)s->first->run->model.width;
    const double y = s->test.n > 0 ? s->test.mean : s->valid.mean;
    int at = to->n++;
    for (; at > 0 && to->x[at - 1] > x; at--) {
        to->x[at] = to->x[at - 1];
        to->y[at] = to->y[at - 1];
        to->low[at] = to->low[at - 1];
        to->high[at] = to->high[at - 1];
    }
    to->x[at] = x;
    to->y[at] = y;
    to->low[at] = y - s->against.half; // NaN of one seed: no bar
    to->high[at] = y + s->against.half;
    to->is_level = joins && !(bytes > 0.0);
}

static void gather(const strait_study *study, const struct strait_queue *queue, canvas *c) {
    for (int row = 0; row < study->n_rows; row++)
        c->joins |= study->rows[row].curve[0] != '\0';
    for (int row = 0; row < study->n_rows; row++) {
        strait_summary s;
        strait_summary_of(study, queue, row, &s);
        curve *to = s.first != NULL ? find_curve(c, &study->rows[row]) : NULL;
        if (to != NULL) add_point(to, &s, c->joins);
    }
    for (int i = 0; i < c->n; i++) {
        const curve *from = &c->curves[i];
        c->lines[i] = (strait_plot_line){from->name, from->is_level ? NULL : from->x, from->y,
                                         from->n};
        c->bands[i] = (strait_plot_band){from->low, from->high};
    }
}

strait_err strait_pareto_write(const strait_study *study, const struct strait_queue *queue,
                               struct strait_document *document) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(canvas), "plot", &memory));
    canvas *c = memory;
    gather(study, queue, c);
    const strait_plot plot = {.title = c->joins ? "loss against traffic (bars: 95% interval of the "
                                                  "difference to the control)"
                                                : "loss against traffic (one stage: as if bf16)",
                              .x_label = "bytes per token, boundary and direction",
                              .y_label = study->test[0] != '\0' ? "test loss" : "validation loss",
                              .is_log_x = 1,
                              .marks_points = 1,
                              .lines = c->lines,
                              .n_lines = c->n,
                              .bands = c->bands};
    const strait_err err = strait_document_plot(document, "pareto", &plot);
    strait_alloc_free(c);
    return err;
}
