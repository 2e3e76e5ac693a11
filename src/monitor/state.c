#include "monitor/state.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void strait_state_open(strait_state *s, const strait_monitor_run *run) {
    memset(s, 0, sizeof *s);
    s->run = *run;
    s->started = strait_clock_date();
    (void)snprintf(s->phase, sizeof s->phase, "starting");
}

void strait_state_set_info(strait_state *s, const strait_trainer_info *info, int64_t step) {
    s->info = *info;
    s->has_info = 1;
    s->first_step = step;
    (void)snprintf(s->phase, sizeof s->phase, "training");
}

/* The report points into memory of the trainer, which the next step overwrites. */
static void copy_stages(strait_state *s, const strait_trainer_report *r) {
    for (int i = 0; i < r->n_boundaries && r->residual_forward != NULL; i++) {
        s->residual_forward[i] = r->residual_forward[i];
        s->residual_backward[i] = r->residual_backward[i];
    }
    for (int i = 0; i < r->n_stages; i++) {
        const strait_trainer_stage_step *from = &r->stages[i];
        strait_trainer_stage_step *sum = &s->sums[i];
        s->stages[i] = *from;
        sum->forward_s += from->forward_s;
        sum->backward_s += from->backward_s;
        sum->codec_s += from->codec_s;
        sum->wait_s += from->wait_s;
        sum->forward_bytes += from->forward_bytes;
        sum->backward_bytes += from->backward_bytes;
    }
    s->n_spans = r->n_spans < STRAIT_STATE_SPANS ? r->n_spans : STRAIT_STATE_SPANS;
    if (s->n_spans > 0) memcpy(s->spans, r->spans, (size_t)s->n_spans * sizeof *s->spans);
}

void strait_state_put_step(strait_state *s, const strait_trainer_report *report,
                           double seconds_left) {
    s->report = *report;
    s->has_report = 1;
    s->steps_sum += 1.0;
    s->seconds_left = seconds_left;
    (void)snprintf(s->limit, sizeof s->limit, "%s", report->limit);
    copy_stages(s, report);
}

void strait_state_put_event(strait_state *s, const char *text) {
    strait_state_event *event = &s->events[s->n_events++ % STRAIT_STATE_EVENTS];
    event->time = strait_clock_date();
    (void)snprintf(event->text, sizeof event->text, "%s", text);
}

void strait_state_end(strait_state *s, const char *reason) {
    (void)snprintf(s->phase, sizeof s->phase, "%s", reason == NULL ? "done" : "failed");
    (void)snprintf(s->reason, sizeof s->reason, "%s", reason == NULL ? "" : reason);
    if (reason != NULL) strait_state_put_event(s, reason);
    s->seconds_left = 0.0;
}

void strait_state_copy(strait_state *to, const strait_state *from) {
    memcpy(to, from, offsetof(strait_state, spans) + (size_t)from->n_spans * sizeof *from->spans);
}

/* What would help against each cost; `where` is a stage or boundary. */
static void advise_for(const strait_state *s, int where, char *out, size_t capacity) {
    const int64_t microbatch = s->info.microbatch;
    if (strcmp(s->limit, "serialisation") == 0)
        (void)snprintf(
            out, capacity,
            "the link of boundary %d is full: compress more (link.codec: fewer bits or a "
            "smaller keep), or use a faster link",
            where);
    else if (strcmp(s->limit, "propagation") == 0)
        (void)snprintf(out, capacity,
                       "the delay of boundary %d is not hidden: use more microbatches per step "
                       "(stages.microbatch below %lld, or a larger train.batch_tokens)",
                       where, (long long)microbatch);
    else if (strcmp(s->limit, "bubble") == 0)
        (void)snprintf(out, capacity,
                       "stages wait for each other: use more microbatches per step "
                       "(stages.microbatch below %lld, or a larger train.batch_tokens)",
                       (long long)microbatch);
    else if (strcmp(s->limit, "codec") == 0)
        (void)snprintf(out, capacity,
                       "encoding and decoding at boundary %d takes the time: use a cheaper codec",
                       where);
    else if (strcmp(s->limit, "reduction") == 0)
        (void)snprintf(out, capacity,
                       "the replicas of stage %d wait for the sums of their gradients: send fewer "
                       "bits (stages.reduce_bits 8 or 4), sum less often (a larger "
                       "train.batch_tokens), or give the stage fewer replicas",
                       where);
    else if (strcmp(s->limit, "links") == 0)
        (void)snprintf(out, capacity,
                       "stages wait for their links: compress more (link.codec), or find the slow "
                       "link with strait doctor");
    else if (s->info.n_stages > 1)
        (void)snprintf(out, capacity,
                       "stage %d computes longest: give it fewer layers (stages.split) or a faster "
                       "device",
                       where);
    else
        (void)snprintf(out, capacity,
                       "one stage computes all the time: a faster device, or more stages");
}

void strait_state_advise(const strait_state *s, char *out, size_t capacity) {
    out[0] = '\0';
    if (s->has_report) advise_for(s, s->report.limit_where, out, capacity);
}
