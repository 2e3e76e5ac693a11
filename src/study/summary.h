/* summary.h - what the finished runs of a study say: one line per row, and its report. */
#pragma once

#include "report/statistics.h"
#include "study/queue.h"

/* One row over its seeds. */
typedef struct strait_summary {
    int n_runs, n_failed;        // finished and failed runs; without trials
    const strait_job *first;     // its first finished run; NULL: none
    strait_estimate valid, test; // losses; test.n is 0 without a test text
    strait_estimate against;     // paired differences of the compared loss to the control's
    int n_unpaired;              // runs that share no test text with the control's, left out
    int is_on_other_text;        // its test loss is not of the text that most runs have
    double control_loss;         // mean of the control over the same seeds
} strait_summary;

/* The loss that rows are compared by is that of the test text, where there is one. The mean test
 * loss is on the text that most runs of the study have; without a run on it, on its first run's. */
void strait_summary_of(const strait_study *study, const struct strait_queue *queue, int row,
                       strait_summary *out);

/* Chooses of runs that were repeated for another test text those on the common one, so that all
 * columns of a row are of one run. */
void strait_summary_choose(const strait_study *study, struct strait_queue *queue);

/* A number of what a job shows; NaN where its record lacks it. */
double strait_summary_value(const strait_job *job, const char *key);

/* Writes table.md, table.csv, further CSV files, plots and report.html into the folder. `more` are
 * records of trainings that are no runs, such as those of vision.h; NULL: none. STRAIT_EIO. */
strait_err strait_summary_write(const strait_study *study, const struct strait_queue *queue,
                                const json_t *more, const char *folder);
