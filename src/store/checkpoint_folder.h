/* checkpoint_folder.h - names in RUN/checkpoints, shared by saving and opening. */
#pragma once

#include "base/file.h"

enum {
    STRAIT_CHECKPOINT_FORMAT = 1 // of manifest.json
};

/* RUN/checkpoints/STEP, with `suffix` after it. */
strait_err strait_checkpoint_folder(const char *run_folder, int64_t step, const char *suffix,
                                    char out[STRAIT_PATH_MAX]);

/* The step that a folder's name stands for, or -1. */
int64_t strait_checkpoint_step_of(const char *path);
