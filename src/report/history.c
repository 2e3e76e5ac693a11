#include "report/history.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The times of one step. */
typedef struct times {
    double seconds, meter_seconds, tokens_per_s;
} times;

typedef struct reading {
    strait_history *out;
    times *steps;
    size_t n_steps, steps_capacity, valid_capacity, train_capacity;
} reading;

static double number(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key)); // 0 if the key is missing
}

/* Runs are read while they are trained, so the number of lines is not known. */
static strait_err reserve(void **items, size_t n, size_t *capacity, size_t bytes) {
    if (n < *capacity) return STRAIT_OK;
    *capacity = 2 * *capacity + 256;
    return strait_alloc_grow(items, n, *capacity, bytes, "history");
}

static strait_err take_valid(reading *r, const strait_metrics_point *point) {
    strait_history *h = r->out;
    void *memory = h->valid;
    STRAIT_TRY(reserve(&memory, (size_t)h->n_valid, &r->valid_capacity, sizeof *h->valid));
    h->valid = memory;
    h->valid[h->n_valid++] = *point;
    return STRAIT_OK;
}

/* Runs of earlier versions have no count of tokens. */
static strait_err take_point(reading *r, const strait_metrics_line *line, const json_t *object) {
    strait_history *h = r->out;
    void *memory = h->train;
    STRAIT_TRY(reserve(&memory, (size_t)h->n_train, &r->train_capacity, sizeof *h->train));
    h->train = memory;
    const strait_history_step before = h->n_train > 0 ? h->train[h->n_train - 1]
                                                      : (strait_history_step){0};
    const double seconds = number(object, "seconds");
    const double counted = number(object, "tokens");
    const double n = counted > before.tokens ? counted - before.tokens
                                             : number(object, "tokens_per_s") * seconds;
    const double bytes = number(object, "forward_bytes_per_token") +
                         number(object, "backward_bytes_per_token");
    h->train[h->n_train++] = (strait_history_step){.step = line->point.step,
                                                   .loss = line->point.loss,
                                                   .tokens = before.tokens + n,
                                                   .seconds = before.seconds + seconds,
                                                   .bytes = before.bytes + bytes * n};
    return STRAIT_OK;
}

/* Bytes and ratios hardly change during a run, so the last step stands for all. */
static strait_err take_step(reading *r, const strait_metrics_line *line) {
    strait_history *h = r->out;
    void *memory = r->steps;
    STRAIT_TRY(reserve(&memory, r->n_steps, &r->steps_capacity, sizeof *r->steps));
    r->steps = memory;
    json_t *object = NULL;
    STRAIT_TRY(strait_json_parse(line->text, line->bytes - 1, &object));
    r->steps[r->n_steps++] = (times){.seconds = number(object, "seconds"),
                                     .meter_seconds = number(object, "meter_seconds"),
                                     .tokens_per_s = number(object, "tokens_per_s")};
    h->steps = line->point.step;
    h->forward_bytes = number(object, "forward_bytes_per_token");
    h->backward_bytes = number(object, "backward_bytes_per_token");
    h->ratio_forward = number(object, "ratio_forward");
    h->ratio_backward = number(object, "ratio_backward");
    const strait_err err = take_point(r, line, object);
    json_decref(object);
    return err;
}

/* A damaged line is an error: a comparison must not silently leave out a part of a run. */
static strait_err take_line(void *arg, const strait_metrics_line *line) {
    if (line->err != STRAIT_OK) return line->err;
    if (line->point.is_valid_loss) return take_valid(arg, &line->point);
    return take_step(arg, line);
}

static int by_seconds(const void *a, const void *b) {
    const double x = ((const times *)a)->seconds;
    const double y = ((const times *)b)->seconds;
    return (x > y) - (x < y);
}

/* Takes the median of the later half of the steps: early steps measure links and fill caches. */
static void take_median(reading *r) {
    const size_t n = (r->n_steps + 1) / 2;
    times *later = r->steps + (r->n_steps - n);
    qsort(later, n, sizeof *later, by_seconds);
    const times *middle = &later[n / 2];
    r->out->seconds = middle->seconds;
    r->out->meter_seconds = middle->meter_seconds;
    r->out->tokens_per_s = middle->tokens_per_s;
}

static strait_err read_file(const char *path, reading *r) {
    STRAIT_TRY(strait_metrics_walk(path, take_line, r));
    if (r->n_steps == 0) return STRAIT_FAIL(STRAIT_EDATA, "%s: has no training step yet", path);
    take_median(r);
    return STRAIT_OK;
}

/* Accepts the folder of a run, or a metrics file that was copied out of it. */
strait_err strait_history_read_any(const char *path, strait_history *out) {
    char file[STRAIT_PATH_MAX];
    STRAIT_TRY(
        strait_file_path(file, strait_file_is_folder(path) ? "%s/metrics.jsonl" : "%s", path));
    if (strait_file_is_folder(path) && !strait_file_exists(file))
        return STRAIT_FAIL(STRAIT_EDATA, "%s: has no metrics.jsonl; name the folder of a run",
                           path);
    *out = (strait_history){0};
    reading r = {.out = out};
    const strait_err err = read_file(file, &r);
    strait_alloc_free(r.steps);
    if (err != STRAIT_OK) strait_history_close(out);
    return err;
}

/* A loss that was never measured cannot be compared. */
strait_err strait_history_read(const char *path, strait_history *out) {
    STRAIT_TRY(strait_history_read_any(path, out));
    if (out->n_valid > 0) return STRAIT_OK;
    strait_history_close(out);
    return STRAIT_FAIL(STRAIT_EDATA, "%s: has no validation yet; set train.valid_every", path);
}

const strait_history_step *strait_history_at(const strait_history *history, int64_t step) {
    int low = 0, high = history->n_train;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (history->train[middle].step <= step)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? &history->train[low - 1] : NULL;
}

strait_err strait_history_use_training(strait_history *history) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc((size_t)history->n_train, sizeof *history->valid, "history", &memory));
    strait_alloc_free(history->valid);
    history->valid = memory;
    history->n_valid = history->n_train;
    for (int i = 0; i < history->n_train; i++)
        history->valid[i] = (strait_metrics_point){
            .step = history->train[i].step, .loss = history->train[i].loss, .is_valid_loss = 1};
    return STRAIT_OK;
}

/* Also after a read that failed half way. */
void strait_history_close(strait_history *history) {
    strait_alloc_free(history->valid);
    strait_alloc_free(history->train);
    *history = (strait_history){0};
}

double strait_history_loss(const strait_history *history) {
    return history->valid[history->n_valid - 1].loss;
}

/* Interpolates between two validations, so that runs that validate at different steps can be
 * compared. */
double strait_history_steps_to(const strait_history *history, double loss) {
    for (int i = 0; i < history->n_valid; i++) {
        const strait_metrics_point *now = &history->valid[i];
        if (!(now->loss <= loss)) continue;
        if (i == 0) return (double)now->step;
        const strait_metrics_point *before = now - 1;
        const double share = (before->loss - loss) / (before->loss - now->loss);
        if (!isfinite(share)) return (double)now->step; // the previous loss was not finite
        return (double)before->step + share * (double)(now->step - before->step);
    }
    return (double)NAN;
}
