#include "study/vision/vision.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/digest/hash.h"
#include "study/stable_rank.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    LATE = 10 // steps at the end whose losses are averaged
};

typedef struct training {
    const strait_vision_spec *spec;
    struct strait_tape *tape;
    float *moments; // first and second moments of all parameters
    int *labels;
    json_t *ranks;
    int64_t n_params;
    double first, late; // losses
} training;

/* AdamW without weight decay, with a linear warm-up over a tenth of the steps and a linear decay.
 */
static void update(training *t, int64_t step) {
    const double total = (double)t->spec->steps;
    const double shape = fmin(1.0, fmin(10.0 * (double)step / total, 1.1 - (double)step / total));
    const double rate = t->spec->learning_rate * shape;
    const double c1 = 1.0 - pow(0.9, (double)step);
    const double c2 = 1.0 - pow(0.99, (double)step);
    float *m = t->moments;
    float *v = t->moments + t->n_params;
    for (int i = 0; strait_tape_param_at(t->tape, i) >= 0; i++) {
        const int at = strait_tape_param_at(t->tape, i);
        const int n = strait_tape_rows(t->tape, at) * strait_tape_columns(t->tape, at);
        float *w = strait_tape_values(t->tape, at);
        const float *g = strait_tape_gradients(t->tape, at);
        for (int k = 0; k < n; k++, m++, v++) {
            *m = 0.9F * *m + 0.1F * g[k];
            *v = 0.99F * *v + 0.01F * g[k] * g[k];
            w[k] -= (float)(rate * (*m / c1) / (sqrt(*v / c2) + 1e-8));
        }
    }
}

static void note_ranks(training *t, int64_t step) {
    for (int i = 0; strait_tape_param_at(t->tape, i) >= 0; i++) {
        const int at = strait_tape_param_at(t->tape, i);
        strait_stable_rank_note(t->ranks, strait_tape_name(t->tape, at), step,
                                strait_stable_rank(strait_tape_values(t->tape, at),
                                                   strait_tape_rows(t->tape, at),
                                                   strait_tape_columns(t->tape, at)));
    }
}

static strait_err train(training *t) {
    const strait_vision_spec *s = t->spec;
    note_ranks(t, 0);
    for (int64_t step = 1; step <= s->steps; step++) {
        if (s->must_stop != NULL && s->must_stop(s->user))
            return STRAIT_FAIL(STRAIT_EINTERRUPTED, "%s: stopped at step %lld", s->name,
                               (long long)step);
        strait_vision_draw(s->seed, step, s->n_images, strait_tape_values(t->tape, 0), t->labels);
        const double loss = strait_tape_forward(t->tape, t->labels);
        if (step == 1) t->first = loss;
        if (step > s->steps - LATE) t->late += loss / LATE;
        strait_tape_backward(t->tape, t->labels);
        update(t, step);
        if (step % s->every == 0 || step == s->steps) note_ranks(t, step);
    }
    return STRAIT_OK;
}

static int64_t count_params(const struct strait_tape *tape) {
    int64_t n = 0;
    for (int i = 0; strait_tape_param_at(tape, i) >= 0; i++) {
        const int at = strait_tape_param_at(tape, i);
        n += (int64_t)strait_tape_rows(tape, at) * strait_tape_columns(tape, at);
    }
    return n;
}

static strait_err open_training(training *t) {
    void *memory = NULL;
    STRAIT_TRY(strait_vision_build(t->spec->name, t->spec->n_images, t->spec->seed, &t->tape));
    t->n_params = count_params(t->tape);
    STRAIT_TRY(strait_alloc((size_t)t->n_params * 2, sizeof(float), "moments", &memory));
    t->moments = memory;
    STRAIT_TRY(strait_alloc((size_t)t->spec->n_images, sizeof(int), "labels", &memory));
    t->labels = memory;
    return STRAIT_OK;
}

strait_err strait_vision_train(const strait_vision_spec *spec, json_t **out) {
    training t = {.spec = spec, .ranks = json_object()};
    const double began = strait_clock_seconds();
    strait_err err = open_training(&t);
    if (err == STRAIT_OK) err = train(&t);
    if (err == STRAIT_OK) {
        json_t *record = json_pack("{s:s,s:I,s:I,s:I,s:f,s:f,s:f}", "name", spec->name, "seed",
                                   (json_int_t)spec->seed, "steps", (json_int_t)spec->steps,
                                   "parameters", (json_int_t)t.n_params, "first_loss", t.first,
                                   "train_loss", t.late, "seconds", strait_clock_seconds() - began);
        if (record == NULL)
            err = STRAIT_FAIL(STRAIT_ENONFINITE, "%s: its loss is not finite", spec->name);
        if (record != NULL) (void)json_object_set(record, "stable_rank", t.ranks);
        if (record != NULL) *out = record;
    }
    json_decref(t.ranks);
    strait_alloc_free(t.moments);
    strait_alloc_free(t.labels);
    strait_tape_close(&t.tape);
    return err;
}

/* The key names everything that the training depends on; a change of the models changes `version`.
 */
static strait_err find_or_train(struct strait_results *results, const strait_vision_spec *spec,
                                json_t *records) {
    static const int version = 1;
    char text[128];
    char key[STRAIT_HASH_TEXT];
    json_t *record = NULL;
    (void)snprintf(text, sizeof text, "vision %d %s %lld %d %llu %g", version, spec->name,
                   (long long)spec->steps, spec->n_images, (unsigned long long)spec->seed,
                   spec->learning_rate);
    strait_hash_text(text, strlen(text), key);
    const json_t *known = strait_results_find(results, key);
    if (known != NULL) {
        (void)json_array_append(records, (json_t *)known);
        return STRAIT_OK;
    }
    STRAIT_TRY(strait_vision_train(spec, &record));
    (void)json_object_set_new(record, "key", json_string(key));
    const strait_err err = strait_results_add(results, record);
    (void)json_array_append_new(records, record);
    return err;
}

strait_err strait_vision_results(struct strait_results *results, int64_t steps,
                                 int (*must_stop)(void *user), void *user, json_t **out) {
    json_t *records = json_array();
    strait_err err = STRAIT_OK;
    for (int i = 0; strait_vision_name(i) != NULL && err == STRAIT_OK; i++) {
        const strait_vision_spec spec = {.name = strait_vision_name(i),
                                         .steps = steps,
                                         .every = steps / 20 > 0 ? steps / 20 : 1,
                                         .n_images = 16,
                                         .seed = 1,
                                         .learning_rate = 0.003,
                                         .must_stop = must_stop,
                                         .user = user};
        err = find_or_train(results, &spec, records);
    }
    *out = records; // what is there, also after an interruption
    return err;
}
