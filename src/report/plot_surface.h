/* plot_surface.h - what a plot is drawn on: SVG text or pixels. Coordinates are those of the plot,
 * 760 units wide, from the top left. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct strait_plot_style {
    uint32_t colour; // 0xrrggbb
    double width;    // of a line
    int dash;        // index of a pattern; 0: none
} strait_plot_style;

typedef enum strait_plot_anchor {
    STRAIT_PLOT_START,
    STRAIT_PLOT_MIDDLE,
    STRAIT_PLOT_END,
} strait_plot_anchor;

typedef struct strait_plot_text {
    double x, y; // of the baseline
    strait_plot_anchor anchor;
    uint32_t colour;
    int is_title, is_upright; // upright: turned by 90 degrees, read from below
    const char *text;
} strait_plot_text;

struct strait_plot_surface;

/* All draw over what was drawn before. `xy` holds pairs. */
struct strait_plot_surface_ops {
    void (*line)(struct strait_plot_surface *s, strait_plot_style style, const double *xy, int n);
    void (*band)(struct strait_plot_surface *s, uint32_t colour, const double *xy, int n);
    void (*dot)(struct strait_plot_surface *s, uint32_t colour, double x, double y);
    void (*text)(struct strait_plot_surface *s, const strait_plot_text *text);
    /* Ends drawing. Writes the file's bytes, for the caller to free(), and releases the surface.
     */
    strait_err (*finish)(struct strait_plot_surface *s, char **out, size_t *out_bytes);
    void (*discard)(struct strait_plot_surface *s); // instead of finish
};

struct strait_plot_surface {
    const struct strait_plot_surface_ops *ops;
};

/* A white surface. STRAIT_ENOMEM. */
strait_err strait_plot_svg_open(int width, int height, struct strait_plot_surface **out);
strait_err strait_plot_png_open(int width, int height, struct strait_plot_surface **out);
