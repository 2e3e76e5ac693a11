/* outlook.h - the speed that a run is expected to have, before anything of it is allocated: its
 * stages and links as the planner (plan/) models them, and a simulated step. `strait plan` prints
 * it; link.codec.name auto chooses by it.
 *
 * No function keeps anything; each may run on any thread. */
#pragma once

#include "plan/limit.h"
#include "train/outlook/measured.h"
#include "train/outlook/outlook_members.h"
#include "train/outlook/stage_times.h"

/* Everything the plan predicts. The caller sets the first part; zeroed elsewhere. Large: it belongs
 * on the heap. */
typedef struct strait_outlook {
    strait_run_plan plan;
    strait_stage_times times;
    int has_token_ids; // workers of a swarm have no shards: stages that need ids receive them
    /* Replaces the rates of the plan; NULL: there is none. `times` are then those of a device with
     * one operation per second. Borrowed. */
    const strait_measured *measured;
    double measured_share; // of the measured rates; 0: they are unlimited
    /* Stages of one device that compute at full speed at the same time (plan/pipe.h), and the
     * device of each; 0: every stage has a device of its own. */
    double at_once;
    int devices[STRAIT_RUN_STAGES];
    int least_windows[STRAIT_RUN_STAGES]; // zeroed: windows are those that training would choose

    strait_pipe pipe;
    strait_pipe_stage stages[STRAIT_RUN_STAGES];
    strait_pipe_link links[STRAIT_RUN_STAGES];
    double link_bps[STRAIT_RUN_STAGES]; // measured
    int windows[STRAIT_RUN_STAGES], joined[STRAIT_RUN_STAGES];
    strait_outlook_members members; // where it has replicas or homes
    strait_outlook_more more;
    double average_s; // of a step, that averages of weights add (train.outer)
    strait_runner_memory memory[STRAIT_RUN_STAGES];
    strait_run_plan_count params[STRAIT_RUN_STAGES];
    int64_t n_values[STRAIT_RUN_STAGES]; // gradients
    size_t messages[STRAIT_RUN_STAGES];
    strait_simulate_stage seen[STRAIT_RUN_STAGES];
    strait_simulate_result result;
    double unlimited_s; // a step with infinitely fast links that have no delay
    double metered_s;   // a step on the meter of Protocol NanoGPT; 0: link.meter.rate is 0
    strait_limit limit;
} strait_outlook;

/* The vocabulary of a run: model.vocab, or that of its data, which is opened for it. */
strait_err strait_outlook_vocab(const strait_run *run, int64_t *out);

/* Describes stages and links, chooses windows as training does and simulates a step: fills in all
 * but messages, unlimited_s, metered_s, limit and more. Errors of the simulation. */
strait_err strait_outlook_step(const strait_run *run, strait_outlook *o);

/* strait_outlook_step, and the rest. */
strait_err strait_outlook_predict(const strait_run *run, strait_outlook *o);
