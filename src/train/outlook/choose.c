#include "train/outlook/choose.h"

#include "base/alloc.h"
#include "config/run_auto.h"
#include "convert/export_list.h"
#include "train/outlook/choose_links.h"
#include "train/outlook/outlook.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    RUNGS = 16
};

static const double snapshot_share = 0.2; // of a link's rate that copies of snapshots may take
static const double mildest = 4.0;        // codes of a given ratio follow those that need no model
static const double starved = 2.0;        // see least_s

/* Everything that a choice needs, on the heap. */
struct search {
    const strait_choose_params *params;
    int64_t vocab;
    strait_run run, tried;     // as given, and with a code
    strait_outlook with, free; // with the rates of the links, and without
    strait_codec_rung rungs[RUNGS];
    int n_rungs;
    strait_stage_times times[2]; // of models without and with learned codes
    int has_times[2];
    double slowdown;    // factor on times, where stages share a device
    double at_once;     // see strait_outlook
    double wire_weight; // see least_s; 0: the simulation alone counts
    int devices[STRAIT_RUN_STAGES];
};

/* ---- which codes ---- */

/* The most compression that the user allows; 0: any. */
static double ratio_limit(const strait_run *run) {
    const double bytes = run->link.codec.bytes_per_token;
    return bytes > 0 ? 2.0 * (double)run->model.width / bytes : run->link.codec.ratio;
}

/* A learned code would be a new model, so a run from trained weights has none. */
static void list_rungs(struct search *s, const strait_run_plan *plan) {
    int n = 0;
    const strait_codec_rung *ladder = strait_codec_ladder(&n);
    const double limit = ratio_limit(&s->run);
    const int is_fixed = s->run.train.init_from[0] != '\0';
    for (int i = plan->shape.precision == STRAIT_BF16; i < n; i++)
        if (!ladder[i].is_learned || (!is_fixed && (limit == 0 || ladder[i].ratio <= limit)))
            s->rungs[s->n_rungs++] = ladder[i];
    if (is_fixed || limit <= mildest || s->rungs[s->n_rungs - 1].ratio == limit) return;
    if (limit < ladder[n - 1].ratio) s->rungs[s->n_rungs++] = strait_codec_rung_at(limit);
}

/* ---- stage times ---- */

/* Threads of a stage where the cores of this machine are shared out, as local stages do. */
static int share_cores(struct search *s, const strait_run_plan *plan) {
    const long cores = sysconf(_SC_NPROCESSORS_ONLN), each = cores / plan->n_members;
    int64_t *threads = &s->run.device.threads;
    if (*threads == 0) *threads = each < 1 ? 1 : each;
    s->at_once = (double)cores / (double)*threads;
    s->wire_weight = s->at_once < plan->n_members ? starved : 0.0;
    return plan->n_members;
}

/* The first stage that has the accelerator of this one. */
static int find_device(const struct search *s, int stage) {
    int first = 0;
    while (strait_run_ordinal(&s->run, first) != strait_run_ordinal(&s->run, stage))
        first++;
    return first;
}

/* The most stages that share one accelerator. */
static int share_devices(struct search *s, const strait_run_plan *plan) {
    int n[STRAIT_RUN_STAGES] = {0}, most = 1;
    for (int i = 0; i < plan->n_stages; i++) {
        s->devices[i] = find_device(s, i);
        n[s->devices[i]] += plan->replicas[i];
        most = n[s->devices[i]] > most ? n[s->devices[i]] : most;
    }
    s->at_once = 1.0;
    return most;
}

/* Where replicas or homes are simulated, which know no devices, all stages count as slowed down all
 * the time. */
static int set_share(struct search *s, const strait_run_plan *plan) {
    s->slowdown = 1.0;
    if (!s->params->shares_device) return 1;
    const int n = plan->scratch_bytes > 0 ? share_devices(s, plan) : share_cores(s, plan);
    if (strait_limits_needs_members(plan)) {
        s->slowdown = fmax(1.0, n / s->at_once);
        s->at_once = 0.0;
    }
    return n;
}

/* Blocks and head are measured once per model; codecs each. */
static strait_err find_times(struct search *s, int is_learned, const strait_run_plan *plan,
                             strait_stage_times *out) {
    strait_stage_times *times = &s->times[is_learned];
    if (s->params->measured != NULL) {
        STRAIT_TRY(strait_stage_times_estimate(plan, 1.0, out));
        (void)snprintf(out->device, sizeof out->device, "as measured by the workers");
        return STRAIT_OK;
    }
    if (s->params->flops_per_s > 0)
        return strait_stage_times_estimate(plan, s->params->flops_per_s, out);
    if (!s->has_times[is_learned])
        STRAIT_TRY(strait_stage_times_measure(&s->tried, plan, times));
    else
        STRAIT_TRY(strait_stage_times_measure_codec(&s->tried, plan, times));
    s->has_times[is_learned] = 1;
    *out = *times;
    strait_stage_times_scale(out, s->slowdown);
    return STRAIT_OK;
}

/* ---- a code ---- */

/* The share of every rate that is left for codes. */
static double code_share(const struct search *s) {
    return s->params->is_swarm ? 1.0 - snapshot_share : 1.0;
}

/* Plans a code: a step with the rates of the links, and one at infinite rate. */
static strait_err plan_code(struct search *s, const strait_codec_rung *rung) {
    strait_outlook *o = &s->with;
    memset(o, 0, sizeof *o);
    s->tried = s->run;
    STRAIT_TRY(strait_run_apply_rung(&s->tried, rung, ""));
    STRAIT_TRY(strait_run_plan_init(&s->tried, s->vocab, &o->plan));
    STRAIT_TRY(find_times(s, rung->is_learned, &o->plan, &o->times));
    o->has_token_ids = s->params->is_swarm;
    o->measured = s->params->measured;
    o->measured_share = code_share(s);
    o->at_once = s->at_once;
    memcpy(o->devices, s->devices, sizeof o->devices);
    strait_choose_scale_rates(&o->plan, code_share(s));
    s->free = *o;
    strait_choose_scale_rates(&s->free.plan, 0.0);
    s->free.measured_share = 0.0;
    STRAIT_TRY(strait_outlook_step(&s->tried, o));
    /* Training takes windows that are up to 2% slower than larger ones. With smaller windows than
     * those of the slow links, that would hide most of the 3% that the wire may take. */
    memcpy(s->free.least_windows, o->windows, sizeof o->windows);
    return strait_outlook_step(&s->tried, &s->free);
}

/* Whether a code without a ratio of its own compresses more than the user allows. */
static int is_beyond_limit(const struct search *s, const strait_codec_rung *rung) {
    const strait_codec_spec *codec = &s->with.plan.codec;
    const double limit = ratio_limit(&s->run), values = (double)(codec->rows * codec->cols);
    const double bytes = (double)strait_codec_wire_bytes(codec, STRAIT_FORWARD);
    return limit > 0 && !rung->is_learned && 2.0 * values / bytes > limit;
}

/* Codes that this model cannot have, such as one of less than a value per token, are left out. */
static strait_err try_code(struct search *s, const strait_codec_rung *rung, int *is_possible) {
    const strait_err err = plan_code(s, rung);
    *is_possible = err == STRAIT_OK;
    return err == STRAIT_ECONFIG ? STRAIT_OK : err;
}

/* The least time of a step where stages compete for cores. The first microbatch and the last
 * gradient wait for every wire. While they do, stages that wait leave cores idle which all of them
 * need later: traces of four stages on two cores show about as much again, which the simulation,
 * whose passes all take equally long, does not. */
static double least_s(const struct search *s) {
    double wires_s = 0.0;
    for (int i = 0; i + 1 < s->with.plan.n_stages; i++)
        wires_s += strait_pipe_forward_bits_s(&s->with.pipe, i) +
                   strait_pipe_backward_bits_s(&s->with.pipe, i);
    return s->free.result.seconds + s->wire_weight * wires_s;
}

static void note_code(const struct search *s, const strait_codec_rung *rung, strait_choice *out) {
    const strait_codec_spec *codec = &s->with.plan.codec;
    const strait_codec_price *price = strait_codec_find_price(codec);
    const double forward = (double)strait_codec_wire_bytes(codec, STRAIT_FORWARD);
    const double backward = (double)strait_codec_wire_bytes(codec, STRAIT_BACKWARD);
    out->rung = *rung;
    out->seconds = fmax(s->with.result.seconds, s->wire_weight > 0 ? least_s(s) : 0.0);
    out->infinite_s = s->free.result.seconds;
    out->tokens_per_s = s->with.result.tokens_per_s * s->with.result.seconds / out->seconds;
    out->bytes_per_token = fmax(forward, backward) / (double)codec->rows;
    out->is_exact = (strait_codec_traits(codec) & STRAIT_CODEC_LOSSLESS) != 0;
    out->price = price != NULL ? *price : (strait_codec_price){.percent = NAN};
    out->excludes_exports = strait_export_class(&s->with.plan) == STRAIT_HF_STRAIT;
    (void)snprintf(out->device, sizeof out->device, "%s", s->with.times.device);
    out->is_too_slow = !strait_limit_is_off_path(out->seconds, out->infinite_s);
}

/* ---- the choice ---- */

/* Tries codes until the wire is off the critical path. The link that decided is the slowest one
 * with the last code that was too wide. */
static strait_err search_codes(struct search *s, strait_choice *out) {
    int n_possible = 0;
    for (int i = 0; i < s->n_rungs; i++) {
        int is_possible = 0;
        STRAIT_TRY(try_code(s, &s->rungs[i], &is_possible));
        if (!is_possible || (n_possible > 0 && is_beyond_limit(s, &s->rungs[i]))) continue;
        n_possible++;
        note_code(s, &s->rungs[i], out);
        if (!out->is_too_slow) return STRAIT_OK;
        strait_choose_slowest(&s->with, code_share(s), out->decided_by);
    }
    return n_possible > 0 ? STRAIT_OK : STRAIT_ECONFIG; // described by the last attempt
}

static int has_limits(const struct search *s, int n_stages) {
    return s->params->measured != NULL ? strait_measured_has_limits(s->params->measured, n_stages)
                                       : strait_run_has_limits(&s->run);
}

static strait_err choose(struct search *s, strait_choice *out) {
    strait_run_plan *plan = &s->with.plan;
    char rates[STRAIT_RUN_PATH] = "";
    STRAIT_TRY(strait_outlook_vocab(&s->run, &s->vocab));
    STRAIT_TRY(strait_run_plan_init(&s->run, s->vocab, plan));
    const int was_excluded = strait_export_class(plan) == STRAIT_HF_STRAIT;
    list_rungs(s, plan);
    out->rung = s->rungs[0];
    out->has_limits = plan->n_stages > 1 && has_limits(s, plan->n_stages);
    if (!out->has_limits) return strait_run_apply_rung(&s->run, &out->rung, "");
    strait_choose_show_rates(plan, s->params->measured, rates, sizeof rates);
    const int64_t threads = s->run.device.threads;
    out->n_sharing = set_share(s, plan);
    STRAIT_TRY(search_codes(s, out));
    out->excludes_exports = out->excludes_exports && !was_excluded;
    s->run.device.threads = threads;
    return strait_run_apply_rung(&s->run, &out->rung, rates);
}

/* The links of a swarm can be measured once there are workers. */
static int must_measure(const strait_run *run, const strait_choose_params *params) {
    return params->is_swarm && params->measured == NULL && run->stages.count > 1 &&
           !strait_run_has_limits(run);
}

strait_err strait_choose_codec(strait_run *run, const strait_choose_params *params,
                               strait_choice *out) {
    struct search *s = NULL;
    strait_choice choice = {0};
    *out = choice;
    if (!strait_run_is_auto(run) || must_measure(run, params)) return STRAIT_OK;
    STRAIT_TRY(strait_alloc(1, sizeof *s, "codecs to choose from", (void **)&s));
    s->params = params;
    s->run = *run;
    const strait_err err = choose(s, &choice);
    if (err == STRAIT_OK) {
        *run = s->run;
        *out = choice;
    } else {
        strait_err_prefix("link.codec.name auto");
    }
    strait_alloc_free(s);
    return err;
}
