/* step_details.h - how each stage spent a step, in the types of the public report. */
#pragma once

#include "train/executor.h"

enum {
    STRAIT_STEP_SPANS = 1024 // of a step, that are reported
};

/* Memory that a report points to. */
typedef struct strait_step_details {
    strait_trainer_stage_step stages[STRAIT_RUN_STAGES];
    strait_trainer_span spans[STRAIT_STEP_SPANS];
} strait_step_details;

/* Replicas of a stage sum their gradients, which the simulation of a step does not know: they work
 * longer than stages with one replica, and than the simulated step, if their links are known.
 * Makes that the limit of the step if it outweighs the others. `spans` are all of the simulated
 * step; NULL: not all are known. */
void strait_step_details_reduction(const strait_run_plan *plan, const strait_step_measure *measure,
                                   const strait_simulate_span *spans, strait_step_limit *limit);

/* Fills the fields of *out that describe stages, costs and spans, for a run of several stages. *out
 * points into *details until the next call. */
void strait_step_details_report(strait_step_details *details, const strait_executor_report *from,
                                int n_stages, strait_trainer_report *out);
