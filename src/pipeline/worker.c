#include "pipeline/worker.h"

#include "base/alloc.h"

#include <math.h>

struct strait_worker {
    strait_recipe recipe;
    struct strait_backend *backend;
    struct strait_stage *stage;
    struct strait_optimizer *optimizer;
    struct strait_feed *feed; // borrowed
    float *losses;            // of one microbatch, on the host
    float *squares;           // one a parameter, on the host
    int n_params;
};

static strait_err plan_optimizer(const strait_recipe *recipe, const strait_stage_spec *spec,
                                 size_t *out) {
    struct strait_weights weights = {0};
    strait_err err = strait_weights_plan(&spec->shape, spec->part, 1, &weights);
    if (err == STRAIT_OK)
        err = strait_optimizer_plan(&recipe->optim, weights.params, weights.n_params, out);
    strait_weights_fini(&weights);
    return err;
}

strait_err strait_worker_plan(const strait_run *run, const strait_recipe *recipe,
                              strait_worker_memory *out) {
    const strait_stage_spec spec = strait_recipe_stage(recipe, run->train.is_recomputed);
    strait_stage_memory stage;
    STRAIT_TRY(strait_stage_plan(&spec, &stage));
    strait_worker_memory memory = {.weights = stage.weights,
                                   .gradients = stage.gradients,
                                   .activations = stage.activations,
                                   .data = strait_feed_bytes(recipe, spec.n_slots)};
    STRAIT_TRY(plan_optimizer(recipe, &spec, &memory.optimizer));
    *out = memory;
    return STRAIT_OK;
}

static strait_err open_into(struct strait_worker *w, const strait_run *run) {
    const strait_stage_spec spec = strait_recipe_stage(&w->recipe, run->train.is_recomputed);
    STRAIT_TRY(strait_backend_open(strait_recipe_backend(run), &w->backend));
    STRAIT_TRY(strait_stage_open(&spec, w->backend, &w->stage));
    strait_param *params = strait_stage_params(w->stage, &w->n_params);
    STRAIT_TRY(
        strait_optimizer_open(&w->recipe.optim, w->backend, params, w->n_params, &w->optimizer));
    STRAIT_TRY(strait_feed_prepare(w->feed, &w->recipe, w->backend, spec.n_slots));
    STRAIT_TRY(strait_alloc((size_t)(spec.n_sequences * spec.seq_len), sizeof *w->losses, "losses",
                            (void **)&w->losses));
    STRAIT_TRY(strait_alloc((size_t)w->n_params, sizeof *w->squares, "gradient norms",
                            (void **)&w->squares));
    return strait_stage_init(w->stage, (uint64_t)run->train.seed);
}

strait_err strait_worker_open(const strait_run *run, const strait_recipe *recipe,
                              struct strait_feed *feed, struct strait_worker **out) {
    struct strait_worker *w = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *w, "worker", (void **)&w));
    w->recipe = *recipe;
    w->feed = feed;
    const strait_err err = open_into(w, run);
    if (err != STRAIT_OK) {
        strait_worker_close(&w);
        return err;
    }
    *out = w;
    return STRAIT_OK;
}

void strait_worker_close(struct strait_worker **worker) {
    struct strait_worker *w = *worker;
    if (w == NULL) return;
    strait_optimizer_close(&w->optimizer);
    strait_stage_close(&w->stage);
    strait_alloc_free(w->losses);
    strait_alloc_free(w->squares);
    /* The feed's room lies on our device. */
    if (w->feed != NULL) strait_feed_release(w->feed);
    strait_backend_close(&w->backend);
    strait_alloc_free(w);
    *worker = NULL;
}

const char *strait_worker_device(const struct strait_worker *worker) {
    return worker->backend->ops->describe(worker->backend);
}

/* Adds up the losses of the microbatch at hand, token by token, in double precision. */
static strait_err add_losses(struct strait_worker *w, strait_tensor losses, double *sum) {
    struct strait_stream *stream = strait_stage_stream(w->stage);
    const struct strait_backend_ops *ops = w->backend->ops;
    STRAIT_TRY(ops->download(stream, w->losses, losses.data, strait_tensor_bytes(losses)));
    STRAIT_TRY(ops->wait(stream));
    for (int64_t i = 0; i < losses.rows; i++)
        *sum += (double)w->losses[i];
    return STRAIT_OK;
}

/* Forward pass and loss of what the feed holds; with scale also the backward pass. */
static strait_err pass(struct strait_worker *w, float scale, double *sum) {
    strait_tensor losses;
    const strait_tensor tokens = strait_feed_tokens(w->feed, 0);
    STRAIT_TRY(strait_stage_forward(w->stage, 0, tokens));
    STRAIT_TRY(strait_stage_loss(w->stage, strait_feed_targets(w->feed, 0), scale, &losses));
    if (scale != 0.0f) STRAIT_TRY(strait_stage_backward(w->stage, 0, tokens, 0));
    return add_losses(w, losses, sum);
}

strait_err strait_worker_gradients(struct strait_worker *w, int64_t step, double *loss_sum) {
    struct strait_stream *stream = strait_stage_stream(w->stage);
    const strait_recipe *recipe = &w->recipe;
    const float scale = 1.0f / (float)(recipe->sequences * recipe->shape.context);
    double sum = 0.0;
    STRAIT_TRY(strait_stage_zero_gradients(w->stage));
    for (int64_t m = 0; m < recipe->n_microbatches; m++) {
        STRAIT_TRY(strait_feed_load(w->feed, stream, 0, step, m));
        STRAIT_TRY(pass(w, scale, &sum));
    }
    STRAIT_TRY(strait_optimizer_measure(w->optimizer, stream));
    const strait_tensor totals = strait_optimizer_totals(w->optimizer);
    STRAIT_TRY(
        w->backend->ops->download(stream, w->squares, totals.data, strait_tensor_bytes(totals)));
    STRAIT_TRY(w->backend->ops->wait(stream));
    *loss_sum = sum;
    return STRAIT_OK;
}

const float *strait_worker_squares(const struct strait_worker *worker, int *n) {
    *n = worker->n_params;
    return worker->squares;
}

strait_err strait_worker_update(struct strait_worker *w, int64_t step, float factor) {
    struct strait_stream *stream = strait_stage_stream(w->stage);
    const strait_tensor scale = strait_optimizer_scale(w->optimizer);
    STRAIT_TRY(w->backend->ops->upload(stream, scale.data, &factor, sizeof factor));
    STRAIT_TRY(strait_optimizer_step(w->optimizer, stream, step + 1,
                                     strait_rate_factor(&w->recipe.rate, step)));
    return w->backend->ops->wait(stream);
}

strait_err strait_worker_validate(struct strait_worker *w, double *loss) {
    struct strait_stream *stream = strait_stage_stream(w->stage);
    const int64_t n_batches = strait_feed_valid_batches(w->feed);
    if (n_batches == 0) return STRAIT_FAIL(STRAIT_EINVAL, "the run has no validation data");
    double sum = 0.0;
    for (int64_t batch = 0; batch < n_batches; batch++) {
        STRAIT_TRY(strait_feed_load_valid(w->feed, stream, 0, batch));
        STRAIT_TRY(pass(w, 0.0f, &sum));
    }
    *loss = sum / (double)strait_feed_valid_tokens(w->feed);
    return STRAIT_OK;
}

struct strait_stage *strait_worker_stage(struct strait_worker *worker) {
    return worker->stage;
}

struct strait_optimizer *strait_worker_optimizer(struct strait_worker *worker) {
    return worker->optimizer;
}
