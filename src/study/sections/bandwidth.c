#include "study/sections/bandwidth.h"

#include "base/alloc.h"
#include "study/sections/planned.h"

#include <stdio.h>

enum {
    RATES = 6,
    DELAYS = 4,
    ROWS_MAX = 24, // of the section; a sweep of more codecs is not readable
    POINTS_MAX = 256
};

static const struct {
    const char *name, *file;
    double bps;
} rates[RATES] = {{"10 Mb/s", "10mbit", 1e7}, {"50 Mb/s", "50mbit", 5e7},
                  {"80 Mb/s", "80mbit", 8e7}, {"200 Mb/s", "200mbit", 2e8},
                  {"1 Gb/s", "1gbit", 1e9},   {"100 Gb/s", "100gbit", 1e11}};
static const int delays_ms[DELAYS] = {0, 25, 50, 100};

typedef struct sweep {
    const strait_study *study;
    const struct strait_queue *queue;
    double gflops;
    const strait_job *jobs[ROWS_MAX]; // the first run of each row
    double seconds[ROWS_MAX][DELAYS][RATES];
    int n;
} sweep;

static strait_err plan_row(sweep *s, int row) {
    for (int d = 0; d < DELAYS; d++)
        for (int r = 0; r < RATES; r++) {
            const strait_planned_case at = {.bps = rates[r].bps,
                                            .delay_s = 1e-3 * delays_ms[d],
                                            .flops_per_s = 1e9 * s->gflops};
            strait_planned step;
            STRAIT_TRY(strait_planned_step(s->jobs[row]->run, &at, &step));
            s->seconds[row][d][r] = step.seconds;
        }
    return STRAIT_OK;
}

static void put_table(const sweep *s, struct strait_document *d) {
    static const char *const heads[] = {"variant", "delay",    "10 Mb/s", "50 Mb/s",
                                        "80 Mb/s", "200 Mb/s", "1 Gb/s",  "100 Gb/s"};
    strait_document_table(d, "bandwidth", heads, 8);
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < DELAYS; k++) {
            strait_document_cell(d, "%s", s->study->rows[s->jobs[i]->row].name);
            strait_document_cell(d, "%dms", delays_ms[k]);
            for (int r = 0; r < RATES; r++)
                strait_document_number(d, "%.4g", s->seconds[i][k][r]);
        }
    }
}

/* The validation curve of each row, drawn over the planned time. */
static strait_err put_plot(const sweep *s, int delay, int rate, struct strait_document *d) {
    typedef struct points {
        double x[ROWS_MAX][POINTS_MAX], y[ROWS_MAX][POINTS_MAX];
        strait_plot_line lines[ROWS_MAX];
    } points;
    void *memory = NULL;
    char title[96];
    char name[64];
    STRAIT_TRY(strait_alloc(1, sizeof(points), "plot", &memory));
    points *p = memory;
    for (int i = 0; i < s->n; i++) {
        const int n = strait_planned_curve(s->jobs[i]->figures, s->seconds[i][delay][rate],
                                           POINTS_MAX, p->x[i], p->y[i]);
        p->lines[i] = (strait_plot_line){s->study->rows[s->jobs[i]->row].name, p->x[i], p->y[i], n};
    }
    (void)snprintf(title, sizeof title, "loss against planned time at %s, %d ms one way",
                   rates[rate].name, delays_ms[delay]);
    (void)snprintf(name, sizeof name, "time-%s-%dms", rates[rate].file, delays_ms[delay]);
    const strait_plot plot = {.title = title,
                              .x_label = "seconds",
                              .y_label = "validation loss",
                              .lines = p->lines,
                              .n_lines = s->n};
    const strait_err err = strait_document_plot(d, name, &plot);
    strait_alloc_free(memory);
    return err;
}

static strait_err run_sweep(sweep *s, struct strait_document *document) {
    for (int row = 0; row < s->study->n_rows && s->n < ROWS_MAX; row++) {
        strait_summary summary;
        strait_summary_of(s->study, s->queue, row, &summary);
        if (summary.first != NULL) s->jobs[s->n++] = summary.first;
    }
    if (s->n == 0) return STRAIT_OK;
    s->gflops = 1e-9 * s->jobs[0]->flops_per_token *
                strait_summary_value(s->jobs[0], "tokens_per_s");
    if (!(s->gflops > 0.0)) return STRAIT_OK;
    for (int i = 0; i < s->n; i++)
        STRAIT_TRY(plan_row(s, i));
    strait_document_heading(document, "Bandwidth and delay");
    strait_document_text(
        document,
        "Seconds per step, planned as strait plan does for links of this bandwidth in "
        "each direction and this delay one way. Every stage is a machine of its "
        "own that computes %.1f GFLOP/s, which is what the first row reached "
        "here with all stages on this machine. Losses are those of the runs "
        "above; a link changes the time of a run, not its loss.",
        s->gflops);
    put_table(s, document);
    STRAIT_TRY(put_plot(s, 1, 2, document)); // 80 Mb/s, 25 ms
    return put_plot(s, 3, 0, document);      // 10 Mb/s, 100 ms
}

strait_err strait_bandwidth_write(const strait_study *study, const struct strait_queue *queue,
                                  struct strait_document *document) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(sweep), "study", &memory));
    sweep *s = memory;
    s->study = study;
    s->queue = queue;
    const strait_err err = run_sweep(s, document);
    strait_alloc_free(s);
    return err;
}
