#include "stage/runner.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "codec/basis.h"
#include "config/dry_run.h"
#include "stage/staging.h"

enum {
    TRACE_SPANS = 1 << 16 // of the newest moves
};

static strait_err plan_optimizer(const strait_run_plan *plan, int stage, strait_runner_memory *m) {
    struct strait_dry_run dry_run;
    STRAIT_TRY(strait_dry_run_init(&dry_run, plan, stage));
    m->n_params = dry_run.n_params;
    m->optimizer = strait_optimizer_bytes(dry_run.optimizer);
    strait_dry_run_fini(&dry_run);
    return STRAIT_OK;
}

/* The codec halves of a stage. */
static strait_err plan_codecs(const strait_run_plan *plan, int stage, int n_slots, size_t *out) {
    for (int side = 0; side < 2; side++) {
        const int boundary = side == STRAIT_SENDER ? stage : stage - 1;
        size_t bytes = 0;
        if (boundary < 0 || boundary >= plan->n_stages - 1) continue;
        const strait_codec_spec spec = strait_run_plan_codec(plan, boundary, n_slots);
        STRAIT_TRY(strait_codec_plan_bytes(&spec, (strait_codec_side)side, &bytes));
        *out += bytes;
        if (plan->scratch_bytes > 0) // a device that is not the host
            *out += strait_staging_bytes(strait_codec_wire_bytes(&spec, STRAIT_FORWARD),
                                         strait_codec_wire_bytes(&spec, STRAIT_BACKWARD));
    }
    return STRAIT_OK;
}

strait_err strait_runner_plan(const strait_run_plan *plan, int stage, int n_slots,
                              strait_runner_memory *out) {
    const strait_stage_spec spec = strait_run_plan_stage(plan, stage, n_slots);
    strait_stage_memory model;
    STRAIT_TRY(strait_stage_plan(&spec, &model));
    strait_runner_memory memory = {.weights = model.weights,
                                   .gradients = model.gradients,
                                   .activations = model.activations + plan->scratch_bytes,
                                   .data = strait_loader_bytes(plan, n_slots)};
    STRAIT_TRY(plan_codecs(plan, stage, n_slots, &memory.codecs));
    STRAIT_TRY(plan_optimizer(plan, stage, &memory));
    memory.device = memory.weights + memory.gradients + memory.optimizer + memory.activations +
                    memory.codecs + strait_loader_device_bytes(plan, n_slots);
    *out = memory;
    return STRAIT_OK;
}

static strait_err open_boundary(struct strait_runner *w, strait_codec_side side,
                                struct strait_boundary **out) {
    const int boundary = side == STRAIT_SENDER ? w->stage : w->stage - 1;
    if (boundary < 0 || boundary >= w->plan.n_stages - 1) return STRAIT_OK;
    const strait_boundary_spec spec = {
        .codec = strait_run_plan_codec(&w->plan, boundary, w->n_slots),
        .side = side,
        .n_microbatches = (int)w->plan.n_microbatches,
        .n_valid = strait_loader_valid_batches(w->loader)};
    STRAIT_TRY(strait_boundary_open(&spec, w->backend, out));
    strait_boundary_set_poll(*out, strait_runner_poll_waiting, w);
    return STRAIT_OK;
}

static struct strait_codec *codec_of(struct strait_boundary *boundary) {
    return boundary != NULL ? strait_boundary_codec(boundary) : NULL;
}

static void add_codec_params(struct strait_runner *w, const struct strait_codec *codec) {
    for (int i = 0; codec != NULL && i < codec->n_params; i++)
        w->params[w->n_params++] = codec->params[i];
}

/* One list for the optimizer: it does not care whose a weight is. A sketch has the same. */
static strait_err list_params(struct strait_runner *w) {
    int n = 0;
    const strait_param *model = strait_stage_params(w->model, &n);
    STRAIT_TRY(strait_alloc((size_t)n + (size_t)2 * STRAIT_CODEC_PARAMS, sizeof *w->params,
                            "parameter list", (void **)&w->params));
    add_codec_params(w, codec_of(w->receiver));
    for (int i = 0; i < n; i++)
        w->params[w->n_params++] = model[i];
    add_codec_params(w, codec_of(w->sender));
    return STRAIT_OK;
}

/* Codecs compute with copies of their parameters. */
static strait_err refresh_codecs(struct strait_runner *w) {
    struct strait_stream *stream = strait_stage_stream(w->model);
    if (w->receiver != NULL) STRAIT_TRY(strait_codec_refresh(codec_of(w->receiver), stream));
    return w->sender != NULL ? strait_codec_refresh(codec_of(w->sender), stream) : STRAIT_OK;
}

/* A codec that confines weights wants the first ones confined too. */
static strait_err confine(struct strait_runner *w) {
    int n = 0;
    strait_param *params = strait_stage_params(w->model, &n);
    if (w->sender == NULL) return STRAIT_OK;
    struct strait_codec *codec = codec_of(w->sender);
    if ((strait_codec_traits(&codec->spec) & STRAIT_CODEC_CONFINES) == 0) return STRAIT_OK;
    STRAIT_TRY(strait_codec_after_update(codec, strait_stage_stream(w->model), params, n));
    return strait_stage_refresh(w->model);
}

static strait_err open_into(struct strait_runner *w, const strait_run *run) {
    const strait_stage_spec spec = strait_run_plan_stage(&w->plan, w->stage, w->n_slots);
    STRAIT_TRY(strait_backend_open(strait_run_plan_backend(run), &w->backend));
    STRAIT_TRY(strait_stage_open(&spec, w->backend, &w->model));
    STRAIT_TRY(open_boundary(w, STRAIT_RECEIVER, &w->receiver));
    STRAIT_TRY(open_boundary(w, STRAIT_SENDER, &w->sender));
    if (w->receiver != NULL || w->sender != NULL)
        STRAIT_TRY(strait_codec_join(codec_of(w->receiver), codec_of(w->sender)));
    if (w->sender != NULL && w->plan.shape.subspace > 0) {
        strait_tensor basis, fixed;
        STRAIT_TRY(strait_codec_basis_view(codec_of(w->sender), &basis, &fixed));
        STRAIT_TRY(strait_stage_set_basis(w->model, basis, fixed));
    }
    STRAIT_TRY(list_params(w));
    const strait_optim_spec optim = strait_run_plan_optim(&w->plan, w->stage);
    STRAIT_TRY(strait_optimizer_open(&optim, w->backend, w->params, w->n_params, &w->optimizer));
    STRAIT_TRY(strait_loader_prepare(w->loader, w->backend, w->n_slots));
    if (w->sender == NULL)
        STRAIT_TRY(w->backend->ops->alloc_host(
            w->backend, (size_t)(w->plan.sequences * spec.seq_len) * sizeof *w->losses,
            (void **)&w->losses));
    STRAIT_TRY(w->backend->ops->alloc_host(w->backend, (size_t)w->n_params * sizeof *w->squares,
                                           (void **)&w->squares));
    return w->backend->ops->event_open(w->backend, &w->measured);
}

strait_err strait_runner_open(const strait_run *run, const strait_run_plan *plan, int stage,
                              int n_slots, struct strait_loader *loader,
                              struct strait_runner **out) {
    struct strait_runner *w = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *w, "worker", (void **)&w));
    w->plan = *plan;
    w->stage = stage;
    w->n_slots = n_slots;
    w->loader = loader;
    w->deadline_ms = (int)(run->link.deadline * 1e3);
    w->needs_tokens = strait_run_plan_needs_tokens(plan, stage) || stage == plan->n_stages - 1;
    const strait_err err = open_into(w, run);
    if (err != STRAIT_OK) {
        strait_runner_close(&w);
        return err;
    }
    *out = w;
    return STRAIT_OK;
}

strait_err strait_runner_init_weights(struct strait_runner *w, uint64_t seed) {
    STRAIT_TRY(strait_stage_init(w->model, seed));
    STRAIT_TRY(confine(w));
    w->is_untouched = 1;
    return STRAIT_OK;
}

void strait_runner_close(struct strait_runner **worker) {
    struct strait_runner *w = *worker;
    if (w == NULL) return;
    if (w->model != NULL) // what is queued may use anything below
        (void)w->backend->ops->wait(strait_stage_stream(w->model));
    strait_trace_close(&w->trace);
    strait_optimizer_close(&w->optimizer);
    strait_boundary_close(&w->receiver);
    strait_boundary_close(&w->sender);
    strait_stage_close(&w->model);
    strait_alloc_free(w->params);
    if (w->losses != NULL) w->backend->ops->release_host(w->backend, w->losses);
    if (w->measured.backend != NULL) w->backend->ops->event_close(&w->measured);
    if (w->squares != NULL) w->backend->ops->release_host(w->backend, w->squares);
    strait_loader_release(w->loader); // its room lies on our device
    strait_backend_close(&w->backend);
    strait_alloc_free(w);
    *worker = NULL;
}

void strait_runner_connect(struct strait_runner *worker, struct strait_mesh *mesh, int prev,
                           int next) {
    worker->mesh = mesh;
    if (worker->receiver != NULL) strait_boundary_connect(worker->receiver, mesh, prev);
    if (worker->sender != NULL) strait_boundary_connect(worker->sender, mesh, next);
}

void strait_runner_reset(struct strait_runner *worker, int64_t step) {
    if (worker->receiver != NULL) strait_boundary_reset(worker->receiver, step);
    if (worker->sender != NULL) strait_boundary_reset(worker->sender, step);
}

strait_err strait_runner_trace_begin(struct strait_runner *worker) {
    strait_trace_close(&worker->trace);
    return strait_trace_open(TRACE_SPANS, &worker->trace);
}

strait_err strait_runner_trace_end(struct strait_runner *worker, const char *path) {
    const strait_err err = strait_trace_save(worker->trace, path);
    strait_trace_close(&worker->trace);
    return err;
}

const char *strait_runner_device(const struct strait_runner *worker) {
    return worker->backend->ops->describe(worker->backend);
}

size_t strait_runner_device_bytes(const struct strait_runner *worker) {
    const struct strait_backend_ops *ops = worker->backend->ops;
    return ops->peak_bytes != NULL ? ops->peak_bytes(worker->backend) : 0;
}

size_t strait_runner_device_spare(const struct strait_runner *worker) {
    const struct strait_backend_ops *ops = worker->backend->ops;
    return ops->free_bytes != NULL ? ops->free_bytes(worker->backend) : 0;
}

const float *strait_runner_squares(const struct strait_runner *worker, int *n) {
    *n = worker->n_params;
    return worker->squares;
}

int strait_runner_updates_itself(const struct strait_runner *worker) {
    return worker->plan.n_stages == 1 && !worker->backend->ops->is_host &&
           strait_optimizer_checks_norm(worker->optimizer);
}

strait_err strait_runner_update_by_scale(struct strait_runner *w, int64_t step) {
    struct strait_stream *stream = strait_stage_stream(w->model);
    STRAIT_TRY(strait_optimizer_step(w->optimizer, stream, step + 1,
                                     strait_lr_schedule_factor(&w->plan.rate, step)));
    STRAIT_TRY(refresh_codecs(w));
    return confine(w);
}

strait_err strait_runner_update(struct strait_runner *w, int64_t step, float factor) {
    const int64_t began = strait_clock_ns();
    struct strait_stream *stream = strait_stage_stream(w->model);
    const strait_tensor scale = strait_tensor_rows(strait_optimizer_scale(w->optimizer), 0, 1);
    STRAIT_TRY(w->backend->kernels->fill(stream, scale, factor));
    STRAIT_TRY(strait_runner_update_by_scale(w, step));
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
