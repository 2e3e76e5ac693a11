#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "metrics/metrics.h"

#include <math.h>
#include <string.h>

/* A loss that is not finite was written as null, which JSON can hold. */
static strait_err take_loss(const json_t *object, strait_metrics_point *out) {
    const json_t *loss = json_object_get(object, "loss");
    out->is_valid_loss = loss == NULL;
    if (loss == NULL) loss = json_object_get(object, "valid_loss");
    if (!json_is_number(loss) && !json_is_null(loss))
        return STRAIT_FAIL(STRAIT_EDATA, "has no number \"loss\" or \"valid_loss\"");
    out->loss = json_is_null(loss) ? (double)NAN : json_number_value(loss);
    return STRAIT_OK;
}

/* A list of small whole numbers as bits; other values are left out. */
static uint64_t take_bits(const json_t *list) {
    uint64_t bits = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_int_t number = json_integer_value(json_array_get(list, i));
        if (json_is_integer(json_array_get(list, i)) && number >= 0 && number < 64)
            bits |= UINT64_C(1) << number;
    }
    return bits;
}

/* The caller adds the path and the number of the line. */
static strait_err parse(const char *text, size_t bytes, strait_metrics_point *out) {
    json_t *object = NULL;
    STRAIT_TRY(strait_json_parse(text, bytes, &object));
    strait_err err = strait_json_int(object, "step", &out->step);
    if (err == STRAIT_OK) err = take_loss(object, out);
    /* Missing in files of older programs, and 0 then. */
    out->tokens = (int64_t)json_integer_value(json_object_get(object, "tokens"));
    out->time = json_number_value(json_object_get(object, "time"));
    out->averaged = take_bits(json_object_get(object, "averaged"));
    json_decref(object);
    return err;
}

/* Damaged lines are reported to the visitor instead of ending the walk, because a reader of a
 * running job and a resumed run treat them differently. */
strait_err strait_metrics_walk(const char *path,
                               strait_err (*visit)(void *arg, const strait_metrics_line *line),
                               void *arg) {
    strait_file_map map = {NULL, 0};
    STRAIT_TRY(strait_file_map_open(path, &map));
    strait_err err = STRAIT_OK;
    size_t start = 0;
    for (int number = 1; err == STRAIT_OK && start < map.bytes; number++) {
        const char *text = (const char *)map.data + start;
        const char *stop = memchr(text, '\n', map.bytes - start);
        if (stop == NULL) break; // a truncated last line
        strait_metrics_line line = {.number = number, .text = text};
        line.bytes = (size_t)(stop - text) + 1;
        line.err = parse(text, line.bytes - 1, &line.point);
        err = visit(arg, &line);
        if (err != STRAIT_OK) strait_err_prefix("%s: line %d", path, number);
        start += line.bytes;
    }
    strait_file_map_close(&map);
    return err;
}

typedef struct points {
    strait_metrics_point *items;
    size_t n, capacity;
} points;

/* A plot needs every point, so one damaged line is an error here. */
static strait_err collect(void *arg, const strait_metrics_line *line) {
    points *list = arg;
    if (line->err != STRAIT_OK) return line->err;
    if (list->n == list->capacity) {
        void *memory = list->items;
        list->capacity = 2 * list->capacity + 256;
        STRAIT_TRY(
            strait_alloc_grow(&memory, list->n, list->capacity, sizeof *list->items, "metrics"));
        list->items = memory;
    }
    list->items[list->n++] = line->point;
    return STRAIT_OK;
}

/* For reports, which need the whole history at once. */
strait_err strait_metrics_read(const char *path, strait_metrics_point **out, int *n) {
    points list = {NULL, 0, 0};
    const strait_err err = strait_metrics_walk(path, collect, &list);
    if (err != STRAIT_OK) {
        strait_alloc_free(list.items);
        return err;
    }
    *out = list.items;
    *n = (int)list.n;
    return STRAIT_OK;
}
