#include "report/plot.h"

#include "base/alloc.h"
#include "base/file.h"
#include "check.h"
#include "scratch.h"

#include <stdlib.h>
#include <zlib.h>

static char *drawn(const strait_plot *plot) {
    scratch dir = scratch_open();
    char *text = NULL;
    CHECK_OK(strait_plot_write(scratch_at(&dir, "plot.svg"), plot));
    CHECK_OK(strait_file_read(scratch_at(&dir, "plot.svg"), 1 << 20, &text, NULL));
    scratch_close(&dir);
    return text;
}

static void test_draws_points_at_their_coordinates(void **state) {
    (void)state;
    const double x[] = {0, 50, 75, 100};
    const double y[] = {4, 3, (double)NAN, 2};
    const strait_plot_line line = {"a < b & c", x, y, 4};
    const strait_plot plot = {
        .title = "t", .x_label = "x", .y_label = "y", .lines = &line, .n_lines = 1};
    char *svg = drawn(&plot);
    CHECK(strstr(svg, "a &lt; b &amp; c</text>") != NULL);
    const char *at = strstr(svg, "points=\"");
    CHECK(at != NULL);
    double left[3];
    double top[3];
    char *next = NULL;
    at += 8;
    for (int i = 0; i < 3; i++) {
        left[i] = strtod(at, &next);
        top[i] = strtod(next + 1, &next);
        at = next;
    }
    CHECK(strncmp(at, " \"/>", 4) == 0); // three points: the one that is no number is not there
    CHECK_NEAR(left[1] - left[0], left[2] - left[1], 0.2);
    CHECK_NEAR(top[1] - top[0], top[2] - top[1], 0.2);
    CHECK(left[0] < left[1] && top[0] < top[1]); // losses fall: down the page
    strait_alloc_free(svg);
}

static void test_log_axis_spaces_powers_evenly(void **state) {
    (void)state;
    const double x[] = {16, 128, 1024};
    const double y[] = {4, 4, 4};
    const strait_plot_line lines[] = {
        {"one", x, y, 1}, {"two", x + 1, y, 1}, {"three", x + 2, y, 1}};
    const strait_plot plot = {
        .title = "t", .x_label = "x", .y_label = "y", .is_log_x = 1, .lines = lines, .n_lines = 3};
    char *svg = drawn(&plot);
    double left[3];
    const char *at = svg;
    for (int i = 0; i < 3; i++) {
        at = strstr(at, "<circle cx=\"");
        CHECK(at != NULL);
        left[i] = strtod(at + 12, NULL);
        at = strstr(at + 1, "<circle"); // beside its name
        CHECK(at != NULL);
        at++;
    }
    CHECK_NEAR(left[1] - left[0], left[2] - left[1], 0.2);
    CHECK(strstr(svg, ">256</text>") != NULL);
    strait_alloc_free(svg);
}

static void test_distinguishes_many_lines(void **state) {
    (void)state;
    enum {
        N = 40
    };
    static strait_plot_line lines[N];
    const double x[] = {0, 1}, y[] = {1, 2};
    for (int i = 0; i < N; i++)
        lines[i] = (strait_plot_line){"name", x, y, 2};
    const strait_plot plot = {
        .title = "t", .x_label = "x", .y_label = "y", .lines = lines, .n_lines = N};
    char *svg = drawn(&plot);
    const double height = strtod(strstr(svg, "viewBox=\"0 0 760 ") + 17, NULL);
    double lowest = 0.0;
    for (const char *at = svg; (at = strstr(at, "<text x=\"594.0\" y=\"")) != NULL; at++)
        lowest = strtod(at + 19, NULL);
    CHECK(lowest > 700.0 && lowest < height);
    const char *first = strstr(svg, "#1b6ca8"), *dash = strstr(svg, "stroke-dasharray");
    CHECK(dash != NULL && dash > first); // the thirteenth has the colour of the first, and dashes
    strait_alloc_free(svg);
}

/* A reference is drawn across the plot, and an interval as a bar with two ends around its point. */
static void test_draws_references_and_intervals(void **state) {
    (void)state;
    const double x[] = {16, 64}, y[] = {4.25, 4.125}, low[] = {4.125, (double)NAN},
                 high[] = {4.375, (double)NAN}, control = 4.0;
    const strait_plot_line lines[] = {{"codec", x, y, 2}, {"control", NULL, &control, 1}};
    const strait_plot_band bands[] = {{low, high}, {NULL, NULL}};
    const strait_plot plot = {.title = "t",
                              .x_label = "x",
                              .y_label = "y",
                              .is_log_x = 1,
                              .marks_points = 1,
                              .lines = lines,
                              .n_lines = 2,
                              .bands = bands};
    char *svg = drawn(&plot);
    double bar[12], point[2];
    int n = 0;
    const char *at = strstr(svg, "stroke-width=\"1.2\" points=\"");
    CHECK(at != NULL && strstr(at + 1, "stroke-width=\"1.2\"") == NULL); // of one point only
    at += 27;
    for (char *next = NULL; n < 12; n++, at = next + 1)
        bar[n] = strtod(at, &next);
    at = strstr(svg, "<circle cx=\"");
    CHECK(at != NULL);
    point[0] = strtod(at + 12, NULL);
    point[1] = strtod(strstr(at, "cy=\"") + 4, NULL);
    CHECK_NEAR(bar[4], point[0], 0.06);
    CHECK_NEAR((bar[5] + bar[7]) / 2.0, point[1], 0.11);
    CHECK(bar[5] > point[1] && bar[7] < point[1]);
    CHECK(strstr(svg, "stroke-dasharray=\"6 3\" points=\"70.0,") != NULL);
    CHECK(strstr(svg, ">control</text>") != NULL);
    n = 0;
    for (at = svg; (at = strstr(at, "<circle")) != NULL; at++)
        n++;
    CHECK(n == 3); // two points and one in the list of names
    strait_alloc_free(svg);
}

static void test_narrow_log_axis_has_ticks(void **state) {
    (void)state;
    const double x[] = {18, 21};
    const double y[] = {4, 3};
    const strait_plot_line line = {"a", x, y, 2};
    const strait_plot plot = {
        .title = "t", .x_label = "x", .y_label = "y", .is_log_x = 1, .lines = &line, .n_lines = 1};
    char *svg = drawn(&plot);
    int n = 0;
    for (const char *at = svg; (at = strstr(at, "y=\"423.0\"")) != NULL; at++)
        n++;
    CHECK(n >= 2);
    strait_alloc_free(svg);
}

static void test_rejects_a_plot_without_points(void **state) {
    (void)state;
    const double x = 1;
    const double y = (double)INFINITY;
    const strait_plot_line line = {"a", &x, &y, 1};
    const strait_plot plot = {
        .title = "t", .x_label = "x", .y_label = "y", .lines = &line, .n_lines = 1};
    CHECK_FAILS(strait_plot_write("unused.svg", &plot), STRAIT_EDATA, "nothing to plot");
    CHECK(!strait_file_exists("unused.svg"));
}

/* Reads a big-endian number. */
static unsigned u32_at(const char *at) {
    const unsigned char *b = (const unsigned char *)at;
    return (unsigned)b[0] << 24 | (unsigned)b[1] << 16 | (unsigned)b[2] << 8 | b[3];
}

/* Decoded by zlib alone: every chunk's checksum, the size, and the colour where the line ends. */
static void test_writes_png_images(void **state) {
    (void)state;
    enum {
        WIDE = 1520,
        HIGH = 920,
        ROW = 1 + 3 * WIDE
    };
    static unsigned char pixels[HIGH * ROW];
    const double x[] = {0, 100}, y[] = {4, 2}, low[] = {3.5, 1.5}, high[] = {4.5, 2.5};
    const strait_plot_line line = {"a run", x, y, 2};
    const strait_plot_band band = {low, high};
    const strait_plot plot = {
        .title = "t", .x_label = "x", .y_label = "y", .lines = &line, .n_lines = 1, .bands = &band};
    scratch dir = scratch_open();
    char *png = NULL;
    size_t bytes = 0, n_seen = 8, n_chunks = 0;
    uLongf n = sizeof pixels;
    CHECK_OK(strait_plot_write(scratch_at(&dir, "plot.png"), &plot));
    CHECK_OK(strait_file_read(scratch_at(&dir, "plot.png"), 1 << 22, &png, &bytes));
    scratch_close(&dir);
    CHECK(bytes > 100 && memcmp(png, "\x89PNG\r\n\x1a\n", 8) == 0);
    while (n_seen < bytes) {
        const unsigned size = u32_at(png + n_seen);
        const char *type = png + n_seen + 4;
        CHECK(n_seen + 12 + size <= bytes);
        CHECK(crc32(0, (const Bytef *)type, size + 4) == u32_at(type + 4 + size));
        if (memcmp(type, "IHDR", 4) == 0)
            CHECK(u32_at(type + 4) == WIDE && u32_at(type + 8) == HIGH);
        if (memcmp(type, "IDAT", 4) == 0)
            CHECK(uncompress(pixels, &n, (const Bytef *)type + 4, size) == Z_OK &&
                  n == sizeof pixels);
        n_seen += 12 + size;
        n_chunks++;
    }
    CHECK(n_chunks == 3);
    int n_blue = 0, n_shaded = 0;
    for (int row = 0; row < HIGH; row++) {
        CHECK(pixels[row * ROW] == 0);
        for (int i = 0; i < WIDE; i++) {
            const unsigned char *p = &pixels[row * ROW + 1 + 3 * i];
            n_blue += p[0] == 0x1b && p[1] == 0x6c && p[2] == 0xa8;
            n_shaded += p[0] == 0xdd && p[1] == 0xe9 && p[2] == 0xf2;
        }
    }
    CHECK(n_blue > 1000 && n_shaded > 10000);
    strait_alloc_free(png);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draws_points_at_their_coordinates),
        cmocka_unit_test(test_log_axis_spaces_powers_evenly),
        cmocka_unit_test(test_writes_png_images),
        cmocka_unit_test(test_distinguishes_many_lines),
        cmocka_unit_test(test_draws_references_and_intervals),
        cmocka_unit_test(test_narrow_log_axis_has_ticks),
        cmocka_unit_test(test_rejects_a_plot_without_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
