/* microbatch.h - stages.microbatch 0: how many sequences a microbatch has. */
#pragma once

#include "config/run.h"

/* A divisor of the sequences of a step, by the run alone. On a CPU, and with one stage: the largest
 * within what suits the device that, where it can, leaves four microbatches per stage and one per
 * replica. On GPUs with several stages: the one whose step is planned to be the shortest. */
int64_t strait_run_choose_microbatch(const strait_run *run);

/* The same by the rule of runs whose record does not name the size: four per stage on every device.
 */
int64_t strait_run_choose_microbatch_before(const strait_run *run);

/* Whether the current rule may choose another size than the previous one, so that a run must record
 * its size. */
int strait_run_records_microbatch(const strait_run *run);

/* The next smaller divisor of the sequences of a step; 0: there is none. */
int64_t strait_run_smaller_microbatch(const strait_run *run, int64_t microbatch);
