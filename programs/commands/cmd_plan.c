/* cmd_plan.c - strait plan RUN.yaml: memory, speed, bubbles and bytes before training. */
#include "commands.h"
#include "net/core/frame.h"
#include "net/emulate/emulate.h"
#include "plan/limit.h"
#include "plan/window.h"
#include "plan_outlook.h"
#include "progress.h"
#include "stage/limits.h"

#include <math.h>
#include <stdio.h>

enum {
    PACES = 4 // iterations until link delays and step time agree
};

static double gflops = INFINITY; // not given
static int is_json;
static strait_flag_list sets;

static const strait_flag flags[] = {
    {"gflops", 'g', STRAIT_FLAG_REAL, &gflops, "N",
     "plan for stages of this speed instead of measuring this machine"},
    {"json", 0, STRAIT_FLAG_SWITCH, &is_json, NULL, "print one JSON object"},
    {"set", 's', STRAIT_FLAG_LIST, &sets, "KEY=VALUE", "override an option of the run file"},
    {0},
};

/* A stage costs its layers, and the last one the head as well. */
static strait_pipe_stage stage_cost(const strait_plan_outlook *o, int stage) {
    const strait_layer_range part = o->plan.stage_layers[stage];
    const strait_pipe_stage b = o->times.block;
    const double share = o->plan.replicas[stage]; // replicas share the microbatches
    const double all = part.last - part.first, n = all / share;
    const double is_last = stage == o->plan.n_stages - 1, h = is_last / share;
    const strait_pipe_stage e = o->times.head;
    return (strait_pipe_stage){.forward_s = n * b.forward_s + h * e.forward_s,
                               .input_s = n * b.input_s + h * e.input_s,
                               .weights_s = n * b.weights_s + h * e.weights_s,
                               .update_s = all * b.update_s + is_last * e.update_s};
}

/* Bytes of a message on the wire, with frame and packet headers. */
static double on_link(const strait_codec_spec *codec, strait_direction direction) {
    const double bytes = (double)strait_codec_wire_bytes(codec, direction) + STRAIT_FRAME_HEADER;
    return bytes * (STRAIT_PACKET_PAYLOAD + STRAIT_PACKET_HEADERS) / STRAIT_PACKET_PAYLOAD;
}

/* Work of the slowest stage, for one microbatch. */
static double slowest_s(const strait_plan_outlook *o) {
    double most = 0.0;
    for (int i = 0; i < o->plan.n_stages; i++) {
        const strait_pipe_stage *s = &o->stages[i];
        const double work = s->forward_s + s->input_s + s->weights_s;
        if (work > most) most = work;
    }
    return most;
}

/* Both directions have the bandwidth of the emulated link; plan_members.h adds homes. */
static strait_pipe_link link_cost(const strait_plan_outlook *o, int link, double pace_s) {
    const strait_codec_spec codec = strait_run_plan_codec(&o->plan, link, 1);
    const strait_emulate_spec *e = &o->plan.emulate;
    return (strait_pipe_link){
        .forward_bytes = on_link(&codec, STRAIT_FORWARD),
        .backward_bytes = on_link(&codec, STRAIT_BACKWARD),
        .forward_bps = e->rate_bps * strait_limits_links(&o->plan, link),
        .backward_bps = e->rate_bps * strait_limits_links(&o->plan, link),
        .delay_s = strait_limits_delay(&o->plan, on_link(&codec, STRAIT_FORWARD),
                                       on_link(&codec, STRAIT_BACKWARD), pace_s),
        .codec_s = o->times.codec_s};
}

/* Called again for every estimate of the pace, because jitter and loss delay a message by an amount
 * that depends on when the previous one was sent. */
static void set_links(strait_plan_outlook *o, double pace_s) {
    for (int i = 0; i < o->plan.n_stages - 1; i++)
        o->links[i] = link_cost(o, i, pace_s);
}

static void describe(strait_plan_outlook *o) {
    const strait_run_plan *r = &o->plan;
    for (int i = 0; i < r->n_stages; i++)
        o->stages[i] = stage_cost(o, i);
    set_links(o, slowest_s(o));
    o->pipe = (strait_pipe){.n_stages = r->n_stages,
                            .n_microbatches = (int)r->n_microbatches,
                            .stages = o->stages,
                            .links = o->links,
                            .clips = 1,
                            .staleness = r->staleness,
                            .microbatch_tokens = (double)(r->microbatch * r->shape.context)};
}

static strait_plan_view view_of(strait_plan_outlook *o) {
    return (strait_plan_view){&o->plan, &o->pipe, o->n_values, o->windows};
}

/* Chooses windows as training does; fill-drain ignores stages.window. */
static strait_err choose_windows(const strait_run *run, strait_plan_outlook *o) {
    const int64_t n = strait_run_plan_slots_max(&o->plan);
    const int64_t wanted = run->stages.window < n ? run->stages.window : n;
    STRAIT_TRY(strait_window_fit(&o->pipe, o->plan.schedule, NULL, 0.02, o->windows));
    const strait_plan_view view = view_of(o);
    if (wanted == 0 && strait_limits_needs_members(&o->plan)) {
        strait_limits_divide_windows(&o->plan, o->windows);
        STRAIT_TRY(strait_plan_members_windows(&view));
    } else {
        strait_limits_widen(&o->plan, NULL, o->windows);
    }
    if (wanted == 0 || o->plan.schedule == STRAIT_SCHEDULE_FILL) return STRAIT_OK;
    for (int i = 0; i < o->pipe.n_stages; i++)
        o->windows[i] = (int)wanted;
    return STRAIT_OK;
}

/* The reference that tells how much of the step the links cost. */
static strait_err without_links(const strait_plan_outlook *o, double *out) {
    static const strait_pipe_link free_links[STRAIT_RUN_STAGES];
    strait_pipe pipe = o->pipe;
    pipe.links = free_links;
    const strait_simulate_params params = {
        .kind = o->plan.schedule, .windows = o->joined, .n_steps = strait_pipe_steps(&o->pipe, 1)};
    strait_simulate_result result;
    STRAIT_TRY(strait_simulate(&pipe, &params, NULL, &result));
    *out = result.seconds;
    return STRAIT_OK;
}

/* Protocol NanoGPT counts links by its own rule: one inbound wire per stage, messages in turn. */
static strait_err on_meter(const strait_plan_outlook *o, double *out) {
    strait_pipe_link links[STRAIT_RUN_STAGES];
    strait_pipe pipe = o->pipe;
    const strait_simulate_params params = {
        .kind = o->plan.schedule, .windows = o->joined, .n_steps = strait_pipe_steps(&o->pipe, 1)};
    strait_simulate_result result;
    if (o->plan.meter_bps == 0.0) return STRAIT_OK;
    for (int i = 0; i + 1 < pipe.n_stages; i++)
        links[i] = o->links[i];
    strait_limits_apply_meter(&o->plan, &pipe, links);
    STRAIT_TRY(strait_simulate(&pipe, &params, NULL, &result));
    *out = result.seconds;
    return STRAIT_OK;
}

/* Data is not opened, so the run file alone decides the length of a validation. */
static strait_err count_messages(const strait_run *run, strait_plan_outlook *o) {
    const int64_t tokens = (int64_t)o->pipe.microbatch_tokens;
    const int64_t valid = run->data.valid[0] != '\0' ? run->data.valid_tokens : 0;
    strait_step_times times[STRAIT_RUN_STAGES] = {0};
    for (int i = 0; i < o->pipe.n_stages; i++)
        times[i] = (strait_step_times){.forward = o->stages[i].forward_s,
                                       .input = o->stages[i].input_s,
                                       .weights = o->stages[i].weights_s,
                                       .codec = 2 * strait_pipe_codec_s(&o->pipe, i)};
    return strait_limits_messages(run, &o->plan, o->windows, times, (valid + tokens - 1) / tokens,
                                  o->messages);
}

/* Replaces the prediction of joined replicas by one that knows each of them and its home. */
static strait_err predict_members(strait_plan_outlook *o) {
    const strait_plan_view view = view_of(o);
    STRAIT_TRY(strait_plan_members_predict(&view, &o->members));
    STRAIT_TRY(strait_plan_members_limit(&view, &o->limit));
    o->result.seconds = o->members.seconds;
    for (int i = 0, member = 0; i < o->plan.n_stages; i++) {
        double busy_s = 0.0;
        for (int k = 0; k < o->plan.replicas[i]; k++)
            busy_s += o->members.use[member++].busy_s / o->plan.replicas[i];
        o->seen[i].bubble = 1.0 - busy_s / o->members.seconds;
    }
    return STRAIT_OK;
}

static strait_err predict(const strait_run *run, strait_plan_outlook *o) {
    describe(o);
    for (int i = 0; i < o->pipe.n_stages; i++) {
        STRAIT_TRY(strait_runner_plan(&o->plan, i, 1, &o->memory[i]));
        o->n_values[i] = o->memory[i].n_values;
    }
    STRAIT_TRY(choose_windows(run, o));
    for (int i = 0; i < o->pipe.n_stages; i++)
        STRAIT_TRY(strait_runner_plan(&o->plan, i, o->windows[i], &o->memory[i]));
    (void)strait_limits_join_windows(&o->plan, o->windows, o->joined);
    STRAIT_TRY(count_messages(run, o));
    const strait_simulate_params params = {
        .kind = o->plan.schedule, .windows = o->joined, .n_steps = strait_pipe_steps(&o->pipe, 1)};
    /* The delay of a message depends on the pace of the step, and the pace on the delay: iterate.
     */
    double pace_s = 1e6;
    for (int i = 0; i < PACES; i++) {
        set_links(o, pace_s);
        STRAIT_TRY(strait_simulate(&o->pipe, &params, o->seen, &o->result));
        pace_s = o->result.seconds / o->pipe.n_microbatches;
    }
    STRAIT_TRY(strait_limit_find(&o->pipe, &params, &o->limit));
    STRAIT_TRY(on_meter(o, &o->metered_s));
    if (strait_limits_needs_members(&o->plan)) STRAIT_TRY(predict_members(o));
    const strait_plan_view view = view_of(o);
    STRAIT_TRY(strait_plan_members_more(&view, &o->more));
    for (int i = 0; strait_run_plan_has_outer(&o->plan) && i < o->pipe.n_stages; i++)
        o->average_s = fmax(
            o->average_s,
            strait_limits_average_s(&o->plan, i, o->memory[i].averaged, o->result.seconds));
    o->result.seconds += o->average_s;
    o->result.tokens_per_s = o->pipe.microbatch_tokens * o->pipe.n_microbatches / o->result.seconds;
    return without_links(o, &o->unlimited_s);
}

/* Only the vocabulary may need the data, if the run file does not state it. */
static strait_err read_run(const char *path, strait_run *run, strait_plan_outlook *o) {
    STRAIT_TRY(strait_run_init_file(path, sets.items, sets.n, run));
    int64_t vocab = run->model.vocab;
    if (vocab == 0) {
        struct strait_loader *loader = NULL;
        STRAIT_TRY(strait_loader_open(run, &loader));
        vocab = strait_loader_vocab(loader);
        strait_loader_close(&loader);
    }
    STRAIT_TRY(strait_run_plan_init(run, vocab, &o->plan));
    for (int i = 0; i < o->plan.n_stages; i++)
        (void)snprintf(o->devices[i], sizeof o->devices[i], "%s:%d", run->device.kind,
                       strait_run_ordinal(run, i));
    if (isfinite(gflops)) return strait_stage_times_estimate(&o->plan, gflops * 1e9, &o->times);
    strait_progress progress;
    strait_progress_init(&progress);
    strait_progress_say(&progress,
                        "measuring one block, the head and the codec; a large model takes "
                        "minutes on a CPU (--gflops N skips this)");
    return strait_stage_times_measure(run, &o->plan, &o->times);
}

static strait_err run_plan(int n_args, const char **args) {
    static strait_run run; // large, and there is one of each
    static strait_plan_outlook o;
    STRAIT_TRY(strait_args_expect_one(&strait_cmd_plan, "run file",
                                      "--set KEY=VALUE overrides keys of the file", n_args, args));
    if (gflops <= 0) return STRAIT_FAIL(STRAIT_ECONFIG, "--gflops %g: expected above 0", gflops);
    STRAIT_TRY(read_run(args[0], &run, &o));
    STRAIT_TRY(predict(&run, &o));
    if (is_json)
        strait_plan_print_json(&o);
    else
        strait_plan_print(args[0], &o);
    return STRAIT_OK;
}

const strait_command strait_cmd_plan = {
    .name = "plan",
    .usage = "RUN.yaml [flags]",
    .summary = "predict memory, speed, bubbles and bytes before training",
    .about = "Measures one block, the head and the codec on this machine, simulates a step of the\n"
             "pipeline over the links of the run file, and prints what limits it. Bytes are those\n"
             "on the link: payload, frame and TCP/IP headers. Token ids and TLS are not counted.",
    .flags = flags,
    .run = run_plan,
    .examples =
        (const strait_example[]){
            {"strait plan run.yaml",
             "Says how fast the pipeline of a run file would be, and what limits it."},
            {"strait plan run.yaml --set link.emulate.rate=20mbit", "Tries slower links."},
            {0}},
};
