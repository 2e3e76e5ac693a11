#include "report/plot.h"

#include "base/alloc.h"
#include "base/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    WIDTH = 760,
    HEIGHT = 460,
    LEFT = 70,
    RIGHT = 200, // the names of the lines
    TOP = 40,
    BOTTOM = 55,
    TICKS = 6,
    LINE_HEIGHT = 18
};

/* After the last colour the colours repeat with another dash pattern. */
static const char *const dashes[] = {"", "6 3", "2 3", "9 3 2 3"};

static const char *const colours[] = {"#1b6ca8", "#d1495b", "#2e933c", "#8f5db7",
                                      "#e08e1b", "#3d3d3d", "#0f9d9a", "#a0522d"};

enum {
    N_COLOURS = sizeof colours / sizeof *colours,
    N_DASHES = sizeof dashes / sizeof *dashes
};

typedef struct range {
    double low, high;
} range;

typedef struct canvas {
    FILE *file;
    const strait_plot *plot;
    int height; // larger than HEIGHT when there are many names
    range x, y; // x holds logarithms when the axis is logarithmic
} canvas;

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
        for (int k = 0; k < line->n; k++) {
            const double x = x_of(c->plot, line->x[k]);
            if (!isfinite(x) || !isfinite(line->y[k])) continue;
            widen(&c->x, x);
            widen(&c->y, line->y[k]);
            n++;
        }
    }
    if (n == 0) return STRAIT_FAIL(STRAIT_EDATA, "nothing to plot: no point is finite");
    const double spare_x = c->x.high > c->x.low ? 0.03 * (c->x.high - c->x.low) : 1.0;
    const double spare_y = c->y.high > c->y.low ? 0.06 * (c->y.high - c->y.low) : 1.0;
    c->x = (range){c->x.low - spare_x, c->x.high + spare_x};
    c->y = (range){c->y.low - spare_y, c->y.high + spare_y};
    return STRAIT_OK;
}

static double left_of(const canvas *c, double x) {
    return LEFT + (x - c->x.low) / (c->x.high - c->x.low) * (WIDTH - LEFT - RIGHT);
}

/* SVG counts from the top, a plot from the bottom. */
static double top_of(const canvas *c, double y) {
    return c->height - BOTTOM -
           (y - c->y.low) / (c->y.high - c->y.low) * (c->height - TOP - BOTTOM);
}

/* Names come from users' folders; only these two characters end or start markup here. */
static void put_text(const canvas *c, double left, double top, const char *more, const char *text) {
    fprintf(c->file, "<text x=\"%.1f\" y=\"%.1f\" %s>", left, top, more);
    for (; *text != '\0'; text++) {
        if (*text == '<')
            fputs("&lt;", c->file);
        else if (*text == '&')
            fputs("&amp;", c->file);
        else
            fputc(*text, c->file);
    }
    fputs("</text>\n", c->file);
}

static void put_rule(const canvas *c, double x1, double y1, double x2, double y2) {
    fprintf(c->file, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n",
            x1, y1, x2, y2);
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
        put_text(c, LEFT - 8, top_of(c, y) + 4, "text-anchor=\"end\"", label);
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
        (void)snprintf(label, sizeof label, "%.6g", c->plot->is_log_x ? exp2(x) : x);
        put_rule(c, left_of(c, x), TOP, left_of(c, x), c->height - BOTTOM);
        put_text(c, left_of(c, x), c->height - BOTTOM + 18, "text-anchor=\"middle\"", label);
    }
}

static void put_frame(const canvas *c) {
    char rotated[80];
    const double middle = (TOP + c->height - BOTTOM) / 2.0;
    fprintf(c->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
            WIDTH, c->height, WIDTH, c->height);
    put_ticks_of_y(c);
    put_ticks_of_x(c);
    put_text(c, LEFT, TOP - 16, "font-size=\"14\"", c->plot->title);
    put_text(c, (LEFT + WIDTH - RIGHT) / 2.0, c->height - 14, "text-anchor=\"middle\"",
             c->plot->x_label);
    (void)snprintf(rotated, sizeof rotated,
                   "text-anchor=\"middle\" transform=\"rotate(-90 16 %.0f)\"", middle);
    put_text(c, 16, middle, rotated, c->plot->y_label);
}

/* The last point is marked and names of single points stand beside them, because a line of one
 * point would not be visible. */
static void put_line(const canvas *c, int which) {
    const strait_plot_line *line = &c->plot->lines[which];
    const char *colour = colours[which % N_COLOURS];
    char fill[32];
    (void)snprintf(fill, sizeof fill, "fill=\"%s\"", colour);
    double left = 0.0;
    double top = 0.0;
    const char *dash = dashes[which / N_COLOURS % N_DASHES];
    fprintf(c->file, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.8\"", colour);
    if (dash[0] != '\0') fprintf(c->file, " stroke-dasharray=\"%s\"", dash);
    fputs(" points=\"", c->file);
    for (int k = 0; k < line->n; k++) {
        const double x = x_of(c->plot, line->x[k]);
        if (!isfinite(x) || !isfinite(line->y[k])) continue;
        left = left_of(c, x);
        top = top_of(c, line->y[k]);
        fprintf(c->file, "%.1f,%.1f ", left, top);
    }
    fputs("\"/>\n", c->file);
    if (left == 0.0) return; // the line has no finite point
    fprintf(c->file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" %s/>\n", left, top, fill);
    if (line->n == 1)
        put_text(c, left + 7, top + 4, fill, line->name);
    else
        put_text(c, WIDTH - RIGHT + 12, TOP + LINE_HEIGHT * (which + 1), fill, line->name);
}

strait_err strait_plot_render(const strait_plot *plot, char **out, size_t *out_bytes) {
    canvas c = {.plot = plot, .height = TOP + BOTTOM + LINE_HEIGHT * plot->n_lines};
    if (c.height < HEIGHT) c.height = HEIGHT;
    STRAIT_TRY(measure(&c));
    char *text = NULL;
    size_t bytes = 0;
    c.file = open_memstream(&text, &bytes);
    if (c.file == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "no memory for a plot");
    put_frame(&c);
    for (int i = 0; i < plot->n_lines; i++)
        put_line(&c, i);
    fputs("</svg>\n", c.file);
    if (fclose(c.file) != 0) {
        free(text);
        return STRAIT_FAIL(STRAIT_ENOMEM, "no memory for a plot");
    }
    *out = text;
    *out_bytes = bytes;
    return STRAIT_OK;
}

/* Drawn into memory first, so that the file is replaced as a whole. */
strait_err strait_plot_write(const char *path, const strait_plot *plot) {
    char *text = NULL;
    size_t bytes = 0;
    STRAIT_TRY(strait_plot_render(plot, &text, &bytes));
    const strait_err err = strait_file_replace(path, text, bytes);
    free(text);
    return err;
}
