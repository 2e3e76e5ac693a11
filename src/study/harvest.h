/* harvest.h - turns the folder of a finished run into its record in results.jsonl. */
#pragma once

#include "study/queue.h"

/* Reads the metrics of the run in `folder`. The record has the key, name, seed and settings of the
 * job, its sizes, losses with the curve of validations, bytes, ratios and times, the last and the
 * largest value of codec metrics, basis updates, and the series that the study names. test_loss is
 * NaN where there is none; otherwise the record names the test text too. STRAIT_EDATA: the
 * metrics are incomplete. The caller releases *out. */
strait_err strait_harvest(const strait_study *study, const strait_job *job, const char *folder,
                          double test_loss, json_t **out);

/* The loss that `strait eval --json` printed to a file. */
strait_err strait_harvest_test(const char *path, double *loss);

/* Removes the checkpoints of a run, which are large; its metrics stay. */
void strait_harvest_drop_weights(const char *folder);
