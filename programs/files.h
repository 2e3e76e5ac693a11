/* files.h - the few questions about files and time that commands ask; they use no internals. */
#pragma once

#include <strait/error.h>

enum {
    STRAIT_FILES_PATH = 4096 // bytes of a path, with the final zero
};

/* Formats a path; STRAIT_EINVAL when it does not fit. */
strait_err strait_files_path(char out[STRAIT_FILES_PATH], const char *format, ...)
    STRAIT_PRINTF(2, 3);

int strait_files_exists(const char *path);
int strait_files_is_folder(const char *path);
int strait_files_is_same(const char *a, const char *b); // two names of one existing file

/* Whether a text file contains `word`; also 0 when it cannot be read. */
int strait_files_mentions(const char *path, const char *word);

/* Seconds on a clock that is never set back. */
double strait_files_seconds(void);
