#include "stage/runner.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "codec/basis.h"
#include "stage/staging.h"

#include <math.h>

/* Leaves `out` NULL where the pipeline ends. */
static strait_err open_boundary(struct strait_runner *runner, strait_codec_side side,
                                struct strait_boundary **out) {
    const int boundary = side == STRAIT_SENDER ? runner->stage : runner->stage - 1;
    if (boundary < 0 || boundary >= runner->plan.n_stages - 1) return STRAIT_OK;
    const strait_boundary_spec spec = {
        .codec = strait_run_plan_codec(&runner->plan, boundary, runner->n_slots),
        .side = side,
        .n_microbatches = (int)runner->plan.n_microbatches,
        .n_valid = strait_loader_valid_batches(runner->loader)};
    STRAIT_TRY(strait_boundary_open(&spec, runner->backend, out));
    strait_boundary_set_poll(*out, strait_runner_poll_waiting, runner);
    return STRAIT_OK;
}

static struct strait_codec *codec_of(struct strait_boundary *boundary) {
    return boundary != NULL ? strait_boundary_codec(boundary) : NULL;
}

static void add_codec_params(struct strait_runner *runner, const struct strait_codec *codec) {
    for (int i = 0; codec != NULL && i < codec->n_params; i++)
        runner->params[runner->n_params++] = codec->params[i];
}

/* Lists all parameters for the optimizer, those of the codecs included. config/dry_run builds the
 * same list in the same order: memory plans and snapshots depend on it. */
static strait_err list_params(struct strait_runner *runner) {
    int n = 0;
    const strait_param *model = strait_stage_params(runner->model, &n);
    STRAIT_TRY(strait_alloc((size_t)n + (size_t)2 * STRAIT_CODEC_PARAMS, sizeof *runner->params,
                            "parameter list", (void **)&runner->params));
    add_codec_params(runner, codec_of(runner->receiver));
    for (int i = 0; i < n; i++)
        runner->params[runner->n_params++] = model[i];
    add_codec_params(runner, codec_of(runner->sender));
    return STRAIT_OK;
}

/* Codecs compute with copies of their parameters, which an update makes stale. */
static strait_err refresh_codecs(struct strait_runner *runner) {
    struct strait_stream *stream = strait_stage_stream(runner->model);
    if (runner->receiver != NULL)
        STRAIT_TRY(strait_codec_refresh(codec_of(runner->receiver), stream));
    return runner->sender != NULL ? strait_codec_refresh(codec_of(runner->sender), stream)
                                  : STRAIT_OK;
}

/* A subspace codec requires that weights stay in its subspace: projects them after each update, and
 * the initial ones too. */
static strait_err project_weights(struct strait_runner *runner) {
    int n = 0;
    strait_param *params = strait_stage_params(runner->model, &n);
    if (runner->sender == NULL) return STRAIT_OK;
    struct strait_codec *codec = codec_of(runner->sender);
    if ((strait_codec_traits(&codec->spec) & STRAIT_CODEC_CONFINES) == 0) return STRAIT_OK;
    STRAIT_TRY(strait_codec_after_update(codec, strait_stage_stream(runner->model), params, n));
    return strait_stage_refresh(runner->model);
}

static strait_err open_reduction(struct strait_runner *runner) {
    const strait_run_plan *plan = &runner->plan;
    const strait_reduction_spec spec = {.stage = runner->stage,
                                        .replica = runner->replica,
                                        .n_replicas = plan->replicas[runner->stage],
                                        .bits = plan->reduce_bits,
                                        .groups = &plan->groups,
                                        .sums = plan->sums_pairwise ? &runner->sums : NULL,
                                        .params = runner->params,
                                        .n_params = runner->n_params,
                                        .losses = runner->sequence_losses,
                                        .n_losses = (int)plan->sequences};
    if (spec.n_replicas <= 1 || strait_run_plan_has_outer(plan)) return STRAIT_OK;
    return strait_reduction_open(&spec, runner->backend, &runner->reduction);
}

static strait_err open_outer(struct strait_runner *runner, int n_threads) {
    strait_outer_spec spec = strait_runner_outer_spec(&runner->plan, runner->stage, runner->params,
                                                      runner->n_params, runner->optimizer);
    if (!strait_run_plan_has_outer(&runner->plan)) return STRAIT_OK;
    spec.replica = runner->replica;
    spec.n_threads = n_threads;
    return strait_outer_open(&spec, runner->backend, &runner->outer);
}

/* The coordinator shares the groups out with every step; until then replica 0 has all of them. */
static strait_err list_microbatches(struct strait_runner *runner) {
    STRAIT_TRY(strait_alloc((size_t)runner->plan.n_microbatches, sizeof *runner->microbatches,
                            "list of microbatches", (void **)&runner->microbatches));
    return runner->replica == 0 ? strait_runner_share(runner, runner->owners) : STRAIT_OK;
}

/* Memory for what a step reports. */
static strait_err open_results(struct strait_runner *runner) {
    /* Pinned, so that the device copies losses and squares without blocking the host. */
    if (runner->sender == NULL) {
        STRAIT_TRY(runner->backend->ops->alloc_host(
            runner->backend,
            (size_t)(runner->plan.sequences * runner->plan.shape.context) * sizeof *runner->losses,
            (void **)&runner->losses));
        STRAIT_TRY(strait_alloc((size_t)runner->plan.sequences, sizeof *runner->sequence_losses,
                                "losses of sequences", (void **)&runner->sequence_losses));
    }
    return runner->backend->ops->alloc_host(runner->backend,
                                            (size_t)runner->n_params * sizeof *runner->squares,
                                            (void **)&runner->squares);
}

/* What a step needs besides the model and its boundaries. */
static strait_err open_training(struct strait_runner *runner, const strait_run *run) {
    STRAIT_TRY(list_params(runner)); // after the codecs are open: they have parameters
    STRAIT_TRY(strait_runner_open_late(runner));
    const strait_optim_spec optim = strait_run_plan_optim(&runner->plan, runner->stage);
    strait_param *params = runner->late != NULL ? strait_late_params(runner->late) : runner->params;
    STRAIT_TRY(strait_optimizer_open(&optim, runner->backend, params, runner->n_params,
                                     &runner->optimizer));
    strait_optimizer_measure_at(runner->optimizer, runner->params);
    STRAIT_TRY(strait_gradient_sums_init(&runner->sums, runner->plan.groups.n_groups,
                                         strait_gradient_sums_buffers(&runner->plan, runner->stage),
                                         runner->params, runner->n_params, runner->backend));
    STRAIT_TRY(strait_loader_prepare(runner->loader, runner->backend, runner->n_slots));
    STRAIT_TRY(list_microbatches(runner));
    STRAIT_TRY(open_results(runner));
    STRAIT_TRY(open_reduction(runner));
    STRAIT_TRY(open_outer(runner, (int)run->device.threads));
    return runner->backend->ops->event_open(runner->backend, &runner->measured);
}

/* One that trains on its own validates with the neighbours of its pipeline, which have its number;
 * the next step says who has which microbatch. */
static strait_err share_with_pipeline(struct strait_runner *runner) {
    strait_group_owners owners[STRAIT_SIDES] = {{{0}}};
    for (int side = 0; side < STRAIT_SIDES; side++)
        for (int g = 0; g < runner->plan.groups.n_groups; g++) {
            const int theirs = runner->stage + side - STRAIT_SIDE_SAME;
            const int is_there = theirs >= 0 && theirs < runner->plan.n_stages;
            if (is_there) owners[side].replica[g] = (uint8_t)runner->replica;
        }
    return strait_runner_share(runner, owners);
}

strait_err strait_runner_set_replicas(struct strait_runner *runner, const strait_run_plan *plan,
                                      int replica) {
    strait_reduction_close(&runner->reduction);
    strait_sums_hash_close(&runner->work);
    runner->sums.audited = NULL;
    runner->plan = *plan;
    runner->replica = replica;
    if (runner->outer == NULL) return open_reduction(runner);
    strait_outer_set_replica(runner->outer, replica);
    return share_with_pipeline(runner);
}

static strait_err open_into(struct strait_runner *runner, const strait_run *run) {
    const strait_stage_spec spec = strait_run_plan_stage(&runner->plan, runner->stage,
                                                         runner->n_slots);
    STRAIT_TRY(strait_backend_open(strait_run_plan_backend(run, runner->stage), &runner->backend));
    STRAIT_TRY(strait_stage_open(&spec, runner->backend, &runner->model));
    STRAIT_TRY(open_boundary(runner, STRAIT_RECEIVER, &runner->receiver));
    STRAIT_TRY(open_boundary(runner, STRAIT_SENDER, &runner->sender));
    if (runner->receiver != NULL || runner->sender != NULL)
        STRAIT_TRY(strait_codec_join(codec_of(runner->receiver), codec_of(runner->sender)));
    if (runner->sender != NULL && runner->plan.shape.subspace > 0) {
        strait_tensor basis, fixed;
        STRAIT_TRY(strait_codec_basis_view(codec_of(runner->sender), &basis, &fixed));
        STRAIT_TRY(strait_stage_set_basis(runner->model, basis, fixed));
    }
    return open_training(runner, run);
}

strait_err strait_runner_open(const strait_run *run, const strait_run_plan *plan,
                              const strait_runner_place *place, struct strait_loader *loader,
                              struct strait_runner **out) {
    const int stage = place->stage;
    struct strait_runner *runner = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *runner, "runner", (void **)&runner));
    runner->plan = *plan;
    runner->stage = stage;
    runner->replica = place->replica;
    runner->n_slots = place->n_slots;
    runner->loader = loader;
    runner->deadline_ms = (int)(run->link.deadline * 1e3);
    /* The last stage needs the targets, which are loaded with the tokens. */
    runner->needs_tokens = strait_run_plan_needs_tokens(plan, stage) || stage == plan->n_stages - 1;
    const strait_err err = open_into(runner, run);
    if (err != STRAIT_OK) {
        strait_runner_close(&runner);
        return err;
    }
    *out = runner;
    return STRAIT_OK;
}

/* The seed alone decides: a stage draws the same weights on every worker and for every split. */
strait_err strait_runner_init_weights(struct strait_runner *runner, uint64_t seed) {
    STRAIT_TRY(strait_stage_init(runner->model, seed));
    STRAIT_TRY(project_weights(runner));
    if (runner->outer != NULL)
        STRAIT_TRY(strait_outer_restart(runner->outer, strait_stage_stream(runner->model)));
    runner->has_initial_weights = 1;
    runner->live.applied = 0;
    runner->live.complete = runner->live.begun_step = -1;
    return strait_runner_start_late(runner, 0, 0);
}

void strait_runner_close(struct strait_runner **runner_ptr) {
    struct strait_runner *runner = *runner_ptr;
    if (runner == NULL) return;
    if (runner->model != NULL) // queued work may use anything freed below
        (void)runner->backend->ops->wait(strait_stage_stream(runner->model));
    strait_trace_close(&runner->trace);
    strait_runner_drop_kept(runner);
    strait_optimizer_close(&runner->optimizer);
    strait_late_close(&runner->late);
    strait_boundary_close(&runner->receiver);
    strait_boundary_close(&runner->sender);
    strait_stage_close(&runner->model);
    strait_reduction_close(&runner->reduction);
    strait_sums_hash_close(&runner->work);
    strait_outer_close(&runner->outer);
    strait_gradient_sums_fini(&runner->sums);
    strait_alloc_free(runner->params);
    strait_alloc_free(runner->microbatches);
    strait_alloc_free(runner->sequence_losses);
    if (runner->losses != NULL) runner->backend->ops->release_host(runner->backend, runner->losses);
    if (runner->measured.backend != NULL) runner->backend->ops->event_close(&runner->measured);
    if (runner->squares != NULL)
        runner->backend->ops->release_host(runner->backend, runner->squares);
    strait_loader_release(runner->loader); // its buffers are on this device
    strait_backend_close(&runner->backend);
    strait_alloc_free(runner);
    *runner_ptr = NULL;
}

void strait_runner_connect(struct strait_runner *runner, const strait_stage_links *links) {
    runner->mesh = links->mesh;
    if (runner->receiver != NULL)
        strait_boundary_connect(runner->receiver, links->mesh, links->peers[STRAIT_SIDE_PREV],
                                links->n[STRAIT_SIDE_PREV]);
    if (runner->sender != NULL)
        strait_boundary_connect(runner->sender, links->mesh, links->peers[STRAIT_SIDE_NEXT],
                                links->n[STRAIT_SIDE_NEXT]);
    if (runner->reduction != NULL)
        strait_reduction_connect(runner->reduction, links->mesh, links->peers[STRAIT_SIDE_SAME]);
    if (runner->outer != NULL)
        strait_outer_connect(runner->outer, links->mesh, links->peers[STRAIT_SIDE_SAME]);
}

void strait_runner_count_ids(struct strait_runner *runner, uint64_t bytes) {
    if (runner->receiver != NULL) strait_boundary_add_bytes(runner->receiver, bytes);
}

strait_err strait_runner_zero_gradients(struct strait_runner *runner) {
    struct strait_stream *stream = strait_stage_stream(runner->model);
    STRAIT_TRY(strait_stage_zero_gradients(runner->model));
    if (runner->receiver != NULL)
        STRAIT_TRY(strait_codec_zero_gradients(codec_of(runner->receiver), stream));
    if (runner->sender != NULL)
        STRAIT_TRY(strait_codec_zero_gradients(codec_of(runner->sender), stream));
    return STRAIT_OK;
}

const char *strait_runner_device(const struct strait_runner *runner) {
    return runner->backend->ops->describe(runner->backend);
}

size_t strait_runner_device_bytes(const struct strait_runner *runner) {
    const struct strait_backend_ops *ops = runner->backend->ops;
    return ops->peak_bytes != NULL ? ops->peak_bytes(runner->backend) : 0;
}

size_t strait_runner_device_spare(const struct strait_runner *runner) {
    const struct strait_backend_ops *ops = runner->backend->ops;
    return ops->free_bytes != NULL ? ops->free_bytes(runner->backend) : 0;
}

const float *strait_runner_squares(const struct strait_runner *runner, int *n) {
    *n = runner->n_params;
    return runner->squares;
}

/* With several stages the norm is known only to the coordinator, and on the host nothing is gained.
 */
int strait_runner_updates_itself(const struct strait_runner *runner) {
    return runner->plan.n_members == 1 && runner->outer == NULL && !runner->backend->ops->is_host &&
           strait_optimizer_checks_norm(runner->optimizer);
}

strait_err strait_runner_update_by_scale(struct strait_runner *runner, int64_t step) {
    struct strait_stream *stream = strait_stage_stream(runner->model);
    if (runner->late != NULL) STRAIT_TRY(strait_late_begin_update(runner->late, stream, step));
    STRAIT_TRY(strait_optimizer_step(runner->optimizer, stream, step + 1,
                                     strait_lr_schedule_factor(&runner->plan.lr_schedule, step)));
    if (runner->late != NULL) STRAIT_TRY(strait_late_end_update(runner->late, stream, step));
    STRAIT_TRY(strait_stage_apply_adapters(runner->model));
    /* Projection comes last, because it changes the weights that the update has written. */
    STRAIT_TRY(refresh_codecs(runner));
    return project_weights(runner);
}

strait_err strait_runner_update(struct strait_runner *runner, int64_t step, float factor) {
    const int64_t began = strait_clock_ns();
    struct strait_stream *stream = strait_stage_stream(runner->model);
    const strait_tensor scale = strait_tensor_rows(strait_optimizer_scale(runner->optimizer), 0, 1);
    if (strait_runner_has_applied(runner, step)) return STRAIT_OK;
    if (isnan(factor)) { // this replica's step has no finite norm: it counts, and changes nothing
        strait_runner_note_update(runner, step);
        return STRAIT_OK;
    }
    if (runner->plan.staleness > 0) {
        STRAIT_TRY(strait_runner_update_late(runner, step, factor));
    } else {
        /* The kernels read the factor from device memory, so that both kinds of update are one
         * path. */
        STRAIT_TRY(runner->backend->kernels->fill(stream, scale, factor));
        STRAIT_TRY(strait_runner_update_by_scale(runner, step));
    }
    strait_runner_note_update(runner, step);
    const strait_trace_span span = {.name = "update",
                                    .stage = runner->stage,
                                    .lane = STRAIT_LANE_COMPUTE,
                                    .microbatch = -1,
                                    .step = step,
                                    .start_ns = began,
                                    .end_ns = strait_clock_ns()};
    strait_trace_put(runner->trace, &span);
    return STRAIT_OK;
}
