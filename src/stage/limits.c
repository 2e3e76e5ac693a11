#include "stage/limits.h"

#include "base/machine.h"
#include "net/emulate/delay_line.h"
#include "net/emulate/emulate.h"
#include "net/mesh/mesh.h"
#include "net/tls/socket.h"
#include "net/tls/tls.h"
#include "plan/delay.h"
#include "plan/limit.h"
#include "plan/simulate.h"
#include "plan/window.h"

#include <math.h>
#include <string.h>

enum {
    MAX_VALID = 1024 // at most so many microbatches of a validation are simulated
};

static const double device_share = 0.8;  // of a device's free memory that slots may use
static const double max_slowdown = 0.02; // against unlimited slots

/* Seconds per crossing: each boundary of a stage packs one and unpacks another per microbatch. */
static double codec_per_crossing(const strait_run_plan *plan, const strait_step_times *times,
                                 int stage) {
    const int boundaries = (stage > 0) + (stage + 1 < plan->n_stages);
    return times[stage].codec / 2.0 / boundaries;
}

/* Average delay that jitter and loss add. The emulated link delays TLS records, not messages: a
 * message is as late as the latest of its records. */
static double jitter_and_loss_delay(const strait_emulate_spec *e, double bytes, double pace_s) {
    const double pieces = ceil(bytes / STRAIT_TLS_RECORD);
    const double each = pieces > 1.0 ? STRAIT_TLS_RECORD : bytes;
    const double bits_s = e->rate_bps > 0 ? 8.0 * each / e->rate_bps : 0.0;
    const double all_s = pieces * bits_s;
    return strait_delay_extra(
        &(strait_delay_spec){.delay_s = (double)e->delay_ns * 1e-9,
                             .jitter_s = (double)e->jitter_ns * 1e-9,
                             .loss = e->loss,
                             .n_pieces = pieces < 4096.0 ? (int)pieces : 4096,
                             .piece_packets = ceil(each / STRAIT_PACKET_PAYLOAD),
                             .piece_s = bits_s,
                             .message_s = pace_s > all_s ? pace_s : all_s});
}

double strait_limits_delay(const strait_run_plan *plan, double forward_bytes, double backward_bytes,
                           double pace_s) {
    const strait_emulate_spec *e = &plan->emulate;
    const double delay_s = (double)e->delay_ns * 1e-9;
    if (e->jitter_ns == 0 && !(e->loss > 0.0)) return delay_s;
    return delay_s + (jitter_and_loss_delay(e, fmax(forward_bytes, 1.0), pace_s) +
                      jitter_and_loss_delay(e, fmax(backward_bytes, 1.0), pace_s)) /
                         2.0;
}

/* Seconds between messages: the measured wall time of the step if known, or else the work of the
 * slowest stage, since windows are chosen to keep that one busy. */
static double message_interval(const strait_run_plan *plan, const strait_step_times *times) {
    double pace = 0.0;
    for (int i = 0; i < plan->n_stages; i++) {
        const double work = times[i].forward + times[i].input + times[i].weights + times[i].codec;
        pace = fmax(pace, fmax(work, times[i].wall));
    }
    return pace;
}

void strait_limits_pipeline(const strait_run_plan *plan, const strait_step_times *times, double n,
                            double forward_bytes, double backward_bytes,
                            struct strait_limits_pipeline *out) {
    for (int i = 0; i < plan->n_stages; i++)
        out->stages[i] = (strait_pipe_stage){.forward_s = times[i].forward / n,
                                             .input_s = times[i].input / n,
                                             .weights_s = times[i].weights / n};
    const double delay_s = strait_limits_delay(plan, forward_bytes, backward_bytes,
                                               message_interval(plan, times) / n);
    for (int i = 0; i + 1 < plan->n_stages; i++)
        out->links[i] = (strait_pipe_link){
            .forward_bytes = forward_bytes,
            .backward_bytes = backward_bytes,
            .forward_bps = plan->emulate.rate_bps * strait_limits_links(plan, i),
            .backward_bps = plan->emulate.rate_bps * strait_limits_links(plan, i),
            .delay_s = delay_s,
            .codec_s = codec_per_crossing(plan, times, i) / n};
    out->pipe = (strait_pipe){
        .n_stages = plan->n_stages,
        .n_microbatches = (int)plan->n_microbatches,
        .stages = out->stages,
        .links = out->links,
        .clips = 1,
        .staleness = plan->staleness,
        .n_prompt = plan->n_stages - plan->n_late,
        .microbatch_tokens = (double)(plan->microbatch * plan->shape.context)};
}

/* The most slots that fit into half of the host's free memory, or into device_share of a device's.
 * The memory is divided by the number of stages, because all of them may be on one machine. At
 * least what plain 1F1B needs. */
static strait_err find_window_caps(const strait_run_plan *plan, const uint64_t *spare, int *caps) {
    const double host = strait_machine_spare_bytes();
    for (int i = 0; i < plan->n_stages; i++) {
        strait_runner_memory one;
        strait_runner_memory two;
        STRAIT_TRY(strait_runner_plan(plan, i, 1, &one));
        STRAIT_TRY(strait_runner_plan(plan, i, 2, &two));
        const double available = spare != NULL ? device_share * (double)spare[i] : 0.5 * host;
        const double slot = (double)(two.device - one.device);
        /* `spare` was measured with one slot allocated, which therefore counts as fitting. */
        const double fits = (spare != NULL) + available / plan->n_members / slot;
        const int ahead = plan->n_stages - i;
        caps[i] = fits < ahead ? ahead : fits > 1e6 ? 1000000 : (int)fits;
    }
    return STRAIT_OK;
}

const int *strait_limits_join_windows(const strait_run_plan *plan, const int *windows,
                                      int joined[STRAIT_RUN_STAGES]) {
    for (int i = 0; i < plan->n_stages; i++) {
        const int64_t all = (int64_t)windows[i] * plan->replicas[i];
        joined[i] = (int)(all < strait_run_plan_slots_max(plan) ? all
                                                                : strait_run_plan_slots_max(plan));
    }
    return joined;
}

double strait_limits_links(const strait_run_plan *plan, int boundary) {
    const int a = plan->replicas[boundary], b = plan->replicas[boundary + 1];
    return a > b ? a : b;
}

void strait_limits_widen(const strait_run_plan *plan, const int *caps, int *windows) {
    const int group = (plan->groups.n_microbatches + plan->groups.n_groups - 1) /
                      plan->groups.n_groups;
    int more = 0;
    if (strait_run_plan_replicas_max(plan) == 1) return;
    for (int i = plan->n_stages - 1; i >= 0; i--) {
        const int n = plan->replicas[i];
        more += (n - 1) * group;
        if (i + 1 < plan->n_stages) more += 2 * ((int)strait_limits_links(plan, i) - 1) * group;
        int window = (windows[i] + more + n - 1) / n;
        if (caps != NULL && window > caps[i]) window = caps[i];
        windows[i] = window < plan->n_microbatches ? window : (int)plan->n_microbatches;
    }
}

/* Widens windows up to `caps` (NULL: they stay) by simulating every replica and its home. */
static strait_err fit_members(const strait_run_plan *plan, const strait_pipe *pipe, const int *caps,
                              int *windows, double *tokens_per_s) {
    strait_limits_members members;
    int64_t n_values[STRAIT_RUN_STAGES];
    double seconds = 0.0;
    for (int i = 0; i < plan->n_stages; i++) {
        strait_runner_memory memory;
        STRAIT_TRY(strait_runner_plan(plan, i, 1, &memory));
        n_values[i] = memory.n_values;
    }
    strait_limits_members_init(plan, pipe, windows, n_values, &members);
    if (caps != NULL)
        STRAIT_TRY(strait_members_fit_windows(&members.spec, members.stages, caps, max_slowdown));
    STRAIT_TRY(strait_members_simulate(&members.spec, NULL, &seconds));
    for (int i = 0; i < plan->n_stages; i++)
        windows[i] = members.stages[i].window < plan->n_microbatches ? members.stages[i].window
                                                                     : (int)plan->n_microbatches;
    *tokens_per_s = pipe->microbatch_tokens * (double)plan->n_microbatches / seconds;
    return STRAIT_OK;
}

strait_err strait_limits_windows(const strait_run_plan *plan, int wanted,
                                 const strait_step_times *times, const double *delays,
                                 const uint64_t *spare, int *windows, double *tokens_per_s) {
    struct strait_limits_pipeline pipeline;
    strait_simulate_result result;
    int caps[STRAIT_RUN_STAGES] = {0}, joined[STRAIT_RUN_STAGES];
    STRAIT_TRY(find_window_caps(plan, spare, caps));
    strait_limits_pipeline(
        plan, times, 1.0, (double)strait_codec_wire_bytes(&plan->codec, STRAIT_FORWARD),
        (double)strait_codec_wire_bytes(&plan->codec, STRAIT_BACKWARD), &pipeline);
    for (int i = 0; i + 1 < plan->n_stages; i++)
        /* Delays are measured as the shortest round trip, which shows no jitter or loss: replace
         * only the constant part. */
        if (delays[i] > 0.0)
            pipeline.links[i].delay_s += delays[i] - (double)plan->emulate.delay_ns * 1e-9;
    /* Fill-drain and plain 1F1B define their windows. */
    const int is_adjustable = plan->schedule == STRAIT_SCHEDULE_WINDOW ||
                              plan->schedule == STRAIT_SCHEDULE_SPLIT;
    STRAIT_TRY(strait_window_fit(&pipeline.pipe, plan->schedule, is_adjustable ? caps : NULL,
                                 max_slowdown, windows));
    if (is_adjustable) strait_limits_widen(plan, caps, windows);
    for (int i = 0; wanted > 0 && i < plan->n_stages; i++) {
        const int window = plan->schedule == STRAIT_SCHEDULE_FILL ? windows[i] : wanted;
        const int most = strait_pipe_in_flight(&pipeline.pipe, i);
        windows[i] = window < most ? window : most;
    }
    if (strait_limits_needs_members(plan))
        return fit_members(plan, &pipeline.pipe, wanted == 0 && is_adjustable ? caps : NULL,
                           windows, tokens_per_s);
    const strait_simulate_params params = {
        .kind = plan->schedule,
        .windows = strait_limits_join_windows(plan, windows, joined),
        .n_steps = strait_pipe_steps(&pipeline.pipe, 2)};
    STRAIT_TRY(strait_simulate(&pipeline.pipe, &params, NULL, &result));
    *tokens_per_s = result.tokens_per_s;
    return STRAIT_OK;
}

/* Assumed times of one microbatch. The rates are those of fast machines: slower ones need smaller
 * windows, so memory planned with these is enough. */
static void assume_times(const strait_run_plan *plan, strait_step_times *times) {
    static const double host_rate = 1e11, device_rate = 3e14; // operations per second
    const double rate = plan->scratch_bytes > 0 ? device_rate : host_rate;
    const strait_shape *shape = &plan->shape;
    const double tokens = (double)(plan->microbatch * shape->context);
    const double block = 2.0 * (double)strait_shape_block_params(shape) * tokens / rate;
    const double lm_head = 2.0 * (double)(shape->vocab * shape->width) * tokens / rate;
    for (int i = 0; i < plan->n_stages; i++) {
        const int n = plan->stage_layers[i].last - plan->stage_layers[i].first;
        const double pass = (n * block + (i == plan->n_stages - 1 ? lm_head : 0.0)) /
                            plan->replicas[i];
        times[i] = (strait_step_times){.forward = pass, .input = pass, .weights = pass};
    }
}

strait_err strait_limits_estimate_windows(const strait_run_plan *plan, int wanted, int *windows) {
    const double unmeasured[STRAIT_RUN_STAGES] = {0};
    uint64_t unlimited[STRAIT_RUN_STAGES];
    strait_step_times times[STRAIT_RUN_STAGES] = {0};
    double tokens_per_s = 0.0;
    assume_times(plan, times);
    for (int i = 0; i < plan->n_stages; i++)
        unlimited[i] = UINT64_MAX / 2;
    return strait_limits_windows(plan, wanted, times, unmeasured,
                                 plan->scratch_bytes > 0 ? unlimited : NULL, windows,
                                 &tokens_per_s);
}

/* A validation has forward passes only and no window limits them, so queues grow in proportion to
 * the number of microbatches: simulate some and scale up. */
static strait_err simulate_validation(struct strait_limits_pipeline *pipeline, int64_t n_valid,
                                      strait_simulate_stage *peak) {
    const int n = n_valid < MAX_VALID ? (int)n_valid : MAX_VALID;
    int windows[STRAIT_RUN_STAGES];
    strait_simulate_result result;
    strait_pipe pipe = pipeline->pipe;
    pipe.n_microbatches = n;
    pipe.staleness = 0;
    for (int i = 0; i < pipe.n_stages; i++) {
        windows[i] = n;
        pipeline->stages[i].input_s = pipeline->stages[i].weights_s = 0.0;
    }
    const strait_simulate_params params = {
        .kind = STRAIT_SCHEDULE_FILL, .windows = windows, .n_steps = 1};
    STRAIT_TRY(strait_simulate(&pipe, &params, peak, &result));
    for (int i = 0; i < pipe.n_stages; i++) {
        strait_simulate_stage *s = &peak[i];
        const double scale = (double)n_valid / n;
        *s = (strait_simulate_stage){.most_out[0] = (int)(s->most_out[0] * scale),
                                     .most_in[0] = (int)(s->most_in[0] * scale)};
        s->most_messages = s->most_out[0] + s->most_in[0];
    }
    return STRAIT_OK;
}

/* Bytes of messages that wait on a stage, plus one in each direction that is being received. A full
 * queue blocks its stage, which bounds outgoing messages. If messages of both directions have the
 * same size, they share pool entries, and the peak of the sum counts. */
static size_t waiting_bytes(const strait_run_plan *plan, int stage,
                            const strait_simulate_stage *peak) {
    const int has_neighbour[] = {stage > 0, stage + 1 < plan->n_stages};
    size_t each[2], sum = 0, n_sum = 0;
    for (int k = 0; k < 2; k++) {
        const size_t size = strait_codec_wire_bytes(&plan->codec, (strait_direction)k);
        /* An empty queue accepts a message above its limit, and one more waits to enter it. */
        const size_t queue_limit = STRAIT_MESH_QUEUE / size + 2;
        const size_t out = (size_t)peak->most_out[k] < queue_limit ? (size_t)peak->most_out[k]
                                                                   : queue_limit;
        const size_t n = out + (size_t)(peak->most_in[k] + has_neighbour[k]);
        each[k] = strait_msg_bytes(size);
        sum += n * each[k];
        n_sum += n;
    }
    const int n_messages = peak->most_messages + has_neighbour[0] + has_neighbour[1];
    const size_t at_once = (size_t)n_messages;
    return each[0] == each[1] && at_once < n_sum ? at_once * each[0] : sum;
}

strait_err strait_limits_messages(const strait_run *run, const strait_run_plan *plan,
                                  const int *windows, const strait_step_times *times,
                                  int64_t n_valid, size_t *out) {
    struct strait_limits_pipeline pipeline;
    strait_step_times assumed[STRAIT_RUN_STAGES];
    strait_simulate_stage steps[STRAIT_RUN_STAGES], valid[STRAIT_RUN_STAGES] = {0};
    strait_simulate_result result;
    const int n = plan->n_stages;
    for (int i = 0; i < n; i++) {
        strait_runner_memory memory;
        STRAIT_TRY(strait_runner_plan(plan, i, 1, &memory));
        /* What it sends, and what it gets; an owner of averages keeps what rounding lost, too. */
        const double most = fmax(memory.averaged.fragment, memory.averaged.attention);
        out[i] = (size_t)(most > 0 ? 3.0 * most : 2.0 * memory.reduced);
    }
    if (n == 1) return STRAIT_OK;
    assume_times(plan, assumed);
    strait_limits_pipeline(plan, times != NULL ? times : assumed, 1.0,
                           (double)strait_codec_wire_bytes(&plan->codec, STRAIT_FORWARD),
                           (double)strait_codec_wire_bytes(&plan->codec, STRAIT_BACKWARD),
                           &pipeline);
    int joined[STRAIT_RUN_STAGES];
    const strait_simulate_params params = {
        .kind = plan->schedule,
        .windows = strait_limits_join_windows(plan, windows, joined),
        .n_steps = strait_pipe_steps(&pipeline.pipe, 2)};
    STRAIT_TRY(strait_simulate(&pipeline.pipe, &params, steps, &result));
    if (n_valid > 0) STRAIT_TRY(simulate_validation(&pipeline, n_valid, valid));
    const size_t link_bytes = (size_t)strait_socket_streams((int)run->link.streams) *
                              strait_delay_line_bytes(strait_emulate_in_flight(&plan->emulate));
    for (int i = 0; i < n; i++) {
        const size_t a = waiting_bytes(plan, i, &steps[i]), b = waiting_bytes(plan, i, &valid[i]);
        out[i] += (a > b ? a : b) + (size_t)((i > 0) + (i + 1 < n)) * link_bytes;
    }
    return STRAIT_OK;
}

void strait_limits_explain(const strait_run_plan *plan, const strait_step_measure *m,
                           strait_simulate_span *spans, int capacity, strait_step_limit *out) {
    const double n = (double)plan->n_microbatches;
    struct strait_limits_pipeline pipeline;
    strait_limit limit;
    strait_simulate_result result;
    int joined[STRAIT_RUN_STAGES];
    double longest = 0.0;
    *out = (strait_step_limit){.name = "unknown", .where = -1};
    strait_limits_pipeline(plan, m->times, n, m->forward_bytes / n, m->backward_bytes / n,
                           &pipeline);
    const strait_simulate_params params = {
        .kind = plan->schedule,
        .windows = strait_limits_join_windows(plan, m->windows, joined),
        .n_steps = strait_pipe_steps(&pipeline.pipe, 1)};
    strait_simulate_params picture = params; // of one step, or of two that overlap
    picture.n_steps = 1 + plan->staleness;
    picture.spans = spans;
    picture.capacity = capacity;
    if (strait_limit_find(&pipeline.pipe, &params, &limit) != STRAIT_OK ||
        strait_simulate(&pipeline.pipe, &params, NULL, &result) != STRAIT_OK)
        return;
    const double seconds = result.seconds;
    if (strait_simulate(&pipeline.pipe, &picture, NULL, &result) != STRAIT_OK) return;
    for (int i = 0; i < plan->n_stages; i++)
        if (m->times[i].wall > longest) longest = m->times[i].wall;
    memcpy(out->seconds, limit.saved, sizeof out->seconds);
    out->name = strait_limit_name(limit.kind);
    out->where = limit.where;
    out->n_spans = result.n_spans < capacity ? result.n_spans : capacity;
    /* What the simulation of the known parts leaves unexplained is due to the links. */
    out->links_s = m->knows_links ? 0.0 : fmax(0.0, longest - seconds);
    if (out->links_s <= limit.saved[limit.kind]) return;
    out->name = "links";
    out->where = -1;
}

void strait_limits_apply_meter(const strait_run_plan *plan, strait_pipe *pipe,
                               strait_pipe_link *links) {
    for (int i = 0; i + 1 < pipe->n_stages; i++) {
        links[i].forward_bps = links[i].backward_bps = plan->meter_bps;
        links[i].delay_s = plan->meter_delay_s;
    }
    pipe->links = links;
    pipe->wire = STRAIT_WIRE_METER;
    pipe->control_s = plan->meter_delay_s; // the coordinator is as far as a neighbour
}

double strait_limits_metered(const strait_run_plan *plan, const int *windows,
                             const strait_step_times *times, double forward_bytes,
                             double backward_bytes) {
    const double n = (double)plan->n_microbatches;
    struct strait_limits_pipeline pipeline;
    strait_simulate_result result;
    if (plan->meter_bps == 0.0) return 0.0;
    strait_limits_pipeline(plan, times, n, forward_bytes / n, backward_bytes / n, &pipeline);
    strait_limits_apply_meter(plan, &pipeline.pipe, pipeline.links);
    int joined[STRAIT_RUN_STAGES];
    const strait_simulate_params params = {
        .kind = plan->schedule,
        .windows = strait_limits_join_windows(plan, windows, joined),
        .n_steps = strait_pipe_steps(&pipeline.pipe, 1)};
    if (strait_simulate(&pipeline.pipe, &params, NULL, &result) != STRAIT_OK) return 0.0;
    return result.seconds;
}
