/* recipe.h - from the words of a run file to the structs of the rooms below. */
#pragma once

#include <strait/run.h>

#include "backend/backend.h"
#include "model/stage.h"
#include "optim/optimizer.h"
#include "optim/rate.h"

typedef struct strait_recipe {
    strait_shape shape;
    strait_optim_spec optim;
    strait_rate rate;
    int64_t sequences;  // in a step
    int64_t microbatch; // sequences in a microbatch
    int64_t n_microbatches;
} strait_recipe;

/* `vocab` is used where the run file leaves model.vocab out. STRAIT_ECONFIG when sizes do not fit
 * together. */
strait_err strait_recipe_make(const strait_run *run, int64_t vocab, strait_recipe *out);

strait_backend_spec strait_recipe_backend(const strait_run *run);

/* The whole model as one stage. */
strait_stage_spec strait_recipe_stage(const strait_recipe *recipe, int recomputes);
