/* run_source.h - the argument of a command that trains: a run file, or the folder of a run. */
#pragma once

#include "files.h"

typedef struct strait_run_source {
    char file[STRAIT_FILES_PATH];   // to load the run from
    char folder[STRAIT_FILES_PATH]; // of the run; empty: after its name
} strait_run_source;

/* `argument` is a run file, the run.yaml of a run, which means its folder, or, with --resume, that
 * folder itself. `out` is the value of --out, or NULL. STRAIT_ECONFIG: there is no such file, a
 * folder without --resume or without a run, or two folders that differ. */
strait_err strait_run_source_find(const char *argument, int resumes, const char *out,
                                  strait_run_source *source);

/* Completes the folder of a run that has none: runs/NAME. STRAIT_ECONFIG: it is a file. */
strait_err strait_run_source_name(strait_run_source *source, const char *name);
