/* state.h - what the thread that trains publishes, and how it is written as JSON and for
 * Prometheus.
 *
 * The publisher owns one state and copies it, when nobody reads, into one that the monitor's thread
 * copies in turn: neither waits for more than such a copy. */
#pragma once

#include "monitor/follow.h"
#include "monitor/monitor.h"

#include <stddef.h>

enum {
    STRAIT_STATE_EVENTS = 64,
    STRAIT_STATE_EVENT_BYTES = 256,
    STRAIT_STATE_SPANS = 1024
};

typedef struct strait_state_event {
    double time;
    char text[STRAIT_STATE_EVENT_BYTES];
} strait_state_event;

typedef struct strait_state {
    strait_monitor_run run;
    char phase[16]; // "starting", "training", "done", "failed"
    char reason[STRAIT_STATE_EVENT_BYTES];
    double started; // seconds since 1970
    int64_t first_step;
    int has_info, has_report, has_valid;
    strait_trainer_info info;
    /* Of the last step. The pointers of `report` are not used: the arrays follow. */
    strait_trainer_report report;
    char limit[32];
    double seconds_left;
    double residual_forward[STRAIT_RUN_STAGES], residual_backward[STRAIT_RUN_STAGES];
    strait_trainer_stage_step stages[STRAIT_RUN_STAGES];
    int64_t valid_step;
    double valid_loss;
    /* Since this process began. */
    double steps_sum;
    strait_trainer_stage_step sums[STRAIT_RUN_STAGES];
    int64_t n_events; // the newest are in `events`, at n % STRAIT_STATE_EVENTS
    strait_state_event events[STRAIT_STATE_EVENTS];
    int n_spans; // last, because it is copied only as far as it is filled
    strait_trainer_span spans[STRAIT_STATE_SPANS];
} strait_state;

/* Changes of a state by the publisher. */
void strait_state_open(strait_state *state, const strait_monitor_run *run);
void strait_state_set_info(strait_state *state, const strait_trainer_info *info, int64_t step);
void strait_state_put_step(strait_state *state, const strait_trainer_report *report,
                           double seconds_left);
void strait_state_put_event(strait_state *state, const char *text);
void strait_state_end(strait_state *state, const char *reason);

/* Copies the part of a state that is filled. */
void strait_state_copy(strait_state *to, const strait_state *from);

/* The state as the JSON of /api/v1/state; `swarm` may be NULL. The caller releases it. */
json_t *strait_state_pack(const strait_state *state, json_t *swarm);
/* The spans of the last step: /api/v1/timeline. */
json_t *strait_state_pack_timeline(const strait_state *state);

/* What limits the run and the one change that would help most, in one or two sentences. */
void strait_state_advise(const strait_state *state, char *out, size_t capacity);

/* The state in the text format of Prometheus. *out is freed with strait_alloc_free. */
strait_err strait_state_expose(const strait_state *state, const json_t *swarm, int n_readers,
                               char **out, size_t *bytes);
