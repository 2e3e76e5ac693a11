#include "study/harvest.h"

#include <strait/version.h>

#include "base/alloc.h"
#include "report/history.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    SERIES_POINTS = 100,
    AROUND = 3 // steps before and after a basis update whose losses are compared
};

/* What the steps of a run add up to. */
typedef struct totals {
    double seconds, loss_sum;
    int64_t n_steps, n_late, total, every; // every: steps between basis updates; 0: none
    double corrections, largest_angle, angle_sum, basis_error;
    int64_t n_updates;
    double recent[2 * AROUND]; // losses of the last steps
    double rise_sum;           // mean loss after an update minus before it, added up
    int64_t n_rises;
    double average_sum;   // bytes per token of averages (train.outer), times the steps since
    int64_t last_average; // the step of the last one
    const strait_study *study;
    json_t *figures; // the last and the largest value of each codec metric
    json_t *series;  // by name: [step, value] of the steps that are kept
} totals;

static double number(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key)); // 0 if the key is missing
}

/* After AROUND steps past an update, half of the recent losses are from before it. */
static void take_update(totals *t, const json_t *step) {
    const int64_t at = (int64_t)number(step, "step");
    if (t->every == 0) return;
    if (at % t->every == 0) {
        t->n_updates++;
        t->angle_sum += number(step, "basis_mean_angle");
        t->largest_angle = fmax(t->largest_angle, number(step, "basis_angle"));
    }
    if (at % t->every != AROUND || at <= t->every) return;
    double before = 0.0;
    double after = 0.0;
    for (int i = 0; i < AROUND; i++) {
        before += t->recent[i];
        after += t->recent[AROUND + i];
    }
    t->rise_sum += (after - before) / AROUND;
    t->n_rises++;
}

/* A metric with a value per boundary counts by its largest. NaN: the step has no such metric. */
static double value_of(const json_t *step, const char *key) {
    const json_t *value = json_object_get(step, key);
    double largest = (double)NAN;
    if (json_is_number(value)) return json_number_value(value);
    for (size_t i = 0; i < json_array_size(value); i++)
        largest = fmax(largest, json_number_value(json_array_get(value, i)));
    return largest;
}

static void take_figures(totals *t, const json_t *step) {
    static const char *const keys[] = {"residual_forward", "residual_backward", "leak",
                                       "corrections",      "basis_error",       "bubble",
                                       "divergence"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char most[48];
        const double value = value_of(step, keys[i]);
        if (!isfinite(value)) continue;
        (void)snprintf(most, sizeof most, "%s_max", keys[i]);
        const json_t *before = json_object_get(t->figures, most);
        const double largest = fmax(value, before != NULL ? json_number_value(before) : value);
        (void)json_object_set_new(t->figures, keys[i], json_real(value));
        (void)json_object_set_new(t->figures, most, json_real(largest));
    }
    const int64_t at = (int64_t)number(step, "step");
    const int64_t every = t->total / SERIES_POINTS + 1; // thinned, the last step always
    for (int i = 0; i < t->study->series.n && (at % every == 0 || at == t->total); i++) {
        const char *key = t->study->series.items[i];
        const double value = value_of(step, key);
        if (!isfinite(value)) continue;
        json_t *list = json_object_get(t->series, key);
        if (list == NULL) {
            (void)json_object_set_new(t->series, key, json_array());
            list = json_object_get(t->series, key);
        }
        (void)json_array_append_new(list, json_pack("[I,f]", (json_int_t)at, value));
    }
}

/* An average says its bytes per token since the one before; the last interval may be shorter. */
static void take_average(totals *t, const json_t *step) {
    const double bytes = value_of(step, "average_bytes_per_token");
    const int64_t at = (int64_t)number(step, "step");
    if (!isfinite(bytes)) return;
    t->average_sum += bytes * (double)(at - t->last_average);
    t->last_average = at;
}

static void take_step(totals *t, const json_t *step) {
    const json_t *corrections = json_object_get(step, "corrections");
    const double loss = number(step, "loss");
    t->seconds += number(step, "seconds");
    t->n_steps++;
    if (t->n_steps > t->total - t->total / 10 - 1) { // the last tenth
        t->loss_sum += loss;
        t->n_late++;
    }
    memmove(t->recent, t->recent + 1, (2 * AROUND - 1) * sizeof *t->recent);
    t->recent[2 * AROUND - 1] = loss;
    t->corrections = 0.0;
    for (size_t i = 0; i < json_array_size(corrections); i++)
        t->corrections += json_number_value(json_array_get(corrections, i));
    t->basis_error = fmax(t->basis_error, number(step, "basis_error"));
    take_update(t, step);
    take_average(t, step);
    take_figures(t, step);
}

static strait_err take_line(void *arg, const strait_metrics_line *line) {
    json_t *object = NULL;
    if (line->err != STRAIT_OK) return line->err;
    if (line->point.is_valid_loss) return STRAIT_OK;
    STRAIT_TRY(strait_json_parse(line->text, line->bytes - 1, &object));
    take_step(arg, object);
    json_decref(object);
    return STRAIT_OK;
}

/* JSON has no infinity and no NaN. */
static void set_real(json_t *object, const char *key, double value) {
    (void)json_object_set_new(object, key, isfinite(value) ? json_real(value) : json_null());
}

static json_t *curve_of(const strait_history *history) {
    json_t *curve = json_array();
    for (int i = 0; i < history->n_valid; i++) {
        const strait_metrics_point *p = &history->valid[i];
        json_t *loss = isfinite(p->loss) ? json_real(p->loss) : json_null();
        (void)json_array_append_new(curve, json_pack("[I,o]", (json_int_t)p->step, loss));
    }
    return curve;
}

/* Options that the settings of a record do not name. */
static json_t *speed_of(const strait_study *study) {
    json_t *list = json_array();
    for (int i = 0; i < study->speed.n; i++)
        (void)json_array_append_new(list, json_string(study->speed.items[i]));
    return list;
}

static void set_sizes(json_t *record, const strait_job *job) {
    (void)json_object_set_new(record, "parameters", json_integer(job->parameters));
    set_real(record, "flops_per_token", job->flops_per_token);
    set_real(record, "memory_bytes", job->memory_bytes);
    set_real(record, "codec_bytes", job->codec_bytes);
    (void)json_object_set_new(record, "steps", json_integer(job->run->train.steps));
    (void)json_object_set_new(record, "batch_tokens", json_integer(job->run->train.batch_tokens));
    set_real(record, "learning_rate", job->run->train.learning_rate);
    (void)json_object_set_new(record, "device", json_string(job->run->device.kind));
    (void)json_object_set_new(record, "version", json_string(STRAIT_VERSION));
}

static void set_history(json_t *record, const strait_history *h, const totals *t) {
    set_real(record, "valid_loss", strait_history_loss(h));
    set_real(record, "train_loss", t->n_late > 0 ? t->loss_sum / (double)t->n_late : (double)NAN);
    set_real(record, "seconds", t->seconds);
    set_real(record, "step_seconds", h->seconds);
    if (h->meter_seconds > 0.0) set_real(record, "meter_seconds", h->meter_seconds);
    set_real(record, "tokens_per_s", h->tokens_per_s);
    set_real(record, "forward_bytes_per_token", h->forward_bytes);
    set_real(record, "backward_bytes_per_token", h->backward_bytes);
    set_real(record, "ratio_forward", h->ratio_forward);
    set_real(record, "ratio_backward", h->ratio_backward);
    (void)json_object_set_new(record, "curve", curve_of(h));
    if (t->last_average > 0)
        set_real(record, "average_bytes_per_token", t->average_sum / (double)t->last_average);
    if (t->every == 0) return;
    (void)json_object_set_new(record, "basis_updates", json_integer(t->n_updates));
    set_real(record, "basis_angle", t->largest_angle);
    set_real(record, "basis_mean_angle",
             t->n_updates > 0 ? t->angle_sum / (double)t->n_updates : 0.0);
    set_real(record, "basis_error", t->basis_error);
    set_real(record, "corrections", t->corrections);
    set_real(record, "rise_at_update",
             t->n_rises > 0 ? t->rise_sum / (double)t->n_rises : (double)NAN);
}

/* The test text is not part of a run's key, because nothing is chosen on it. Its digest tells runs
 * that were evaluated on one text from those that cannot be compared. */
static void set_test(json_t *record, const char *text, double loss) {
    set_real(record, "test_loss", loss);
    (void)json_object_set_new(record, "test_text", json_string(text));
}

/* A run whose metrics end early was not trained to its end, whatever its exit code. */
static strait_err check_complete(const strait_job *job, const strait_history *h,
                                 const char *folder) {
    const int64_t steps = job->run->train.steps;
    if (h->steps == steps && h->valid[h->n_valid - 1].step == steps) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA, "%s: its metrics end at step %lld of %lld", folder,
                       (long long)h->steps, (long long)steps);
}

strait_err strait_harvest(const strait_study *study, const strait_job *job, const char *folder,
                          double test_loss, json_t **out) {
    char path[STRAIT_PATH_MAX];
    strait_history history = {0};
    STRAIT_TRY(strait_file_path(path, "%s/metrics.jsonl", folder));
    STRAIT_TRY(strait_history_read(path, &history));
    totals t = {.total = job->run->train.steps,
                .every = job->run->link.codec.grassmann_every,
                .study = study,
                .figures = json_object(),
                .series = json_object()};
    strait_err err = check_complete(job, &history, folder);
    if (err == STRAIT_OK) err = strait_metrics_walk(path, take_line, &t);
    if (err == STRAIT_OK) {
        json_t *record = json_pack("{s:s,s:s,s:I,s:b}", "key", job->key, "name", job->name, "seed",
                                   (json_int_t)job->seed, "is_trial", job->trial >= 0);
        if (record == NULL) record = json_object();
        set_sizes(record, job);
        set_history(record, &history, &t);
        if (isfinite(test_loss)) set_test(record, study->test_text, test_loss);
        (void)json_object_set(record, "settings", job->settings);
        if (study->speed.n > 0) (void)json_object_set_new(record, "speed", speed_of(study));
        (void)json_object_update_missing(record, t.figures);
        if (study->series.n > 0) (void)json_object_set(record, "series", t.series);
        *out = record;
    }
    json_decref(t.figures);
    json_decref(t.series);
    strait_history_close(&history);
    return err;
}

strait_err strait_harvest_test(const char *path, double *loss) {
    json_t *document = NULL;
    STRAIT_TRY(strait_json_load(path, 1 << 16, &document));
    const json_t *value = json_object_get(document, "loss");
    const int is_number = json_is_number(value);
    if (is_number) *loss = json_number_value(value);
    json_decref(document);
    return is_number ? STRAIT_OK : STRAIT_FAIL(STRAIT_EDATA, "%s: has no finite loss", path);
}

/* Errors are ignored: what stays behind takes space and nothing else. */
void strait_harvest_drop_weights(const char *folder) {
    char path[STRAIT_PATH_MAX];
    if (strait_file_path(path, "%s/checkpoints", folder) != STRAIT_OK) return;
    DIR *dir = opendir(path);
    if (dir == NULL) return;
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) { // NOLINT: one thread
        char inner[STRAIT_PATH_MAX];
        if (e->d_name[0] == '.') continue;
        if (strait_file_path(inner, "%s/%s", path, e->d_name) == STRAIT_OK)
            (void)strait_file_remove_folder(inner);
    }
    (void)closedir(dir);
    (void)rmdir(path);
}
