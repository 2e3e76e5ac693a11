/* step_loop.c - a runner executes the schedule of a step. plan/schedule.h decides which action is
 * next; this file runs it on the model and the codecs, and waits for messages in between. */
#include "base/clock.h"
#include "stage/runner.h"

#include <assert.h>

static struct strait_codec *codec_of(struct strait_boundary *boundary) {
    return strait_boundary_codec(boundary);
}

static strait_crossing crossing_of(struct strait_runner *runner, int64_t step, int64_t microbatch,
                                   int slot) {
    return (strait_crossing){.stream = strait_stage_stream(runner->model),
                             .step = step,
                             .microbatch = microbatch,
                             .slot = slot,
                             .tokens = strait_loader_tokens(runner->loader, slot),
                             .lists = strait_stage_token_lists(runner->model, slot),
                             .table = strait_stage_token_table(runner->model),
                             .input = strait_stage_first_block_input(runner->model, slot)};
}

static int64_t tokens_of(const struct strait_runner *runner) {
    return runner->plan.microbatch * runner->plan.shape.context;
}

/* Notes which neighbour is concerned until the crossing is done: an error leaves it there. */
static strait_err send_crossing(struct strait_runner *runner, struct strait_boundary *boundary,
                                const strait_crossing *at, strait_tensor x) {
    runner->side = boundary == runner->sender ? 1 : -1;
    STRAIT_TRY(strait_boundary_send(boundary, at, x));
    runner->side = 0;
    return STRAIT_OK;
}

static strait_err receive_crossing(struct strait_runner *runner, struct strait_boundary *boundary,
                                   const strait_crossing *at, strait_tensor x) {
    runner->side = boundary == runner->sender ? 1 : -1;
    STRAIT_TRY(at->is_evaluation ? strait_boundary_receive_valid(boundary, at, x)
                                 : strait_boundary_receive(boundary, at, x));
    runner->side = 0;
    return STRAIT_OK;
}

/* Sends the stage's output to the next stage, or computes losses on the last one. The copy of the
 * losses to the host is only queued: nobody needs them before the end of the step. */
static strait_err finish_forward(struct strait_runner *runner, const strait_crossing *at,
                                 float scale) {
    strait_tensor output;
    if (runner->sender != NULL) {
        STRAIT_TRY(strait_stage_output(runner->model, &output));
        return send_crossing(runner, runner->sender, at, output);
    }
    STRAIT_TRY(strait_stage_loss(runner->model, strait_loader_targets(runner->loader, at->slot),
                                 scale, &output));
    assert(output.rows == tokens_of(runner));
    float *dst = runner->losses + (at->is_evaluation ? 0 : at->microbatch * output.rows);
    return runner->backend->ops->download(at->stream, dst, output.data,
                                          strait_tensor_bytes(output));
}

/* The mean of a step is over its targets, which positions after a document and prompts are not.
 * Callers divide the sum by the number of all tokens, so it is scaled to give that mean. */
static double scale_sum(double sum, int64_t n_tokens, int64_t n_targets) {
    if (n_targets == n_tokens || n_targets == 0) return sum;
    return sum * ((double)n_tokens / (double)n_targets);
}

static strait_err forward(struct strait_runner *runner, const strait_crossing *at) {
    const int64_t n_targets = runner->n_targets > 0 ? runner->n_targets : 1;
    if (runner->needs_tokens)
        STRAIT_TRY(
            strait_loader_load(runner->loader, at->stream, at->slot, at->step, at->microbatch));
    if (runner->receiver != NULL)
        STRAIT_TRY(receive_crossing(runner, runner->receiver, at,
                                    strait_stage_input(runner->model, at->slot)));
    strait_stage_set_documents(runner->model, at->slot,
                               strait_loader_documents(runner->loader, at->slot));
    STRAIT_TRY(strait_stage_forward(runner->model, at->slot, at->tokens));
    return finish_forward(runner, at, 1.0f / (float)n_targets);
}

/* Computes the gradient of the stage's input and sends it at once: the previous stage waits for it,
 * while nobody waits for the gradients of weights (`defers`). */
static strait_err backward(struct strait_runner *runner, const strait_crossing *at, int defers) {
    const strait_tensor d_input = strait_stage_input_gradient(runner->model);
    if (runner->sender != NULL)
        STRAIT_TRY(receive_crossing(runner, runner->sender, at,
                                    strait_stage_output_gradient(runner->model)));
    STRAIT_TRY(strait_stage_backward(runner->model, at->slot, defers));
    if (runner->sender != NULL)
        STRAIT_TRY(strait_codec_input_grad(codec_of(runner->sender), at, d_input));
    STRAIT_TRY(strait_stage_backward_input(runner->model, at->slot));
    if (runner->receiver == NULL) return strait_stage_backward_embedding(runner->model, at->tokens);
    return send_crossing(runner, runner->receiver, at, d_input);
}

/* Gradients of the codecs' own parameters. */
static strait_err backward_codecs(struct strait_runner *runner, const strait_crossing *at) {
    if (runner->sender != NULL) STRAIT_TRY(strait_codec_param_grads(codec_of(runner->sender), at));
    if (runner->receiver != NULL)
        STRAIT_TRY(strait_codec_param_grads(codec_of(runner->receiver), at));
    return STRAIT_OK;
}

/* Used where the backward pass was split: adds what backward with `defers` left out. */
static strait_err backward_weights(struct strait_runner *runner, const strait_crossing *at) {
    STRAIT_TRY(strait_stage_backward_weights(runner->model, at->slot));
    return backward_codecs(runner, at);
}

/* Adds a span from `began` until now to the trace, if there is one. */
static void add_span(struct strait_runner *runner, const char *name, int64_t step, int microbatch,
                     double began) {
    const strait_trace_span span = {.name = name,
                                    .stage = runner->stage,
                                    .lane = STRAIT_LANE_COMPUTE,
                                    .microbatch = microbatch,
                                    .step = step,
                                    .start_ns = (int64_t)(began * 1e9),
                                    .end_ns = strait_clock_ns()};
    strait_trace_put(runner->trace, &span);
}

/* Each call returns the time since the last one, so the sums of a step start at 0. */
static double codec_seconds(struct strait_runner *runner) {
    return (runner->sender != NULL ? strait_boundary_codec_seconds(runner->sender) : 0.0) +
           (runner->receiver != NULL ? strait_boundary_codec_seconds(runner->receiver) : 0.0);
}

/* Time spent waiting for space in a neighbour's queue. */
static double post_seconds(struct strait_runner *runner) {
    return (runner->sender != NULL ? strait_boundary_post_seconds(runner->sender) : 0.0) +
           (runner->receiver != NULL ? strait_boundary_post_seconds(runner->receiver) : 0.0);
}

static strait_err run_action(struct strait_runner *runner, const strait_schedule_spec *schedule,
                             strait_schedule_action action, int64_t step) {
    /* The schedule counts the microbatches of this replica. */
    const int slot = strait_schedule_slot(schedule, action.microbatch);
    STRAIT_TRY(strait_runner_enter(runner, &action.microbatch, &step));
    const int microbatch = runner->microbatches[action.microbatch];
    const strait_crossing at = crossing_of(runner, step, microbatch, slot);
    const double began = strait_clock_seconds();
    double *action_time = &runner->times.weights;
    switch (action.kind) {
    case STRAIT_ACTION_FORWARD:
        STRAIT_TRY(forward(runner, &at));
        action_time = &runner->times.forward;
        break;
    case STRAIT_ACTION_INPUT:
        STRAIT_TRY(backward(runner, &at, 1));
        STRAIT_TRY(strait_runner_sum_gradients(runner, action.microbatch, 0));
        action_time = &runner->times.input;
        break;
    case STRAIT_ACTION_BACKWARD:
        STRAIT_TRY(backward(runner, &at, 0));
        STRAIT_TRY(backward_codecs(runner, &at));
        STRAIT_TRY(strait_runner_sum_gradients(runner, action.microbatch, 0));
        STRAIT_TRY(strait_runner_sum_gradients(runner, action.microbatch, 1));
        action_time = &runner->times.input;
        break;
    default:
        STRAIT_TRY(backward_weights(runner, &at));
        STRAIT_TRY(strait_runner_sum_gradients(runner, action.microbatch, 1));
        break;
    }
    const double packed = codec_seconds(runner);
    const double posted = post_seconds(runner);
    runner->times.codec += packed;
    runner->times.wait += posted;
    /* Packing and waiting for the link happen inside the action but are reported separately. */
    *action_time += strait_clock_seconds() - began - packed - posted;
    runner->action_time = action_time;
    add_span(runner, strait_schedule_action_name(action.kind), step, microbatch, began);
    return STRAIT_OK;
}

/* Reports which neighbour sent nothing, and where this stage is. */
static strait_err fail_timed_out(struct strait_runner *runner, const strait_schedule_spec *schedule,
                                 const strait_schedule_state *state, int64_t step) {
    runner->side = strait_schedule_awaited(schedule, state);
    const int awaited = (runner->side < 0 ? state->n_forward : state->n_backward) %
                        runner->n_microbatches;
    return STRAIT_FAIL(STRAIT_ETIMEDOUT,
                       "stage %d: received nothing from stage %d for %.3g s at step %lld, "
                       "microbatch %d; check that stage, its link and link.deadline",
                       runner->stage, runner->stage + runner->side,
                       (double)runner->deadline_ms / 1e3, (long long)step + 1,
                       runner->microbatches[awaited]);
}

/* Takes new messages and tells the schedule how many inputs and gradients have arrived. */
static strait_err update_state(struct strait_runner *runner, strait_schedule_state *state,
                               int timeout_ms) {
    /* Without a mesh everything has arrived before the step began. */
    if (runner->mesh == NULL && timeout_ms > 0) return STRAIT_ETIMEDOUT;
    STRAIT_TRY(runner->mesh != NULL ? strait_runner_drain(runner, timeout_ms)
                                    : strait_runner_poll(runner));
    STRAIT_TRY(strait_runner_average(runner));
    if (runner->receiver != NULL) state->n_inputs = strait_boundary_arrived(runner->receiver, 0);
    if (runner->receiver != NULL && runner->ahead.is_allowed &&
        state->n_inputs == runner->n_microbatches)
        state->n_inputs += strait_boundary_arrived(runner->receiver, 1);
    if (runner->sender != NULL) state->n_gradients = strait_boundary_arrived(runner->sender, 0);
    /* Gradients that are sent again may be here before their forward pass. */
    if (state->n_gradients > state->n_forward) state->n_gradients = state->n_forward;
    return STRAIT_OK;
}

/* Posts the messages that the device has packed; with `waits`, all of them. The wait is for kernels
 * of the last action, so its time is added to that action. */
static strait_err flush(struct strait_runner *runner, int waits) {
    const double began = strait_clock_seconds();
    runner->side = 1;
    if (runner->sender != NULL) STRAIT_TRY(strait_boundary_flush(runner->sender, waits));
    runner->side = -1;
    if (runner->receiver != NULL) STRAIT_TRY(strait_boundary_flush(runner->receiver, waits));
    runner->side = 0;
    const double posted = post_seconds(runner);
    runner->times.wait += posted;
    if (runner->action_time != NULL)
        *runner->action_time += strait_clock_seconds() - began - posted;
    return STRAIT_OK;
}

static strait_err run_schedule(struct strait_runner *runner, int64_t step) {
    /* A single stage never waits; with 1F1B it keeps one microbatch at a time. */
    strait_schedule_spec schedule = {.kind = runner->plan.n_stages > 1 ? runner->plan.schedule
                                                                       : STRAIT_SCHEDULE_1F1B,
                                     .n_stages = runner->plan.n_stages,
                                     .stage = runner->stage,
                                     .n_microbatches = runner->n_microbatches,
                                     .window = runner->n_slots};
    strait_schedule_state state = {.n_forward = runner->ahead.n_begun};
    int timeout_ms = 0;
    if (runner->late != NULL)
        schedule.first = (int)(step * runner->n_microbatches % runner->n_slots);
    strait_link_progress_note(&runner->progress);
    for (;;) {
        /* Before waiting, everything must be sent: the neighbour may be waiting for it. */
        STRAIT_TRY(flush(runner, timeout_ms > 0));
        const double began = strait_clock_seconds();
        if (timeout_ms > 0) runner->side = strait_schedule_awaited(&schedule, &state);
        const strait_err err = update_state(runner, &state, timeout_ms);
        if (timeout_ms > 0) {
            runner->times.wait += strait_clock_seconds() - began;
            add_span(runner, "wait", step, -1, began);
        }
        if (err == STRAIT_ETIMEDOUT) return fail_timed_out(runner, &schedule, &state, step);
        STRAIT_TRY(err);
        timeout_ms = runner->side = 0;
        STRAIT_TRY(strait_runner_look_ahead(runner, step));
        schedule.n_ahead = runner->ahead.is_allowed ? runner->n_microbatches : 0;
        const strait_schedule_action action = strait_schedule_next(&schedule, &state);
        if (action.kind == STRAIT_ACTION_FINISH) {
            STRAIT_TRY(strait_runner_end_late(runner, step, state.n_forward));
            return flush(runner, 1);
        }
        if (action.kind == STRAIT_ACTION_WAIT) {
            timeout_ms = runner->deadline_ms;
            continue;
        }
        STRAIT_TRY(run_action(runner, &schedule, action, step));
        strait_link_progress_note(&runner->progress);
        runner->last_action = action.kind;
        strait_schedule_done(&state, action);
    }
}

/* Copies the sums of squares to the host and waits for them, and so for the losses queued before.
 * A runner that updates itself queues the update before it waits, to keep the device busy. */
static strait_err measure(struct strait_runner *runner, int64_t step) {
    const struct strait_backend_ops *ops = runner->backend->ops;
    int is_reached = 0;
    struct strait_stream *stream = strait_stage_stream(runner->model);
    int n = 0;
    strait_param *params = strait_stage_params(runner->model, &n);
    STRAIT_TRY(strait_stage_adapter_gradients(runner->model));
    if (runner->sender != NULL)
        STRAIT_TRY(strait_codec_project_gradients(codec_of(runner->sender), stream, params, n));
    STRAIT_TRY(strait_optimizer_clip(runner->optimizer, stream, step + 1));
    const strait_tensor totals = strait_optimizer_squared_norms(runner->optimizer);
    STRAIT_TRY(ops->download(stream, runner->squares, totals.data, strait_tensor_bytes(totals)));
    STRAIT_TRY(ops->event_record(stream, &runner->measured));
    if (strait_runner_updates_itself(runner))
        STRAIT_TRY(strait_runner_update_by_scale(runner, step));
    return ops->event_query(&runner->measured, 1, &is_reached);
}

/* The losses of this replica must be on the host before they are sent to another. */
static strait_err reduce(struct strait_runner *runner, int64_t step, double step_began) {
    const double began = strait_clock_seconds();
    STRAIT_TRY(runner->backend->ops->wait(strait_stage_stream(runner->model)));
    if (runner->sender == NULL) strait_runner_sum_losses(runner);
    STRAIT_TRY(strait_runner_reduce(runner, step, began - step_began));
    runner->times.wait += strait_clock_seconds() - began;
    add_span(runner, "reduce", step, -1, began);
    return STRAIT_OK;
}

strait_err strait_runner_gradients(struct strait_runner *runner, int64_t step, double *loss_sum) {
    const double began = strait_clock_seconds();
    runner->times = (strait_step_times){0};
    runner->action_time = NULL;
    runner->has_initial_weights = 0; // an update may follow, or was queued already
    if (runner->sender == NULL)
        STRAIT_TRY(strait_loader_step_targets(runner->loader, step, &runner->n_targets));
    STRAIT_TRY(strait_runner_begin_late(runner));
    STRAIT_TRY(strait_runner_begin_live(runner, step));
    if (runner->receiver != NULL) strait_boundary_begin(runner->receiver, step);
    if (runner->sender != NULL) strait_boundary_begin(runner->sender, step);
    runner->last_action = STRAIT_ACTION_WAIT;
    strait_gradient_sums_begin(&runner->sums);
    if (runner->reduction != NULL)
        strait_reduction_begin(runner->reduction, step, &runner->owners[STRAIT_SIDE_SAME]);
    STRAIT_TRY(strait_runner_zero_gradients(runner));
    STRAIT_TRY(run_schedule(runner, step));
    runner->last_action = STRAIT_ACTION_WAIT;
    if (runner->reduction != NULL) STRAIT_TRY(reduce(runner, step, began));
    if (runner->sums.audited != NULL) STRAIT_TRY(strait_runner_end_audited(runner));
    STRAIT_TRY(measure(runner, step));
    runner->times.wall = strait_clock_seconds() - began;
    *loss_sum = 0.0;
    if (runner->sender == NULL && runner->reduction == NULL) strait_runner_sum_losses(runner);
    /* Of several replicas, the first has the losses of all, unless each trains on its own. */
    if (runner->sender == NULL && (runner->replica == 0 || runner->outer != NULL))
        *loss_sum = scale_sum(strait_runner_add_losses(runner),
                              runner->plan.sequences * runner->plan.shape.context,
                              runner->n_targets);
    return STRAIT_OK;
}

/* Other messages, also those of the next step, may arrive in between; they are routed as usual. */
static strait_err wait_for_valid(struct strait_runner *runner, int64_t step, int64_t batch) {
    runner->side = -1;
    strait_link_progress_note(&runner->progress);
    while (!strait_boundary_has_valid(runner->receiver)) {
        struct strait_msg *msg = NULL;
        const strait_err err = strait_runner_receive(runner, runner->deadline_ms, &msg);
        if (err == STRAIT_ETIMEDOUT)
            return STRAIT_FAIL(
                STRAIT_ETIMEDOUT,
                "stage %d: received nothing from stage %d for %.3g s in the validation "
                "after step %lld, microbatch %lld; check that stage, its link and "
                "link.deadline",
                runner->stage, runner->stage - 1, (double)runner->deadline_ms / 1e3,
                (long long)step, (long long)batch);
        STRAIT_TRY(err);
        const strait_err routed = strait_runner_route(runner, &msg);
        strait_msg_close(&msg);
        STRAIT_TRY(routed);
    }
    return STRAIT_OK;
}

strait_err strait_runner_validate(struct strait_runner *runner, int64_t step, double *loss_sum) {
    const int64_t n_batches = strait_loader_valid_batches(runner->loader);
    double sum = 0.0;
    for (int64_t batch = 0; batch < n_batches; batch++) {
        strait_crossing at = crossing_of(runner, step, batch, 0);
        at.is_evaluation = 1;
        if (runner->needs_tokens)
            STRAIT_TRY(strait_loader_load_valid(runner->loader, at.stream, 0, batch));
        STRAIT_TRY(flush(runner, runner->receiver != NULL)); // of the previous batch
        if (runner->receiver != NULL) {
            STRAIT_TRY(wait_for_valid(runner, step, batch));
            STRAIT_TRY(receive_crossing(runner, runner->receiver, &at,
                                        strait_stage_input(runner->model, 0)));
        }
        strait_stage_set_documents(runner->model, 0, strait_loader_documents(runner->loader, 0));
        STRAIT_TRY(strait_stage_forward(runner->model, 0, at.tokens));
        STRAIT_TRY(finish_forward(runner, &at, 0.0f));
        if (runner->sender != NULL) continue;
        /* The next batch overwrites the losses. */
        STRAIT_TRY(runner->backend->ops->wait(at.stream));
        for (int64_t i = 0; i < tokens_of(runner); i++)
            sum += (double)runner->losses[i];
    }
    int64_t n_targets = 0;
    if (runner->sender == NULL) STRAIT_TRY(strait_loader_valid_targets(runner->loader, &n_targets));
    *loss_sum = scale_sum(sum, strait_loader_valid_tokens(runner->loader), n_targets);
    return flush(runner, 1);
}
