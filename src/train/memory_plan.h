/* memory_plan.h - the memory of a run, before or while it runs. */
#pragma once

#include <strait/trainer.h>

#include "stage/loader.h"
#include "stage/runner.h"

/* The memory of all stages together and of each. `messages` has the bytes of messages that wait on
 * each stage; they are in host memory on every device. */
strait_err strait_memory_plan(const strait_run_plan *plan, const int *windows,
                              const size_t *messages, strait_trainer_stage *stages,
                              strait_runner_memory *out);

/* Pages of the shards that a run reads: they stay in memory while there is enough. */
size_t strait_memory_plan_shards(const strait_run *run, const struct strait_loader *loader);
