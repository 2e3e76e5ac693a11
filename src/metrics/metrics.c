#include "metrics/metrics.h"

#include "base/alloc.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LINE_MAX_BYTES = 8192,
    PENDING_MAX = 8 * LINE_MAX_BYTES,
    LIMIT_MAX = 64
};

struct strait_metrics {
    int fd; // -1 when not open
    char *path;
    /* Up to the last step; 0: none yet, -1: unknown, because an older program wrote that line. */
    int64_t tokens;
    int64_t synced_bytes; // of the file, known to be on disk
    /* The lines behind them. They are kept until they are on disk, because a sync that failed may
     * have dropped them from the page cache: then they must be written again. */
    size_t n_pending, n_written; // bytes of all of them, and of those that were written
    char pending[PENDING_MAX];
};

static strait_err failed(const char *path, const char *what) {
    char why[128] = "";
    (void)strerror_r(errno, why, sizeof why);
    return STRAIT_FAIL(STRAIT_EIO, "%s: cannot %s: %s", path, what, why);
}

/* The lines that a resumed run keeps. */
typedef struct kept {
    int64_t resume_step;
    char *text; // capacity: the size of the file
    size_t used;
    int damaged;    // the first damaged line; 0: none so far
    int64_t tokens; // of the last step kept; -1: its line does not say
} kept;

/* Copies lines up to the resumed step. A damaged line at the end is what a power cut leaves; one
 * that well-formed lines follow means that someone edited the file, which the user must resolve. */
static strait_err keep(void *arg, const strait_metrics_line *line) {
    kept *k = arg;
    if (line->err != STRAIT_OK && k->damaged == 0) k->damaged = line->number;
    if (line->err != STRAIT_OK || line->point.step > k->resume_step) return STRAIT_OK;
    if (k->damaged > 0)
        return STRAIT_FAIL(STRAIT_EDATA, "follows the damaged line %d; repair or remove that line",
                           k->damaged);
    memcpy(k->text + k->used, line->text, line->bytes);
    k->used += line->bytes;
    if (!line->point.is_valid_loss) k->tokens = line->point.tokens > 0 ? line->point.tokens : -1;
    return STRAIT_OK;
}

/* A resumed run computes later steps again; without this they would appear twice. */
static strait_err rewrite(const char *path, int64_t resume_step, int64_t *tokens) {
    struct stat info;
    if (stat(path, &info) != 0) return failed(path, "stat");
    void *text = NULL;
    STRAIT_TRY(strait_alloc((size_t)info.st_size, 1, path, &text));
    kept k = {.resume_step = resume_step, .text = text};
    strait_err err = strait_metrics_walk(path, keep, &k);
    if (err == STRAIT_OK) err = strait_file_replace(path, k.text, k.used);
    strait_alloc_free(text);
    *tokens = k.tokens;
    return err;
}

strait_err strait_metrics_open(const char *path, int64_t resume_step, struct strait_metrics **out) {
    int64_t tokens = 0;
    if (resume_step > 0 && strait_file_exists(path))
        STRAIT_TRY(rewrite(path, resume_step, &tokens));
    else
        STRAIT_TRY(strait_file_replace(path, "", 0));
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_metrics), path, &memory));
    struct strait_metrics *metrics = memory;
    metrics->fd = -1;
    metrics->tokens = tokens;
    strait_err err = strait_alloc_string(path, &metrics->path);
    if (err == STRAIT_OK) {
        metrics->fd = open(path, O_WRONLY | O_CLOEXEC);
        if (metrics->fd < 0) err = failed(path, "open");
    }
    struct stat info;
    if (err == STRAIT_OK && fstat(metrics->fd, &info) != 0) err = failed(path, "stat");
    if (err == STRAIT_OK)
        metrics->synced_bytes = info.st_size; // it was synced when it was replaced
    if (err != STRAIT_OK)
        strait_metrics_close(&metrics);
    else
        *out = metrics;
    return err;
}

/* Writes what is pending and was not written. What a failed or short write leaves stays for the
 * next call. */
static strait_err flush(struct strait_metrics *metrics) {
    while (metrics->n_written < metrics->n_pending) {
        const ssize_t n = pwrite(metrics->fd, metrics->pending + metrics->n_written,
                                 metrics->n_pending - metrics->n_written,
                                 (off_t)metrics->synced_bytes + (off_t)metrics->n_written);
        if (n < 0 && errno != EINTR) return failed(metrics->path, "write");
        if (n > 0) metrics->n_written += (size_t)n;
    }
    return STRAIT_OK;
}

void strait_metrics_close(struct strait_metrics **metrics) {
    if (*metrics == NULL) return;
    if ((*metrics)->fd >= 0) {
        (void)flush(*metrics);
        (void)close((*metrics)->fd);
    }
    strait_alloc_free((*metrics)->path);
    strait_alloc_free(*metrics);
    *metrics = NULL;
}

typedef struct line {
    char text[LINE_MAX_BYTES];
    size_t used;
} line;

__attribute__((format(printf, 2, 3))) static void put(line *l, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(l->text + l->used, sizeof l->text - l->used, format, args);
    va_end(args);
    if (n > 0) l->used += (size_t)n;
    if (l->used >= sizeof l->text)
        l->used = sizeof l->text - 1; // truncated, as vsnprintf truncated the text
}

/* JSON has no infinity or NaN: those become null. */
static void put_real(line *l, const char *key, int digits, double value) {
    if (isfinite(value))
        put(l, ",\"%s\":%.*g", key, digits, value);
    else
        put(l, ",\"%s\":null", key);
}

/* Control characters are left out: the line must stay one line of valid JSON. */
static void put_text(line *l, const char *key, const char *text) {
    put(l, ",\"%s\":\"", key);
    for (int i = 0; text[i] != '\0' && i < LIMIT_MAX; i++)
        if ((unsigned char)text[i] >= 0x20)
            put(l, "%s%c", text[i] == '"' || text[i] == '\\' ? "\\" : "", text[i]);
    put(l, "\"");
}

static void put_element(line *l, int is_next, double value) {
    if (isfinite(value))
        put(l, "%s%.4g", is_next ? "," : "", value);
    else
        put(l, "%snull", is_next ? "," : "");
}

static void put_reals(line *l, const char *key, const double *values, int n) {
    if (n == 0) return;
    put(l, ",\"%s\":[", key);
    for (int i = 0; i < n; i++)
        put_element(l, i > 0, values[i]);
    put(l, "]");
}

/* Counts are written in full, where put_reals would round them. */
static void put_counts(line *l, const char *key, const double *values, int n) {
    put(l, ",\"%s\":[", key);
    for (int i = 0; i < n; i++)
        put(l, "%s%.0f", i > 0 ? "," : "", values[i]);
    put(l, "]");
}

/* The numbers of the bits that are set. */
static void put_bits(line *l, const char *key, uint64_t bits) {
    const char *separator = "";
    put(l, ",\"%s\":[", key);
    for (int i = 0; i < 64; i++) {
        if ((bits >> i & 1) == 0) continue;
        put(l, "%s%d", separator, i);
        separator = ",";
    }
    put(l, "]");
}

/* Queues the line behind what a short write left, so that lines are never interleaved, then writes.
 * A full queue is synced to empty it. If that fails the whole line is dropped, never a part of it.
 */
static strait_err append(struct strait_metrics *metrics, line *l) {
    put(l, "}\n");
    if (l->used > sizeof metrics->pending - metrics->n_pending)
        STRAIT_TRY(strait_metrics_sync(metrics));
    memcpy(metrics->pending + metrics->n_pending, l->text, l->used);
    metrics->n_pending += l->used;
    return flush(metrics);
}

/* Nine digits identify the bits of a float, so that losses of two runs can be compared exactly; the
 * other figures are measurements and need fewer. */
strait_err strait_metrics_put_step(struct strait_metrics *metrics,
                                   const strait_metrics_step *step) {
    line l = {.used = 0};
    if (metrics->tokens < 0) metrics->tokens = (step->step - 1) * step->batch_tokens;
    metrics->tokens += step->batch_tokens;
    put(&l, "{\"step\":%lld", (long long)step->step);
    put_real(&l, "loss", 9, step->loss);
    put_real(&l, "learning_rate", 9, step->learning_rate);
    put_real(&l, "grad_norm", 9, step->grad_norm);
    put_real(&l, "tokens_per_s", 6, step->tokens_per_s);
    put_real(&l, "forward_bytes_per_token", 6, step->forward_bytes_per_token);
    put_real(&l, "backward_bytes_per_token", 6, step->backward_bytes_per_token);
    put_real(&l, "ratio_forward", 6, step->ratio_forward);
    put_real(&l, "ratio_backward", 6, step->ratio_backward);
    put_real(&l, "bubble", 6, step->bubble);
    put_text(&l, "limit", step->limit);
    put_real(&l, "seconds", 6, step->seconds);
    put(&l, ",\"tokens\":%lld,\"time\":%.3f", (long long)metrics->tokens, step->time);
    if (step->meter_seconds > 0.0) put_real(&l, "meter_seconds", 6, step->meter_seconds);
    if (step->reduce_bytes > 0.0) put_real(&l, "reduce_bytes", 9, step->reduce_bytes);
    if (step->staleness > 0) put(&l, ",\"staleness\":%d", step->staleness);
    if (step->averaged != 0) {
        put_bits(&l, "averaged", step->averaged);
        put_real(&l, "average_bytes_per_token", 6, step->average_bytes_per_token);
        put_real(&l, "divergence", 6, step->divergence);
    }
    put_reals(&l, "residual_forward", step->residual_forward, step->n_boundaries);
    put_reals(&l, "residual_backward", step->residual_backward, step->n_boundaries);
    if (step->leak != NULL) {
        put_reals(&l, "leak", step->leak, step->n_boundaries);
        put_counts(&l, "corrections", step->corrections, step->n_boundaries);
        put_real(&l, "basis_angle", 6, step->basis_angle);
        put_real(&l, "basis_mean_angle", 6, step->basis_mean_angle);
        put_real(&l, "basis_error", 6, step->basis_error);
    }
    if (step->busy_s != NULL) {
        put_reals(&l, "stage_busy_seconds", step->busy_s, step->n_stages);
        put_reals(&l, "stage_wait_seconds", step->wait_s, step->n_stages);
        put_counts(&l, "boundary_forward_bytes", step->forward_bytes, step->n_stages - 1);
        put_counts(&l, "boundary_backward_bytes", step->backward_bytes, step->n_stages - 1);
    }
    return append(metrics, &l);
}

int64_t strait_metrics_tokens(const struct strait_metrics *metrics) {
    return metrics->tokens > 0 ? metrics->tokens : 0;
}

strait_err strait_metrics_put_valid(struct strait_metrics *metrics, int64_t step,
                                    double valid_loss) {
    line l = {.used = 0};
    put(&l, "{\"step\":%lld", (long long)step);
    put_real(&l, "valid_loss", 9, valid_loss);
    return append(metrics, &l);
}

/* Lines that are only buffered by the system would be missing after a power cut, while the
 * checkpoint that follows them is there. After a failed sync it is unknown what the disk holds, and
 * a second one may report success without writing: the kernel marks pages as clean that it could
 * not write. The lines are written again first. */
strait_err strait_metrics_sync(struct strait_metrics *metrics) {
    STRAIT_TRY(flush(metrics));
    if (metrics->n_pending == 0) return STRAIT_OK;
    if (fsync(metrics->fd) != 0) {
        metrics->n_written = 0;
        return failed(metrics->path, "sync");
    }
    metrics->synced_bytes += (int64_t)metrics->n_pending;
    metrics->n_pending = metrics->n_written = 0;
    return STRAIT_OK;
}
