/* sketch.h - a stage without memory: what its worker will hold, by name and shape. */
#pragma once

#include "config/run_plan.h"
#include "model/weights.h"
#include "optim/optimizer.h"

struct strait_dry_run { // zeroed is empty
    struct strait_weights weights;
    struct strait_codec *receiver, *sender; // NULL on the first and on the last stage
    strait_param *params;                   // of tail, stage and head, in this order
    int n_params;
    struct strait_optimizer *optimizer;
};

/* On error it is empty. */
strait_err strait_dry_run_init(struct strait_dry_run *dry_run, const strait_run_plan *plan,
                               int stage);
void strait_dry_run_fini(struct strait_dry_run *dry_run);
