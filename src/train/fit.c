#include "train/fit.h"

#include "base/alloc.h"
#include "config/microbatch.h"

#include <stdio.h>
#include <string.h>

enum {
    CHANGES = 3, // to list
    SETS = 2,    // keys that one change sets
    VALUE_BYTES = 24
};

struct search {
    const strait_run *run;
    strait_run *changed; // a copy, to try changes on
    strait_fit_measure measure;
    void *user;
    char *out;
    size_t used;
    int n;
};

/* One change: keys and their values as a run file would have them. */
struct change {
    const char *keys[SETS]; // NULL: fewer
    char values[SETS][VALUE_BYTES];
};

void strait_fit_bytes(double bytes, char out[32]) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    int i = 0;
    for (; bytes >= 1024.0 && i < 4; i++)
        bytes /= 1024.0;
    (void)snprintf(out, 32, bytes < 10.0 && i > 0 ? "%.1f %s" : "%.0f %s", bytes, units[i]);
}

/* Whether the run with this change is valid and fits. Values that other keys do not allow are no
 * suggestion, so errors only mean "no". */
static int fits(struct search *s, const struct change *change, double *needs) {
    double lacks = 0.0;
    *s->changed = *s->run;
    for (int i = 0; i < SETS && change->keys[i] != NULL; i++)
        if (strait_run_set(s->changed, change->keys[i], change->values[i]) != STRAIT_OK) return 0;
    return s->measure(s->user, s->changed, &lacks, needs) == STRAIT_OK && lacks <= 0.0;
}

static void list(struct search *s, const struct change *change, double needs) {
    char bytes[32], text[128] = "";
    for (int i = 0; i < SETS && change->keys[i] != NULL; i++) {
        const size_t n = strlen(text);
        (void)snprintf(text + n, sizeof text - n, "%s%s=%s", i > 0 ? " with " : "", change->keys[i],
                       change->values[i]);
    }
    strait_fit_bytes(needs, bytes);
    const int n = snprintf(s->out + s->used, STRAIT_FIT_TEXT - s->used, "%s%s (needs %s)",
                           s->n > 0 ? ", or " : "", text, bytes);
    if (n > 0 && s->used + (size_t)n < STRAIT_FIT_TEXT) s->used += (size_t)n;
    s->n++;
}

/* Lists the change if it is enough. */
static int consider(struct search *s, const struct change *change) {
    double needs = 0.0;
    if (s->n == CHANGES || !fits(s, change, &needs)) return 0;
    list(s, change, needs);
    return 1;
}

/* Halves `key` until the run fits, and returns the value; 0: none above `above` fits. Other values
 * may fit, too, but this one is easy to read. `recomputes` sets a second key. */
static int64_t halve(struct search *s, const char *key, int64_t value, int64_t above,
                     int recomputes) {
    struct change change = {.keys = {key, recomputes ? "train.recompute" : NULL},
                            .values = {"", "true"}};
    for (value /= 2; value > above; value /= 2) {
        (void)snprintf(change.values[0], VALUE_BYTES, "%lld", (long long)value);
        if (consider(s, &change)) return value;
    }
    return 0;
}

/* Sequences of a microbatch, or of a step where the program chooses. */
static int64_t sequences(const strait_run *run) {
    return run->stages.microbatch > 0 ? run->stages.microbatch
                                      : run->train.batch_tokens / run->model.context;
}

/* Doubles the number of stages, where each is on a machine of its own. */
static void add_stages(struct search *s) {
    struct change change = {.keys = {"stages.count"}};
    for (int64_t n = 2 * s->run->stages.count; n <= s->run->model.layers && n <= STRAIT_RUN_STAGES;
         n *= 2) {
        (void)snprintf(change.values[0], VALUE_BYTES, "%lld", (long long)n);
        if (consider(s, &change)) return;
    }
}

/* In the order of what they cost a user: time alone, then speed, then the model. */
static void search(struct search *s, int adds_stages) {
    const strait_run *run = s->run;
    const struct change recompute = {.keys = {"train.recompute"}, .values = {"true"}};
    const struct change vocab = {.keys = {"model.vocab"}, .values = {"0"}};
    const struct change precision = {.keys = {"device.precision"}, .values = {"bf16"}};
    const int recomputes = run->train.recompute;
    if (adds_stages) add_stages(s);
    if (!recomputes) (void)consider(s, &recompute);
    const int64_t n = halve(s, "stages.microbatch", sequences(run), 0, 0);
    if (n == 0 && !recomputes) (void)halve(s, "stages.microbatch", sequences(run), 0, 1);
    if (run->model.vocab > 0) {
        (void)consider(s, &vocab);
        (void)halve(s, "model.vocab", run->model.vocab, 0, 0);
    }
    if (run->device.precision != STRAIT_RUN_BF16 && run->device.precision != STRAIT_RUN_FP8)
        (void)consider(s, &precision);
    const int64_t layers = halve(s, "model.layers", run->model.layers, 0, 0);
    (void)halve(s, "model.context", run->model.context, 0, 0);
    const int64_t width = halve(s, "model.width", run->model.width, 0, 0);
    if (recomputes) return;
    (void)halve(s, "model.width", run->model.width, width, 1);
    (void)halve(s, "model.layers", run->model.layers, layers, 1);
}

strait_err strait_fit_microbatch(strait_run *run, strait_fit_measure measure, void *user) {
    const int64_t wanted = run->stages.microbatch;
    double lacks = 0.0, needs = 0.0;
    for (int64_t n = wanted; n > 0; n = strait_run_smaller_microbatch(run, n)) {
        run->stages.microbatch = n;
        STRAIT_TRY(measure(user, run, &lacks, &needs));
        if (lacks <= 0.0) return STRAIT_OK;
    }
    run->stages.microbatch = wanted;
    return STRAIT_OK;
}

void strait_fit_suggest(const strait_run *run, strait_fit_measure measure, void *user,
                        int adds_stages, char out[STRAIT_FIT_TEXT]) {
    void *memory = NULL;
    out[0] = '\0';
    if (strait_alloc(1, sizeof(strait_run), "run", &memory) != STRAIT_OK) return;
    struct search s = {.run = run, .changed = memory, .measure = measure, .user = user, .out = out};
    search(&s, adds_stages);
    strait_alloc_free(memory);
}
