/* follow.h - reads what a run appends to its metrics.jsonl, and starts again when the run was
 * resumed from an earlier step. One thread uses it. */
#pragma once

#include "monitor/series.h"

#include <sys/types.h>

enum {
    STRAIT_FOLLOW_NEW = 256 // points of one read that are reported one by one
};

typedef struct strait_follow {
    const char *path; // borrowed
    ino_t file;       // that was read so far
    off_t offset;     // of the first byte that was not read
    strait_series series;
    json_t *line; // of the last step, whole; NULL: none yet
    /* New since the last take. is_reset: the file was replaced, or there are more than these. */
    strait_series_point fresh[STRAIT_FOLLOW_NEW];
    strait_series_valid fresh_valid[STRAIT_FOLLOW_NEW];
    int n_fresh, n_fresh_valid, is_reset;
} strait_follow;

/* Borrows `path`, a file that need not exist yet. STRAIT_ENOMEM. */
strait_err strait_follow_open(const char *path, strait_follow *out);
void strait_follow_close(strait_follow *follow); // accepts a zeroed one

/* Reads all whole lines that were added. Lines that are not metrics are skipped: the writer will
 * report them when it resumes. Does nothing while there is no file. */
void strait_follow_read(strait_follow *follow);

/* Forgets which points are new. */
void strait_follow_take(strait_follow *follow);
