#include "train/outlook/outlook.h"

#include "net/core/frame.h"
#include "net/emulate/emulate.h"
#include "net/tls/tls.h"
#include "plan/window.h"
#include "stage/loader.h"

#include <math.h>

enum {
    PACES = 4,            // iterations until link delays and step time agree
    VOCAB_NARROW = 65535, // token ids below this take two bytes
    RECORD_BYTES = 22     // of a TLS record beside its text: header, type and tag
};

strait_err strait_outlook_vocab(const strait_run *run, int64_t *out) {
    struct strait_loader *loader = NULL;
    *out = run->model.vocab;
    if (*out > 0) return STRAIT_OK;
    const strait_err err = strait_loader_open(run, &loader);
    if (err != STRAIT_OK) {
        strait_err_prefix("model.vocab is not set, and the data that would give it cannot be read");
        return err;
    }
    *out = strait_loader_vocab(loader);
    strait_loader_close(&loader);
    return STRAIT_OK;
}

/* Seconds per second of o->times. */
static double slowness(const strait_outlook *o, int stage) {
    return o->measured != NULL ? 1.0 / o->measured->flops_per_s[stage] : 1.0;
}

/* A stage costs its layers, and the last one the head as well. */
static strait_pipe_stage stage_cost(const strait_outlook *o, int stage) {
    const double slow = slowness(o, stage);
    const strait_layer_range part = o->plan.stage_layers[stage];
    const strait_pipe_stage b = o->times.block;
    const double share = o->plan.replicas[stage]; // replicas share the microbatches
    const double all = part.last - part.first, n = all / share;
    const double is_last = stage == o->plan.n_stages - 1, h = is_last / share;
    const strait_pipe_stage e = o->times.head;
    return (strait_pipe_stage){.forward_s = slow * (n * b.forward_s + h * e.forward_s),
                               .input_s = slow * (n * b.input_s + h * e.input_s),
                               .weights_s = slow * (n * b.weights_s + h * e.weights_s),
                               .update_s = slow * (all * b.update_s + is_last * e.update_s)};
}

/* Token ids that a stage gets from the coordinator with each microbatch. They come by another link,
 * but pass the same wire of its home; counting them on the link before it covers both. */
static double ids_bytes(const strait_outlook *o, int stage) {
    const strait_run_plan *plan = &o->plan;
    const double each = plan->shape.vocab >= VOCAB_NARROW || plan->packs ? 4.0 : 2.0;
    const int lists = strait_run_plan_needs_tokens(plan, stage) + (stage == plan->n_stages - 1);
    return o->has_token_ids ? lists * each * (double)(plan->microbatch * plan->shape.context) : 0.0;
}

/* Bytes of a message of a boundary on the wire, with the headers of its frame, of TLS records and
 * of packets, as an emulated link counts them: a small message is a packet of its own. */
static double on_link(const strait_outlook *o, int link, strait_direction direction) {
    const strait_codec_spec codec = strait_run_plan_codec(&o->plan, link, 1);
    const double ids = direction == STRAIT_FORWARD ? ids_bytes(o, link + 1) : 0.0;
    const double bytes = (double)strait_codec_wire_bytes(&codec, direction) + ids +
                         STRAIT_FRAME_HEADER;
    const double sealed = bytes + ceil(bytes / STRAIT_TLS_RECORD) * RECORD_BYTES;
    return sealed + ceil(sealed / STRAIT_PACKET_PAYLOAD) * STRAIT_PACKET_HEADERS;
}

/* Work of the slowest stage, for one microbatch. */
static double slowest_s(const strait_outlook *o) {
    double most = 0.0;
    for (int i = 0; i < o->plan.n_stages; i++) {
        const strait_pipe_stage *s = &o->stages[i];
        const double work = s->forward_s + s->input_s + s->weights_s;
        if (work > most) most = work;
    }
    return most;
}

static strait_pipe_link measured_link(const strait_outlook *o, int link, double forward,
                                      double backward) {
    const strait_measured *m = o->measured;
    const double slow = 0.5 * (slowness(o, link) + slowness(o, link + 1));
    return (strait_pipe_link){.forward_bytes = forward,
                              .backward_bytes = backward,
                              .forward_bps = o->measured_share * m->forward_bps[link],
                              .backward_bps = o->measured_share * m->backward_bps[link],
                              .delay_s = m->delay_s[link],
                              .codec_s = slow * o->times.codec_s};
}

/* Both directions have the bandwidth of the emulated link; outlook_members.h adds homes. */
static strait_pipe_link link_cost(const strait_outlook *o, int link, double pace_s) {
    const strait_emulate_spec *e = &o->plan.emulate;
    const double forward = on_link(o, link, STRAIT_FORWARD);
    const double backward = on_link(o, link, STRAIT_BACKWARD);
    if (o->measured != NULL) return measured_link(o, link, forward, backward);
    return (strait_pipe_link){.forward_bytes = forward,
                              .backward_bytes = backward,
                              .forward_bps = e->rate_bps * strait_limits_links(&o->plan, link),
                              .backward_bps = e->rate_bps * strait_limits_links(&o->plan, link),
                              .delay_s = strait_limits_delay(&o->plan, forward, backward, pace_s),
                              .codec_s = o->times.codec_s};
}

/* Called again for every estimate of the pace, because jitter and loss delay a message by an amount
 * that depends on when the previous one was sent. */
static void set_links(strait_outlook *o, double pace_s) {
    for (int i = 0; i < o->plan.n_stages - 1; i++)
        o->links[i] = link_cost(o, i, pace_s);
}

static void describe(strait_outlook *o) {
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
                            .n_prompt = r->n_stages - r->n_late,
                            .microbatch_tokens = (double)(r->microbatch * r->shape.context),
                            .at_once = o->at_once,
                            .devices = o->devices};
}

static strait_outlook_view view_of(strait_outlook *o) {
    for (int i = 0; o->measured != NULL && i + 1 < o->plan.n_stages; i++)
        o->link_bps[i] = o->measured_share * strait_measured_rate(o->measured, i);
    return (strait_outlook_view){&o->plan,   &o->pipe, o->n_values,
                                 o->windows, 0,        o->measured != NULL ? o->link_bps : NULL};
}

/* Chooses windows as training does; fill-drain ignores stages.window. */
static strait_err fit_windows(const strait_run *run, strait_outlook *o) {
    const int64_t n = strait_run_plan_slots_max(&o->plan);
    const int64_t wanted = run->stages.window < n ? run->stages.window : n;
    STRAIT_TRY(strait_window_fit(&o->pipe, o->plan.schedule, NULL, 0.02, o->windows));
    const strait_outlook_view view = view_of(o);
    if (wanted == 0 && strait_limits_needs_members(&o->plan)) {
        strait_limits_divide_windows(&o->plan, o->windows);
        STRAIT_TRY(strait_outlook_members_windows(&view));
    } else {
        strait_limits_widen(&o->plan, NULL, o->windows);
    }
    if (wanted == 0 || o->plan.schedule == STRAIT_SCHEDULE_FILL) return STRAIT_OK;
    for (int i = 0; i < o->pipe.n_stages; i++)
        o->windows[i] = (int)wanted;
    return STRAIT_OK;
}

static strait_err choose_windows(const strait_run *run, strait_outlook *o) {
    STRAIT_TRY(fit_windows(run, o));
    for (int i = 0; i < o->pipe.n_stages; i++)
        if (o->windows[i] < o->least_windows[i]) o->windows[i] = o->least_windows[i];
    return STRAIT_OK;
}

/* The reference that tells how much of the step the links cost. */
static strait_err without_links(const strait_outlook *o, double *out) {
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
static strait_err on_meter(const strait_outlook *o, double *out) {
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
static strait_err count_messages(const strait_run *run, strait_outlook *o) {
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
static strait_err predict_members(strait_outlook *o) {
    const strait_outlook_view view = view_of(o);
    STRAIT_TRY(strait_outlook_members_predict(&view, &o->members));
    o->result.seconds = o->members.seconds;
    for (int i = 0, member = 0; i < o->plan.n_stages; i++) {
        double busy_s = 0.0;
        for (int k = 0; k < o->plan.replicas[i]; k++)
            busy_s += o->members.use[member++].busy_s / o->plan.replicas[i];
        o->seen[i].bubble = 1.0 - busy_s / o->members.seconds;
    }
    return STRAIT_OK;
}

static strait_simulate_params params_of(const strait_outlook *o) {
    return (strait_simulate_params){
        .kind = o->plan.schedule, .windows = o->joined, .n_steps = strait_pipe_steps(&o->pipe, 1)};
}

/* The delay of a message depends on the pace of the step, and the pace on the delay: iterate. */
static strait_err simulate(strait_outlook *o) {
    const strait_simulate_params params = params_of(o);
    double pace_s = 1e6;
    for (int i = 0; i < PACES; i++) {
        set_links(o, pace_s);
        STRAIT_TRY(strait_simulate(&o->pipe, &params, o->seen, &o->result));
        pace_s = o->result.seconds / o->pipe.n_microbatches;
    }
    return STRAIT_OK;
}

/* What averages of weights add to a step. */
static void add_averages(strait_outlook *o) {
    o->average_s = 0.0;
    for (int i = 0; strait_run_plan_has_outer(&o->plan) && i < o->pipe.n_stages; i++)
        o->average_s = fmax(
            o->average_s,
            strait_limits_average_s(&o->plan, i, o->memory[i].averaged, o->result.seconds));
    o->result.seconds += o->average_s;
    o->result.tokens_per_s = o->pipe.microbatch_tokens * o->pipe.n_microbatches / o->result.seconds;
}

strait_err strait_outlook_step(const strait_run *run, strait_outlook *o) {
    describe(o);
    for (int i = 0; i < o->pipe.n_stages; i++) {
        STRAIT_TRY(strait_run_plan_count_stage(&o->plan, i, &o->params[i]));
        STRAIT_TRY(strait_runner_plan(&o->plan, i, 1, &o->memory[i]));
        o->n_values[i] = o->memory[i].n_values;
    }
    STRAIT_TRY(choose_windows(run, o));
    for (int i = 0; i < o->pipe.n_stages; i++)
        STRAIT_TRY(strait_runner_plan(&o->plan, i, o->windows[i], &o->memory[i]));
    (void)strait_limits_join_windows(&o->plan, o->windows, o->joined);
    STRAIT_TRY(simulate(o));
    if (strait_limits_needs_members(&o->plan)) STRAIT_TRY(predict_members(o));
    add_averages(o);
    return STRAIT_OK;
}

strait_err strait_outlook_predict(const strait_run *run, strait_outlook *o) {
    STRAIT_TRY(strait_outlook_step(run, o));
    const strait_simulate_params params = params_of(o);
    const strait_outlook_view view = view_of(o);
    STRAIT_TRY(count_messages(run, o));
    if (strait_limits_needs_members(&o->plan))
        STRAIT_TRY(strait_outlook_members_limit(&view, &o->limit));
    else
        STRAIT_TRY(strait_limit_find(&o->pipe, &params, &o->limit));
    STRAIT_TRY(on_meter(o, &o->metered_s));
    STRAIT_TRY(strait_outlook_members_more(&view, &o->more));
    return without_links(o, &o->unlimited_s);
}
