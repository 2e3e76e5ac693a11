/* plan_outlook.h - what strait plan predicts, and how it is printed. */
#pragma once

#include "plan/limit.h"
#include "plan_members.h"
#include "stage_times.h"

/* Everything the plan predicts. */
typedef struct strait_plan_outlook {
    strait_run_plan plan;
    strait_stage_times times;
    strait_pipe pipe;
    strait_pipe_stage stages[STRAIT_RUN_STAGES];
    strait_pipe_link links[STRAIT_RUN_STAGES];
    int windows[STRAIT_RUN_STAGES], joined[STRAIT_RUN_STAGES];
    strait_plan_members members; // where it has replicas or homes
    strait_plan_more more;
    double average_s; // of a step, that averages of weights add (train.outer)
    strait_runner_memory memory[STRAIT_RUN_STAGES];
    int64_t n_values[STRAIT_RUN_STAGES]; // gradients
    size_t messages[STRAIT_RUN_STAGES];
    strait_simulate_stage seen[STRAIT_RUN_STAGES];
    strait_simulate_result result;
    double unlimited_s; // a step with infinitely fast links
    double metered_s;   // a step on the meter of Protocol NanoGPT; 0: link.meter.rate is 0
    strait_limit limit;
    char devices[STRAIT_RUN_STAGES][STRAIT_RUN_NAME + 8]; // "cuda:0"
} strait_plan_outlook;

/* Prints the plan of the run file `path` for people, or as one JSON object. */
void strait_plan_print(const char *path, const strait_plan_outlook *o);
void strait_plan_print_json(const strait_plan_outlook *o);
