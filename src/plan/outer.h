/* outer.h - when replicas that train on their own average their weights (train.outer).
 *
 * The weights of a stage are cut into fragments. Every fragment is averaged once per interval of
 * sync_every steps, at an offset of its own, so that the bytes spread over the interval: with 4
 * fragments and 20 steps after steps 5, 10, 15, 20, 25, ... Differences are sent after a step and
 * applied `overlap` steps later, while the steps between are computed. In the first `warmup` steps,
 * and after the last one, all fragments are averaged at once; intervals begin after the warmup.
 * Pure functions. */
#pragma once

#include <stdint.h>

typedef struct strait_outer_schedule {
    int64_t sync_every; // steps of an interval; 0: replicas do not train on their own
    int fragments;      // at most sync_every
    int overlap;        // steps between sending and applying; at most sync_every / fragments
    int64_t steps;      // of the run: after the last one every fragment is averaged at once
    int64_t warmup;     // first steps, after each of which every fragment is averaged at once
} strait_outer_schedule;

/* Whether every fragment is sent and applied after `done` steps: in the warmup, and at the end. */
int strait_outer_is_whole(const strait_outer_schedule *schedule, int64_t done);

/* The fragment of an interval whose differences are sent after `done` steps; -1: none. */
int strait_outer_sends(const strait_outer_schedule *schedule, int64_t done);

/* Whether something is sent or applied after `done` steps. */
int strait_outer_acts(const strait_outer_schedule *schedule, int64_t done);

/* The fragment that was sent and is not applied yet, for a run that stands at `done` steps, all
 * actions after that step included; -1: none. *sent_at is the step after which it was sent. */
int strait_outer_in_flight(const strait_outer_schedule *schedule, int64_t done, int64_t *sent_at);

/* How often all weights are averaged, per step, on average over the run; and the share of its steps
 * that the warmup has. */
double strait_outer_frequency(const strait_outer_schedule *schedule);
double strait_outer_warmup_share(const strait_outer_schedule *schedule);
