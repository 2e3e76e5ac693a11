/* play.c - a worker plays the schedule of a step: what moves, in which order, and what it waits
 * for. The order itself is plan/schedule.h's; here it meets the model, the codecs and the wire. */
#include "base/clock.h"
#include "stage/runner.h"

#include <assert.h>

enum {
    LOOK_MS = 50
};

static struct strait_codec *codec_of(struct strait_boundary *boundary) {
    return strait_boundary_codec(boundary);
}

static strait_crossing crossing_of(struct strait_runner *w, int64_t step, int64_t microbatch,
                                   int slot) {
    return (strait_crossing){.stream = strait_stage_stream(w->model),
                             .step = step,
                             .microbatch = microbatch,
                             .slot = slot,
                             .tokens = strait_loader_tokens(w->loader, slot),
                             .input = strait_stage_first_block_input(w->model, slot)};
}

static int64_t tokens_of(const struct strait_runner *w) {
    return w->plan.microbatch * w->plan.shape.context;
}

/* Adds the losses of microbatches that lie on the host, token by token, in double precision. */
static void add_losses(const struct strait_runner *w, int64_t n_microbatches, double *sum) {
    for (int64_t i = 0; i < n_microbatches * tokens_of(w); i++)
        *sum += (double)w->losses[i];
}

/* The stage's output goes on, or, on the last stage, becomes losses, which are on their way to the
 * host: there is no waiting for them in a step. */
static strait_err finish_forward(struct strait_runner *w, const strait_crossing *at, float scale) {
    strait_tensor made;
    if (w->sender != NULL) {
        STRAIT_TRY(strait_stage_output(w->model, &made));
        return strait_boundary_send(w->sender, at, made);
    }
    STRAIT_TRY(
        strait_stage_loss(w->model, strait_loader_targets(w->loader, at->slot), scale, &made));
    assert(made.rows == tokens_of(w));
    float *to = w->losses + (at->is_evaluation ? 0 : at->microbatch * made.rows);
    return w->backend->ops->download(at->stream, to, made.data, strait_tensor_bytes(made));
}

static strait_err forward(struct strait_runner *w, const strait_crossing *at) {
    const int64_t n_tokens = w->plan.sequences * w->plan.shape.context;
    if (w->needs_tokens)
        STRAIT_TRY(strait_loader_load(w->loader, at->stream, at->slot, at->step, at->microbatch));
    if (w->receiver != NULL)
        STRAIT_TRY(
            strait_boundary_receive(w->receiver, at, strait_stage_input(w->model, at->slot)));
    STRAIT_TRY(strait_stage_forward(w->model, at->slot, at->tokens));
    return finish_forward(w, at, 1.0f / (float)n_tokens);
}

/* Down to the gradient of the stage's input, which leaves at once. */
static strait_err backward(struct strait_runner *w, const strait_crossing *at, int defers) {
    const strait_tensor d = strait_stage_input_gradient(w->model);
    if (w->sender != NULL)
        STRAIT_TRY(strait_boundary_receive(w->sender, at, strait_stage_output_gradient(w->model)));
    STRAIT_TRY(strait_stage_backward(w->model, at->slot, defers));
    if (w->sender != NULL) STRAIT_TRY(strait_codec_input_grad(codec_of(w->sender), at, d));
    STRAIT_TRY(strait_stage_backward_input(w->model, at->slot));
    if (w->receiver == NULL) return strait_stage_backward_embedding(w->model, at->tokens);
    return strait_boundary_send(w->receiver, at, d);
}

static strait_err boundary_weights(struct strait_runner *w, const strait_crossing *at) {
    if (w->sender != NULL) STRAIT_TRY(strait_codec_param_grads(codec_of(w->sender), at));
    if (w->receiver != NULL) STRAIT_TRY(strait_codec_param_grads(codec_of(w->receiver), at));
    return STRAIT_OK;
}

static strait_err weights(struct strait_runner *w, const strait_crossing *at) {
    STRAIT_TRY(strait_stage_backward_weights(w->model, at->slot));
    return boundary_weights(w, at);
}

/* One span of a trace, from then until now. */
static void record(struct strait_runner *w, const char *name, int64_t step, int microbatch,
                   double began) {
    const strait_trace_span span = {.name = name,
                                    .stage = w->stage,
                                    .lane = STRAIT_LANE_COMPUTE,
                                    .microbatch = microbatch,
                                    .step = step,
                                    .start_ns = (int64_t)(began * 1e9),
                                    .end_ns = strait_clock_ns()};
    strait_trace_put(w->trace, &span);
}

static double codec_seconds(struct strait_runner *w) {
    return (w->sender != NULL ? strait_boundary_codec_seconds(w->sender) : 0.0) +
           (w->receiver != NULL ? strait_boundary_codec_seconds(w->receiver) : 0.0);
}

static double post_seconds(struct strait_runner *w) {
    return (w->sender != NULL ? strait_boundary_post_seconds(w->sender) : 0.0) +
           (w->receiver != NULL ? strait_boundary_post_seconds(w->receiver) : 0.0);
}

static strait_err make_move(struct strait_runner *w, const strait_schedule_spec *schedule,
                            strait_schedule_action move, int64_t step) {
    const int slot = strait_schedule_slot(schedule, move.microbatch);
    const strait_crossing at = crossing_of(w, step, move.microbatch, slot);
    const double began = strait_clock_seconds();
    double *bill = &w->times.weights;
    switch (move.kind) {
    case STRAIT_ACTION_FORWARD:
        STRAIT_TRY(forward(w, &at));
        bill = &w->times.forward;
        break;
    case STRAIT_ACTION_INPUT:
        STRAIT_TRY(backward(w, &at, 1));
        bill = &w->times.input;
        break;
    case STRAIT_ACTION_BACKWARD:
        STRAIT_TRY(backward(w, &at, 0));
        STRAIT_TRY(boundary_weights(w, &at));
        bill = &w->times.input;
        break;
    default: STRAIT_TRY(weights(w, &at)); break;
    }
    const double packed = codec_seconds(w);
    const double posted = post_seconds(w);
    w->times.codec += packed;
    w->times.wait += posted;
    *bill += strait_clock_seconds() - began - packed - posted;
    w->bill = bill;
    record(w, strait_schedule_action_name(move.kind), step, move.microbatch, began);
    return STRAIT_OK;
}

/* Names who is missing, for how long, and where we stand. */
static strait_err give_up(const struct strait_runner *w, const strait_schedule_state *state,
                          int64_t step) {
    const int misses_input = w->receiver != NULL && state->n_inputs <= state->n_forward &&
                             state->n_forward < w->plan.n_microbatches;
    return STRAIT_FAIL(STRAIT_ETIMEDOUT,
                       "stage %d: nothing from stage %d for %.3g s at step %lld, microbatch %d "
                       "(link.deadline)",
                       w->stage, misses_input ? w->stage - 1 : w->stage + 1,
                       (double)w->deadline_ms / 1e3, (long long)step + 1,
                       misses_input ? state->n_forward : state->n_backward);
}

strait_err strait_runner_route(struct strait_runner *w, struct strait_msg **msg) {
    if ((*msg)->type == STRAIT_MSG_CROSSING) {
        if (w->receiver != NULL && (*msg)->peer == strait_boundary_peer(w->receiver))
            return strait_boundary_deliver(w->receiver, msg);
        if (w->sender != NULL && (*msg)->peer == strait_boundary_peer(w->sender))
            return strait_boundary_deliver(w->sender, msg);
    }
    return w->on_message(w->user, msg);
}

static strait_err look(const struct strait_runner *w) {
    return w->on_poll != NULL ? w->on_poll(w->user) : STRAIT_OK;
}

strait_err strait_runner_poll_waiting(void *worker) {
    struct strait_runner *w = worker;
    w->is_waiting = 1;
    return look(w);
}

/* The next message; looks up from waiting now and then where someone wants that. */
static strait_err receive(struct strait_runner *w, int timeout_ms, struct strait_msg **out) {
    w->is_waiting = timeout_ms > 0;
    STRAIT_TRY(look(w));
    if (w->on_poll == NULL) return strait_mesh_receive(w->mesh, timeout_ms, out);
    for (;;) {
        const int slice_ms = timeout_ms < LOOK_MS ? timeout_ms : LOOK_MS;
        const strait_err err = strait_mesh_receive(w->mesh, slice_ms, out);
        timeout_ms -= slice_ms;
        if (err != STRAIT_ETIMEDOUT || timeout_ms == 0) return err;
        STRAIT_TRY(look(w));
    }
}

/* Takes what has come; with timeout_ms waits for the first of it. */
static strait_err take_messages(struct strait_runner *w, int timeout_ms) {
    for (;; timeout_ms = 0) {
        struct strait_msg *msg = NULL;
        const strait_err err = receive(w, timeout_ms, &msg);
        if (err == STRAIT_ETIMEDOUT) return timeout_ms == 0 ? STRAIT_OK : err;
        STRAIT_TRY(err);
        const strait_err routed = strait_runner_route(w, &msg);
        strait_msg_close(&msg);
        STRAIT_TRY(routed);
    }
}

static strait_err look_around(struct strait_runner *w, strait_schedule_state *state,
                              int timeout_ms) {
    if (w->mesh == NULL) return look(w);
    STRAIT_TRY(take_messages(w, timeout_ms));
    if (w->receiver != NULL) state->n_inputs = strait_boundary_arrived(w->receiver);
    if (w->sender != NULL) state->n_gradients = strait_boundary_arrived(w->sender);
    return STRAIT_OK;
}

/* Sends what the device has packed; with `waits` all of it, in time that the last move takes. */
static strait_err flush(struct strait_runner *w, int waits) {
    const double began = strait_clock_seconds();
    if (w->sender != NULL) STRAIT_TRY(strait_boundary_flush(w->sender, waits));
    if (w->receiver != NULL) STRAIT_TRY(strait_boundary_flush(w->receiver, waits));
    const double posted = post_seconds(w);
    w->times.wait += posted;
    if (w->bill != NULL) *w->bill += strait_clock_seconds() - began - posted;
    return STRAIT_OK;
}

static strait_err play(struct strait_runner *w, int64_t step) {
    const strait_schedule_spec schedule = {.kind = w->plan.n_stages > 1 ? w->plan.schedule
                                                                        : STRAIT_SCHEDULE_1F1B,
                                           .n_stages = w->plan.n_stages,
                                           .stage = w->stage,
                                           .n_microbatches = (int)w->plan.n_microbatches,
                                           .window = w->n_slots};
    strait_schedule_state state = {0};
    int timeout_ms = 0;
    for (;;) {
        STRAIT_TRY(flush(w, timeout_ms > 0));
        const double began = strait_clock_seconds();
        const strait_err err = look_around(w, &state, timeout_ms);
        if (timeout_ms > 0) {
            w->times.wait += strait_clock_seconds() - began;
            record(w, "wait", step, -1, began);
        }
        if (err == STRAIT_ETIMEDOUT) return give_up(w, &state, step);
        STRAIT_TRY(err);
        timeout_ms = 0;
        const strait_schedule_action move = strait_schedule_next(&schedule, &state);
        if (move.kind == STRAIT_ACTION_FINISH) return flush(w, 1);
        if (move.kind == STRAIT_ACTION_WAIT) {
            timeout_ms = w->deadline_ms;
            continue;
        }
        STRAIT_TRY(make_move(w, &schedule, move, step));
        w->last_action = move.kind;
        strait_schedule_done(&state, move);
    }
}

static strait_err zero_gradients(struct strait_runner *w) {
    struct strait_stream *stream = strait_stage_stream(w->model);
    STRAIT_TRY(strait_stage_zero_gradients(w->model));
    if (w->receiver != NULL) STRAIT_TRY(strait_codec_zero_gradients(codec_of(w->receiver), stream));
    if (w->sender != NULL) STRAIT_TRY(strait_codec_zero_gradients(codec_of(w->sender), stream));
    return STRAIT_OK;
}

/* Sums of squares on their way to the host, and, where nobody has to see them first, the update
 * behind them; waits for the sums, and for the losses before them. */
static strait_err measure(struct strait_runner *w, int64_t step) {
    const struct strait_backend_ops *ops = w->backend->ops;
    int is_reached = 0;
    struct strait_stream *stream = strait_stage_stream(w->model);
    int n = 0;
    strait_param *params = strait_stage_params(w->model, &n);
    if (w->sender != NULL)
        STRAIT_TRY(strait_codec_project_gradients(codec_of(w->sender), stream, params, n));
    STRAIT_TRY(strait_optimizer_clip(w->optimizer, stream, step + 1));
    const strait_tensor totals = strait_optimizer_squared_norms(w->optimizer);
    STRAIT_TRY(ops->download(stream, w->squares, totals.data, strait_tensor_bytes(totals)));
    STRAIT_TRY(ops->event_record(stream, &w->measured));
    if (strait_runner_updates_itself(w)) STRAIT_TRY(strait_runner_update_by_scale(w, step));
    return ops->event_query(&w->measured, 1, &is_reached);
}

strait_err strait_runner_gradients(struct strait_runner *w, int64_t step, double *loss_sum) {
    const double began = strait_clock_seconds();
    w->times = (strait_step_times){0};
    w->bill = NULL;
    w->is_untouched = 0;
    if (w->receiver != NULL) strait_boundary_begin(w->receiver, step);
    if (w->sender != NULL) strait_boundary_begin(w->sender, step);
    w->last_action = STRAIT_ACTION_WAIT;
    STRAIT_TRY(zero_gradients(w));
    STRAIT_TRY(play(w, step));
    w->last_action = STRAIT_ACTION_WAIT;
    STRAIT_TRY(measure(w, step));
    w->times.wall = strait_clock_seconds() - began;
    *loss_sum = 0.0;
    if (w->sender == NULL) add_losses(w, w->plan.n_microbatches, loss_sum);
    return STRAIT_OK;
}

static strait_err wait_for_valid(struct strait_runner *w, int64_t step, int64_t batch) {
    while (!strait_boundary_has_valid(w->receiver)) {
        struct strait_msg *msg = NULL;
        const strait_err err = receive(w, w->deadline_ms, &msg);
        if (err == STRAIT_ETIMEDOUT)
            return STRAIT_FAIL(STRAIT_ETIMEDOUT,
                               "stage %d: nothing from stage %d for %.3g s in the validation after "
                               "step %lld, microbatch %lld (link.deadline)",
                               w->stage, w->stage - 1, (double)w->deadline_ms / 1e3,
                               (long long)step, (long long)batch);
        STRAIT_TRY(err);
        const strait_err routed = strait_runner_route(w, &msg);
        strait_msg_close(&msg);
        STRAIT_TRY(routed);
    }
    return STRAIT_OK;
}

strait_err strait_runner_validate(struct strait_runner *w, int64_t step, double *loss_sum) {
    const int64_t n_batches = strait_loader_valid_batches(w->loader);
    double sum = 0.0;
    for (int64_t batch = 0; batch < n_batches; batch++) {
        strait_crossing at = crossing_of(w, step, batch, 0);
        at.is_evaluation = 1;
        if (w->needs_tokens) STRAIT_TRY(strait_loader_load_valid(w->loader, at.stream, 0, batch));
        STRAIT_TRY(flush(w, w->receiver != NULL)); // the batch before
        if (w->receiver != NULL) {
            STRAIT_TRY(wait_for_valid(w, step, batch));
            STRAIT_TRY(
                strait_boundary_receive_valid(w->receiver, &at, strait_stage_input(w->model, 0)));
        }
        STRAIT_TRY(strait_stage_forward(w->model, 0, at.tokens));
        STRAIT_TRY(finish_forward(w, &at, 0.0f));
        if (w->sender != NULL) continue;
        STRAIT_TRY(w->backend->ops->wait(at.stream));
        add_losses(w, 1, &sum);
    }
    *loss_sum = sum;
    return flush(w, 1);
}

strait_err strait_runner_time_passes(struct strait_runner *w, int n, strait_step_times *out) {
    const strait_crossing at = crossing_of(w, 0, 0, 0);
    const int defers = strait_stage_get_spec(w->model)->can_defer;
    strait_step_times times = {0};
    STRAIT_TRY(strait_loader_load(w->loader, at.stream, 0, 0, 0));
    for (int i = 0; i < n; i++) {
        strait_tensor made;
        const double began = strait_clock_seconds();
        STRAIT_TRY(strait_stage_forward(w->model, 0, at.tokens));
        if (w->sender == NULL)
            STRAIT_TRY(
                strait_stage_loss(w->model, strait_loader_targets(w->loader, 0), 1.0f, &made));
        else
            STRAIT_TRY(strait_stage_output(w->model, &made));
        STRAIT_TRY(w->backend->ops->wait(at.stream));
        const double forwarded = strait_clock_seconds();
        STRAIT_TRY(strait_stage_backward(w->model, 0, defers));
        STRAIT_TRY(strait_stage_backward_input(w->model, 0));
        STRAIT_TRY(w->backend->ops->wait(at.stream));
        const double backed = strait_clock_seconds();
        if (defers) STRAIT_TRY(strait_stage_backward_weights(w->model, 0));
        STRAIT_TRY(w->backend->ops->wait(at.stream));
        times.forward = forwarded - began; // the last round counts: the first warm up
        times.input = backed - forwarded;
        times.weights = strait_clock_seconds() - backed;
    }
    *out = times;
    return zero_gradients(w);
}
