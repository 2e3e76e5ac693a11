/* plot.h - lines of numbers as a picture: one SVG file that every browser shows. */
#pragma once

#include "base/error.h"

/* A line; one point alone is a dot with its name beside it. Borrowed. */
typedef struct strait_plot_line {
    const char *name;
    const double *x, *y;
    int n;
} strait_plot_line;

typedef struct strait_plot {
    const char *title, *x_label, *y_label;
    int is_log_x; // powers of two; every x must be above zero
    const strait_plot_line *lines;
    int n_lines;
} strait_plot;

/* Replaces `path`. Points that are not finite are left out; STRAIT_EDATA when none remains. */
strait_err strait_plot_write(const char *path, const strait_plot *plot);
