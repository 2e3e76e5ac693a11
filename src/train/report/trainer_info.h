/* trainer_info.h - size, memory and cost of a run, from its plan. */
#pragma once

#include <strait/trainer.h>

#include "config/run_plan.h"
#include "stage/loader.h"

/* Fills in *out for stages with these windows. Used for the dry run and for the running trainer, so
 * that both report the same figures. */
strait_err strait_trainer_info_fill(const strait_run *run, const strait_run_plan *plan,
                                    const int *windows, const struct strait_loader *loader,
                                    strait_trainer_info *out);
