#include "train/start_from.h"

#include "base/file.h"
#include "convert/init.h"

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
