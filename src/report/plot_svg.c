/* plot_svg.c - a plot as SVG text. */
#include "base/alloc.h"
#include "report/plot_surface.h"

#include <stdio.h>
#include <stdlib.h>

/* By the index of a style. */
static const char *const dashes[] = {"", "6 3", "2 3", "9 3 2 3"};

enum {
    N_DASHES = sizeof dashes / sizeof *dashes
};

struct svg {
    struct strait_plot_surface surface;
    FILE *file;
    char *text;
    size_t bytes;
};

static struct svg *of(struct strait_plot_surface *s) {
    return (struct svg *)s;
}

static void put_points(FILE *file, const double *xy, int n) {
    fputs(" points=\"", file);
    for (int i = 0; i < n; i++)
        fprintf(file, "%.1f,%.1f ", xy[(size_t)2 * (size_t)i], xy[(size_t)2 * (size_t)i + 1]);
    fputs("\"/>\n", file);
}

static void line(struct strait_plot_surface *s, strait_plot_style style, const double *xy, int n) {
    FILE *file = of(s)->file;
    if (n == 2 && style.width <= 1.0) { // a rule of the grid
        fprintf(file, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#%06x\"/>\n",
                xy[0], xy[1], xy[2], xy[3], style.colour);
        return;
    }
    fprintf(file, "<polyline fill=\"none\" stroke=\"#%06x\" stroke-width=\"%.1f\"", style.colour,
            style.width);
    if (style.dash % N_DASHES != 0)
        fprintf(file, " stroke-dasharray=\"%s\"", dashes[style.dash % N_DASHES]);
    put_points(file, xy, n);
}

static void band(struct strait_plot_surface *s, uint32_t colour, const double *xy, int n) {
    fprintf(of(s)->file, "<polygon fill=\"#%06x\" fill-opacity=\"0.15\"", colour);
    put_points(of(s)->file, xy, n);
}

static void dot(struct strait_plot_surface *s, uint32_t colour, double x, double y) {
    fprintf(of(s)->file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"#%06x\"/>\n", x, y,
            colour);
}

/* Names come from users' folders; only these two characters end or start markup here. */
static void put_escaped(FILE *file, const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '<')
            fputs("&lt;", file);
        else if (*text == '&')
            fputs("&amp;", file);
        else
            fputc(*text, file);
    }
}

static void text(struct strait_plot_surface *s, const strait_plot_text *t) {
    static const char *const anchors[] = {"start", "middle", "end"};
    FILE *file = of(s)->file;
    fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" fill=\"#%06x\"", t->x, t->y, t->colour);
    if (t->anchor != STRAIT_PLOT_START) fprintf(file, " text-anchor=\"%s\"", anchors[t->anchor]);
    if (t->is_title) fputs(" font-size=\"14\"", file);
    if (t->is_upright) fprintf(file, " transform=\"rotate(-90 %.0f %.0f)\"", t->x, t->y);
    fputc('>', file);
    put_escaped(file, t->text);
    fputs("</text>\n", file);
}

static strait_err finish(struct strait_plot_surface *s, char **out, size_t *out_bytes) {
    struct svg *svg = of(s);
    fputs("</svg>\n", svg->file);
    const int is_whole = fclose(svg->file) == 0;
    if (is_whole) {
        *out = svg->text;
        *out_bytes = svg->bytes;
    } else {
        free(svg->text);
    }
    strait_alloc_free(svg);
    return is_whole ? STRAIT_OK : STRAIT_FAIL(STRAIT_ENOMEM, "no memory for a plot");
}

static void discard(struct strait_plot_surface *s) {
    (void)fclose(of(s)->file);
    free(of(s)->text);
    strait_alloc_free(s);
}

static const struct strait_plot_surface_ops ops = {
    .line = line, .band = band, .dot = dot, .text = text, .finish = finish, .discard = discard};

strait_err strait_plot_svg_open(int width, int height, struct strait_plot_surface **out) {
    struct svg *svg = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *svg, "plot", (void **)&svg));
    svg->surface.ops = &ops;
    svg->file = open_memstream(&svg->text, &svg->bytes);
    if (svg->file == NULL) {
        strait_alloc_free(svg);
        return STRAIT_FAIL(STRAIT_ENOMEM, "no memory for a plot");
    }
    fprintf(svg->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
            width, height, width, height);
    *out = &svg->surface;
    return STRAIT_OK;
}
