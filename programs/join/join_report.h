/* join_report.h - what "strait join" tells the person who lends the machine: what the run is, a
 * line that shows how far it is, and a summary. */
#pragma once

#include "progress.h"
#include "swarm/worker/worker.h"

typedef struct strait_join_report {
    strait_progress progress;
    double began;             // seconds
    double line;              // when the last plain line was printed
    int said_traffic;         // MB per hour were announced for that stage
    int said_stage;           // the stage that was announced last; -1: spare; -2: none
    int has_run;              // `run` is known
    strait_run_status run;    // copies of the latest
    strait_worker_status now; // its run points to the copy
} strait_join_report;

void strait_join_report_init(strait_join_report *report);

/* A line of the worker's log. */
void strait_join_report_note(strait_join_report *report, const char *text);

/* The status of the worker, about once a second. */
void strait_join_report_status(strait_join_report *report, const strait_worker_status *status);

/* Prints what this machine has contributed. */
void strait_join_report_end(strait_join_report *report);

/* In words: "stage 1 of 2", "spare", "connecting". */
void strait_join_report_role(const strait_join_report *report, char out[64]);

/* Bytes of memory that this process uses. */
double strait_join_report_memory(void);
