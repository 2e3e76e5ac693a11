#include "stage/boundary/crossing_log.h"

#include "base/alloc.h"

#include <assert.h>
#include <string.h>

/* One step of the ring. */
struct kept_step {
    int64_t step; // -1: unused
    int n_kept;   // microbatches
};

struct strait_crossing_log {
    strait_crossing_log_spec spec;
    int n_steps;
    struct kept_step *steps; // that of step s at s % n_steps
    unsigned char *is_kept;  // per place and microbatch
    uint16_t *bases;         // likewise
    unsigned char *data;     // likewise, message_bytes each
};

static size_t step_bytes(const strait_crossing_log_spec *spec) {
    return spec->message_bytes * (size_t)spec->n_microbatches;
}

int strait_crossing_log_steps(const strait_crossing_log_spec *spec) {
    const size_t fits = step_bytes(spec) > 0 ? spec->bytes_max / step_bytes(spec) : 0;
    return fits < STRAIT_CROSSING_STEPS_MAX ? (int)fits : STRAIT_CROSSING_STEPS_MAX;
}

size_t strait_crossing_log_bytes(const strait_crossing_log_spec *spec) {
    return (size_t)strait_crossing_log_steps(spec) * step_bytes(spec);
}

static strait_err open_into(struct strait_crossing_log *log) {
    const size_t n_places = (size_t)log->n_steps * (size_t)log->spec.n_microbatches;
    STRAIT_TRY(
        strait_alloc((size_t)log->n_steps, sizeof *log->steps, "kept steps", (void **)&log->steps));
    STRAIT_TRY(strait_alloc(n_places, 1, "kept crossings", (void **)&log->is_kept));
    STRAIT_TRY(strait_alloc(n_places, sizeof *log->bases, "kept crossings", (void **)&log->bases));
    /* Not zeroed: a run that ends early never touches most of it. */
    return strait_alloc_unset(n_places, log->spec.message_bytes, "kept crossings",
                              (void **)&log->data);
}

strait_err strait_crossing_log_open(const strait_crossing_log_spec *spec,
                                    struct strait_crossing_log **out) {
    struct strait_crossing_log *log = NULL;
    if (strait_crossing_log_steps(spec) == 0)
        return STRAIT_FAIL(STRAIT_EINVAL, "a log of crossings must hold at least one step");
    STRAIT_TRY(strait_alloc(1, sizeof *log, "log of crossings", (void **)&log));
    log->spec = *spec;
    log->n_steps = strait_crossing_log_steps(spec);
    const strait_err err = open_into(log);
    if (err != STRAIT_OK) {
        strait_crossing_log_close(&log);
        return err;
    }
    strait_crossing_log_clear(log);
    *out = log;
    return STRAIT_OK;
}

void strait_crossing_log_close(struct strait_crossing_log **log) {
    if (*log == NULL) return;
    strait_alloc_free((*log)->steps);
    strait_alloc_free((*log)->is_kept);
    strait_alloc_free((*log)->bases);
    strait_alloc_free((*log)->data);
    strait_alloc_free(*log);
    *log = NULL;
}

static int place_of(const struct strait_crossing_log *log, int64_t step) {
    return (int)(step % log->n_steps);
}

/* Index of a microbatch in the arrays. */
static size_t entry_of(const struct strait_crossing_log *log, int64_t step, int microbatch) {
    return (size_t)place_of(log, step) * (size_t)log->spec.n_microbatches + (size_t)microbatch;
}

static int is_held(const struct strait_crossing_log *log, int64_t step) {
    return step >= 0 && log->steps[place_of(log, step)].step == step;
}

/* Later steps belong to values that are computed again. */
void strait_crossing_log_begin(struct strait_crossing_log *log, int64_t step) {
    assert(step >= 0);
    for (int i = 0; i < log->n_steps; i++)
        if (log->steps[i].step > step) log->steps[i].step = -1;
    log->steps[place_of(log, step)] = (struct kept_step){.step = step};
    memset(log->is_kept + entry_of(log, step, 0), 0, (size_t)log->spec.n_microbatches);
}

void strait_crossing_log_put(struct strait_crossing_log *log, int64_t step, int microbatch,
                             uint16_t basis, const void *data) {
    if (!is_held(log, step)) return;
    assert(microbatch >= 0 && microbatch < log->spec.n_microbatches);
    const size_t entry = entry_of(log, step, microbatch);
    memcpy(log->data + entry * log->spec.message_bytes, data, log->spec.message_bytes);
    log->bases[entry] = basis;
    log->steps[place_of(log, step)].n_kept += !log->is_kept[entry];
    log->is_kept[entry] = 1;
}

void strait_crossing_log_clear(struct strait_crossing_log *log) {
    for (int i = 0; i < log->n_steps; i++)
        log->steps[i] = (struct kept_step){.step = -1};
}

strait_crossing_view strait_crossing_log_find(const struct strait_crossing_log *log, int64_t step,
                                              int microbatch) {
    strait_crossing_view view = {0};
    if (!is_held(log, step) || microbatch < 0 || microbatch >= log->spec.n_microbatches)
        return view;
    const size_t entry = entry_of(log, step, microbatch);
    if (!log->is_kept[entry]) return view;
    view.data = log->data + entry * log->spec.message_bytes;
    view.bytes = log->spec.message_bytes;
    view.basis = log->bases[entry];
    return view;
}

int strait_crossing_log_holds(const struct strait_crossing_log *log, int64_t step) {
    return is_held(log, step);
}

int strait_crossing_log_has(const struct strait_crossing_log *log, int64_t step) {
    return is_held(log, step) && log->steps[place_of(log, step)].n_kept == log->spec.n_microbatches;
}

int64_t strait_crossing_log_first(const struct strait_crossing_log *log, int64_t until) {
    int64_t first = until;
    while (first > 0 && strait_crossing_log_has(log, first - 1))
        first--;
    return first;
}

strait_err strait_crossing_log_hash(const struct strait_crossing_log *log, int64_t step,
                                    strait_digest *out) {
    struct strait_sha256 *hash = NULL;
    if (!strait_crossing_log_has(log, step))
        return STRAIT_FAIL(STRAIT_EPROTO, "the crossings of step %lld are no longer kept",
                           (long long)step);
    STRAIT_TRY(strait_sha256_open(&hash));
    /* The microbatches of a step lie one after the other. */
    const strait_err err = strait_sha256_add(
        hash, log->data + entry_of(log, step, 0) * log->spec.message_bytes, step_bytes(&log->spec));
    if (err == STRAIT_OK) return strait_sha256_finish(&hash, out);
    strait_sha256_close(&hash);
    return err;
}
