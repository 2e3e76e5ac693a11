/* changes.h - what a resumed run does otherwise than before. */
#pragma once

#include "config/run.h"

enum {
    STRAIT_CHANGES_TEXT = 480 // bytes of their description
};

/* Compares `run` with FOLDER/run.yaml, which an earlier session wrote, and appends a line per
 * difference to FOLDER/changes.jsonl: {"time", "step", "key", "from", "to", "derived"}. Describes
 * them for people in `text`; empty: nothing changed. STRAIT_EIO: the line cannot be written. */
strait_err strait_changes_record(const strait_run *run, const char *folder, int64_t step,
                                 char text[STRAIT_CHANGES_TEXT]);
