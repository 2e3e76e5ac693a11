/* trace_merge.c - reads traces back and merges them into one. */
#include "base/alloc.h"
#include "base/json.h"
#include "metrics/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const size_t largest_file = (size_t)1 << 28;

struct merger {
    json_t *documents; // the parsed files; span names are borrowed from them
    strait_trace_span *spans;
    size_t n_spans, capacity;
};

/* The bound keeps the product below what an int64_t holds. */
static strait_err get_ns(const json_t *event, const char *key, int64_t *out) {
    const json_t *value = json_object_get(event, key);
    const double us = json_number_value(value);
    if (!json_is_number(value) || !(us >= 0 && us < 9e12))
        return STRAIT_FAIL(STRAIT_EDATA, "\"%s\" is not a time in microseconds", key);
    *out = llround(us * 1000);
    return STRAIT_OK;
}

static strait_err get_int(const json_t *object, const char *key, int least, int *out) {
    int64_t value = 0;
    STRAIT_TRY(strait_json_int(object, key, &value));
    if (value < least || value > INT32_MAX)
        return STRAIT_FAIL(STRAIT_EDATA, "\"%s\" is %lld: expected %d or more", key,
                           (long long)value, least);
    *out = (int)value;
    return STRAIT_OK;
}

/* Updates and waits belong to no microbatch. */
static strait_err read_args(const json_t *event, strait_trace_span *out) {
    const json_t *args = NULL;
    STRAIT_TRY(strait_json_object(event, "args", &args));
    STRAIT_TRY(strait_json_int(args, "step", &out->step));
    out->microbatch = -1;
    if (json_object_get(args, "microbatch") == NULL) return STRAIT_OK;
    return get_int(args, "microbatch", 0, &out->microbatch);
}

static strait_err read_place(const json_t *event, strait_trace_span *out) {
    int lane = 0;
    STRAIT_TRY(strait_json_string(event, "name", &out->name));
    STRAIT_TRY(get_int(event, "pid", 0, &out->stage));
    STRAIT_TRY(get_int(event, "tid", 0, &lane));
    out->lane = (strait_trace_lane)lane;
    return STRAIT_OK;
}

/* The offset moves the clock of this machine to that of the coordinator. */
static strait_err read_span(const json_t *event, int64_t offset_ns, strait_trace_span *out) {
    int64_t ns = 0;
    STRAIT_TRY(read_place(event, out));
    STRAIT_TRY(get_ns(event, "ts", &out->start_ns));
    STRAIT_TRY(get_ns(event, "dur", &ns));
    STRAIT_TRY(read_args(event, out));
    out->end_ns = out->start_ns + ns;
    if (strait_trace_check(out) != STRAIT_OK)
        return STRAIT_EDATA; // strait_err_detail has the reason
    out->start_ns += offset_ns;
    out->end_ns += offset_ns;
    return STRAIT_OK;
}

/* Grows once per file, by as many spans as the file can have. */
static strait_err read_events(struct merger *m, const json_t *events, int64_t offset_ns) {
    if (!json_is_array(events)) return STRAIT_FAIL(STRAIT_EDATA, "not an array of events");
    const size_t n = json_array_size(events);
    STRAIT_TRY(strait_alloc_grow((void **)&m->spans, m->capacity, m->capacity + n, sizeof *m->spans,
                                 "a trace"));
    m->capacity += n;
    for (size_t i = 0; i < n; i++) {
        const json_t *event = json_array_get(events, i);
        const char *kind = json_string_value(json_object_get(event, "ph"));
        if (kind != NULL && strcmp(kind, "M") == 0)
            continue; // metadata events, which are written anew
        strait_err err = STRAIT_OK;
        if (kind == NULL || strcmp(kind, "X") != 0)
            err = STRAIT_FAIL(STRAIT_EDATA, "\"ph\" is not \"X\"");
        else
            err = read_span(event, offset_ns, &m->spans[m->n_spans]);
        if (err != STRAIT_OK) {
            strait_err_prefix("event %zu", i);
            return err;
        }
        m->n_spans++;
    }
    return STRAIT_OK;
}

/* Ties are broken by the stage, so that the merged file does not depend on the order of the inputs.
 */
static int by_start(const void *a, const void *b) {
    const strait_trace_span *x = a, *y = b;
    if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
    return (x->stage > y->stage) - (x->stage < y->stage);
}

/* Clocks count from the start of the machine; viewers show the time since the first event. */
static void start_at_zero(struct merger *m) {
    if (m->n_spans == 0) return;
    qsort(m->spans, m->n_spans, sizeof *m->spans, by_start);
    const int64_t first = m->spans[0].start_ns;
    for (size_t i = 0; i < m->n_spans; i++) {
        m->spans[i].start_ns -= first;
        m->spans[i].end_ns -= first;
    }
}

static strait_err read_file(struct merger *m, const char *path, int64_t offset_ns) {
    json_t *events = NULL;
    STRAIT_TRY(strait_json_load(path, largest_file, &events));
    if (json_array_append_new(m->documents, events) != 0)
        return STRAIT_FAIL(STRAIT_ENOMEM, "%s: its events", path);
    const strait_err err = read_events(m, events, offset_ns);
    if (err != STRAIT_OK) strait_err_prefix("%s", path);
    return err;
}

/* The documents stay in memory until the end, since span names point into them. */
strait_err strait_trace_merge(const char *const *paths, const int64_t *offsets_ns, int n_paths,
                              const char *out_path) {
    struct merger m = {.documents = json_array()};
    strait_err err = STRAIT_OK;
    for (int i = 0; i < n_paths && err == STRAIT_OK; i++)
        err = read_file(&m, paths[i], offsets_ns[i]);
    if (err == STRAIT_OK) {
        start_at_zero(&m);
        err = strait_trace_write(out_path, m.spans, (int)m.n_spans);
    }
    json_decref(m.documents);
    strait_alloc_free(m.spans);
    return err;
}
