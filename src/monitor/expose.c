/* expose.c - the state in Prometheus' text format 0.0.4. Names and units follow its conventions:
 * base units, counters end in _total; `promtool check metrics` accepts it. */
#include "base/alloc.h"
#include "monitor/state.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    LABEL_MAX = 256 // characters of a value
};

/* A text that grows. After a failed allocation `err` is set and the rest is dropped. */
typedef struct page {
    char *text;
    size_t used, capacity;
    strait_err err;
} page;

__attribute__((format(printf, 2, 3))) static void put(page *p, const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    const size_t bytes = n < 0 ? 0 : (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
    if (p->err == STRAIT_OK && p->used + bytes > p->capacity) {
        void *memory = p->text;
        const size_t want = 2 * p->capacity + sizeof line;
        p->err = strait_alloc_grow(&memory, p->capacity, want, 1, "metrics for Prometheus");
        p->text = memory;
        if (p->err == STRAIT_OK) p->capacity = want;
    }
    if (p->err != STRAIT_OK) return;
    memcpy(p->text + p->used, line, bytes);
    p->used += bytes;
}

static void family(page *p, const char *name, const char *type, const char *help) {
    put(p, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Prometheus has NaN and infinities, in this spelling. */
static void value(page *p, double v) {
    if (isnan(v))
        put(p, " NaN\n");
    else if (isinf(v))
        put(p, " %sInf\n", v < 0 ? "-" : "+");
    else
        put(p, " %.17g\n", v);
}

static void single(page *p, const char *name, const char *type, const char *help, double v) {
    family(p, name, type, help);
    put(p, "%s", name);
    value(p, v);
}

/* Escapes what a label must not hold as it is; other control characters are left out. */
static const char *label(const char *from, char out[2 * LABEL_MAX + 1]) {
    size_t n = 0;
    for (int i = 0; from[i] != '\0' && i < LABEL_MAX; i++) {
        const char c = from[i];
        if (c == '\\' || c == '"') out[n++] = '\\';
        if ((unsigned char)c >= 0x20) out[n++] = c;
    }
    out[n] = '\0';
    return out;
}

static void put_run(page *p, const strait_state *s) {
    char name[2 * LABEL_MAX + 1], codec[2 * LABEL_MAX + 1];
    family(p, "strait_run_info", "gauge", "The run that this process trains.");
    put(p, "strait_run_info{run=\"%s\",codec=\"%s\",phase=\"%s\"} 1\n", label(s->run.name, name),
        label(s->run.codec, codec), s->phase);
    single(p, "strait_run_steps", "gauge", "Steps that the run will have when it is done.",
           (double)s->run.steps);
    single(p, "strait_run_parameters", "gauge", "Trained parameters of the model.",
           (double)s->info.parameters);
    single(p, "strait_start_time_seconds", "gauge", "When this process began, since 1970.",
           s->started);
    single(p, "strait_events_total", "counter", "Notes and events since this process began.",
           (double)s->n_events);
}

static void put_step(page *p, const strait_state *s) {
    const strait_trainer_report *r = &s->report;
    single(p, "strait_steps_total", "counter", "Steps done, also before this process.",
           (double)r->step);
    single(p, "strait_tokens_total", "counter", "Tokens trained on, also before this process.",
           (double)r->tokens);
    single(p, "strait_loss", "gauge", "Mean training loss of the last step, in nats per token.",
           r->loss);
    single(p, "strait_learning_rate", "gauge", "Learning rate of matrices.", r->learning_rate);
    single(p, "strait_gradient_norm", "gauge", "Norm of all gradients before clipping.",
           r->grad_norm);
    single(p, "strait_tokens_per_second", "gauge", "Tokens per second in the last step.",
           r->tokens_per_s);
    single(p, "strait_step_duration_seconds", "gauge", "Duration of the last step.", r->seconds);
    single(p, "strait_last_step_timestamp_seconds", "gauge", "When the last step ended.", r->time);
    single(p, "strait_remaining_seconds", "gauge", "Estimated time to the end of the run.",
           s->seconds_left);
    single(p, "strait_bubble_ratio", "gauge", "Share of the step in which stages waited.",
           r->bubble);
    if (!s->has_valid) return;
    single(p, "strait_validation_loss", "gauge", "Loss of the last validation.", s->valid_loss);
}

static const char *const directions[] = {"forward", "backward"};

static double bytes_of(const strait_trainer_stage_step *step, int direction) {
    return direction == 0 ? step->forward_bytes : step->backward_bytes;
}

static void put_links(page *p, const strait_state *s) {
    const double *const residuals[] = {s->residual_forward, s->residual_backward};
    const double ratios[] = {s->report.ratio_forward, s->report.ratio_backward};
    family(p, "strait_compression_ratio", "gauge",
           "Bytes of bf16 activations divided by bytes at the socket, worst boundary.");
    for (int d = 0; d < 2; d++) {
        put(p, "strait_compression_ratio{direction=\"%s\"}", directions[d]);
        value(p, ratios[d]);
    }
    family(p, "strait_link_bytes_total", "counter", "Bytes received over a boundary's link.");
    for (int i = 0; i + 1 < s->info.n_stages; i++)
        for (int d = 0; d < 2; d++) {
            put(p, "strait_link_bytes_total{boundary=\"%d\",direction=\"%s\"}", i, directions[d]);
            value(p, bytes_of(&s->sums[i], d));
        }
    family(p, "strait_residual_ratio", "gauge", "Share of the values that a codec lost.");
    for (int i = 0; i + 1 < s->info.n_stages; i++)
        for (int d = 0; d < 2; d++) {
            put(p, "strait_residual_ratio{boundary=\"%d\",direction=\"%s\"}", i, directions[d]);
            value(p, residuals[d][i]);
        }
}

static void put_stages(page *p, const strait_state *s) {
    static const char *const kinds[] = {"forward", "backward", "codec", "wait"};
    family(p, "strait_stage_seconds_total", "counter", "Time that a stage spent, by activity.");
    for (int i = 0; i < s->info.n_stages && s->info.n_stages > 1; i++) {
        const strait_trainer_stage_step *sum = &s->sums[i];
        const double seconds[] = {sum->forward_s, sum->backward_s, sum->codec_s, sum->wait_s};
        for (int k = 0; k < 4; k++) {
            put(p, "strait_stage_seconds_total{stage=\"%d\",activity=\"%s\"}", i, kinds[k]);
            value(p, seconds[k]);
        }
    }
    family(p, "strait_stage_memory_bytes", "gauge", "Memory of a stage on its device, as planned.");
    for (int i = 0; i < s->info.n_stages; i++) {
        put(p, "strait_stage_memory_bytes{stage=\"%d\"}", i);
        value(p, (double)s->info.stages[i].planned);
    }
}

/* One family of a figure that every worker has. */
static void put_workers(page *p, const json_t *workers, const char *name, const char *type,
                        const char *help, const char *key) {
    char worker[2 * LABEL_MAX + 1], digits[2 * LABEL_MAX + 1];
    const json_t *w = NULL;
    size_t i = 0;
    family(p, name, type, help);
    json_array_foreach((json_t *)workers, i, w) {
        const json_t *figure = json_object_get(w, key);
        const char *text = json_string_value(json_object_get(w, "name"));
        const char *id = json_string_value(json_object_get(w, "key"));
        put(p, "%s{worker=\"%s\",key=\"%s\"}", name, label(text != NULL ? text : "", worker),
            label(id != NULL ? id : "", digits));
        value(p, json_is_boolean(figure) ? json_is_true(figure) : json_number_value(figure));
    }
}

static void put_swarm(page *p, const json_t *swarm) {
    const json_t *workers = json_object_get(swarm, "workers");
    if (!json_is_array(workers)) return;
    put_workers(p, workers, "strait_worker_connected", "gauge", "Whether the worker is connected.",
                "connected");
    put_workers(p, workers, "strait_worker_stage", "gauge", "The worker's stage; -1 for a spare.",
                "stage");
    put_workers(p, workers, "strait_worker_replica", "gauge",
                "Which replica of its stage the worker is; 0 is the first.", "replica");
    put_workers(p, workers, "strait_worker_tokens_total", "counter",
                "Tokens that the worker has computed a stage for, since it joined.", "tokens");
    put_workers(p, workers, "strait_worker_sent_bytes_total", "counter",
                "Bytes sent to the worker.", "sent");
    put_workers(p, workers, "strait_worker_received_bytes_total", "counter",
                "Bytes received from the worker.", "received");
    put_workers(p, workers, "strait_worker_round_trip_seconds", "gauge",
                "Round trip between coordinator and worker.", "rtt");
}

strait_err strait_state_expose(const strait_state *s, const json_t *swarm, int n_readers,
                               char **out, size_t *bytes) {
    page p = {.err = STRAIT_OK};
    put_run(&p, s);
    single(&p, "strait_page_readers", "gauge", "Open pages and other streams.", n_readers);
    if (s->has_report) put_step(&p, s);
    if (s->has_report && s->info.n_stages > 1) put_links(&p, s);
    if (s->has_info) put_stages(&p, s);
    put_swarm(&p, swarm);
    if (p.err != STRAIT_OK) {
        strait_alloc_free(p.text);
        return p.err;
    }
    *out = p.text;
    *bytes = p.used;
    return STRAIT_OK;
}
