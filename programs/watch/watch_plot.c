#include "watch_plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t offset;
} curves[STRAIT_WATCH_CURVES] = {
    {"loss", offsetof(strait_series_point, loss)},
    {"tokens/s", offsetof(strait_series_point, tokens_per_s)},
    {"gradient norm", offsetof(strait_series_point, grad_norm)},
    {"learning rate", offsetof(strait_series_point, learning_rate)},
    {"bytes/token", offsetof(strait_series_point, forward_bytes_per_token)},
    {"bubble", offsetof(strait_series_point, bubble)},
};

const char *strait_watch_curve_name(int curve) {
    return curves[curve].name;
}

double strait_watch_curve_value(const strait_series_point *point, int curve) {
    return *(const double *)(const void *)((const char *)point + curves[curve].offset);
}

static double abscissa(const strait_series *s, const strait_series_point *p, int axis) {
    return axis == 0 ? p->step : axis == 1 ? p->tokens : p->time - s->points[0].time;
}

static double ordinate(const strait_series_point *p, const strait_watch_look *look) {
    const double y = strait_watch_curve_value(p, look->curve);
    return look->is_log ? (y > 0.0 ? log10(y) : (double)NAN) : y;
}

static void find_range(strait_watch_plot *plot, const strait_series *s,
                       const strait_watch_look *look) {
    for (int i = 0; i < s->n_points; i++) {
        const double x = abscissa(s, &s->points[i], look->axis), y = ordinate(&s->points[i], look);
        if (!isfinite(x) || !isfinite(y)) continue;
        if (!plot->has_points) {
            plot->x0 = plot->x1 = x;
            plot->y0 = plot->y1 = y;
        }
        plot->has_points = 1;
        plot->x0 = fmin(plot->x0, x);
        plot->x1 = fmax(plot->x1, x);
        plot->y0 = fmin(plot->y0, y);
        plot->y1 = fmax(plot->y1, y);
    }
}

/* The bits of a Braille character, by column and row of its dots. */
static void set_dot(strait_watch_plot *plot, int x, int y) {
    static const unsigned char bits[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
    const int column = x / plot->wide, row = y / plot->high;
    if (x < 0 || y < 0 || column >= plot->columns || row >= plot->rows) return;
    plot->cells[row][column] |= bits[x % plot->wide][y % plot->high];
}

static void draw_line(strait_watch_plot *plot, const int from[2], const int to[2]) {
    const int dx = to[0] - from[0], dy = to[1] - from[1];
    const int n = abs(dx) > abs(dy) ? abs(dx) : abs(dy);
    for (int i = 0; i <= n; i++)
        set_dot(plot, from[0] + (n > 0 ? i * dx / n : 0), from[1] + (n > 0 ? i * dy / n : 0));
}

void strait_watch_plot_fill(strait_watch_plot *plot, const strait_watch *watch,
                            const strait_watch_look *look, int columns, int rows) {
    const strait_series *s = &watch->follow.series;
    int last[2] = {0, 0}, has_last = 0;
    memset(plot, 0, sizeof *plot);
    plot->columns = columns < WATCH_PLOT_COLUMNS ? columns : WATCH_PLOT_COLUMNS;
    plot->rows = rows < WATCH_PLOT_ROWS ? rows : WATCH_PLOT_ROWS;
    plot->wide = look->is_utf8 ? 2 : 1;
    plot->high = look->is_utf8 ? 4 : 1;
    find_range(plot, s, look);
    const double width = plot->columns * plot->wide - 1, height = plot->rows * plot->high - 1;
    for (int i = 0; i < s->n_points && plot->has_points; i++) {
        const double x = abscissa(s, &s->points[i], look->axis), y = ordinate(&s->points[i], look);
        if (!isfinite(x) || !isfinite(y)) {
            has_last = 0;
            continue;
        }
        const double fx = plot->x1 > plot->x0 ? (x - plot->x0) / (plot->x1 - plot->x0) : 0.5;
        const double fy = plot->y1 > plot->y0 ? (y - plot->y0) / (plot->y1 - plot->y0) : 0.5;
        const int at[2] = {(int)(fx * width + 0.5), (int)((1.0 - fy) * height + 0.5)};
        draw_line(plot, has_last ? last : at, at);
        memcpy(last, at, sizeof last);
        has_last = 1;
    }
}

void strait_watch_plot_row(const strait_watch_plot *plot, int row, char *out) {
    for (int i = 0; i < plot->columns; i++) {
        const unsigned char cell = plot->cells[row][i];
        if (cell == 0 || plot->wide == 1) {
            *out++ = cell == 0 ? ' ' : '*';
            continue;
        }
        *out++ = (char)0xe2; // U+2800 and the bits, in UTF-8
        *out++ = (char)(0xa0 | cell >> 6);
        *out++ = (char)(0x80 | (cell & 0x3f));
    }
    *out = '\0';
}
