/* plot_png.c - a plot as pixels, in a PNG file: lines by coverage, text by a font of dots. */
#include "base/alloc.h"
#include "base/bytes.h"
#include "report/dot_font.h"
#include "report/plot_surface.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    SCALE = 2,      // pixels per unit of the plot
    DOT_PIXELS = 2, // of the font
    CHANNELS = 3,
    CHUNK_BYTES = 12 // length, type and checksum of a chunk
};

struct png {
    struct strait_plot_surface surface;
    int width, height;     // in pixels
    unsigned char *pixels; // rows of one filter byte and CHANNELS bytes per pixel
};

static struct png *of(struct strait_plot_surface *s) {
    return (struct png *)s;
}

static size_t row_bytes(const struct png *p) {
    return 1 + (size_t)p->width * CHANNELS;
}

/* Mixes a colour over what is there. */
static void blend(struct png *p, int x, int y, uint32_t colour, double share) {
    if (x < 0 || y < 0 || x >= p->width || y >= p->height || share <= 0.0) return;
    unsigned char *at = p->pixels + (size_t)y * row_bytes(p) + 1 + (size_t)x * CHANNELS;
    for (int i = 0; i < CHANNELS; i++) {
        const double to = (double)(colour >> (16 - 8 * i) & 255u);
        at[i] = (unsigned char)lround(at[i] + (to - at[i]) * (share < 1.0 ? share : 1.0));
    }
}

/* The distance of a pixel's middle from the segment a-b. */
static double distance(double x, double y, const double a[2], const double b[2]) {
    const double dx = b[0] - a[0], dy = b[1] - a[1], length = dx * dx + dy * dy;
    double t = length > 0.0 ? ((x - a[0]) * dx + (y - a[1]) * dy) / length : 0.0;
    t = t < 0.0 ? 0.0 : t > 1.0 ? 1.0 : t;
    return hypot(x - a[0] - t * dx, y - a[1] - t * dy);
}

static void segment(struct png *p, uint32_t colour, double half, const double a[2],
                    const double b[2]) {
    const int x0 = (int)floor(fmin(a[0], b[0]) - half - 1), x1 = (int)(fmax(a[0], b[0]) + half + 2);
    const int y0 = (int)floor(fmin(a[1], b[1]) - half - 1), y1 = (int)(fmax(a[1], b[1]) + half + 2);
    for (int y = y0; y < y1; y++)
        for (int x = x0; x < x1; x++)
            blend(p, x, y, colour, half + 0.5 - distance(x + 0.5, y + 0.5, a, b));
}

/* Lengths of strokes and gaps, in units of the plot; 0 ends a pattern. */
static const double patterns[][5] = {{0}, {6, 3, 0}, {2, 3, 0}, {9, 3, 2, 3, 0}};

enum {
    N_PATTERNS = sizeof patterns / sizeof *patterns
};

/* Draws a-b as the strokes of a pattern. *at is how far into the pattern the line is. */
static void dashed(struct png *p, strait_plot_style style, const double a[2], const double b[2],
                   double *at) {
    const double *pattern = patterns[style.dash % N_PATTERNS];
    const double length = hypot(b[0] - a[0], b[1] - a[1]), half = 0.5 * style.width * SCALE;
    double period = 0.0;
    for (int i = 0; pattern[i] > 0.0; i++)
        period += SCALE * pattern[i];
    for (double done = 0.0; done < length;) {
        double into = fmod(*at + done, period), step = 0.0;
        int part = 0;
        while (into >= SCALE * pattern[part]) {
            into -= SCALE * pattern[part++];
            if (pattern[part] <= 0.0) break;
        }
        step = pattern[part] > 0.0 ? fmin(SCALE * pattern[part] - into, length - done) : length;
        step = fmax(step, 1e-3);
        const double s = done / length, e = fmin(1.0, (done + step) / length);
        const double from[] = {a[0] + s * (b[0] - a[0]), a[1] + s * (b[1] - a[1])};
        const double to[] = {a[0] + e * (b[0] - a[0]), a[1] + e * (b[1] - a[1])};
        if (part % 2 == 0) segment(p, style.colour, half, from, to);
        done += step;
    }
    *at += length;
}

static void line(struct strait_plot_surface *s, strait_plot_style style, const double *xy, int n) {
    double at = 0.0;
    for (int i = 0; i + 1 < n; i++) {
        const double *from = xy + (size_t)2 * (size_t)i;
        const double a[] = {SCALE * from[0], SCALE * from[1]};
        const double b[] = {SCALE * from[2], SCALE * from[3]};
        if (style.dash % N_PATTERNS == 0)
            segment(of(s), style.colour, 0.5 * style.width * SCALE, a, b);
        else
            dashed(of(s), style, a, b, &at);
    }
}

/* Even-odd rule, pixel by pixel within the rows that the polygon crosses. */
static void band(struct strait_plot_surface *s, uint32_t colour, const double *xy, int n) {
    struct png *p = of(s);
    for (int y = 0; y < p->height; y++)
        for (int x = 0; x < p->width; x++) {
            const double px = (x + 0.5) / SCALE, py = (y + 0.5) / SCALE;
            int is_inside = 0;
            for (int i = 0, j = n - 1; i < n; j = i++) {
                const double *a = xy + (size_t)2 * (size_t)i, *b = xy + (size_t)2 * (size_t)j;
                if ((a[1] > py) != (b[1] > py) &&
                    px < (b[0] - a[0]) * (py - a[1]) / (b[1] - a[1]) + a[0])
                    is_inside = !is_inside;
            }
            if (is_inside) blend(p, x, y, colour, 0.15);
        }
}

static void dot(struct strait_plot_surface *s, uint32_t colour, double x, double y) {
    const double at[] = {SCALE * x, SCALE * y};
    segment(of(s), colour, SCALE * 3.5, at, at);
}

/* One dot of a letter, `u` along the line and `v` above its baseline. */
static void put_dot(struct png *p, const strait_plot_text *t, double u, double v) {
    for (int i = 0; i < DOT_PIXELS; i++)
        for (int k = 0; k < DOT_PIXELS; k++) {
            const double along = u + i, up = v + k;
            const double x = SCALE * t->x + (t->is_upright ? -up : along);
            const double y = SCALE * t->y - (t->is_upright ? along : up);
            blend(p, (int)x, (int)y, t->colour, 1.0);
        }
}

/* Characters that the font lacks, also all but the first byte of UTF-8, are drawn as a box. */
static void text(struct strait_plot_surface *s, const strait_plot_text *t) {
    int n = 0;
    for (const char *c = t->text; *c != '\0'; c++)
        n += ((unsigned char)*c & 0xc0u) != 0x80u;
    const double width = (double)n * (STRAIT_DOT_COLUMNS + 1) * DOT_PIXELS;
    double u = t->anchor == STRAIT_PLOT_START    ? 0.0
               : t->anchor == STRAIT_PLOT_MIDDLE ? -0.5 * width
                                                 : -width;
    for (const char *c = t->text; *c != '\0'; c++) {
        if (((unsigned char)*c & 0xc0u) == 0x80u) continue;
        const unsigned char *columns = strait_dot_font(*c);
        for (int x = 0; x < STRAIT_DOT_COLUMNS; x++)
            for (int y = 0; y < STRAIT_DOT_ROWS; y++)
                if ((columns[x] >> y & 1) != 0)
                    put_dot(of(s), t, u + x * DOT_PIXELS, (STRAIT_DOT_ROWS - 1 - y) * DOT_PIXELS);
        u += (STRAIT_DOT_COLUMNS + 1) * DOT_PIXELS;
    }
}

/* PNG's numbers are big-endian. */
static void put_u32(unsigned char *at, uint32_t value) {
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> (24 - 8 * i));
}

static size_t put_chunk(unsigned char *at, const char *type, const unsigned char *data,
                        size_t bytes) {
    put_u32(at, (uint32_t)bytes);
    memcpy(at + 4, type, 4);
    if (bytes > 0) memcpy(at + 8, data, bytes);
    put_u32(at + 8 + bytes, (uint32_t)crc32(0, at + 4, (uInt)(bytes + 4)));
    return bytes + CHUNK_BYTES;
}

static strait_err encode(const struct png *p, char **out, size_t *out_bytes) {
    static const unsigned char magic[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    const size_t raw = (size_t)p->height * row_bytes(p);
    unsigned char head[13] = {[8] = 8, [9] = 2}; // eight bits, RGB
    uLongf packed = compressBound((uLong)raw);
    unsigned char *data = malloc(packed); // NOLINT: freed by free(), as plot.h says
    unsigned char *file = malloc(packed + sizeof magic + sizeof head + (size_t)3 * CHUNK_BYTES);
    if (data == NULL || file == NULL ||
        compress2(data, &packed, p->pixels, (uLong)raw, Z_BEST_COMPRESSION) != Z_OK) {
        free(data);
        free(file);
        return STRAIT_FAIL(STRAIT_ENOMEM, "no memory for a plot");
    }
    put_u32(head, (uint32_t)p->width);
    put_u32(head + 4, (uint32_t)p->height);
    memcpy(file, magic, sizeof magic);
    size_t n = sizeof magic;
    n += put_chunk(file + n, "IHDR", head, sizeof head);
    n += put_chunk(file + n, "IDAT", data, packed);
    n += put_chunk(file + n, "IEND", NULL, 0);
    free(data);
    *out = (char *)file;
    *out_bytes = n;
    return STRAIT_OK;
}

static void discard(struct strait_plot_surface *s) {
    strait_alloc_free(of(s)->pixels);
    strait_alloc_free(s);
}

static strait_err finish(struct strait_plot_surface *s, char **out, size_t *out_bytes) {
    const strait_err err = encode(of(s), out, out_bytes);
    discard(s);
    return err;
}

static const struct strait_plot_surface_ops ops = {
    .line = line, .band = band, .dot = dot, .text = text, .finish = finish, .discard = discard};

strait_err strait_plot_png_open(int width, int height, struct strait_plot_surface **out) {
    struct png *p = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *p, "plot", (void **)&p));
    p->surface.ops = &ops;
    p->width = SCALE * width;
    p->height = SCALE * height;
    const strait_err err = strait_alloc((size_t)p->height, row_bytes(p), "plot",
                                        (void **)&p->pixels);
    if (err != STRAIT_OK) {
        strait_alloc_free(p);
        return err;
    }
    memset(p->pixels, 0xff, (size_t)p->height * row_bytes(p));
    for (int y = 0; y < p->height; y++)
        p->pixels[(size_t)y * row_bytes(p)] = 0; // no filter
    *out = &p->surface;
    return STRAIT_OK;
}
