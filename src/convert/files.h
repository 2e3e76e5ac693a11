/* files.h - what import and export share: small files, notes, and cleaning up after an error. */
#pragma once

#include <strait/convert.h>

#include "base/file.h"
#include "store/checkpoint.h"

/* Where messages for people go. */
typedef struct strait_convert_notes {
    strait_convert_note note; // may be NULL
    void *user;
} strait_convert_notes;

void strait_convert_say(const strait_convert_notes *notes, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

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

/* Removes a folder that a conversion began and did not finish. The thread's error stays. */
void strait_convert_discard(const char *folder);
