/* run_changes.h - which options two runs differ in. */
#pragma once

#include "config/run.h"

/* Called for each difference with both values as a run file would have them. `is_derived`: neither
 * run set the option; its value follows from others. */
typedef void (*strait_run_difference)(void *user, const char *key, const char *a, const char *b,
                                      int is_derived);

/* Visits the options in which two runs differ, in the order of the table. The name of a run is not
 * one of them. */
void strait_run_compare(const strait_run *a, const strait_run *b, strait_run_difference visit,
                        void *user);
