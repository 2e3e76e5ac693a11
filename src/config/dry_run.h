/* dry_run.h - a stage without memory: the names and shapes of everything that it will hold.
 *
 * Used to compute sizes and memory of a run, and to check the tensors of a checkpoint, without
 * allocating any of them. */
#pragma once

#include "config/run_plan.h"
#include "model/weights.h"
#include "optim/optimizer.h"

struct strait_dry_run { // zeroed is empty
    struct strait_weights weights;
    struct strait_codec *receiver, *sender; // NULL on the first and on the last stage
    strait_param *params;                   // of receiver, stage and sender, in this order
    int n_params;
    struct strait_optimizer *optimizer;
};

/* Describes one stage of a plan; on error the dry run is empty. The caller ends it with fini, which
 * also accepts an empty one. */
strait_err strait_dry_run_init(struct strait_dry_run *dry_run, const strait_run_plan *plan,
                               int stage);
void strait_dry_run_fini(struct strait_dry_run *dry_run);
