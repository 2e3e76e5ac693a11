#include "train/outlook/stage_times.h"

#include "backend/slab.h"
#include "base/clock.h"
#include "config/flops.h"

#include <stdio.h>

enum {
    TRIES = 3
};

/* A device with one part of the model on it. */
struct bench {
    struct strait_backend *backend;
    struct strait_stage *stage;
    struct strait_optimizer *optimizer;
    void *tokens; // zeros: token 0 everywhere
    int64_t rows;
};

/* The best of a few tries: everything that disturbs a measurement makes it longer. */
static void keep_best(double *best, double start) {
    const double seconds = strait_clock_seconds() - start;
    if (*best == 0 || seconds < *best) *best = seconds;
}

/* A GPU only queues work, so the clock is read after everything is done. */
static strait_err wait_for(const struct bench *b) {
    return b->backend->ops->wait(strait_stage_stream(b->stage));
}

static strait_tensor tokens_of(const struct bench *b) {
    return (strait_tensor){b->tokens, STRAIT_I32, b->rows, 1};
}

static strait_err try_forward(struct bench *b, int has_head, double *best) {
    strait_tensor losses;
    const double start = strait_clock_seconds();
    STRAIT_TRY(strait_stage_forward(b->stage, 0, tokens_of(b)));
    if (has_head) STRAIT_TRY(strait_stage_loss(b->stage, tokens_of(b), 1, &losses));
    STRAIT_TRY(wait_for(b));
    keep_best(best, start);
    return STRAIT_OK;
}

/* If the stage cannot defer weight gradients, input_s measures the whole backward pass. */
static strait_err try_backward(struct bench *b, int defers, strait_pipe_stage *best) {
    double start = strait_clock_seconds();
    STRAIT_TRY(strait_stage_backward(b->stage, 0, defers));
    STRAIT_TRY(strait_stage_backward_input(b->stage, 0));
    STRAIT_TRY(wait_for(b));
    keep_best(&best->input_s, start);
    if (!defers) return STRAIT_OK;
    start = strait_clock_seconds();
    STRAIT_TRY(strait_stage_backward_weights(b->stage, 0));
    STRAIT_TRY(wait_for(b));
    keep_best(&best->weights_s, start);
    return STRAIT_OK;
}

/* The step number must grow from 1: optimizers correct their bias with it. */
static strait_err try_update(struct bench *b, int64_t step, double *best) {
    struct strait_stream *stream = strait_stage_stream(b->stage);
    const double start = strait_clock_seconds();
    STRAIT_TRY(strait_optimizer_clip(b->optimizer, stream, step));
    STRAIT_TRY(strait_optimizer_step(b->optimizer, stream, step, 1));
    STRAIT_TRY(wait_for(b));
    keep_best(best, start);
    return STRAIT_OK;
}

/* The weights keep the zeros they were allocated with: time does not depend on values. */
static strait_err try_part(struct bench *b, const strait_run_plan *plan,
                           const strait_stage_spec *spec, strait_pipe_stage *out) {
    int n = 0;
    strait_pipe_stage best = {0};
    STRAIT_TRY(strait_stage_open(spec, b->backend, &b->stage));
    strait_param *params = strait_stage_params(b->stage, &n);
    STRAIT_TRY(strait_optimizer_open(&plan->optim, b->backend, params, n, &b->optimizer));
    for (int i = 0; i < TRIES; i++) {
        STRAIT_TRY(try_forward(b, spec->layers.last == spec->shape.layers, &best.forward_s));
        STRAIT_TRY(try_backward(b, spec->can_defer, &best));
        STRAIT_TRY(try_update(b, i + 1, &best.update_s));
    }
    if (!spec->can_defer) best.weights_s = best.input_s /= 2;
    *out = best;
    return STRAIT_OK;
}

/* Times the middle one of three layers, or the last of two with the head. */
static strait_err time_part(struct bench *b, const strait_run_plan *plan, int has_head,
                            strait_pipe_stage *out) {
    strait_stage_spec spec = strait_run_plan_stage(plan, 0, 1);
    spec.shape.layers = has_head ? 2 : 3;
    spec.layers = (strait_layer_range){1, 2};
    const strait_err err = try_part(b, plan, &spec, out);
    strait_optimizer_close(&b->optimizer);
    strait_stage_close(&b->stage);
    return err;
}

/* Both sides of a boundary and their buffers. */
struct crossing_bench {
    struct strait_codec *sender, *receiver;
    struct strait_slab slab;
    strait_tensor x, y, wire;
    strait_tensor tables[2]; // what the stages of sender and receiver have as token table
    strait_crossing at[2];
};

/* A codec may compute something of the whole token table once per step. Each try computes it again:
 * the other tries would find it done, and the best time would not contain it. */
static strait_err refresh(const struct bench *b, const struct crossing_bench *c) {
    STRAIT_TRY(strait_codec_refresh(c->sender, c->at[0].stream));
    STRAIT_TRY(strait_codec_refresh(c->receiver, c->at[1].stream));
    return b->backend->ops->wait(c->at[0].stream);
}

/* Only activations are measured; gradients are assumed to cost the same. */
static strait_err try_crossing(const struct bench *b, struct crossing_bench *c, double *best) {
    STRAIT_TRY(refresh(b, c));
    const double start = strait_clock_seconds();
    STRAIT_TRY(strait_codec_act_pack(c->sender, &c->at[0], c->wire, c->x));
    STRAIT_TRY(strait_codec_act_unpack(c->receiver, &c->at[1], c->y, c->wire));
    STRAIT_TRY(b->backend->ops->wait(c->at[0].stream));
    keep_best(best, start);
    return STRAIT_OK;
}

/* The first stage's token table is its embedding, which has a row for each token; tables of others
 * may have fewer. */
static strait_err add_tables(const strait_codec_spec *spec, struct crossing_bench *c) {
    const int64_t rows = spec->table_rows > 0 ? spec->table_rows : spec->vocab;
    if ((strait_codec_traits(spec) & STRAIT_CODEC_TABLE) == 0) return STRAIT_OK;
    STRAIT_TRY(strait_slab_add(&c->slab, spec->precision, spec->vocab, spec->cols, &c->tables[0]));
    return strait_slab_add(&c->slab, spec->precision, rows, spec->cols, &c->tables[1]);
}

/* Inputs are zeros: the time of a codec does not depend on values. */
static strait_err allocate(const struct bench *b, const strait_codec_spec *spec,
                           struct crossing_bench *c) {
    const int64_t width = strait_codec_width(spec);
    const int64_t bytes = (int64_t)strait_codec_wire_bytes(spec, STRAIT_FORWARD);
    STRAIT_TRY(strait_slab_add(&c->slab, spec->precision, b->rows, width, &c->x));
    STRAIT_TRY(strait_slab_add(&c->slab, spec->precision, b->rows, width, &c->y));
    STRAIT_TRY(strait_slab_add(&c->slab, STRAIT_I8, 1, bytes, &c->wire));
    STRAIT_TRY(add_tables(spec, c));
    return strait_slab_commit(&c->slab, b->backend);
}

/* Each side joins alone: in this benchmark there is no stage between them. */
static strait_err open_crossing(const struct bench *b, const strait_codec_spec *spec,
                                struct crossing_bench *c) {
    STRAIT_TRY(strait_codec_open(spec, STRAIT_SENDER, b->backend, &c->sender));
    STRAIT_TRY(strait_codec_open(spec, STRAIT_RECEIVER, b->backend, &c->receiver));
    STRAIT_TRY(strait_codec_join(NULL, c->sender));
    STRAIT_TRY(strait_codec_join(c->receiver, NULL));
    return allocate(b, spec, c);
}

static strait_err time_codec(const struct bench *b, const strait_run_plan *plan, double *out) {
    strait_codec_spec spec = strait_run_plan_codec(plan, 0, 1);
    spec.n_boundaries = 1; // so that neither side expects another boundary beside it
    struct crossing_bench c = {0};
    struct strait_stream stream = {0};
    double best = 0;
    STRAIT_TRY(b->backend->ops->stream_open(b->backend, &stream));
    strait_err err = open_crossing(b, &spec, &c);
    for (int side = 0; side < 2; side++)
        c.at[side] = (strait_crossing){
            .stream = &stream, .tokens = tokens_of(b), .table = c.tables[side], .input = c.x};
    for (int i = 0; i < TRIES && err == STRAIT_OK; i++)
        err = try_crossing(b, &c, &best);
    if (err == STRAIT_OK) *out = best / 2;
    strait_codec_close(&c.sender);
    strait_codec_close(&c.receiver);
    strait_slab_fini(&c.slab);
    b->backend->ops->stream_close(&stream);
    return err;
}

/* Two measurements differ by noise, and a negative cost would confuse the simulation. */
static double above(double a, double b) {
    return a > b ? a - b : 0;
}

/* The head is what the last layer with it takes longer than a layer without. */
static strait_err time_model(struct bench *b, const strait_run_plan *plan,
                             strait_stage_times *out) {
    strait_pipe_stage last;
    STRAIT_TRY(time_part(b, plan, 0, &out->block));
    STRAIT_TRY(time_part(b, plan, 1, &last));
    out->head = (strait_pipe_stage){.forward_s = above(last.forward_s, out->block.forward_s),
                                    .input_s = above(last.input_s, out->block.input_s),
                                    .weights_s = above(last.weights_s, out->block.weights_s),
                                    .update_s = above(last.update_s, out->block.update_s)};
    (void)snprintf(out->device, sizeof out->device, "%s: %s", b->backend->ops->name,
                   b->backend->ops->describe(b->backend));
    return STRAIT_OK;
}

static strait_err measure(struct bench *b, const strait_run *run, const strait_run_plan *plan,
                          int has_model, strait_stage_times *out) {
    strait_stage_times t = *out;
    STRAIT_TRY(strait_backend_open(strait_run_plan_backend(run, 0), &b->backend));
    b->rows = plan->microbatch * plan->shape.context;
    STRAIT_TRY(b->backend->ops->alloc(b->backend, (size_t)b->rows * sizeof(int32_t), &b->tokens));
    if (has_model) STRAIT_TRY(time_model(b, plan, &t));
    if (plan->n_stages > 1) STRAIT_TRY(time_codec(b, plan, &t.codec_s));
    *out = t;
    return STRAIT_OK;
}

static strait_err measure_here(const strait_run *run, const strait_run_plan *plan, int has_model,
                               strait_stage_times *out) {
    struct bench b = {0};
    const strait_err err = measure(&b, run, plan, has_model, out);
    if (b.backend != NULL) b.backend->ops->release(b.backend, b.tokens);
    strait_backend_close(&b.backend);
    return err;
}

strait_err strait_stage_times_measure(const strait_run *run, const strait_run_plan *plan,
                                      strait_stage_times *out) {
    strait_stage_times times = {0};
    STRAIT_TRY(measure_here(run, plan, 1, &times));
    *out = times;
    return STRAIT_OK;
}

strait_err strait_stage_times_measure_codec(const strait_run *run, const strait_run_plan *plan,
                                            strait_stage_times *times) {
    return measure_here(run, plan, 0, times);
}

static void scale(strait_pipe_stage *cost, double factor) {
    cost->forward_s *= factor;
    cost->input_s *= factor;
    cost->weights_s *= factor;
    cost->update_s *= factor;
}

void strait_stage_times_scale(strait_stage_times *times, double factor) {
    scale(&times->block, factor);
    scale(&times->head, factor);
    times->codec_s *= factor;
}

/* A training step has three products per weight, so each pass is a third. Recomputing adds another
 * forward pass to the backward one. */
strait_err strait_stage_times_estimate(const strait_run_plan *plan, double flops_per_s,
                                       strait_stage_times *out) {
    strait_shape one = plan->shape;
    double crossing = 0;
    STRAIT_TRY(strait_flops_crossing(plan, &crossing));
    one.layers = 1;
    const double tokens = (double)(plan->microbatch * plan->shape.context);
    const double head_flops = 6.0 * (double)one.vocab * one.width;
    const double block_s = (strait_shape_train_flops(&one) - head_flops) / 3 * tokens / flops_per_s;
    const double head_s = head_flops / 3 * tokens / flops_per_s;
    *out = (strait_stage_times){
        .block = {.forward_s = block_s,
                  .input_s = plan->recomputes ? 2 * block_s : block_s,
                  .weights_s = block_s},
        .head = {.forward_s = head_s, .input_s = head_s, .weights_s = head_s},
        .codec_s = crossing / 2 * tokens / flops_per_s};
    (void)snprintf(out->device, sizeof out->device, "%g GFLOP/s", flops_per_s / 1e9);
    return STRAIT_OK;
}
