#include "report/plot.h"

#include "base/alloc.h"
#include "base/file.h"
#include "report/plot_surface.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 760,
    HEIGHT = 460,
    LEFT = 70,
    RIGHT = 200, // the names of the lines
    TOP = 40,
    BOTTOM = 55,
    TICKS = 6,
    LINE_HEIGHT = 18,
    SAMPLE = 18, // of a line, before its name
    LEVEL_DASH = 1,
    BLACK = 0x000000,
    GREY = 0xdddddd
};

/* After the last colour the colours repeat with another dash pattern. */
static const uint32_t colours[] = {0x1b6ca8, 0xd1495b, 0x2e933c, 0x8f5db7, 0xe08e1b, 0x3d3d3d,
                                   0x0f9d9a, 0xa0522d, 0xe0559e, 0x6b7a00, 0x5b6bd6, 0x7f7f7f};

enum {
    N_COLOURS = sizeof colours / sizeof *colours
};

typedef struct range {
    double low, high;
} range;

typedef struct canvas {
    struct strait_plot_surface *surface;
    const strait_plot *plot;
    int height; // larger than HEIGHT when there are many names
    range x, y; // x holds logarithms when the axis is logarithmic
} canvas;

static strait_plot_band band_of(const strait_plot *plot, int i) {
    return plot->bands != NULL ? plot->bands[i] : (strait_plot_band){NULL, NULL};
}

static int is_level(const strait_plot_line *line) {
    return line->x == NULL;
}

static double x_of(const strait_plot *plot, double x) {
    return plot->is_log_x ? log2(x) : x;
}

/* Starts from an empty range, whose ends are infinite. */
static void widen(range *r, double value) {
    if (value < r->low) r->low = value;
    if (value > r->high) r->high = value;
}

/* Points that are not finite are left out, so that a run that diverged does not hide the others. A
 * margin keeps points off the frame, also when all have the same value. */
static strait_err measure(canvas *c) {
    int n = 0;
    c->x = c->y = (range){(double)INFINITY, -(double)INFINITY};
    for (int i = 0; i < c->plot->n_lines; i++) {
        const strait_plot_line *line = &c->plot->lines[i];
        const strait_plot_band band = band_of(c->plot, i);
        for (int k = 0; k < line->n; k++) {
            const double x = is_level(line) ? 0.0 : x_of(c->plot, line->x[k]);
            if (!isfinite(x) || !isfinite(line->y[k])) continue;
            widen(&c->y, line->y[k]);
            if (is_level(line)) continue;
            widen(&c->x, x);
            if (band.low != NULL && isfinite(band.low[k])) widen(&c->y, band.low[k]);
            if (band.high != NULL && isfinite(band.high[k])) widen(&c->y, band.high[k]);
            n++;
        }
    }
    if (n == 0) return STRAIT_FAIL(STRAIT_EDATA, "nothing to plot: no point is finite");
    if (c->x.low > c->x.high) c->x = (range){1.0, 1.0}; // references alone
    /* Points that differ by framing alone would fill a logarithmic axis. */
    const int is_wide = c->x.high - c->x.low > (c->plot->is_log_x ? 0.1 : 0.0);
    const double spare_x = is_wide ? 0.03 * (c->x.high - c->x.low) : 1.0;
    const double spare_y = c->y.high > c->y.low ? 0.06 * (c->y.high - c->y.low) : 1.0;
    c->x = (range){c->x.low - spare_x, c->x.high + spare_x};
    c->y = (range){c->y.low - spare_y, c->y.high + spare_y};
    return STRAIT_OK;
}

static double left_of(const canvas *c, double x) {
    return LEFT + (x - c->x.low) / (c->x.high - c->x.low) * (WIDTH - LEFT - RIGHT);
}

/* A surface counts from the top, a plot from the bottom. */
static double top_of(const canvas *c, double y) {
    return c->height - BOTTOM -
           (y - c->y.low) / (c->y.high - c->y.low) * (c->height - TOP - BOTTOM);
}

static void put_text(const canvas *c, double left, double top, strait_plot_anchor anchor,
                     const char *text) {
    c->surface->ops->text(c->surface,
                          &(strait_plot_text){.x = left, .y = top, .anchor = anchor, .text = text});
}

static void put_rule(const canvas *c, double x1, double y1, double x2, double y2) {
    const double xy[] = {x1, y1, x2, y2};
    c->surface->ops->line(c->surface, (strait_plot_style){GREY, 1.0, 0}, xy, 2);
}

/* The distance between ticks: 1, 2 or 5 times a power of ten, giving at most TICKS ticks. */
static double tick_step(range r) {
    const double rough = (r.high - r.low) / TICKS;
    const double power = pow(10.0, floor(log10(rough)));
    const double lead = rough / power;
    return power * (lead <= 1.0 ? 1.0 : lead <= 2.0 ? 2.0 : lead <= 5.0 ? 5.0 : 10.0);
}

/* Counted by an integer: adding the step again and again would drift. */
static void put_ticks_of_y(const canvas *c) {
    char label[32];
    const double step = tick_step(c->y);
    const double first = ceil(c->y.low / step) * step;
    const int n = (int)floor((c->y.high - first) / step) + 1;
    for (int i = 0; i < n; i++) {
        const double y = first + i * step;
        (void)snprintf(label, sizeof label, "%.6g", fabs(y) < step * 1e-6 ? 0.0 : y);
        put_rule(c, LEFT, top_of(c, y), WIDTH - RIGHT, top_of(c, y));
        put_text(c, LEFT - 8, top_of(c, y) + 4, STRAIT_PLOT_END, label);
    }
}

static void put_ticks_of_x(const canvas *c) {
    char label[32];
    /* On a logarithmic axis ticks are powers of two, unless it spans less than a factor of 8. */
    const double fit = tick_step(c->x);
    const double step = c->plot->is_log_x && c->x.high - c->x.low > 3.0 ? fmax(1.0, fit) : fit;
    const double first = ceil(c->x.low / step) * step;
    const int n = (int)floor((c->x.high - first) / step) + 1;
    for (int i = 0; i < n; i++) {
        const double x = first + i * step;
        const double value = c->plot->is_log_x ? exp2(x) : x;
        const int is_between = c->plot->is_log_x && value < 1000.0; // two powers of two: rounded
        (void)snprintf(label, sizeof label, is_between ? "%.3g" : "%.6g", value);
        put_rule(c, left_of(c, x), TOP, left_of(c, x), c->height - BOTTOM);
        put_text(c, left_of(c, x), c->height - BOTTOM + 18, STRAIT_PLOT_MIDDLE, label);
    }
}

static void put_frame(const canvas *c) {
    const struct strait_plot_surface_ops *ops = c->surface->ops;
    const double middle = (TOP + c->height - BOTTOM) / 2.0;
    put_ticks_of_y(c);
    put_ticks_of_x(c);
    ops->text(c->surface,
              &(strait_plot_text){.x = LEFT, .y = TOP - 16, .is_title = 1, .text = c->plot->title});
    put_text(c, (LEFT + WIDTH - RIGHT) / 2.0, c->height - 14, STRAIT_PLOT_MIDDLE, c->plot->x_label);
    ops->text(c->surface, &(strait_plot_text){.x = 16,
                                              .y = middle,
                                              .anchor = STRAIT_PLOT_MIDDLE,
                                              .is_upright = 1,
                                              .text = c->plot->y_label});
}

/* The finite points of one of the curves of a line, as pairs on the surface. */
static int place(const canvas *c, const strait_plot_line *line, const double *y, double *xy) {
    int n = 0;
    for (int k = 0; k < line->n; k++) {
        const double x = x_of(c->plot, line->x[k]);
        if (!isfinite(x) || !isfinite(y[k])) continue;
        xy[(size_t)2 * (size_t)n] = left_of(c, x);
        xy[(size_t)2 * (size_t)n + 1] = top_of(c, y[k]);
        n++;
    }
    return n;
}

/* From the lowest values forth and back along the highest. */
static void put_band(const canvas *c, int which, uint32_t colour, double *xy) {
    const strait_plot_line *line = &c->plot->lines[which];
    const strait_plot_band band = band_of(c->plot, which);
    if (band.low == NULL || band.high == NULL) return;
    const int n = place(c, line, band.low, xy);
    double *back = xy + (size_t)2 * (size_t)n;
    const int n_back = place(c, line, band.high, back);
    for (int i = 0, k = n_back - 1; i < k; i++, k--)
        for (int j = 0; j < 2; j++) {
            double *a = &back[(size_t)2 * (size_t)i + (size_t)j];
            double *b = &back[(size_t)2 * (size_t)k + (size_t)j];
            const double kept = *a;
            *a = *b;
            *b = kept;
        }
    if (n + n_back > 2) c->surface->ops->band(c->surface, colour, xy, n + n_back);
}

/* The range of each point as a bar with ends. */
static void put_bars(const canvas *c, int which, uint32_t colour) {
    const strait_plot_line *line = &c->plot->lines[which];
    const strait_plot_band band = band_of(c->plot, which);
    const strait_plot_style style = {colour, 1.2, 0};
    if (band.low == NULL || band.high == NULL) return;
    for (int k = 0; k < line->n; k++) {
        const double x = x_of(c->plot, line->x[k]);
        if (!isfinite(x) || !isfinite(band.low[k]) || !isfinite(band.high[k])) continue;
        const double left = left_of(c, x), low = top_of(c, band.low[k]),
                     high = top_of(c, band.high[k]);
        const double bar[] = {left - 4, low,  left + 4, low,  left,     low,
                              left,     high, left - 4, high, left + 4, high};
        c->surface->ops->line(c->surface, style, bar, 6);
    }
}

static void put_dot(const canvas *c, uint32_t colour, const double *xy, int i) {
    c->surface->ops->dot(c->surface, colour, xy[(size_t)2 * (size_t)i],
                         xy[(size_t)2 * (size_t)i + 1]);
}

/* A sample of the line and its name. Names stand in a list at the side: beside points of similar
 * runs they would cover each other. */
static void put_name(const canvas *c, int which, strait_plot_style style) {
    const struct strait_plot_surface_ops *ops = c->surface->ops;
    const strait_plot_line *line = &c->plot->lines[which];
    const double left = WIDTH - RIGHT + 10, y = TOP + LINE_HEIGHT * (which + 1);
    const double sample[] = {left, y - 4, left + SAMPLE, y - 4};
    const double middle[] = {left + SAMPLE / 2.0, y - 4};
    if (is_level(line) || line->n > 1) ops->line(c->surface, style, sample, 2);
    if (!is_level(line) && (line->n == 1 || c->plot->marks_points))
        put_dot(c, style.colour, middle, 0);
    ops->text(c->surface,
              &(strait_plot_text){
                  .x = left + SAMPLE + 6, .y = y, .colour = style.colour, .text = line->name});
}

static int put_level(const canvas *c, const strait_plot_line *line, strait_plot_style style) {
    if (line->n < 1 || !isfinite(line->y[0])) return 0;
    const double y = top_of(c, line->y[0]);
    const double xy[] = {LEFT, y, WIDTH - RIGHT, y};
    c->surface->ops->line(c->surface, style, xy, 2);
    return 1;
}

/* The last point is marked, because a line of one point would not be visible. */
static strait_err put_line(const canvas *c, int which) {
    const strait_plot_line *line = &c->plot->lines[which];
    const strait_plot_style style = {colours[which % N_COLOURS], 1.8,
                                     is_level(line) ? LEVEL_DASH : which / N_COLOURS};
    void *memory = NULL;
    if (is_level(line)) {
        if (put_level(c, line, style)) put_name(c, which, style);
        return STRAIT_OK;
    }
    STRAIT_TRY(strait_alloc((size_t)4 * (size_t)line->n, sizeof(double), "plot", &memory));
    double *xy = memory;
    if (c->plot->marks_points)
        put_bars(c, which, style.colour);
    else
        put_band(c, which, style.colour, xy);
    const int n = place(c, line, line->y, xy);
    c->surface->ops->line(c->surface, style, xy, n);
    for (int i = c->plot->marks_points ? 0 : n - 1; i >= 0 && i < n; i++)
        put_dot(c, style.colour, xy, i);
    if (n > 0) put_name(c, which, style);
    strait_alloc_free(memory);
    return STRAIT_OK;
}

/* Draws on a surface that `open` makes. */
static strait_err render(const strait_plot *plot,
                         strait_err (*open)(int, int, struct strait_plot_surface **), char **out,
                         size_t *out_bytes) {
    canvas c = {.plot = plot, .height = TOP + BOTTOM + LINE_HEIGHT * plot->n_lines};
    if (c.height < HEIGHT) c.height = HEIGHT;
    STRAIT_TRY(measure(&c));
    STRAIT_TRY(open(WIDTH, c.height, &c.surface));
    put_frame(&c);
    strait_err err = STRAIT_OK;
    for (int i = 0; i < plot->n_lines && err == STRAIT_OK; i++)
        err = put_line(&c, i);
    if (err == STRAIT_OK) return c.surface->ops->finish(c.surface, out, out_bytes);
    c.surface->ops->discard(c.surface);
    return err;
}

strait_err strait_plot_render(const strait_plot *plot, char **out, size_t *out_bytes) {
    return render(plot, strait_plot_svg_open, out, out_bytes);
}

static int ends_with(const char *path, const char *ending) {
    const size_t n = strlen(path), m = strlen(ending);
    return n >= m && strcmp(path + n - m, ending) == 0;
}

/* Drawn into memory first, so that the file is replaced as a whole. */
strait_err strait_plot_write(const char *path, const strait_plot *plot) {
    char *data = NULL;
    size_t bytes = 0;
    STRAIT_TRY(render(plot, ends_with(path, ".png") ? strait_plot_png_open : strait_plot_svg_open,
                      &data, &bytes));
    const strait_err err = strait_file_replace(path, data, bytes);
    free(data);
    return err;
}
