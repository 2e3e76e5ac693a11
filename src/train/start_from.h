/* start_from.h - begins a run with the weights of another model (train.init_from). */
#pragma once

#include <strait/convert.h>
#include <strait/trainer.h>

#include "config/run.h"

/* Gives a new trainer the weights of `source`, a run, a checkpoint or a Hugging Face folder: the
 * trainer saves its initial values to a folder of its own, a checkpoint of step 0 is written to the
 * run's folder from them and from the source, and the trainer loads it. Until that checkpoint is
 * complete the run has none, so a run that is stopped meanwhile does all this again. `note` gets a
 * line that says which tensors were taken. Errors are those of strait_init_write (convert/init.h),
 * strait_trainer_save and strait_trainer_load. */
strait_err strait_start_from(struct strait_trainer *trainer, const char *source, const char *folder,
                             strait_convert_note note, void *user);

/* STRAIT_ENOTSUP if a swarm would have to start from train.init_from or from a checkpoint of step
 * 0: other first weights than those of the seed would look like a lie of the workers. It may
 * continue a run that has a checkpoint of a later step. */
strait_err strait_start_from_swarm(const strait_run *run, const char *folder);
