/* plot.h - line plots as SVG files. */
#pragma once

#include "base/error.h"

#include <stddef.h>

/* One line of a plot; a single point is drawn as a dot with its name beside it. All borrowed. */
typedef struct strait_plot_line {
    const char *name;
    const double *x, *y;
    int n;
} strait_plot_line;

typedef struct strait_plot {
    const char *title, *x_label, *y_label;
    int is_log_x; // logarithmic to base 2; every x must be positive
    const strait_plot_line *lines;
    int n_lines;
} strait_plot;

/* The SVG as text with a zero after its last byte; the caller releases it with free().
 * STRAIT_EDATA: no finite point remains. */
strait_err strait_plot_render(const strait_plot *plot, char **out, size_t *out_bytes);

/* Replaces the file `path`. Non-finite points are omitted; STRAIT_EDATA: no finite point remains.
 */
strait_err strait_plot_write(const char *path, const strait_plot *plot);
