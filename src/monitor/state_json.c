/* state_json.c - the JSON of the endpoint: documented in docs/page.md, which lists every key. */
#include "base/clock.h"
#include "base/json.h"
#include "monitor/state.h"
#include "monitor/waits.h"

#include <math.h>
#include <string.h>

/* JSON has no infinity or NaN: those become null. */
static json_t *real(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *text(const char *value) {
    return strait_json_text(value, strlen(value));
}

static json_t *pack_run(const strait_state *s) {
    const strait_trainer_info *i = &s->info;
    return json_pack("{so so so so sI sI sf sI si so so sI sf sf sf}", "name", text(s->run.name),
                     "folder", text(s->run.folder), "model", text(s->run.model), "codec",
                     text(s->run.codec), "steps", (json_int_t)s->run.steps, "batch_tokens",
                     (json_int_t)s->run.batch_tokens, "started", s->started, "parameters",
                     (json_int_t)i->parameters, "stages", i->n_stages, "device", text(i->device),
                     "precision", text(i->precision), "train_tokens", (json_int_t)i->train_tokens,
                     "flops_per_token", i->flops_per_token, "link_bps", s->run.link_bps,
                     "link_delay_s", s->run.link_delay_s);
}

static json_t *pack_memory(const strait_trainer_memory *m) {
    return json_pack("{sI sI sI sI sI sI sI sI sI}", "weights", (json_int_t)m->weights, "gradients",
                     (json_int_t)m->gradients, "optimizer", (json_int_t)m->optimizer, "activations",
                     (json_int_t)m->activations, "data", (json_int_t)m->data, "codecs",
                     (json_int_t)m->codecs, "messages", (json_int_t)m->messages, "program",
                     (json_int_t)m->program, "total", (json_int_t)m->total);
}

/* The plan of a swarm has as many replicas as a stage may get; its workers are those it has. */
static int replicas_of(const strait_trainer_stage *plan, const json_t *swarm, int stage) {
    const json_t *workers = json_object_get(swarm, "workers");
    int n = 0;
    if (swarm == NULL) return plan->replicas;
    for (size_t i = 0; i < json_array_size(workers); i++) {
        const json_t *worker = json_array_get(workers, i);
        n += json_integer_value(json_object_get(worker, "stage")) == stage &&
             json_is_true(json_object_get(worker, "connected"));
    }
    return n;
}

/* Each of n replicas sends (n - 1) / n of the gradients, and as much of their sums. */
static double reduced_by(const strait_trainer_stage *plan, int n) {
    if (n < 2 || plan->replicas < 2) return 0.0;
    return plan->reduced * (1.0 - 1.0 / n) / (1.0 - 1.0 / plan->replicas);
}

static json_t *pack_stages(const strait_state *s, const strait_waits *waits, const json_t *swarm) {
    json_t *array = json_array();
    for (int i = 0; i < s->info.n_stages; i++) {
        const strait_trainer_stage *plan = &s->info.stages[i];
        const int n = replicas_of(plan, swarm, i);
        const strait_trainer_stage_step *step = &s->stages[i];
        (void)json_array_append_new(
            array, json_pack("{si si si sf sI sI so so so so so so so}", "layers", plan->layers,
                             "slots", plan->slots, "replicas", n, "reduce_bytes",
                             reduced_by(plan, n), "planned_bytes", (json_int_t)plan->planned,
                             "used_bytes", (json_int_t)plan->used, "forward_s",
                             real(step->forward_s), "backward_s", real(step->backward_s), "codec_s",
                             real(step->codec_s), "wait_s", real(step->wait_s), "wait_prev_s",
                             real(step->wait_s * waits->prev[i]), "wait_next_s",
                             real(step->wait_s * waits->next[i]), "wall_s", real(step->wall_s)));
    }
    return array;
}

static json_t *pack_boundaries(const strait_state *s, const strait_waits *waits) {
    json_t *array = json_array();
    for (int i = 0; i + 1 < s->info.n_stages; i++)
        (void)json_array_append_new(
            array, json_pack("{so so so so so so si si}", "forward_bytes",
                             real(s->stages[i].forward_bytes), "backward_bytes",
                             real(s->stages[i].backward_bytes), "residual_forward",
                             real(s->residual_forward[i]), "residual_backward",
                             real(s->residual_backward[i]), "total_forward_bytes",
                             real(s->sums[i].forward_bytes), "total_backward_bytes",
                             real(s->sums[i].backward_bytes), "forward_queue",
                             waits->forward_queue[i], "backward_queue", waits->backward_queue[i]));
    return array;
}

/* Newest first. */
static json_t *pack_events(const strait_state *s) {
    json_t *array = json_array();
    for (int64_t i = s->n_events - 1; i >= 0 && i >= s->n_events - STRAIT_STATE_EVENTS; i--) {
        const strait_state_event *event = &s->events[i % STRAIT_STATE_EVENTS];
        (void)json_array_append_new(
            array, json_pack("{sf so}", "time", event->time, "text", text(event->text)));
    }
    return array;
}

static json_t *pack_step(const strait_state *s) {
    const strait_trainer_report *r = &s->report;
    const strait_trainer_costs *c = &r->costs;
    if (!s->has_report) return json_null();
    return json_pack("{sI so so so sI sf so so so so so so so si so s{so so so so so so so} sb si}",
                     "step", (json_int_t)r->step, "loss", real(r->loss), "learning_rate",
                     real(r->learning_rate), "grad_norm", real(r->grad_norm), "tokens",
                     (json_int_t)r->tokens, "time", r->time, "tokens_per_s", real(r->tokens_per_s),
                     "forward_bytes_per_token", real(r->forward_bytes_per_token),
                     "backward_bytes_per_token", real(r->backward_bytes_per_token), "ratio_forward",
                     real(r->ratio_forward), "ratio_backward", real(r->ratio_backward), "bubble",
                     real(r->bubble), "limit", text(s->limit), "limit_where", r->limit_where,
                     "seconds", real(r->seconds), "costs", "compute", real(c->compute), "bubble",
                     real(c->bubble), "serialisation", real(c->serialisation), "propagation",
                     real(c->propagation), "codec", real(c->codec), "links", real(c->links),
                     "reduction", real(c->reduction), "is_skipped", r->is_skipped, "staleness",
                     r->staleness);
}

json_t *strait_state_pack(const strait_state *s, json_t *swarm) {
    char advice[512];
    strait_waits waits;
    strait_state_advise(s, advice, sizeof advice);
    strait_waits_find(s->spans, s->n_spans, s->info.n_stages, &waits);
    return json_pack("{ss ss so sf so so so so so so so so sI so so}", "version", "1", "phase",
                     s->phase, "reason", text(s->reason), "now", strait_clock_date(), "run",
                     pack_run(s), "step", pack_step(s), "seconds_left", real(s->seconds_left),
                     "valid",
                     s->has_valid ? json_pack("{sI so}", "step", (json_int_t)s->valid_step,
                                              "valid_loss", real(s->valid_loss))
                                  : json_null(),
                     "memory", pack_memory(&s->info.memory), "stages",
                     pack_stages(s, &waits, swarm), "boundaries", pack_boundaries(s, &waits),
                     "advice", text(advice), "n_events", (json_int_t)s->n_events, "events",
                     pack_events(s), "swarm", swarm != NULL ? json_incref(swarm) : json_null());
}

json_t *strait_state_pack_timeline(const strait_state *s) {
    static const char *const kinds[] = {"forward", "backward",   "input",   "weights",
                                        "update",  "activation", "gradient"};
    json_t *array = json_array();
    for (int i = 0; i < s->n_spans; i++) {
        const strait_trainer_span *span = &s->spans[i];
        (void)json_array_append_new(array, json_pack("[s i i f f]", kinds[span->kind], span->stage,
                                                     span->microbatch, span->start_s, span->end_s));
    }
    return json_pack("{sI so}", "step", (json_int_t)s->report.step, "spans", array);
}
