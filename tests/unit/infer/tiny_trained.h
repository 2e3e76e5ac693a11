/* tiny_trained.h - a folder with the checkpoint of a tiny model, for tests of what uses one. */
#pragma once

#include <strait/trainer.h>

#include "../config/tiny_run.h"

/* Trains a few steps and saves them in `folder`, which it opens; the caller closes it. */
static inline void tiny_trained(scratch *folder, strait_run *run) {
    struct strait_trainer *trainer = NULL;
    strait_trainer_report report;
    *folder = scratch_open();
    tiny_run(folder, run);
    CHECK_OK(strait_trainer_open(run, &trainer));
    for (int i = 0; i < 3; i++)
        CHECK_OK(strait_trainer_step(trainer, &report));
    CHECK_OK(strait_trainer_save(trainer, folder->path));
    strait_trainer_close(&trainer);
}
