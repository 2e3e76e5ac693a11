#include "stage/limits.h"

#include "base/machine.h"
#include "net/core/mesh.h"
#include "net/emulate/delay_line.h"
#include "net/emulate/emulate.h"
#include "net/tls/socket.h"
#include "net/tls/tls.h"
#include "plan/delay.h"
#include "plan/limit.h"
#include "plan/simulate.h"
#include "plan/window.h"

#include <math.h>
#include <string.h>

enum {
    VALID_SEEN = 1024 // microbatches of a validation that are simulated
};

static const double device_share = 0.8; // of a device's spare memory that slots may take
static const double slack = 0.02;       // how much slower than with every slot a window may be

/* A run in the planner's numbers. */
struct picture {
    strait_pipe_stage stages[STRAIT_RUN_STAGES];
    strait_pipe_link links[STRAIT_RUN_STAGES];
    strait_pipe pipe;
};

/* Every boundary of a stage packs one crossing of a microbatch and unpacks another. */
static double crossing_s(const strait_run_plan *plan, const strait_step_times *times, int stage) {
    const int boundaries = (stage > 0) + (stage + 1 < plan->n_stages);
    return times[stage].codec / 2.0 / boundaries;
}

/* Records of TLS are what an emulated link is late with. */
static double extra_s(const strait_emulate_spec *e, double bytes, double pace_s) {
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
    return delay_s + (extra_s(e, fmax(forward_bytes, 1.0), pace_s) +
                      extra_s(e, fmax(backward_bytes, 1.0), pace_s)) /
                         2.0;
}

/* From one message to the next: what a step took, where that is known, or else the work of the
 * slowest stage, which windows are chosen for. */
static double pace_of(const strait_run_plan *plan, const strait_step_times *times) {
    double pace = 0.0;
    for (int i = 0; i < plan->n_stages; i++) {
        const double work = times[i].forward + times[i].input + times[i].weights + times[i].codec;
        pace = fmax(pace, fmax(work, times[i].wall));
    }
    return pace;
}

/* `n` microbatches took `times`; bytes are of one microbatch. */
static void draw(const strait_run_plan *plan, const strait_step_times *times, double n,
                 double forward_bytes, double backward_bytes, struct picture *out) {
    for (int i = 0; i < plan->n_stages; i++)
        out->stages[i] = (strait_pipe_stage){.forward_s = times[i].forward / n,
                                             .input_s = times[i].input / n,
                                             .weights_s = times[i].weights / n};
    const double delay_s = strait_limits_delay(plan, forward_bytes, backward_bytes,
                                               pace_of(plan, times) / n);
    for (int i = 0; i + 1 < plan->n_stages; i++)
        out->links[i] = (strait_pipe_link){.forward_bytes = forward_bytes,
                                           .backward_bytes = backward_bytes,
                                           .forward_bps = plan->emulate.rate_bps,
                                           .backward_bps = plan->emulate.rate_bps,
                                           .delay_s = delay_s,
                                           .codec_s = crossing_s(plan, times, i) / n};
    out->pipe = (strait_pipe){
        .n_stages = plan->n_stages,
        .n_microbatches = (int)plan->n_microbatches,
        .stages = out->stages,
        .links = out->links,
        .clips = 1,
        .microbatch_tokens = (double)(plan->microbatch * plan->shape.context)};
}

/* Slots that fit into half of the memory that the host has to spare, or into most of a device's,
 * shared out among the stages, which may be on one; no fewer than plain 1F1B needs. */
static strait_err find_caps(const strait_run_plan *plan, const uint64_t *spare, int *caps) {
    const double host = strait_machine_spare_bytes();
    for (int i = 0; i < plan->n_stages; i++) {
        strait_runner_memory one;
        strait_runner_memory two;
        STRAIT_TRY(strait_runner_plan(plan, i, 1, &one));
        STRAIT_TRY(strait_runner_plan(plan, i, 2, &two));
        const double available = spare != NULL ? device_share * (double)spare[i] : 0.5 * host;
        const double slot = (double)(two.device - one.device);
        const double fits = (spare != NULL) + available / plan->n_stages / slot;
        const int ahead = plan->n_stages - i;
        caps[i] = fits < ahead ? ahead : fits > 1e6 ? 1000000 : (int)fits;
    }
    return STRAIT_OK;
}

strait_err strait_limits_windows(const strait_run_plan *plan, int wanted,
                                 const strait_step_times *times, const double *delays,
                                 const uint64_t *spare, int *windows, double *tokens_per_s) {
    struct picture picture;
    strait_simulate_result result;
    int caps[STRAIT_RUN_STAGES];
    STRAIT_TRY(find_caps(plan, spare, caps));
    draw(plan, times, 1.0, (double)strait_codec_wire_bytes(&plan->codec, STRAIT_FORWARD),
         (double)strait_codec_wire_bytes(&plan->codec, STRAIT_BACKWARD), &picture);
    for (int i = 0; i + 1 < plan->n_stages; i++)
        if (delays[i] > 0.0) // the shortest round trip knows nothing of what jitter and loss add
            picture.links[i].delay_s += delays[i] - (double)plan->emulate.delay_ns * 1e-9;
    /* Fill-drain and plain 1F1B have the windows they have. */
    const int is_free = plan->schedule == STRAIT_SCHEDULE_WINDOW ||
                        plan->schedule == STRAIT_SCHEDULE_SPLIT;
    STRAIT_TRY(
        strait_window_fit(&picture.pipe, plan->schedule, is_free ? caps : NULL, slack, windows));
    for (int i = 0; wanted > 0 && i < plan->n_stages; i++) {
        const int most = plan->schedule == STRAIT_SCHEDULE_FILL ? windows[i] : wanted;
        windows[i] = most < plan->n_microbatches ? most : (int)plan->n_microbatches;
    }
    const strait_simulate_params how = {.kind = plan->schedule, .windows = windows, .n_steps = 2};
    STRAIT_TRY(strait_simulate(&picture.pipe, &how, NULL, &result));
    *tokens_per_s = result.tokens_per_s;
    return STRAIT_OK;
}

/* Of one microbatch, on machines that are fast for what they are. */
static void guess_times(const strait_run_plan *plan, strait_step_times *times) {
    static const double host_rate = 1e11, device_rate = 3e14; // operations a second
    const double rate = plan->scratch_bytes > 0 ? device_rate : host_rate;
    const strait_shape *shape = &plan->shape;
    const double tokens = (double)(plan->microbatch * shape->context);
    const double block = 2.0 * (double)strait_shape_block_params(shape) * tokens / rate;
    const double sender = 2.0 * (double)(shape->vocab * shape->width) * tokens / rate;
    for (int i = 0; i < plan->n_stages; i++) {
        const int n = plan->parts[i].last - plan->parts[i].first;
        const double pass = n * block + (i == plan->n_stages - 1 ? sender : 0.0);
        times[i] = (strait_step_times){.forward = pass, .input = pass, .weights = pass};
    }
}

strait_err strait_limits_expect(const strait_run_plan *plan, int wanted, int *windows) {
    const double unknown[STRAIT_RUN_STAGES] = {0};
    uint64_t plenty[STRAIT_RUN_STAGES];
    strait_step_times times[STRAIT_RUN_STAGES] = {0};
    double tokens_per_s = 0.0;
    guess_times(plan, times);
    for (int i = 0; i < plan->n_stages; i++)
        plenty[i] = UINT64_MAX / 2;
    return strait_limits_windows(plan, wanted, times, unknown,
                                 plan->scratch_bytes > 0 ? plenty : NULL, windows, &tokens_per_s);
}

/* A validation is forward passes only, and no window holds them back: what piles up grows with
 * their number, so that some tell of all. */
static strait_err see_validation(struct picture *picture, int64_t n_valid,
                                 strait_simulate_stage *seen) {
    const int n = n_valid < VALID_SEEN ? (int)n_valid : VALID_SEEN;
    int windows[STRAIT_RUN_STAGES];
    strait_simulate_result result;
    strait_pipe pipe = picture->pipe;
    pipe.n_microbatches = n;
    for (int i = 0; i < pipe.n_stages; i++) {
        windows[i] = n;
        picture->stages[i].input_s = picture->stages[i].weights_s = 0.0;
    }
    const strait_simulate_params how = {
        .kind = STRAIT_SCHEDULE_FILL, .windows = windows, .n_steps = 1};
    STRAIT_TRY(strait_simulate(&pipe, &how, seen, &result));
    for (int i = 0; i < pipe.n_stages; i++) {
        strait_simulate_stage *s = &seen[i];
        const double more = (double)n_valid / n;
        *s = (strait_simulate_stage){.most_out[0] = (int)(s->most_out[0] * more),
                                     .most_in[0] = (int)(s->most_in[0] * more)};
        s->most_messages = s->most_out[0] + s->most_in[0];
    }
    return STRAIT_OK;
}

/* Bytes of messages that wait on a stage, one more each way for those that are just coming in. A
 * queue that is full makes its stage wait. A pool keeps messages for the next of about their size,
 * whichever way that goes. */
static size_t held_bytes(const strait_run_plan *plan, int stage,
                         const strait_simulate_stage *seen) {
    const int comes[] = {stage > 0, stage + 1 < plan->n_stages};
    size_t each[2], sum = 0, n_sum = 0;
    for (int k = 0; k < 2; k++) {
        const size_t size = strait_codec_wire_bytes(&plan->codec, (strait_direction)k);
        const size_t capacity = STRAIT_MESH_QUEUE / size +
                                2; // with the one that waits to be queued
        const size_t out = (size_t)seen->most_out[k] < capacity ? (size_t)seen->most_out[k]
                                                                : capacity;
        const size_t n = out + (size_t)(seen->most_in[k] + comes[k]);
        each[k] = strait_msg_bytes(size);
        sum += n * each[k];
        n_sum += n;
    }
    const size_t together = (size_t)(seen->most_messages + comes[0] + comes[1]);
    return each[0] == each[1] && together < n_sum ? together * each[0] : sum;
}

strait_err strait_limits_messages(const strait_run *run, const strait_run_plan *plan,
                                  const int *windows, const strait_step_times *times,
                                  int64_t n_valid, size_t *out) {
    struct picture picture;
    strait_step_times guessed[STRAIT_RUN_STAGES];
    strait_simulate_stage steps[STRAIT_RUN_STAGES], valid[STRAIT_RUN_STAGES] = {0};
    strait_simulate_result result;
    const int n = plan->n_stages;
    memset(out, 0, (size_t)n * sizeof *out);
    if (n == 1) return STRAIT_OK;
    guess_times(plan, guessed);
    draw(plan, times != NULL ? times : guessed, 1.0,
         (double)strait_codec_wire_bytes(&plan->codec, STRAIT_FORWARD),
         (double)strait_codec_wire_bytes(&plan->codec, STRAIT_BACKWARD), &picture);
    const strait_simulate_params how = {.kind = plan->schedule, .windows = windows, .n_steps = 2};
    STRAIT_TRY(strait_simulate(&picture.pipe, &how, steps, &result));
    if (n_valid > 0) STRAIT_TRY(see_validation(&picture, n_valid, valid));
    const size_t line = (size_t)strait_socket_streams((int)run->link.streams) *
                        strait_delay_line_bytes(strait_emulate_in_flight(&plan->emulate));
    for (int i = 0; i < n; i++) {
        const size_t a = held_bytes(plan, i, &steps[i]), b = held_bytes(plan, i, &valid[i]);
        out[i] = (a > b ? a : b) + (size_t)((i > 0) + (i + 1 < n)) * line;
    }
    return STRAIT_OK;
}

const char *strait_limits_name(const strait_run_plan *plan, const int *windows,
                               const strait_step_times *times, int knows_links,
                               double forward_bytes, double backward_bytes) {
    const double n = (double)plan->n_microbatches;
    struct picture picture;
    strait_limit limit;
    strait_simulate_result result;
    double longest = 0.0;
    draw(plan, times, n, forward_bytes / n, backward_bytes / n, &picture);
    const strait_simulate_params how = {.kind = plan->schedule, .windows = windows, .n_steps = 1};
    if (strait_limit_find(&picture.pipe, &how, &limit) != STRAIT_OK ||
        strait_simulate(&picture.pipe, &how, NULL, &result) != STRAIT_OK)
        return "unknown";
    for (int i = 0; i < plan->n_stages; i++)
        if (times[i].wall > longest) longest = times[i].wall;
    if (!knows_links && longest - result.seconds > limit.saved[limit.kind]) return "links";
    return strait_limit_name(limit.kind);
}

void strait_limits_lay_meter(const strait_run_plan *plan, strait_pipe *pipe,
                             strait_pipe_link *links) {
    for (int i = 0; i + 1 < pipe->n_stages; i++) {
        links[i].forward_bps = links[i].backward_bps = plan->meter_bps;
        links[i].delay_s = plan->meter_delay_s;
    }
    pipe->links = links;
    pipe->wire = STRAIT_WIRE_METER;
    pipe->control_s = plan->meter_delay_s; // the coordinator is as far away as any neighbour
}

double strait_limits_metered(const strait_run_plan *plan, const int *windows,
                             const strait_step_times *times, double forward_bytes,
                             double backward_bytes) {
    const double n = (double)plan->n_microbatches;
    struct picture picture;
    strait_simulate_result result;
    if (plan->meter_bps == 0.0) return 0.0;
    draw(plan, times, n, forward_bytes / n, backward_bytes / n, &picture);
    strait_limits_lay_meter(plan, &picture.pipe, picture.links);
    const strait_simulate_params how = {.kind = plan->schedule, .windows = windows, .n_steps = 1};
    if (strait_simulate(&picture.pipe, &how, NULL, &result) != STRAIT_OK) return 0.0;
    return result.seconds;
}
