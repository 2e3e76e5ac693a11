#include "metrics/trace.h"

#include "base/alloc.h"
#include "base/file.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST_STAGES = 4096
};

struct strait_trace {
    strait_trace_span *spans;
    int capacity;
    int64_t n_put;
};

strait_err strait_trace_open(int capacity, struct strait_trace **out) {
    if (capacity < 1)
        return STRAIT_FAIL(STRAIT_EINVAL, "a trace needs a capacity of at least 1 span, not %d",
                           capacity);
    struct strait_trace *trace;
    STRAIT_TRY(strait_alloc(1, sizeof *trace, "a trace", (void **)&trace));
    trace->capacity = capacity;
    const strait_err err = strait_alloc((size_t)capacity, sizeof *trace->spans, "a trace",
                                        (void **)&trace->spans);
    if (err != STRAIT_OK)
        strait_trace_close(&trace);
    else
        *out = trace;
    return err;
}

void strait_trace_close(struct strait_trace **trace) {
    if (*trace == NULL) return;
    strait_alloc_free((*trace)->spans);
    strait_alloc_free(*trace);
    *trace = NULL;
}

/* A ring: a trace that runs too long keeps its newest spans and never allocates. Without a trace
 * the call costs one comparison. */
void strait_trace_put(struct strait_trace *trace, const strait_trace_span *span) {
    if (trace != NULL) trace->spans[trace->n_put++ % trace->capacity] = *span;
}

int strait_trace_count(const struct strait_trace *trace) {
    return trace->n_put < trace->capacity ? (int)trace->n_put : trace->capacity;
}

/* Reported, so that nobody takes the rest for the whole. */
int64_t strait_trace_lost(const struct strait_trace *trace) {
    return trace->n_put - strait_trace_count(trace);
}

void strait_trace_clear(struct strait_trace *trace) {
    trace->n_put = 0;
}

/* Names are written into JSON without escapes. */
static int is_plain(const char *name) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 "
                                "-_.:";
    return name[0] != 0 && name[strspn(name, plain)] == 0;
}

/* Also applied to traces that are read, which may come from another program. */
strait_err strait_trace_check(const strait_trace_span *s) {
    if (s->name == NULL || !is_plain(s->name))
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "a span's name is empty or has characters other than letters, digits, "
                           "spaces and -_.:");
    if (s->stage < 0 || s->stage >= MOST_STAGES || (int)s->lane < 0 || s->lane >= STRAIT_LANE_KINDS)
        return STRAIT_FAIL(STRAIT_EINVAL, "span \"%s\": stage %d or lane %d is out of range",
                           s->name, s->stage, (int)s->lane);
    if (s->start_ns < 0 || s->end_ns < s->start_ns)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "span \"%s\": from %" PRId64 " to %" PRId64
                           " ns: it must not start before 0 or end before it starts",
                           s->name, s->start_ns, s->end_ns);
    return STRAIT_OK;
}

/* A writer that emits the names of a stage and lane before its first span. */
struct writer {
    FILE *file;
    const char *separator;
    unsigned char is_named[MOST_STAGES]; // one bit per lane
};

/* Events of kind M name a process or thread in the viewer. */
static void put_name(struct writer *w, const char *what, const strait_trace_span *s,
                     const char *name) {
    fprintf(w->file,
            "%s{\"name\": \"%s\", \"ph\": \"M\", \"pid\": %d, \"tid\": %d, "
            "\"args\": {\"name\": \"%s\"}}",
            w->separator, what, s->stage, (int)s->lane, name);
    w->separator = ",\n";
}

/* Trace viewers show these names instead of numbers. A bit per lane remembers which were written.
 */
static void name_lane(struct writer *w, const strait_trace_span *s) {
    static const char *const lanes[] = {"compute", "to next", "to previous"};
    char stage[32];
    if (w->is_named[s->stage] == 0) {
        (void)snprintf(stage, sizeof stage, "stage %d", s->stage);
        put_name(w, "process_name", s, stage);
    }
    if ((w->is_named[s->stage] >> s->lane & 1) == 0) put_name(w, "thread_name", s, lanes[s->lane]);
    w->is_named[s->stage] |= (unsigned char)(1U << s->lane);
}

/* The format counts microseconds; three decimals keep nanoseconds exact without a double. */
static strait_err put_span(struct writer *w, const strait_trace_span *s) {
    STRAIT_TRY(strait_trace_check(s));
    name_lane(w, s);
    const int64_t ns = s->end_ns - s->start_ns;
    fprintf(w->file,
            "%s{\"name\": \"%s\", \"ph\": \"X\", \"pid\": %d, \"tid\": %d, "
            "\"ts\": %" PRId64 ".%03d, \"dur\": %" PRId64 ".%03d, \"args\": {\"step\": %" PRId64,
            w->separator, s->name, s->stage, (int)s->lane, s->start_ns / 1000,
            (int)(s->start_ns % 1000), ns / 1000, (int)(ns % 1000), s->step);
    if (s->microbatch >= 0) fprintf(w->file, ", \"microbatch\": %d", s->microbatch);
    fputs("}}", w->file);
    return STRAIT_OK;
}

/* Writes two arrays of spans in turn: a ring buffer in order is its end followed by its start. */
struct run {
    const strait_trace_span *spans;
    int n;
};

static strait_err put_runs(const struct run runs[2], struct writer *w) {
    fputc('[', w->file);
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < runs[r].n; i++)
            STRAIT_TRY(put_span(w, &runs[r].spans[i]));
    fputs("]\n", w->file);
    return STRAIT_OK;
}

/* Written beside and renamed, so that an interrupted save leaves no half of a trace. */
static strait_err write_runs(const char *path, const struct run runs[2]) {
    char beside[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(beside, "%s.tmp", path));
    struct writer w = {.file = fopen(beside, "we"), .separator = "\n"};
    if (w.file == NULL)
        return STRAIT_FAIL(STRAIT_EIO, "%s: cannot create; is the folder there and writable?",
                           beside);
    strait_err err = put_runs(runs, &w);
    if (err == STRAIT_OK)
        err = strait_file_finish(&w.file, beside);
    else
        (void)fclose(w.file);
    if (err == STRAIT_OK) err = strait_file_move(beside, path);
    if (err != STRAIT_OK) (void)unlink(beside);
    return err;
}

/* A full ring starts at its oldest span, in the middle of the array. */
strait_err strait_trace_save(const struct strait_trace *trace, const char *path) {
    const int n = strait_trace_count(trace);
    const int oldest = n < trace->capacity ? 0 : (int)(trace->n_put % trace->capacity);
    return write_runs(
        path, (const struct run[2]){{trace->spans + oldest, n - oldest}, {trace->spans, oldest}});
}

strait_err strait_trace_write(const char *path, const strait_trace_span *spans, int n_spans) {
    return write_runs(path, (const struct run[2]){{spans, n_spans}, {NULL, 0}});
}
