/* compare.h - the runs that "strait compare" puts side by side, for the files of that command. */
#pragma once

#include "config/run.h"
#include "report/history.h"

enum {
    STRAIT_COMPARE_RUNS = 64,
    STRAIT_COMPARE_NAME = 1024
};

typedef struct strait_compare_row {
    char name[STRAIT_COMPARE_NAME]; // UTF-8 without control characters, whatever the folder is
                                    // called
    strait_history history;
    double loss, steps_to, seconds_to, meter_to;
    /* From run.yaml and the data; without them they are unknown. */
    strait_run *run;          // NULL: unknown
    double parameters, flops; // of the model, and per trained token; NaN: unknown
    int group;                // the first row that differs in the seed alone; itself: none before
    int n_seeds;              // of the group, on its first row; on others 0
} strait_compare_row;

/* Reads run.yaml of the run at `path`, if it is a folder with one. A run whose data is gone has no
 * figures of its model. */
void strait_compare_read_run(const char *path, strait_compare_row *row);

/* Finds the rows that differ in the seed alone. */
void strait_compare_group(strait_compare_row *rows, int n);

/* In which keys a run differs from the first, as text; empty: in none, or unknown. */
void strait_compare_differences(const strait_compare_row *first, const strait_compare_row *row,
                                char *out, size_t capacity);

/* Mean and range of the losses of a group. */
typedef struct strait_compare_mean {
    double mean, low, high;
    int n;
} strait_compare_mean;
strait_compare_mean strait_compare_mean_of(const strait_compare_row *rows, int n, int group);

/* Checks the value of --against; STRAIT_ECONFIG lists the axes. */
strait_err strait_compare_check_axis(const char *axis);

/* Checks the value of --plot; STRAIT_ECONFIG lists the endings. */
strait_err strait_compare_check_path(const char *path);

/* Draws the losses against `axis` into `path`, means and ranges for groups of seeds: an image for
 * .svg and .png, all points for .csv. `quantity` names the loss. */
strait_err strait_compare_draw(const char *path, const char *axis, const char *quantity,
                               const strait_compare_row *rows, int n);
