#include "pipeline/worker.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "codec/subspace.h"
#include "pipeline/ferry.h"
#include "pipeline/sketch.h"

enum {
    TRACE_SPANS = 1 << 16 // of the newest moves
};

static strait_err plan_optimizer(const strait_recipe *recipe, int stage, strait_worker_memory *m) {
    struct strait_sketch sketch;
    STRAIT_TRY(strait_sketch_init(&sketch, recipe, stage));
    m->n_params = sketch.n_params;
    m->optimizer = strait_optimizer_bytes(sketch.optimizer);
    strait_sketch_fini(&sketch);
    return STRAIT_OK;
}

/* The codec halves of a stage. */
static strait_err plan_codecs(const strait_recipe *recipe, int stage, int n_slots, size_t *out) {
    for (int half = 0; half < 2; half++) {
        const int boundary = half == STRAIT_HEAD ? stage : stage - 1;
        size_t bytes = 0;
        if (boundary < 0 || boundary >= recipe->n_stages - 1) continue;
        const strait_codec_spec spec = strait_recipe_codec(recipe, boundary, n_slots);
        STRAIT_TRY(strait_codec_plan_bytes(&spec, (strait_half)half, &bytes));
        *out += bytes;
        if (recipe->room_bytes > 0) // a device that is not the host
            *out += strait_ferry_bytes(strait_codec_wire_bytes(&spec, STRAIT_FORWARD),
                                       strait_codec_wire_bytes(&spec, STRAIT_BACKWARD));
    }
    return STRAIT_OK;
}

strait_err strait_worker_plan(const strait_recipe *recipe, int stage, int n_slots,
                              strait_worker_memory *out) {
    const strait_stage_spec spec = strait_recipe_stage(recipe, stage, n_slots);
    strait_stage_memory model;
    STRAIT_TRY(strait_stage_plan(&spec, &model));
    strait_worker_memory memory = {.weights = model.weights,
                                   .gradients = model.gradients,
                                   .activations = model.activations + recipe->room_bytes,
                                   .data = strait_feed_bytes(recipe, n_slots)};
    STRAIT_TRY(plan_codecs(recipe, stage, n_slots, &memory.codecs));
    STRAIT_TRY(plan_optimizer(recipe, stage, &memory));
    memory.device = memory.weights + memory.gradients + memory.optimizer + memory.activations +
                    memory.codecs + strait_feed_device_bytes(recipe, n_slots);
    *out = memory;
    return STRAIT_OK;
}

static strait_err open_boundary(struct strait_worker *w, strait_half half,
                                struct strait_boundary **out) {
    const int boundary = half == STRAIT_HEAD ? w->stage : w->stage - 1;
    if (boundary < 0 || boundary >= w->recipe.n_stages - 1) return STRAIT_OK;
    const strait_boundary_spec spec = {
        .codec = strait_recipe_codec(&w->recipe, boundary, w->n_slots),
        .half = half,
        .n_microbatches = (int)w->recipe.n_microbatches,
        .n_valid = strait_feed_valid_batches(w->feed)};
    STRAIT_TRY(strait_boundary_open(&spec, w->backend, out));
    strait_boundary_watch(*out, strait_worker_look_up, w);
    return STRAIT_OK;
}

static struct strait_codec *codec_of(struct strait_boundary *boundary) {
    return boundary != NULL ? strait_boundary_codec(boundary) : NULL;
}

static void add_codec_params(struct strait_worker *w, const struct strait_codec *codec) {
    for (int i = 0; codec != NULL && i < codec->n_params; i++)
        w->params[w->n_params++] = codec->params[i];
}

/* One list for the optimizer: it does not care whose a weight is. A sketch has the same. */
static strait_err list_params(struct strait_worker *w) {
    int n = 0;
    const strait_param *model = strait_stage_params(w->model, &n);
    STRAIT_TRY(strait_alloc((size_t)n + (size_t)2 * STRAIT_CODEC_PARAMS, sizeof *w->params,
                            "parameter list", (void **)&w->params));
    add_codec_params(w, codec_of(w->tail));
    for (int i = 0; i < n; i++)
        w->params[w->n_params++] = model[i];
    add_codec_params(w, codec_of(w->head));
    return STRAIT_OK;
}

/* Codecs compute with copies of their parameters. */
static strait_err refresh_codecs(struct strait_worker *w) {
    struct strait_stream *stream = strait_stage_stream(w->model);
    if (w->tail != NULL) STRAIT_TRY(strait_codec_refresh(codec_of(w->tail), stream));
    return w->head != NULL ? strait_codec_refresh(codec_of(w->head), stream) : STRAIT_OK;
}

/* A codec that confines weights wants the first ones confined too. */
static strait_err confine(struct strait_worker *w) {
    int n = 0;
    strait_param *params = strait_stage_params(w->model, &n);
    if (w->head == NULL) return STRAIT_OK;
    struct strait_codec *codec = codec_of(w->head);
    if ((strait_codec_traits(&codec->spec) & STRAIT_CODEC_CONFINES) == 0) return STRAIT_OK;
    STRAIT_TRY(strait_codec_after_update(codec, strait_stage_stream(w->model), params, n));
    return strait_stage_refresh(w->model);
}

static strait_err open_into(struct strait_worker *w, const strait_run *run) {
    const strait_stage_spec spec = strait_recipe_stage(&w->recipe, w->stage, w->n_slots);
    STRAIT_TRY(strait_backend_open(strait_recipe_backend(run), &w->backend));
    STRAIT_TRY(strait_stage_open(&spec, w->backend, &w->model));
    STRAIT_TRY(open_boundary(w, STRAIT_TAIL, &w->tail));
    STRAIT_TRY(open_boundary(w, STRAIT_HEAD, &w->head));
    if (w->tail != NULL || w->head != NULL)
        STRAIT_TRY(strait_codec_join(codec_of(w->tail), codec_of(w->head)));
    if (w->head != NULL && w->recipe.shape.subspace > 0)
        STRAIT_TRY(strait_stage_lend(w->model, strait_subspace_basis(codec_of(w->head)),
                                     strait_subspace_fixed(codec_of(w->head))));
    STRAIT_TRY(list_params(w));
    const strait_optim_spec optim = strait_recipe_optim(&w->recipe, w->stage);
    STRAIT_TRY(strait_optimizer_open(&optim, w->backend, w->params, w->n_params, &w->optimizer));
    STRAIT_TRY(strait_feed_prepare(w->feed, w->backend, w->n_slots));
    if (w->head == NULL)
        STRAIT_TRY(w->backend->ops->alloc_host(
            w->backend, (size_t)(w->recipe.sequences * spec.seq_len) * sizeof *w->losses,
            (void **)&w->losses));
    STRAIT_TRY(w->backend->ops->alloc_host(w->backend, (size_t)w->n_params * sizeof *w->squares,
                                           (void **)&w->squares));
    return w->backend->ops->mark_open(w->backend, &w->measured);
}

strait_err strait_worker_open(const strait_run *run, const strait_recipe *recipe, int stage,
                              int n_slots, struct strait_feed *feed, struct strait_worker **out) {
    struct strait_worker *w = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *w, "worker", (void **)&w));
    w->recipe = *recipe;
    w->stage = stage;
    w->n_slots = n_slots;
    w->feed = feed;
    w->deadline_ms = (int)(run->link.deadline * 1e3);
    w->needs_tokens = strait_recipe_needs_tokens(recipe, stage) || stage == recipe->n_stages - 1;
    const strait_err err = open_into(w, run);
    if (err != STRAIT_OK) {
        strait_worker_close(&w);
        return err;
    }
    *out = w;
    return STRAIT_OK;
}

strait_err strait_worker_draw(struct strait_worker *w, uint64_t seed) {
    STRAIT_TRY(strait_stage_init(w->model, seed));
    STRAIT_TRY(confine(w));
    w->is_untouched = 1;
    return STRAIT_OK;
}

void strait_worker_close(struct strait_worker **worker) {
    struct strait_worker *w = *worker;
    if (w == NULL) return;
    if (w->model != NULL) // what is queued may use anything below
        (void)w->backend->ops->wait(strait_stage_stream(w->model));
    strait_trace_close(&w->trace);
    strait_optimizer_close(&w->optimizer);
    strait_boundary_close(&w->tail);
    strait_boundary_close(&w->head);
    strait_stage_close(&w->model);
    strait_alloc_free(w->params);
    if (w->losses != NULL) w->backend->ops->release_host(w->backend, w->losses);
    if (w->measured.backend != NULL) w->backend->ops->mark_close(&w->measured);
    if (w->squares != NULL) w->backend->ops->release_host(w->backend, w->squares);
    strait_feed_release(w->feed); // its room lies on our device
    strait_backend_close(&w->backend);
    strait_alloc_free(w);
    *worker = NULL;
}

void strait_worker_connect(struct strait_worker *worker, struct strait_mesh *mesh, int before,
                           int behind) {
    worker->mesh = mesh;
    if (worker->tail != NULL) strait_boundary_connect(worker->tail, mesh, before);
    if (worker->head != NULL) strait_boundary_connect(worker->head, mesh, behind);
}

strait_err strait_worker_trace_begin(struct strait_worker *worker) {
    strait_trace_close(&worker->trace);
    return strait_trace_open(TRACE_SPANS, &worker->trace);
}

strait_err strait_worker_trace_end(struct strait_worker *worker, const char *path) {
    const strait_err err = strait_trace_save(worker->trace, path);
    strait_trace_close(&worker->trace);
    return err;
}

const char *strait_worker_device(const struct strait_worker *worker) {
    return worker->backend->ops->describe(worker->backend);
}

size_t strait_worker_device_bytes(const struct strait_worker *worker) {
    const struct strait_backend_ops *ops = worker->backend->ops;
    return ops->used != NULL ? ops->used(worker->backend) : 0;
}

size_t strait_worker_device_spare(const struct strait_worker *worker) {
    const struct strait_backend_ops *ops = worker->backend->ops;
    return ops->spare != NULL ? ops->spare(worker->backend) : 0;
}

const float *strait_worker_squares(const struct strait_worker *worker, int *n) {
    *n = worker->n_params;
    return worker->squares;
}

int strait_worker_updates_itself(const struct strait_worker *worker) {
    return worker->recipe.n_stages == 1 && !worker->backend->ops->is_host &&
           strait_optimizer_is_guarded(worker->optimizer);
}

strait_err strait_worker_update_by_scale(struct strait_worker *w, int64_t step) {
    struct strait_stream *stream = strait_stage_stream(w->model);
    STRAIT_TRY(strait_optimizer_step(w->optimizer, stream, step + 1,
                                     strait_rate_factor(&w->recipe.rate, step)));
    STRAIT_TRY(refresh_codecs(w));
    return confine(w);
}

strait_err strait_worker_update(struct strait_worker *w, int64_t step, float factor) {
    const int64_t began = strait_clock_ns();
    struct strait_stream *stream = strait_stage_stream(w->model);
    const strait_tensor scale = strait_tensor_rows(strait_optimizer_scale(w->optimizer), 0, 1);
    STRAIT_TRY(w->backend->kernels->fill(stream, scale, factor));
    STRAIT_TRY(strait_worker_update_by_scale(w, step));
    const strait_trace_span span = {.name = "update",
                                    .stage = w->stage,
                                    .lane = STRAIT_LANE_COMPUTE,
                                    .microbatch = -1,
                                    .step = step,
                                    .start_ns = began,
                                    .end_ns = strait_clock_ns()};
    strait_trace_put(w->trace, &span);
    return STRAIT_OK;
}
