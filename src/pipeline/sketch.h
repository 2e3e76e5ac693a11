/* sketch.h - a stage without memory: what its worker will hold, by name and shape. */
#pragma once

#include "model/weights.h"
#include "optim/optimizer.h"
#include "pipeline/recipe.h"

struct strait_sketch { // zeroed is empty
    struct strait_weights weights;
    struct strait_codec *tail, *head; // NULL on the first and on the last stage
    strait_param *params;             // of tail, stage and head, in this order
    int n_params;
    struct strait_optimizer *optimizer;
};

/* On error it is empty. */
strait_err strait_sketch_init(struct strait_sketch *sketch, const strait_recipe *recipe, int stage);
void strait_sketch_fini(struct strait_sketch *sketch);
