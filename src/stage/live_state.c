/* live_state.c - a runner that keeps what it sends and knows which step its state belongs to, so
 * that a neighbour can be replaced while this stage keeps its state.
 *
 * The replaced stage restores an older snapshot and computes the steps since, muted, from the
 * crossings that its neighbours have kept. Steps that were begun and not applied have changed
 * nothing but the codecs' state (error feedback, statistics of a basis): the runner keeps a copy
 * of that from the beginning of each step, to undo them. */
#include "base/alloc.h"
#include "codec/meter.h"
#include "stage/runner.h"

enum {
    LOG_MIN = 16 << 20, // bytes of kept crossings that any stage may take
    LOG_SHARE = 8       // or this part of weights, gradients and moments, whichever is more
};

/* ---- memory ---- */

size_t strait_runner_log_bytes(const strait_runner_memory *memory) {
    const size_t share = (memory->weights + memory->gradients + memory->optimizer) / LOG_SHARE;
    return (share > LOG_MIN ? share : LOG_MIN) / 2; // of one boundary
}

static size_t undo_bytes(const struct strait_codec *codec) {
    size_t bytes = 0;
    for (int i = 0; codec != NULL && i < codec->n_states; i++)
        bytes += strait_tensor_bytes(codec->states[i].tensor);
    return bytes;
}

/* The crossings of one step may wait at the receiver, too, when they are sent again all at once. */
static size_t log_bytes(const strait_run_plan *plan, int boundary, strait_direction out,
                        size_t bytes_max) {
    const strait_codec_spec codec = strait_run_plan_codec(plan, boundary, 1);
    const strait_crossing_log_spec spec = {.message_bytes = strait_codec_wire_bytes(&codec, out),
                                           .n_microbatches = (int)plan->n_microbatches,
                                           .bytes_max = bytes_max};
    const strait_direction in = out == STRAIT_FORWARD ? STRAIT_BACKWARD : STRAIT_FORWARD;
    const size_t kept = strait_crossing_log_bytes(&spec);
    return kept == 0 ? 0
                     : kept + strait_codec_wire_bytes(&codec, in) * (size_t)plan->n_microbatches;
}

size_t strait_runner_kept_bytes(const strait_run_plan *plan, int stage,
                                const strait_runner_memory *memory,
                                const struct strait_codec *receiver,
                                const struct strait_codec *sender) {
    const size_t bytes_max = strait_runner_log_bytes(memory);
    size_t bytes = undo_bytes(receiver) + undo_bytes(sender);
    if (stage > 0) bytes += log_bytes(plan, stage - 1, STRAIT_BACKWARD, bytes_max);
    if (stage + 1 < plan->n_stages) bytes += log_bytes(plan, stage, STRAIT_FORWARD, bytes_max);
    return bytes;
}

/* ---- keeping ---- */

static struct strait_codec *codec_of(struct strait_boundary *boundary) {
    return boundary != NULL ? strait_boundary_codec(boundary) : NULL;
}

static strait_err open_undo(struct strait_runner *runner, const struct strait_codec *codec,
                            void **copies) {
    for (int i = 0; codec != NULL && i < codec->n_states; i++)
        STRAIT_TRY(runner->backend->ops->alloc_host(
            runner->backend, strait_tensor_bytes(codec->states[i].tensor), &copies[i]));
    return STRAIT_OK;
}

strait_err strait_runner_keep_crossings(struct strait_runner *runner) {
    strait_runner_memory memory;
    STRAIT_TRY(strait_run_plan_check_swarm(&runner->plan));
    STRAIT_TRY(strait_runner_plan(&runner->plan, runner->stage, runner->n_slots, &memory));
    const size_t bytes_max = strait_runner_log_bytes(&memory);
    if (runner->receiver != NULL) STRAIT_TRY(strait_boundary_keep(runner->receiver, bytes_max));
    if (runner->sender != NULL) STRAIT_TRY(strait_boundary_keep(runner->sender, bytes_max));
    STRAIT_TRY(open_undo(runner, codec_of(runner->receiver), runner->live.undo[0]));
    STRAIT_TRY(open_undo(runner, codec_of(runner->sender), runner->live.undo[1]));
    runner->live.is_kept = 1;
    return STRAIT_OK;
}

void strait_runner_drop_kept(struct strait_runner *runner) {
    for (int i = 0; i < 2 * STRAIT_CODEC_STATES; i++) {
        void **copy = &runner->live.undo[i / STRAIT_CODEC_STATES][i % STRAIT_CODEC_STATES];
        if (*copy != NULL) runner->backend->ops->release_host(runner->backend, *copy);
        *copy = NULL;
    }
}

/* ---- undoing a step ---- */

static int has_state(struct strait_runner *runner) {
    return undo_bytes(codec_of(runner->receiver)) + undo_bytes(codec_of(runner->sender)) > 0;
}

static strait_err copy_states(struct strait_runner *runner, struct strait_codec *codec,
                              void **copies, int is_undo) {
    const struct strait_backend_ops *ops = runner->backend->ops;
    struct strait_stream *stream = strait_stage_stream(runner->model);
    for (int i = 0; codec != NULL && i < codec->n_states; i++) {
        const strait_tensor state = codec->states[i].tensor;
        const size_t bytes = strait_tensor_bytes(state);
        STRAIT_TRY(is_undo ? ops->upload(stream, state.data, copies[i], bytes)
                           : ops->download(stream, copies[i], state.data, bytes));
    }
    return is_undo && codec != NULL && codec->n_states > 0 ? strait_codec_restored(codec, stream)
                                                           : STRAIT_OK;
}

static strait_err undo(struct strait_runner *runner) {
    if (!runner->live.is_begun || !runner->live.is_kept) return STRAIT_OK;
    runner->live.is_begun = 0;
    STRAIT_TRY(copy_states(runner, codec_of(runner->receiver), runner->live.undo[0], 1));
    return copy_states(runner, codec_of(runner->sender), runner->live.undo[1], 1);
}

strait_err strait_runner_begin_live(struct strait_runner *runner, int64_t step) {
    struct strait_runner_live_state *live = &runner->live;
    if (!live->is_kept) return STRAIT_OK;
    if (live->begun_step == step) STRAIT_TRY(undo(runner)); // the same step once more
    /* The step before was skipped: the codecs' state is no longer that of `applied` steps. */
    if (live->applied != step && has_state(runner)) live->applied = -1;
    live->is_begun = 1;
    live->begun_step = step;
    live->complete = -1;
    STRAIT_TRY(copy_states(runner, codec_of(runner->receiver), live->undo[0], 0));
    return copy_states(runner, codec_of(runner->sender), live->undo[1], 0);
}

void strait_runner_end_live(struct strait_runner *runner, int64_t step) {
    runner->live.complete = step;
}

/* ---- the step that the state belongs to ---- */

int strait_runner_has_applied(const struct strait_runner *runner, int64_t step) {
    const struct strait_runner_live_state *live = &runner->live;
    if (!live->is_kept) return 0; // a local run may load an older checkpoint and repeat its steps
    return live->applied == step + 1 || (live->awaits_basis && live->applied == step);
}

void strait_runner_note_update(struct strait_runner *runner, int64_t step) {
    struct strait_runner_live_state *live = &runner->live;
    live->is_begun = live->has_proposed = 0;
    live->awaits_basis = strait_run_plan_updates_basis(&runner->plan, step + 1);
    live->applied = live->awaits_basis ? step : step + 1;
    live->complete = live->awaits_basis ? step : -1;
}

void strait_runner_lose_live(struct strait_runner *runner) {
    runner->live.applied = -1;
}

void strait_runner_note_basis(struct strait_runner *runner, uint32_t version) {
    struct strait_runner_live_state *live = &runner->live;
    if (!live->awaits_basis || (uint32_t)(live->applied + 1) != version) return;
    live->applied++;
    live->complete = -1;
    live->awaits_basis = live->has_proposed = 0;
}

static int64_t first_kept(struct strait_boundary *boundary, int64_t until) {
    const struct strait_crossing_log *log = boundary != NULL ? strait_boundary_log(boundary) : NULL;
    if (boundary == NULL) return 0;
    return log != NULL ? strait_crossing_log_first(log, until) : until;
}

strait_runner_live strait_runner_describe_live(const struct strait_runner *runner) {
    const struct strait_runner_live_state *live = &runner->live;
    if (!live->is_kept || live->applied < 0) return (strait_runner_live){.step = -1};
    const int64_t step = live->applied + live->awaits_basis;
    const int is_pending = live->complete == step;
    const int64_t prev = first_kept(runner->receiver, step + is_pending);
    const int64_t next = first_kept(runner->sender, step + is_pending);
    return (strait_runner_live){step, is_pending, prev > next ? prev : next};
}

/* Measurements of the step that was aborted do not belong to the next. */
static strait_err drop_metrics(struct strait_runner *runner, struct strait_boundary *boundary) {
    float totals[STRAIT_METER_KINDS][3];
    if (boundary == NULL) return STRAIT_OK;
    return strait_meter_read(&codec_of(boundary)->meter, strait_stage_stream(runner->model),
                             totals);
}

static strait_err reset(struct strait_runner *runner, int64_t step) {
    if (runner->receiver != NULL) strait_boundary_reset(runner->receiver, step);
    if (runner->sender != NULL) strait_boundary_reset(runner->sender, step);
    if (runner->reduction != NULL) strait_reduction_reset(runner->reduction, step);
    STRAIT_TRY(drop_metrics(runner, runner->receiver));
    return drop_metrics(runner, runner->sender);
}

strait_err strait_runner_reset(struct strait_runner *runner, int64_t step) {
    struct strait_runner_live_state *live = &runner->live;
    live->applied = step;
    live->complete = live->begun_step = -1;
    live->is_begun = live->awaits_basis = live->has_proposed = 0;
    return reset(runner, step);
}

strait_err strait_runner_keep_live(struct strait_runner *runner, int64_t step) {
    const strait_runner_live live = strait_runner_describe_live(runner);
    if (live.step < 0 || (live.step != step && !(live.is_pending && live.step + 1 == step)))
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: its state is not that of step %lld",
                           runner->stage, (long long)step);
    if (live.step == step && !runner->live.awaits_basis) {
        STRAIT_TRY(undo(runner));
        runner->live.complete = -1;
    }
    return reset(runner, step);
}

/* ---- commands of a replay ---- */

void strait_runner_mute(struct strait_runner *runner, int mutes_prev, int mutes_next) {
    if (runner->receiver != NULL) strait_boundary_mute(runner->receiver, mutes_prev);
    if (runner->sender != NULL) strait_boundary_mute(runner->sender, mutes_next);
}

static strait_err resend_to(struct strait_runner *runner, struct strait_boundary *boundary,
                            int side, int64_t step) {
    if (boundary == NULL)
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d has no neighbour to send step %lld to",
                           runner->stage, (long long)step);
    runner->side = side;
    STRAIT_TRY(strait_boundary_resend(boundary, step));
    runner->side = 0;
    return STRAIT_OK;
}

strait_err strait_runner_resend(struct strait_runner *runner, int64_t step, int to_prev,
                                int to_next) {
    if (to_prev) STRAIT_TRY(resend_to(runner, runner->receiver, -1, step));
    return to_next ? resend_to(runner, runner->sender, 1, step) : STRAIT_OK;
}
