/* plot.h - line plots as SVG or PNG files. */
#pragma once

#include "base/error.h"

#include <stddef.h>

/* One line of a plot; a single point is drawn as a dot. Without x it is a reference: dashed across
 * the whole plot at y[0]. All borrowed. */
typedef struct strait_plot_line {
    const char *name;
    const double *x, *y;
    int n;
} strait_plot_line;

/* The range of a line's values, such as that over seeds: as many values as the line has points. It
 * is shaded, or a bar at each point where the plot marks points. NULL: it has none. */
typedef struct strait_plot_band {
    const double *low, *high;
} strait_plot_band;

typedef struct strait_plot {
    const char *title, *x_label, *y_label;
    int is_log_x;     // logarithmic to base 2; every x must be positive
    int marks_points; // every point has a dot; otherwise the last one
    const strait_plot_line *lines;
    int n_lines;
    const strait_plot_band *bands; // one per line; NULL: none has one
} strait_plot;

/* The SVG as text with a zero after its last byte; the caller releases it with free().
 * STRAIT_EDATA: no finite point remains. */
strait_err strait_plot_render(const strait_plot *plot, char **out, size_t *out_bytes);

/* Replaces the file `path`: a PNG image if it ends in .png, else SVG. Non-finite points are
 * omitted; STRAIT_EDATA: no finite point remains.
 */
strait_err strait_plot_write(const char *path, const strait_plot *plot);
