/* report_line.h - the report of a step as a line of metrics.jsonl. */
#pragma once

#include <strait/trainer.h>

#include "metrics/metrics.h"

/* The line refers to the report and to its own arrays: neither may move while it is used. */
typedef struct strait_report_line {
    strait_metrics_step step;
    double busy[STRAIT_RUN_STAGES], wait[STRAIT_RUN_STAGES];
    double forward[STRAIT_RUN_STAGES], backward[STRAIT_RUN_STAGES];
} strait_report_line;

/* Fills in the line. Borrows what the report points to. */
void strait_report_line_init(strait_report_line *line, const strait_trainer_report *report,
                             int64_t batch_tokens);
