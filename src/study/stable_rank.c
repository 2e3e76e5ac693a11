#include "study/stable_rank.h"

#include <strait/safetensors.h>

#include "base/alloc.h"
#include "store/checkpoint_folder.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    ITERATIONS = 200,
    LINES_MAX = 32,
    POINTS_MAX = 128,
    STEPS_MAX = 512
};

/* out = W' W v, all in double precision. */
static void apply(const float *w, int64_t rows, int64_t columns, const double *v, double *out) {
    memset(out, 0, (size_t)columns * sizeof *out);
    for (int64_t i = 0; i < rows; i++) {
        double dot = 0.0;
        for (int64_t k = 0; k < columns; k++)
            dot += w[i * columns + k] * v[k];
        for (int64_t k = 0; k < columns; k++)
            out[k] += w[i * columns + k] * dot;
    }
}

static double normalise(double *v, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += v[i] * v[i];
    const double norm = sqrt(sum);
    for (int64_t i = 0; i < n && norm > 0.0; i++)
        v[i] /= norm;
    return norm;
}

double strait_stable_rank(const float *matrix, int64_t rows, int64_t columns) {
    void *memory = NULL;
    double squares = 0.0;
    double largest = 0.0;
    if (strait_alloc((size_t)columns * 2, sizeof(double), "stable rank", &memory) != STRAIT_OK)
        return (double)NAN;
    double *v = memory;
    double *next = v + columns;
    for (int64_t i = 0; i < rows * columns; i++)
        squares += (double)matrix[i] * matrix[i];
    for (int64_t k = 0; k < columns; k++)
        v[k] = 1.0 + 0.37 * sin((double)k); // not orthogonal to anything that occurs
    (void)normalise(v, columns);
    for (int i = 0; i < ITERATIONS; i++) {
        apply(matrix, rows, columns, v, next);
        const double before = largest;
        largest = normalise(next, columns);
        memcpy(v, next, (size_t)columns * sizeof *v);
        if (fabs(largest - before) <= 1e-9 * largest) break;
    }
    strait_alloc_free(memory);
    return largest > 0.0 ? squares / largest : (double)NAN;
}

void strait_stable_rank_note(json_t *ranks, const char *name, int64_t step, double rank) {
    json_t *list = json_object_get(ranks, name);
    if (!isfinite(rank)) return;
    if (list == NULL) {
        (void)json_object_set_new(ranks, name, json_array());
        list = json_object_get(ranks, name);
    }
    (void)json_array_append_new(list, json_pack("[I,f]", (json_int_t)step, rank));
}

/* ---- checkpoints ---- */

/* Copies, because the values of a file are not aligned. */
static strait_err note_tensor(const strait_safetensor *t, int64_t step, json_t *ranks) {
    void *memory = NULL;
    const int is_matrix = t->n_dims == 2 && t->dims[0] > 1 && t->dims[1] > 1;
    if (!is_matrix || strcmp(t->dtype, "F32") != 0 || strncmp(t->name, "blocks.", 7) != 0)
        return STRAIT_OK;
    STRAIT_TRY(strait_alloc_unset(t->bytes, 1, "matrix", &memory));
    memcpy(memory, t->data, t->bytes);
    strait_stable_rank_note(ranks, t->name, step,
                            strait_stable_rank(memory, t->dims[0], t->dims[1]));
    strait_alloc_free(memory);
    return STRAIT_OK;
}

static strait_err read_checkpoint(const char *run_folder, int64_t step, json_t *ranks) {
    char folder[STRAIT_PATH_MAX];
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_checkpoint_folder(run_folder, step, "", folder));
    for (int stage = 0; stage < STRAIT_RUN_STAGES; stage++) {
        struct strait_safetensors *file = NULL;
        STRAIT_TRY(strait_file_path(path, "%s/stage-%d.safetensors", folder, stage));
        if (!strait_file_exists(path)) return STRAIT_OK;
        STRAIT_TRY(strait_safetensors_open(path, &file));
        strait_err err = STRAIT_OK;
        for (int i = 0; i < strait_safetensors_count(file) && err == STRAIT_OK; i++)
            err = note_tensor(strait_safetensors_at(file, i), step, ranks);
        strait_safetensors_close(&file);
        STRAIT_TRY(err);
    }
    return STRAIT_OK;
}

/* The steps of the checkpoints, ascending. */
static int list_steps(const char *run_folder, int64_t steps[STEPS_MAX]) {
    char path[STRAIT_PATH_MAX];
    int n = 0;
    if (strait_file_path(path, "%s/checkpoints", run_folder) != STRAIT_OK) return 0;
    DIR *dir = opendir(path);
    if (dir == NULL) return 0;
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) { // NOLINT: one thread
        const int64_t step = strait_checkpoint_step_of(e->d_name);
        if (step < 0 || n == STEPS_MAX) continue;
        int at = n++;
        for (; at > 0 && steps[at - 1] > step; at--)
            steps[at] = steps[at - 1];
        steps[at] = step;
    }
    (void)closedir(dir);
    return n;
}

strait_err strait_stable_rank_read(const char *run_folder, json_t **out) {
    int64_t steps[STEPS_MAX];
    const int n = list_steps(run_folder, steps);
    json_t *ranks = json_object();
    strait_err err = STRAIT_OK;
    for (int i = 0; i < n && err == STRAIT_OK; i++)
        err = read_checkpoint(run_folder, steps[i], ranks);
    if (err == STRAIT_OK)
        *out = ranks;
    else
        json_decref(ranks);
    return err;
}

/* ---- the report ---- */

static double rank_at(const json_t *list, size_t i) {
    return json_number_value(json_array_get(json_array_get(list, i), 1));
}

static void put_rows(const char *model, const json_t *ranks, struct strait_document *d) {
    const char *name = NULL;
    json_t *list = NULL;
    json_object_foreach((json_t *)ranks, name, list) {
        const size_t n = json_array_size(list);
        strait_document_cell(d, "%s", model);
        strait_document_cell(d, "%s", name);
        strait_document_number(d, "%.2f", rank_at(list, 0));
        strait_document_number(d, "%.2f", rank_at(list, n / 2));
        strait_document_number(d, "%.2f", rank_at(list, n - 1));
    }
}

static strait_err put_plot(const char *model, const json_t *ranks, struct strait_document *d) {
    typedef struct points {
        double x[LINES_MAX][POINTS_MAX], y[LINES_MAX][POINTS_MAX];
        strait_plot_line lines[LINES_MAX];
    } points;
    void *memory = NULL;
    char file[STRAIT_STUDY_NAME + 16];
    char title[STRAIT_STUDY_NAME + 32];
    STRAIT_TRY(strait_alloc(1, sizeof(points), "plot", &memory));
    points *p = memory;
    int n_lines = 0;
    const char *name = NULL;
    json_t *list = NULL;
    json_object_foreach((json_t *)ranks, name, list) {
        int n = 0;
        if (n_lines == LINES_MAX) break;
        for (size_t i = 0; i < json_array_size(list) && n < POINTS_MAX; i++, n++) {
            p->x[n_lines][n] = json_number_value(json_array_get(json_array_get(list, i), 0));
            p->y[n_lines][n] = rank_at(list, i);
        }
        p->lines[n_lines] = (strait_plot_line){name, p->x[n_lines], p->y[n_lines], n};
        n_lines++;
    }
    (void)snprintf(file, sizeof file, "rank-%s", model);
    (void)snprintf(title, sizeof title, "stable rank: %s", model);
    const strait_plot plot = {.title = title,
                              .x_label = "step",
                              .y_label = "stable rank",
                              .lines = p->lines,
                              .n_lines = n_lines};
    const strait_err err = strait_document_plot(d, file, &plot);
    strait_alloc_free(memory);
    return err;
}

strait_err strait_stable_rank_write(const strait_study *study, const struct strait_queue *queue,
                                    const json_t *records, struct strait_document *document) {
    static const char *const heads[] = {"model", "matrix", "first", "middle", "last"};
    const char *names[STRAIT_STUDY_ROWS];
    const json_t *ranks[STRAIT_STUDY_ROWS];
    int n = 0;
    for (int row = 0; row < study->n_rows && n < STRAIT_STUDY_ROWS / 2; row++) {
        strait_summary s;
        strait_summary_of(study, queue, row, &s);
        if (s.first == NULL) continue;
        names[n] = study->rows[row].name;
        ranks[n] = json_object_get(s.first->record, "stable_rank");
        n += ranks[n] != NULL;
    }
    for (size_t i = 0; i < json_array_size(records) && n < STRAIT_STUDY_ROWS; i++) {
        const json_t *record = json_array_get(records, i);
        names[n] = json_string_value(json_object_get(record, "name"));
        ranks[n] = json_object_get(record, "stable_rank");
        n += names[n] != NULL && ranks[n] != NULL;
    }
    if (n == 0) return STRAIT_OK;
    strait_document_heading(document, "Stable ranks over training");
    strait_document_table(document, "stable-rank", heads, 5);
    for (int i = 0; i < n; i++)
        put_rows(names[i], ranks[i], document);
    for (int i = 0; i < n; i++)
        STRAIT_TRY(put_plot(names[i], ranks[i], document));
    return STRAIT_OK;
}
