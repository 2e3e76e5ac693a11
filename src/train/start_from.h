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

/* Writes the same checkpoint, bit for bit, without a trainer, for stages that run elsewhere: their
 * initial values are drawn here, one stage after the other, on the CPU. It takes the memory that
 * the largest stage has with one microbatch in flight; nothing is computed. Blocks; any thread may
 * call it. Errors as above, and those of opening the run: STRAIT_ECONFIG, STRAIT_EDATA,
 * STRAIT_ENOMEM. */
strait_err strait_start_write(const strait_run *run, const char *folder, strait_convert_note note,
                              void *user);
