/* watch_plot.h - a curve drawn with characters. */
#pragma once

#include "watch.h"

enum {
    WATCH_PLOT_COLUMNS = 512, // cells, at most
    WATCH_PLOT_ROWS = 64
};

/* Dots of a plot: in UTF-8 each cell has 2 x 4 of them (Braille), else one. */
typedef struct strait_watch_plot {
    int columns, rows; // cells
    int wide, high;    // dots per cell
    unsigned char cells[WATCH_PLOT_ROWS][WATCH_PLOT_COLUMNS];
    double x0, x1, y0, y1; // range of the values
    int has_points;
} strait_watch_plot;

/* Plots the curve that `look` chooses. */
void strait_watch_plot_fill(strait_watch_plot *plot, const strait_watch *watch,
                            const strait_watch_look *look, int columns, int rows);

/* One row as text, into at least 4 * columns + 1 bytes. */
void strait_watch_plot_row(const strait_watch_plot *plot, int row, char *out);

/* The name of a curve. */
const char *strait_watch_curve_name(int curve);
/* The value of a curve at a point. */
double strait_watch_curve_value(const strait_series_point *point, int curve);
