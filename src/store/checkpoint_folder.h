/* checkpoint_folder.h - the names of folders in RUN/checkpoints, shared by saving and opening. */
#pragma once

#include "base/file.h"

enum {
    STRAIT_CHECKPOINT_FORMAT = 1 // version of manifest.json
};

/* Writes RUN/checkpoints/STEP followed by `suffix` to `out`. STRAIT_EINVAL: the path is too long.
 */
strait_err strait_checkpoint_folder(const char *run_folder, int64_t step, const char *suffix,
                                    char out[STRAIT_PATH_MAX]);

/* The step in a folder's name, or -1 if the name is not that of a checkpoint. */
int64_t strait_checkpoint_step_of(const char *path);
