#include "monitor/series.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>

strait_err strait_series_open(strait_series *series) {
    *series = (strait_series){.stride = 1, .valid_stride = 1};
    strait_err err = strait_alloc(STRAIT_SERIES_MAX, sizeof *series->points, "history",
                                  (void **)&series->points);
    if (err == STRAIT_OK)
        err = strait_alloc(STRAIT_SERIES_MAX, sizeof *series->valid, "history",
                           (void **)&series->valid);
    if (err != STRAIT_OK) strait_series_close(series);
    return err;
}

void strait_series_close(strait_series *series) {
    strait_alloc_free(series->points);
    strait_alloc_free(series->valid);
    *series = (strait_series){0};
}

void strait_series_clear(strait_series *series) {
    strait_series_point *points = series->points;
    strait_series_valid *valid = series->valid;
    *series = (strait_series){.points = points, .valid = valid, .stride = 1, .valid_stride = 1};
}

/* Every second point goes, from the second on: the first one stays. */
void strait_series_put(strait_series *series, const strait_series_point *point) {
    series->last = *point;
    series->has_last = 1;
    if (series->n_seen++ % series->stride != 0) return;
    if (series->n_points == STRAIT_SERIES_MAX) {
        for (size_t i = 0; i < STRAIT_SERIES_MAX / 2; i++)
            series->points[i] = series->points[2 * i];
        series->n_points = STRAIT_SERIES_MAX / 2;
        series->stride *= 2;
    }
    series->points[series->n_points++] = *point;
}

void strait_series_put_valid(strait_series *series, const strait_series_valid *valid) {
    series->last_valid = *valid;
    series->has_last_valid = 1;
    if (series->n_valid_seen++ % series->valid_stride != 0) return;
    if (series->n_valid == STRAIT_SERIES_MAX) {
        for (size_t i = 0; i < STRAIT_SERIES_MAX / 2; i++)
            series->valid[i] = series->valid[2 * i];
        series->n_valid = STRAIT_SERIES_MAX / 2;
        series->valid_stride *= 2;
    }
    series->valid[series->n_valid++] = *valid;
}

/* JSON has no NaN. Counts are written as such, because a reader may compare them as text. */
static json_t *number(double value) {
    if (!isfinite(value)) return json_null();
    if (value == floor(value) && fabs(value) < 1e15) return json_integer((json_int_t)value);
    return json_real(value);
}

static double read_number(const json_t *line, const char *key) {
    const json_t *value = json_object_get(line, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static double read_element(const json_t *array, size_t i) {
    const json_t *value = json_array_get(array, i);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

int strait_series_unpack(const json_t *line, strait_series_point *point,
                         strait_series_valid *valid) {
    if (json_object_get(line, "loss") == NULL) {
        *valid = (strait_series_valid){read_number(line, "step"), read_number(line, "valid_loss")};
        return 0;
    }
    *point = (strait_series_point){
#define X(name) .name = read_number(line, #name),
        STRAIT_SERIES_COLUMNS(X)
#undef X
    };
    return 1;
}

json_t *strait_series_pack_point(const strait_series_point *point) {
    json_t *object = json_object();
#define X(name) (void)json_object_set_new(object, #name, number(point->name));
    STRAIT_SERIES_COLUMNS(X)
#undef X
    return object;
}

json_t *strait_series_pack_valid(const strait_series_valid *valid) {
    return json_pack("{so so}", "step", number(valid->step), "valid_loss",
                     number(valid->valid_loss));
}

/* One column: the kept points, then the last one unless it is the last that was kept. */
static json_t *column(const strait_series *series, size_t offset) {
    json_t *array = json_array();
    const int n = series->n_points;
    for (int i = 0; i < n; i++)
        (void)json_array_append_new(
            array,
            number(*(const double *)(const void *)((const char *)&series->points[i] + offset)));
    if (series->has_last && (n == 0 || series->points[n - 1].step != series->last.step))
        (void)json_array_append_new(
            array, number(*(const double *)(const void *)((const char *)&series->last + offset)));
    return array;
}

static json_t *pack_all_valid(const strait_series *series) {
    json_t *steps = json_array(), *losses = json_array();
    const int n = series->n_valid;
    const int has_more = series->has_last_valid &&
                         (n == 0 || series->valid[n - 1].step != series->last_valid.step);
    for (int i = 0; i < n + has_more; i++) {
        const strait_series_valid *v = i < n ? &series->valid[i] : &series->last_valid;
        (void)json_array_append_new(steps, number(v->step));
        (void)json_array_append_new(losses, number(v->valid_loss));
    }
    return json_pack("{so so}", "step", steps, "valid_loss", losses);
}

json_t *strait_series_pack(const strait_series *series) {
    json_t *object = json_object();
#define X(name) \
    (void)json_object_set_new(object, #name, column(series, offsetof(strait_series_point, name)));
    STRAIT_SERIES_COLUMNS(X)
#undef X
    (void)json_object_set_new(object, "valid", pack_all_valid(series));
    return object;
}

/* What a page sends was thinned there already. */
void strait_series_load(strait_series *series, const json_t *history) {
    const json_t *valid = json_object_get(history, "valid");
    const json_t *steps = json_object_get(history, "step");
    strait_series_clear(series);
    for (size_t i = 0; i < json_array_size(steps); i++) {
        strait_series_point point;
#define X(name) point.name = read_element(json_object_get(history, #name), i);
        STRAIT_SERIES_COLUMNS(X)
#undef X
        strait_series_put(series, &point);
    }
    for (size_t i = 0; i < json_array_size(json_object_get(valid, "step")); i++)
        strait_series_put_valid(
            series, &(strait_series_valid){read_element(json_object_get(valid, "step"), i),
                                           read_element(json_object_get(valid, "valid_loss"), i)});
}
