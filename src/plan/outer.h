/* outer.h - when replicas that train on their own average their weights (train.outer).
 *
 * The weights of a stage are cut into fragments. Every fragment is averaged once per interval of
 * sync_every steps, at an offset of its own, so that the bytes spread over the interval: with 4
 * fragments and 20 steps after steps 5, 10, 15, 20, 25, ... Differences are sent after a step and
 * applied `overlap` steps later, while the steps between are computed. With attention_every the
 * matrices of attention are in no fragment, but a part of their own that is averaged more often. In
 * the first `warmup` steps, and after the last one, all parts are averaged at once; intervals begin
 * after the warmup. Pure functions. */
#pragma once

#include <stdint.h>

typedef struct strait_outer_schedule {
    int64_t sync_every;      // steps of an interval; 0: replicas do not train on their own
    int fragments;           // at most sync_every
    int overlap;             // steps between sending and applying; at most sync_every / fragments
    int64_t steps;           // of the run: after the last one every part is averaged at once
    int64_t warmup;          // first steps, after each of which every part is averaged at once
    int64_t attention_every; // steps between averages of attention's matrices; 0: with the rest
} strait_outer_schedule;

/* Parts are exchanged one by one: the fragments, and behind them attention's matrices if they are a
 * part of their own. */
int strait_outer_n_parts(const strait_outer_schedule *schedule);

/* Whether every part is sent and applied after `done` steps: in the warmup, and at the end. */
int strait_outer_is_whole(const strait_outer_schedule *schedule, int64_t done);

/* The fragment of an interval whose differences are sent after `done` steps; -1: none. */
int strait_outer_sends(const strait_outer_schedule *schedule, int64_t done);

/* Whether a part is sent after `done` steps; the last one that is, or -1. */
int strait_outer_is_sent(const strait_outer_schedule *schedule, int part, int64_t done);
int strait_outer_last_sent(const strait_outer_schedule *schedule, int64_t done);

/* Whether something is sent or applied after `done` steps. */
int strait_outer_acts(const strait_outer_schedule *schedule, int64_t done);

/* The fragment that was sent and is not applied yet, for a run that stands at `done` steps, all
 * actions after that step included; -1: none. *sent_at is the step after which it was sent. */
int strait_outer_in_flight(const strait_outer_schedule *schedule, int64_t done, int64_t *sent_at);

/* The share of the run's steps that the warmup has. */
double strait_outer_warmup_share(const strait_outer_schedule *schedule);

/* Bytes that a replica sends in one exchange of a fragment, and of attention's matrices; 0: these
 * are in the fragments. */
typedef struct strait_outer_bytes_sent {
    double fragment, attention;
} strait_outer_bytes_sent;

/* Of all parts once; and per step, on average over the run. */
double strait_outer_whole_bytes(const strait_outer_schedule *schedule,
                                strait_outer_bytes_sent bytes);
double strait_outer_step_bytes(const strait_outer_schedule *schedule,
                               strait_outer_bytes_sent bytes);
