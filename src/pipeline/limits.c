#include "pipeline/limits.h"

#include "base/machine.h"
#include "plan/limit.h"
#include "plan/simulate.h"
#include "plan/window.h"

static const double device_share = 0.8; // of a device's spare memory that slots may take
static const double slack = 0.02;       // how much slower than with every slot a window may be

/* A run in the planner's numbers. */
struct picture {
    strait_pipe_stage stages[STRAIT_RUN_STAGES];
    strait_pipe_link links[STRAIT_RUN_STAGES];
    strait_pipe pipe;
};

/* Every boundary of a stage packs one crossing of a microbatch and unpacks another. */
static double crossing_s(const strait_recipe *recipe, const strait_worker_times *times, int stage) {
    const int boundaries = (stage > 0) + (stage + 1 < recipe->n_stages);
    return times[stage].codec / 2.0 / boundaries;
}

/* `n` microbatches took `times`; bytes are of one microbatch. */
static void draw(const strait_recipe *recipe, const strait_worker_times *times, double n,
                 double forward_bytes, double backward_bytes, struct picture *out) {
    for (int i = 0; i < recipe->n_stages; i++)
        out->stages[i] = (strait_pipe_stage){.forward_s = times[i].forward / n,
                                             .input_s = times[i].input / n,
                                             .weights_s = times[i].weights / n};
    for (int i = 0; i + 1 < recipe->n_stages; i++)
        out->links[i] = (strait_pipe_link){.forward_bytes = forward_bytes,
                                           .backward_bytes = backward_bytes,
                                           .forward_bps = recipe->emulate.rate_bps,
                                           .backward_bps = recipe->emulate.rate_bps,
                                           .delay_s = (double)recipe->emulate.delay_ns * 1e-9,
                                           .codec_s = crossing_s(recipe, times, i) / n};
    out->pipe = (strait_pipe){
        .n_stages = recipe->n_stages,
        .n_microbatches = (int)recipe->n_microbatches,
        .stages = out->stages,
        .links = out->links,
        .clips = 1,
        .microbatch_tokens = (double)(recipe->microbatch * recipe->shape.context)};
}

/* Slots that fit into half of the memory that the host has to spare, or into most of a device's,
 * shared out among the stages, which may be on one; no fewer than plain 1F1B needs. */
static strait_err find_caps(const strait_recipe *recipe, const uint64_t *spare, int *caps) {
    const double host = strait_machine_spare_bytes();
    for (int i = 0; i < recipe->n_stages; i++) {
        strait_worker_memory one;
        strait_worker_memory two;
        STRAIT_TRY(strait_worker_plan(recipe, i, 1, &one));
        STRAIT_TRY(strait_worker_plan(recipe, i, 2, &two));
        const double available = spare != NULL ? device_share * (double)spare[i] : 0.5 * host;
        const double slot = (double)(two.device - one.device);
        const double fits = (spare != NULL) + available / recipe->n_stages / slot;
        const int ahead = recipe->n_stages - i;
        caps[i] = fits < ahead ? ahead : fits > 1e6 ? 1000000 : (int)fits;
    }
    return STRAIT_OK;
}

strait_err strait_limits_windows(const strait_recipe *recipe, int wanted,
                                 const strait_worker_times *times, const double *delays,
                                 const uint64_t *spare, int *windows, double *tokens_per_s) {
    struct picture picture;
    strait_simulate_result result;
    int caps[STRAIT_RUN_STAGES];
    STRAIT_TRY(find_caps(recipe, spare, caps));
    draw(recipe, times, 1.0, (double)strait_codec_wire_bytes(&recipe->codec, STRAIT_FORWARD),
         (double)strait_codec_wire_bytes(&recipe->codec, STRAIT_BACKWARD), &picture);
    for (int i = 0; i + 1 < recipe->n_stages; i++)
        if (delays[i] > 0.0) picture.links[i].delay_s = delays[i];
    /* Fill-drain and plain 1F1B have the windows they have. */
    const int is_free = recipe->schedule == STRAIT_SCHEDULE_WINDOW ||
                        recipe->schedule == STRAIT_SCHEDULE_SPLIT;
    STRAIT_TRY(
        strait_window_fit(&picture.pipe, recipe->schedule, is_free ? caps : NULL, slack, windows));
    for (int i = 0; wanted > 0 && i < recipe->n_stages; i++) {
        const int most = recipe->schedule == STRAIT_SCHEDULE_FILL ? windows[i] : wanted;
        windows[i] = most < recipe->n_microbatches ? most : (int)recipe->n_microbatches;
    }
    const strait_simulate_how how = {.kind = recipe->schedule, .windows = windows, .n_steps = 2};
    STRAIT_TRY(strait_simulate(&picture.pipe, &how, NULL, &result));
    *tokens_per_s = result.tokens_per_s;
    return STRAIT_OK;
}

strait_err strait_limits_expect(const strait_recipe *recipe, int wanted, int *windows) {
    static const double host_rate = 1e11, device_rate = 3e14; // operations a second
    const double rate = recipe->room_bytes > 0 ? device_rate : host_rate;
    const strait_shape *shape = &recipe->shape;
    const double tokens = (double)(recipe->microbatch * shape->context);
    const double block = 2.0 * (double)strait_shape_block_params(shape) * tokens / rate;
    const double head = 2.0 * (double)(shape->vocab * shape->width) * tokens / rate;
    const double unknown[STRAIT_RUN_STAGES] = {0};
    uint64_t plenty[STRAIT_RUN_STAGES];
    strait_worker_times times[STRAIT_RUN_STAGES] = {0};
    double tokens_per_s = 0.0;
    for (int i = 0; i < recipe->n_stages; i++) {
        const int n = recipe->parts[i].last - recipe->parts[i].first;
        const double pass = n * block + (i == recipe->n_stages - 1 ? head : 0.0);
        times[i] = (strait_worker_times){.forward = pass, .input = pass, .weights = pass};
        plenty[i] = UINT64_MAX / 2;
    }
    return strait_limits_windows(recipe, wanted, times, unknown,
                                 recipe->room_bytes > 0 ? plenty : NULL, windows, &tokens_per_s);
}

const char *strait_limits_name(const strait_recipe *recipe, const int *windows,
                               const strait_worker_times *times, int knows_links,
                               double forward_bytes, double backward_bytes) {
    const double n = (double)recipe->n_microbatches;
    struct picture picture;
    strait_limit limit;
    strait_simulate_result result;
    double longest = 0.0;
    draw(recipe, times, n, forward_bytes / n, backward_bytes / n, &picture);
    const strait_simulate_how how = {.kind = recipe->schedule, .windows = windows, .n_steps = 1};
    if (strait_limit_find(&picture.pipe, &how, &limit) != STRAIT_OK ||
        strait_simulate(&picture.pipe, &how, NULL, &result) != STRAIT_OK)
        return "unknown";
    for (int i = 0; i < recipe->n_stages; i++)
        if (times[i].wall > longest) longest = times[i].wall;
    if (!knows_links && longest - result.seconds > limit.saved[limit.kind]) return "links";
    return strait_limit_name(limit.kind);
}

void strait_limits_lay_meter(const strait_recipe *recipe, strait_pipe *pipe,
                             strait_pipe_link *links) {
    for (int i = 0; i + 1 < pipe->n_stages; i++) {
        links[i].forward_bps = links[i].backward_bps = recipe->meter_bps;
        links[i].delay_s = recipe->meter_delay_s;
    }
    pipe->links = links;
    pipe->wire = STRAIT_WIRE_METER;
    pipe->control_s = recipe->meter_delay_s; // the coordinator is as far away as any neighbour
}

double strait_limits_metered(const strait_recipe *recipe, const int *windows,
                             const strait_worker_times *times, double forward_bytes,
                             double backward_bytes) {
    const double n = (double)recipe->n_microbatches;
    struct picture picture;
    strait_simulate_result result;
    if (recipe->meter_bps == 0.0) return 0.0;
    draw(recipe, times, n, forward_bytes / n, backward_bytes / n, &picture);
    strait_limits_lay_meter(recipe, &picture.pipe, picture.links);
    const strait_simulate_how how = {.kind = recipe->schedule, .windows = windows, .n_steps = 1};
    if (strait_simulate(&picture.pipe, &how, NULL, &result) != STRAIT_OK) return 0.0;
    return result.seconds;
}
