#include "train/start_from.h"

#include "base/alloc.h"
#include "base/file.h"
#include "convert/init.h"

strait_err strait_start_from_swarm(const strait_run *run, const char *folder) {
    int64_t *steps = NULL;
    int n = 0;
    STRAIT_TRY(strait_checkpoint_list(folder, &steps, &n));
    const int has_first = n > 0 && steps[n - 1] == 0; // of train.init_from or of an import
    const int has_later = n > 0 && steps[n - 1] > 0;
    strait_alloc_free(steps);
    if (has_later || (!has_first && run->train.init_from[0] == '\0')) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ENOTSUP,
                       "%s: the workers of a swarm, and those that check them, compute "
                       "the first weights from the seed. Begin the run with strait train, stop it "
                       "after a step, and continue it with strait host --resume",
                       has_first ? folder : "train.init_from");
}

strait_err strait_start_from(struct strait_trainer *trainer, const char *source, const char *folder,
                             strait_convert_note note, void *user) {
    char initial[STRAIT_PATH_MAX];
    const strait_convert_notes notes = {note, user};
    const char *skipped = NULL;
    STRAIT_TRY(strait_file_path(initial, "%s/initial.tmp", folder));
    strait_err err = strait_trainer_save(trainer, initial);
    if (err == STRAIT_OK) err = strait_init_write(initial, source, folder, &notes);
    strait_init_discard(initial);
    STRAIT_TRY(err);
    return strait_trainer_load(trainer, folder, &skipped);
}
