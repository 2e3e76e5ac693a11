/* files.h - what import and export share: small files, notes, and cleaning up after an error. */
#pragma once

#include <strait/convert.h>

#include "base/file.h"
#include "store/checkpoint.h"

/* Where messages for people go, and how far a conversion is. */
typedef struct strait_convert_notes {
    strait_convert_note note; // may be NULL
    void *user;
    strait_convert_progress progress; // may be NULL
    int64_t done, total;              // bytes of tensors
} strait_convert_notes;

void strait_convert_say(const strait_convert_notes *notes, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Reports progress before a tensor of so many bytes. STRAIT_EINTERRUPTED: the user wants an end. */
strait_err strait_convert_advance(strait_convert_notes *notes, int64_t bytes);

/* Checks the target of a conversion, and writes it without slashes at its end into `out`: `kind` is
 * "folder" or "file". STRAIT_ECONFIG: it exists, or a file is wanted and its name ends like a
 * folder's. */
strait_err strait_convert_target(const char *path, const char *kind, char out[STRAIT_PATH_MAX]);

/* Creates the empty folder TARGET.tmp, in which a conversion writes until all is complete, locks
 * it, and sets `folder` to its name. What a killed conversion left there is removed: its lock file
 * tells it from a folder of the user. STRAIT_ECONFIG: there is something else. STRAIT_EIO: another
 * process converts to the same target. After an error `folder` is empty. */
strait_err strait_convert_begin(const char *target, char folder[STRAIT_PATH_MAX], int *lock);

/* Moves the folder into place and releases its lock. */
strait_err strait_convert_finish(const char *folder, const char *target, int *lock);

/* The files that transformers keeps beside tokenizer.json. They are not read, only carried along;
 * the list ends with NULL. */
extern const char *const strait_convert_companions[];

/* Copies FROM/NAME to TO/NAME if it exists. */
strait_err strait_convert_copy(const char *from, const char *to, const char *name);

/* The run's folder of an open checkpoint, RUN/checkpoints/STEP. */
strait_err strait_convert_run_of(const struct strait_checkpoint *checkpoint,
                                 char out[STRAIT_PATH_MAX]);

/* Removes the checkpoint of step 0 that was begun in a run's folder and not finished. The thread's
 * error stays. */
void strait_convert_discard_step(const char *run);

/* Removes a folder that a conversion began and did not finish, with its checkpoint of step 0. The
 * thread's error stays. */
void strait_convert_discard(const char *folder);
