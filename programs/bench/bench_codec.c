/* bench_codec.c - strait bench codec: the cost of the two boundaries of a stage in the middle, with
 * codecs that compress about 100 and 128 times. The stage unpacks what it receives and packs what
 * it sends, forward and backward; the sum is compared with the stage's own work. */
#include "bench.h"
#include "train/outlook/stage_times.h"

#include <stdio.h>
#include <string.h>

/* A codec and its compression ratio. */
typedef struct candidate {
    const char *label, *name, *variant;
    int64_t times;
    int bits;
    int has_gates;
} candidate;

static const candidate candidates[] = {
    {"subspace 100x", "subspace", "full", 100, 16, 0},
    {"subspace 128x", "subspace", "full", 128, 16, 0},
    {"resbm 100x", "resbm", "a", 100, 16, 0},
    {"resbm 128x", "resbm", "a", 128, 16, 0},
    {"strait 128x", "strait", "context", 128, 4, 1}, // the default of run files
    {"strait bare 128x", "strait", "context", 128, 4, 0},
    {"strait tied 128x", "strait", "tied", 128, 4, 0},
};

/* The codec sides of a stage between boundary 0 and boundary 1. */
struct middle {
    struct strait_codec *receiver, *sender;
    struct strait_slab slab;
    strait_tensor x, y, d, tokens;
    strait_tensor wire[2]; // by direction
    strait_crossing at;
    int n_crossings;
};

typedef struct costs {
    strait_lab_time unpack, pack, grad_unpack, input_grad, grad_pack, weights;
} costs;

/* Alternates between slots, as a run with several microbatches in flight does. */
static const strait_crossing *next(struct middle *m) {
    m->at.slot = m->n_crossings++ % 2;
    return &m->at;
}

static strait_err call_unpack(struct strait_lab *lab, void *arg) {
    struct middle *m = arg;
    (void)lab;
    return strait_codec_act_unpack(m->receiver, next(m), m->x, m->wire[STRAIT_FORWARD]);
}

static strait_err call_pack(struct strait_lab *lab, void *arg) {
    struct middle *m = arg;
    (void)lab;
    return strait_codec_act_pack(m->sender, next(m), m->wire[STRAIT_FORWARD], m->y);
}

static strait_err call_grad_unpack(struct strait_lab *lab, void *arg) {
    struct middle *m = arg;
    (void)lab;
    return strait_codec_grad_unpack(m->sender, next(m), m->y, m->wire[STRAIT_BACKWARD]);
}

static strait_err call_input_grad(struct strait_lab *lab, void *arg) {
    struct middle *m = arg;
    (void)lab;
    return strait_codec_input_grad(m->sender, next(m), m->d);
}

static strait_err call_grad_pack(struct strait_lab *lab, void *arg) {
    struct middle *m = arg;
    (void)lab;
    return strait_codec_grad_pack(m->receiver, next(m), m->wire[STRAIT_BACKWARD], m->d);
}

/* Gradients of weights are off the critical path, so they are reported apart from the crossings. */
static strait_err call_weights(struct strait_lab *lab, void *arg) {
    struct middle *m = arg;
    (void)lab;
    STRAIT_TRY(strait_codec_param_grads(m->sender, &m->at));
    return strait_codec_param_grads(m->receiver, &m->at);
}

/* Three boundaries, so that the stage between the first two has neighbours on both sides. */
static strait_codec_spec spec_of(const struct strait_lab *lab, const candidate *which) {
    const strait_shape *s = &lab->plan.shape;
    strait_codec_spec spec = {.rows = lab->rows,
                              .cols = s->width,
                              .vocab = s->vocab,
                              .bits = which->bits,
                              .has_gates = which->has_gates,
                              .seq_len = s->context,
                              .widest = strait_shape_mlp_cols(s),
                              .n_boundaries = 3,
                              .n_slots = 2,
                              .precision = s->precision,
                              .seed = 1};
    (void)snprintf(spec.name, sizeof spec.name, "%s", which->name);
    (void)snprintf(spec.variant, sizeof spec.variant, "%s", which->variant);
    return spec;
}

/* Sets the largest keep, at least 1, with which a token takes the bytes of a bf16 stream divided by
 * `times`. The scale of a whole message, a few bytes, is not counted. */
static strait_err fit_keep(strait_codec_spec *spec, int64_t times) {
    const size_t bytes = (size_t)(2 * spec->cols / times * spec->rows) + sizeof(float);
    const strait_codec_spec base = *spec;
    for (int64_t keep = base.cols; keep > 0; keep--) {
        *spec = base;
        spec->keep = keep;
        STRAIT_TRY(strait_codec_check(spec));
        if (strait_codec_wire_bytes(spec, STRAIT_FORWARD) <= bytes) break;
    }
    return STRAIT_OK;
}

/* The letters describe three activations and the token ids; see strait_lab_size. */
static strait_err open_middle(struct strait_lab *lab, strait_codec_spec *spec, struct middle *m) {
    STRAIT_TRY(strait_codec_open(spec, STRAIT_RECEIVER, lab->backend, &m->receiver));
    spec->boundary = 1;
    STRAIT_TRY(strait_codec_open(spec, STRAIT_SENDER, lab->backend, &m->sender));
    STRAIT_TRY(strait_codec_join(m->receiver, m->sender));
    STRAIT_TRY(strait_lab_plan(lab, "1and 1and 1and 1in1"));
    for (int direction = 0; direction < 2; direction++) {
        const size_t bytes = strait_codec_wire_bytes(spec, (strait_direction)direction);
        STRAIT_TRY(strait_slab_add(&m->slab, STRAIT_I8, 1, (int64_t)bytes, &m->wire[direction]));
    }
    STRAIT_TRY(strait_slab_commit(&m->slab, lab->backend));
    STRAIT_TRY(strait_lab_make(lab));
    m->x = lab->t[0];
    m->y = lab->t[1];
    m->d = lab->t[2];
    m->at = (strait_crossing){
        .stream = &lab->stream, .tokens = lab->t[3], .table = m->x, .input = m->x};
    return STRAIT_OK;
}

/* The sender packs first, so that the receiver has something to unpack. */
static strait_err measure(struct strait_lab *lab, struct middle *m, costs *out) {
    STRAIT_TRY(strait_lab_measure(lab, call_pack, m, &out->pack));
    STRAIT_TRY(strait_lab_measure(lab, call_unpack, m, &out->unpack));
    STRAIT_TRY(strait_lab_measure(lab, call_grad_pack, m, &out->grad_pack));
    STRAIT_TRY(strait_lab_measure(lab, call_grad_unpack, m, &out->grad_unpack));
    STRAIT_TRY(strait_lab_measure(lab, call_input_grad, m, &out->input_grad));
    STRAIT_TRY(call_grad_pack(lab, m)); // parameter gradients read its result
    return strait_lab_measure(lab, call_weights, m, &out->weights);
}

static void print_line(const struct strait_lab *lab, const candidate *which,
                       const strait_codec_spec *spec, const costs *c, double stage_s) {
    const double crossings = c->unpack.median_s + c->pack.median_s + c->grad_unpack.median_s +
                             c->input_grad.median_s + c->grad_pack.median_s;
    const double all = crossings + c->weights.median_s;
    const double bytes = (double)strait_codec_wire_bytes(spec, STRAIT_FORWARD) / (double)lab->rows;
    printf("{\"bench\": \"codec\", \"codec\": \"%s\", \"keep\": %lld, \"bits\": %d, "
           "\"bytes_per_token\": %.2f, \"times\": %.1f, \"rows\": %lld, \"width\": %lld, "
           "\"unpack_us\": %.2f, \"pack_us\": %.2f, \"grad_unpack_us\": %.2f, "
           "\"input_grad_us\": %.2f, \"grad_pack_us\": %.2f, \"crossings_us\": %.2f, "
           "\"weights_us\": %.2f, \"stage_us\": %.1f, \"share\": %.5f, "
           "\"share_with_weights\": %.5f}\n",
           which->label, (long long)spec->keep, spec->bits, bytes, 2.0 * (double)spec->cols / bytes,
           (long long)lab->rows, (long long)spec->cols, c->unpack.median_s * 1e6,
           c->pack.median_s * 1e6, c->grad_unpack.median_s * 1e6, c->input_grad.median_s * 1e6,
           c->grad_pack.median_s * 1e6, crossings * 1e6, c->weights.median_s * 1e6, stage_s * 1e6,
           crossings / (stage_s + all), all / (stage_s + all));
    (void)fflush(stdout);
}

static strait_err bench_one(struct strait_lab *lab, const candidate *which, double stage_s) {
    struct middle m = {0};
    costs seen = {0};
    strait_codec_spec spec = spec_of(lab, which);
    strait_err err = fit_keep(&spec, which->times);
    if (err == STRAIT_OK) err = open_middle(lab, &spec, &m);
    if (err == STRAIT_OK) err = measure(lab, &m, &seen);
    if (err == STRAIT_OK) print_line(lab, which, &spec, &seen, stage_s);
    strait_codec_close(&m.sender);
    strait_codec_close(&m.receiver);
    strait_slab_fini(&m.slab);
    strait_lab_clear(lab);
    return err;
}

static int is_wanted(const candidate *which, const char *only) {
    return only == NULL || strstr(which->label, only) != NULL;
}

/* A filter without a match is a mistake, not an empty result. */
static strait_err look_for(const char *only) {
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++)
        if (is_wanted(&candidates[i], only)) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG,
                       "--only '%s': no codec of this benchmark has that in its name", only);
}

static strait_err bench_all(struct strait_lab *lab, const char *only, double stage_s) {
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++)
        if (is_wanted(&candidates[i], only)) STRAIT_TRY(bench_one(lab, &candidates[i], stage_s));
    return STRAIT_OK;
}

/* A stage's share of the layers, forward, backward and update. */
static double stage_seconds(const strait_run_plan *plan, const strait_stage_times *times) {
    const strait_pipe_stage *b = &times->block;
    return (b->forward_s + b->input_s + b->weights_s + b->update_s) * (double)plan->shape.layers /
           (double)plan->n_stages;
}

strait_err strait_bench_codec(const strait_run *run, int repeats, const char *only) {
    static struct strait_lab lab; // large, and there is one
    strait_stage_times times;
    strait_run_plan plan;
    STRAIT_TRY(strait_run_plan_init(run, run->model.vocab, &plan));
    if (plan.n_stages < 2)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "bench codec: stages.count is 1, and one stage has no boundary; use "
                           "--set stages.count=4");
    STRAIT_TRY(look_for(only));
    STRAIT_TRY(strait_stage_times_measure(run, &plan, &times));
    strait_err err = strait_lab_open(&lab, run, repeats);
    if (err == STRAIT_OK) err = bench_all(&lab, only, stage_seconds(&plan, &times));
    strait_lab_close(&lab);
    return err;
}
