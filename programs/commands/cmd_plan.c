/* cmd_plan.c - strait plan RUN.yaml: memory, speed, bubbles and bytes before training. */
#include "commands.h"
#include "net/core/frame.h"
#include "net/emulate/emulate.h"
#include "plan/limit.h"
#include "plan/window.h"
#include "progress.h"
#include "stage/limits.h"
#include "stage_times.h"

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

/* Everything the plan predicts. */
typedef struct outlook {
    strait_run_plan plan;
    strait_stage_times times;
    strait_pipe pipe;
    strait_pipe_stage stages[STRAIT_RUN_STAGES];
    strait_pipe_link links[STRAIT_RUN_STAGES];
    int windows[STRAIT_RUN_STAGES], joined[STRAIT_RUN_STAGES];
    double reduce_s; // longest time that the replicas of a stage sum their gradients
    strait_runner_memory memory[STRAIT_RUN_STAGES];
    size_t messages[STRAIT_RUN_STAGES];
    strait_simulate_stage seen[STRAIT_RUN_STAGES];
    strait_simulate_result result;
    double unlimited_s; // a step with infinitely fast links
    double metered_s;   // a step on the meter of Protocol NanoGPT; 0: link.meter.rate is 0
    strait_limit limit;
    char devices[STRAIT_RUN_STAGES][STRAIT_RUN_NAME + 8]; // "cuda:0"
} outlook;

/* A stage costs its layers, and the last one the head as well. */
static strait_pipe_stage stage_cost(const outlook *o, int stage) {
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
static double slowest_s(const outlook *o) {
    double most = 0.0;
    for (int i = 0; i < o->plan.n_stages; i++) {
        const strait_pipe_stage *s = &o->stages[i];
        const double work = s->forward_s + s->input_s + s->weights_s;
        if (work > most) most = work;
    }
    return most;
}

/* Both directions have the bandwidth of the emulated link: a home connection is not modelled here.
 */
static strait_pipe_link link_cost(const outlook *o, int link, double pace_s) {
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
static void set_links(outlook *o, double pace_s) {
    for (int i = 0; i < o->plan.n_stages - 1; i++)
        o->links[i] = link_cost(o, i, pace_s);
}

static void describe(outlook *o) {
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

/* Chooses windows as training does; fill-drain ignores stages.window. */
static strait_err choose_windows(const strait_run *run, outlook *o) {
    const int64_t n = strait_run_plan_slots_max(&o->plan);
    const int64_t wanted = run->stages.window < n ? run->stages.window : n;
    STRAIT_TRY(strait_window_fit(&o->pipe, o->plan.schedule, NULL, 0.02, o->windows));
    strait_limits_widen(&o->plan, NULL, o->windows);
    if (wanted == 0 || o->plan.schedule == STRAIT_SCHEDULE_FILL) return STRAIT_OK;
    for (int i = 0; i < o->pipe.n_stages; i++)
        o->windows[i] = (int)wanted;
    return STRAIT_OK;
}

/* The reference that tells how much of the step the links cost. */
static strait_err without_links(const outlook *o, double *out) {
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
static strait_err on_meter(const outlook *o, double *out) {
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
static strait_err count_messages(const strait_run *run, outlook *o) {
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

/* Seconds that the replicas of a stage add to a step that takes step_s without them. */
static double replicas_seconds(const outlook *o, int stage, double step_s) {
    return strait_run_plan_has_outer(&o->plan)
               ? strait_limits_average_s(&o->plan, stage, o->memory[stage].averaged, step_s)
               : strait_limits_reduce_s(&o->plan, stage, o->memory[stage].reduced);
}

static strait_err predict(const strait_run *run, outlook *o) {
    describe(o);
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
    for (int i = 0; i < o->pipe.n_stages; i++)
        o->reduce_s = fmax(o->reduce_s, replicas_seconds(o, i, o->result.seconds));
    o->result.seconds += o->reduce_s;
    o->result.tokens_per_s = o->pipe.microbatch_tokens * o->pipe.n_microbatches / o->result.seconds;
    return without_links(o, &o->unlimited_s);
}

/* Only the vocabulary may need the data, if the run file does not state it. */
static strait_err read_run(const char *path, strait_run *run, outlook *o) {
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

/* The sum that the machine of this stage must provide. */
static double memory_of(const outlook *o, int stage) {
    const strait_runner_memory *m = &o->memory[stage];
    return (double)m->weights + (double)m->gradients + (double)m->sums + (double)m->optimizer +
           (double)m->activations + (double)m->codecs + (double)m->data +
           (double)o->messages[stage];
}

/* Compression ratio: 2 bytes per value, divided by the bytes on the link. */
static double ratio(const outlook *o, double bytes) {
    return 2.0 * o->plan.shape.width * o->pipe.microbatch_tokens / bytes;
}

/* Memory is that of the busiest moment: slots and queued messages included. */
static void print_stages(const outlook *o) {
    printf("stage  layers      memory  slots  work/microbatch  idle  device\n");
    for (int i = 0; i < o->pipe.n_stages; i++) {
        char bytes[32];
        strait_progress_bytes(memory_of(o, i), bytes);
        printf("%5d  %6d  %10s  %5d  %12.2f ms  %3.0f%%  %s\n", i,
               o->plan.stage_layers[i].last - o->plan.stage_layers[i].first, bytes, o->windows[i],
               1e3 * strait_pipe_work_s(&o->pipe, i), 100 * o->seen[i].bubble, o->devices[i]);
    }
}

/* The most of any stage: crossings for neighbours that are replaced (stage/crossing_log.h). */
static void print_kept(const outlook *o) {
    char bytes[32];
    size_t most = 0;
    for (int i = 0; i < o->pipe.n_stages; i++)
        if (o->memory[i].kept > most) most = o->memory[i].kept;
    strait_progress_bytes((double)most, bytes);
    if (o->pipe.n_stages > 1)
        printf("kept   up to %s more per stage in a swarm: crossings, so that a lost stage is "
               "computed again alone\n",
               bytes);
}

static void print_links(const outlook *o) {
    if (o->pipe.n_stages < 2) return;
    printf("link  bytes/token forward  backward       ratio      wire busy\n");
    for (int i = 0; i < o->pipe.n_stages - 1; i++) {
        const strait_pipe_link *l = &o->links[i];
        printf("%d-%-2d  %19.2f  %8.2f  %4.0fx %4.0fx  %4.0f%% %4.0f%%\n", i, i + 1,
               l->forward_bytes / o->pipe.microbatch_tokens,
               l->backward_bytes / o->pipe.microbatch_tokens, ratio(o, l->forward_bytes),
               ratio(o, l->backward_bytes), 100 * o->seen[i].activations_s / o->result.seconds,
               100 * o->seen[i + 1].gradients_s / o->result.seconds);
    }
}

/* What replicas cost and who has them. */
static void print_replicas(const outlook *o) {
    const strait_outer_schedule *outer = &o->plan.outer.schedule;
    for (int i = 0; i < o->pipe.n_stages; i++) {
        const int n = o->plan.replicas[i], averages = outer->sync_every > 0;
        const strait_runner_memory *m = &o->memory[i];
        const double seconds = replicas_seconds(o, i, o->result.seconds - o->reduce_s);
        char bytes[32];
        if (n == 1) continue;
        strait_progress_bytes(averages ? m->averaged * outer->fragments : m->reduced, bytes);
        if (averages)
            printf(
                "average stage %d: %d replicas, each sends %s every %lld steps in %d part%s, %.4g "
                "bytes per token, %.3g s per step\n",
                i, n, bytes, (long long)outer->sync_every, outer->fragments,
                strait_progress_plural(outer->fragments),
                m->reduced * n / (o->pipe.microbatch_tokens * o->pipe.n_microbatches), seconds);
        else
            printf("reduce stage %d: %d replicas, each sends %s of gradients per step, %.3g s\n", i,
                   n, bytes, seconds);
    }
}

/* Stages that share this machine's cores compute one after the other, however the schedule orders
 * them: their work adds up. */
static double shared_seconds(const outlook *o) {
    double work = 0.0;
    for (int i = 0; i < o->pipe.n_stages; i++)
        work += strait_pipe_work_s(&o->pipe, i) * o->pipe.n_microbatches + o->stages[i].update_s;
    return work > o->result.seconds ? work : o->result.seconds;
}

static void print_shared(const outlook *o) {
    if (o->pipe.n_stages < 2) return;
    const double seconds = shared_seconds(o);
    printf("here   %.4g s, %.0f tokens/s at most if all stages share one such device\n", seconds,
           o->pipe.microbatch_tokens * o->pipe.n_microbatches / seconds);
}

static void print_limit(const outlook *o) {
    const strait_limit *l = &o->limit;
    printf("limit  %s", strait_limit_name(l->kind));
    if (l->kind == STRAIT_LIMIT_COMPUTE) printf(", most on stage %d", l->where);
    if (l->kind > STRAIT_LIMIT_BUBBLE) printf(", most on link %d-%d", l->where, l->where + 1);
    printf("; time per step that removing each would save:");
    for (int k = 0; k < STRAIT_LIMIT_KINDS; k++)
        printf(" %s %.3g s%s", strait_limit_name((strait_limit_kind)k), l->saved[k],
               k + 1 < STRAIT_LIMIT_KINDS ? "," : "\n");
}

static void print_outlook(const char *path, const outlook *o) {
    const strait_run_plan *r = &o->plan;
    printf("%s: %d stage%s, %s, %lld microbatch%s of %.0f tokens%s\n", path, r->n_stages,
           strait_progress_plural(r->n_stages), strait_schedule_name(r->schedule),
           (long long)r->n_microbatches, r->n_microbatches == 1 ? "" : "es",
           o->pipe.microbatch_tokens, r->staleness > 0 ? ", updates one step late" : "");
    printf("each %s on a device of its own: %s\n\n",
           r->n_members > r->n_stages ? "replica of a stage" : "stage", o->times.device);
    print_stages(o);
    print_links(o);
    printf("\nstep   %.4g s, %.0f tokens/s, %.3f of the speed with infinitely fast links\n",
           o->result.seconds, o->result.tokens_per_s, o->unlimited_s / o->result.seconds);
    print_shared(o);
    if (o->metered_s > 0.0)
        printf("meter  %.4g s per step, one inbound wire per stage at %.4g Mb/s, %.4g ms latency\n",
               o->metered_s, r->meter_bps / 1e6, 1e3 * r->meter_delay_s);
    print_replicas(o);
    print_limit(o);
    print_kept(o);
}

/* The same figures as the text, without rounding for people. */
static void print_json(const outlook *o) {
    printf("{\"seconds\": %.6g, \"tokens_per_s\": %.6g, \"bubble\": %.4f, \"of_unlimited\": %.4f, "
           "\"limit\": \"%s\", \"where\": %d, \"meter_seconds\": %.6g, \"stages\": [",
           o->result.seconds, o->result.tokens_per_s, o->result.bubble,
           o->unlimited_s / o->result.seconds, strait_limit_name(o->limit.kind), o->limit.where,
           o->metered_s);
    for (int i = 0; i < o->pipe.n_stages; i++)
        printf("%s{\"layers\": %d, \"memory_bytes\": %.0f, \"kept_bytes\": %zu, \"slots\": %d, "
               "\"idle\": %.4f, \"replicas\": %d, \"reduce_bytes\": %.0f, \"device\": \"%s\"}",
               i > 0 ? ", " : "", o->plan.stage_layers[i].last - o->plan.stage_layers[i].first,
               memory_of(o, i), o->memory[i].kept, o->windows[i], o->seen[i].bubble,
               o->plan.replicas[i], o->memory[i].reduced, o->devices[i]);
    printf("], \"links\": [");
    for (int i = 0; i < o->pipe.n_stages - 1; i++)
        printf("%s{\"forward_bytes\": %.0f, \"backward_bytes\": %.0f}", i > 0 ? ", " : "",
               o->links[i].forward_bytes, o->links[i].backward_bytes);
    printf("]}\n");
}

static strait_err run_plan(int n_args, const char **args) {
    static strait_run run; // large, and there is one of each
    static outlook o;
    STRAIT_TRY(strait_args_expect_one(&strait_cmd_plan, "run file",
                                      "--set KEY=VALUE overrides keys of the file", n_args, args));
    if (gflops <= 0) return STRAIT_FAIL(STRAIT_ECONFIG, "--gflops %g: expected above 0", gflops);
    STRAIT_TRY(read_run(args[0], &run, &o));
    STRAIT_TRY(predict(&run, &o));
    if (is_json)
        print_json(&o);
    else
        print_outlook(args[0], &o);
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
