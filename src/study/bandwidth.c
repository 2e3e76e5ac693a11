#include "study/bandwidth.h"

#include "base/alloc.h"
#include "base/program.h"
#include "study/process.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

enum {
    RATES = 6,
    DELAYS = 4,
    ROWS_MAX = 24, // of the section; a sweep of more codecs is not readable
    POINTS_MAX = 256,
    POLL_MS = 5
};

static const char *const rates[RATES] = {"10mbit",  "50mbit", "80mbit",
                                         "200mbit", "1gbit",  "100gbit"};
static const char *const delays[DELAYS] = {"0ms", "25ms", "50ms", "100ms"};

typedef struct sweep {
    const strait_study *study;
    const struct strait_queue *queue;
    char folder[STRAIT_PATH_MAX];
    char program[STRAIT_PATH_MAX];
    double gflops;
    const strait_job *jobs[ROWS_MAX]; // the first run of each row
    double seconds[ROWS_MAX][DELAYS][RATES];
    int n;
} sweep;

/* The members "seconds" of what `strait plan --json` printed. */
static strait_err read_plan(const char *path, double *seconds) {
    json_t *document = NULL;
    STRAIT_TRY(strait_json_load(path, 1 << 20, &document));
    *seconds = json_number_value(json_object_get(document, "seconds"));
    json_decref(document);
    return *seconds > 0.0 ? STRAIT_OK : STRAIT_FAIL(STRAIT_EDATA, "%s: has no seconds", path);
}

/* The codec is named, because links with a rate would give a run that names none another one. */
static strait_err plan_cell(sweep *s, const strait_run *run, const char *file, int delay, int rate,
                            double *seconds) {
    char out[STRAIT_PATH_MAX];
    char log[STRAIT_PATH_MAX];
    char speed[32];
    char settings[3][64];
    pid_t child = 0;
    int code = 0;
    STRAIT_TRY(strait_file_path(out, "%s/plan.json", s->folder));
    STRAIT_TRY(strait_file_path(log, "%s/plan.log", s->folder));
    (void)snprintf(speed, sizeof speed, "%.3f", s->gflops);
    (void)snprintf(settings[0], sizeof settings[0], "link.emulate.rate=%s", rates[rate]);
    (void)snprintf(settings[1], sizeof settings[1], "link.emulate.delay=%s", delays[delay]);
    (void)snprintf(settings[2], sizeof settings[2], "link.codec.name=%s", run->link.codec.name);
    const char *const argv[] = {s->program, "plan",      file,        "--json", "--gflops",
                                speed,      "--set",     settings[0], "--set",  settings[1],
                                "--set",    settings[2], NULL};
    STRAIT_TRY(strait_process_start(argv, out, log, &child));
    while (!strait_process_ended(child, &code)) {
        const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
        (void)nanosleep(&pause, NULL);
    }
    if (code != 0) return STRAIT_FAIL(STRAIT_EDATA, "strait plan %s: exit code %d", file, code);
    return read_plan(out, seconds);
}

static strait_err plan_row(sweep *s, int row) {
    char file[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(file, "%s/%s.yaml", s->folder, s->jobs[row]->label));
    STRAIT_TRY(strait_run_save(s->jobs[row]->run, file));
    for (int d = 0; d < DELAYS; d++)
        for (int r = 0; r < RATES; r++)
            STRAIT_TRY(plan_cell(s, s->jobs[row]->run, file, d, r, &s->seconds[row][d][r]));
    return STRAIT_OK;
}

static void put_table(const sweep *s, struct strait_document *d) {
    static const char *const heads[] = {"variant", "delay",    "10 Mb/s", "50 Mb/s",
                                        "80 Mb/s", "200 Mb/s", "1 Gb/s",  "100 Gb/s"};
    strait_document_table(d, "bandwidth", heads, 8);
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < DELAYS; k++) {
            strait_document_cell(d, "%s", s->study->rows[s->jobs[i]->row].name);
            strait_document_cell(d, "%s", delays[k]);
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
        const json_t *curve = json_object_get(s->jobs[i]->record, "curve");
        int n = 0;
        for (size_t k = 0; k < json_array_size(curve) && n < POINTS_MAX; k++, n++) {
            const json_t *point = json_array_get(curve, k);
            p->x[i][n] = json_number_value(json_array_get(point, 0)) * s->seconds[i][delay][rate];
            p->y[i][n] = json_number_value(json_array_get(point, 1));
        }
        p->lines[i] = (strait_plot_line){s->study->rows[s->jobs[i]->row].name, p->x[i], p->y[i], n};
    }
    (void)snprintf(title, sizeof title, "loss against planned time at %s, %s one way", rates[rate],
                   delays[delay]);
    (void)snprintf(name, sizeof name, "time-%s-%s", rates[rate], delays[delay]);
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
    strait_document_text(document,
                         "Seconds per step, planned by strait plan for links of this bandwidth in "
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
                                  const char *folder, struct strait_document *document) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(sweep), "study", &memory));
    sweep *s = memory;
    s->study = study;
    s->queue = queue;
    strait_err err = strait_file_path(s->folder, "%s/plans", folder);
    if (err == STRAIT_OK) err = strait_file_make_folders(s->folder);
    if (err == STRAIT_OK) err = strait_program_path(s->program);
    if (err == STRAIT_OK) err = run_sweep(s, document);
    strait_alloc_free(s);
    return err;
}
