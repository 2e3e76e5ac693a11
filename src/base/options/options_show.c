/* From the value of an option to text. Parsing and descriptions build on this file, not the other
 * way round. */
#include "base/options/options_internal.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Largest first, because values are shown in the largest unit that fits. */
static const strait_unit durations[] = {
    {"h", 3600}, {"min", 60}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}};
static const strait_unit rates[] = {{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}};
static const strait_unit sizes[] = {{"TiB", 1099511627776.0},
                                    {"GiB", 1073741824.0},
                                    {"MiB", 1048576.0},
                                    {"KiB", 1024.0},
                                    {"TB", 1e12},
                                    {"GB", 1e9},
                                    {"MB", 1e6},
                                    {"KB", 1e3},
                                    {"B", 1}};

strait_unit_list strait_option_units(strait_option_kind kind) {
    switch (kind) {
    case STRAIT_OPTION_DURATION:
        return (strait_unit_list){durations, sizeof durations / sizeof *durations};
    case STRAIT_OPTION_RATE: return (strait_unit_list){rates, sizeof rates / sizeof *rates};
    default: return (strait_unit_list){sizes, sizeof sizes / sizeof *sizes};
    }
}

/* Values of these kinds are quoted in files. */
int strait_option_is_text(strait_option_kind kind) {
    return kind == STRAIT_OPTION_TEXT || kind == STRAIT_OPTION_TEXTS ||
           kind == STRAIT_OPTION_PATH || kind == STRAIT_OPTION_PATHS;
}

/* Shortened and without control characters: the text is the user's and ends up in a one-line
 * message. */
const char *strait_option_quote(const char *text, char out[STRAIT_OPTION_QUOTE]) {
    size_t n = 0;
    out[n++] = '"';
    for (; *text != '\0' && n < STRAIT_OPTION_QUOTE - 6; text++)
        out[n++] = iscntrl((unsigned char)*text) ? '?' : *text;
    (void)snprintf(out + n, STRAIT_OPTION_QUOTE - n, "%s\"", *text != '\0' ? "..." : "");
    return out;
}

/* The shortest decimal that reads back as the same double; no exponent for a whole number. */
static void show_real(double value, char *out, size_t capacity) {
    if (value == floor(value) && fabs(value) < 1e15) {
        (void)snprintf(out, capacity, "%.0f", value);
        return;
    }
    /* 17 digits identify every double. */
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(out, capacity, "%.*g", digits, value);
        if (strtod(out, NULL) == value) return;
    }
}

/* Shows a value in the largest unit that gives a whole number and reads back as the same value;
 * else in the unit of scale 1. */
static void show_with_unit(strait_option_kind kind, double value, char *out, size_t capacity) {
    const strait_unit_list list = strait_option_units(kind);
    char number[32];
    const char *name = "";
    for (size_t i = 0; i < list.n; i++) {
        const double scale = list.units[i].scale;
        const double n = round(value / scale);
        if (scale != 1 && (n < 1 || n > 1e6 || n * scale != value)) continue;
        show_real(scale == 1 ? value : n, number, sizeof number);
        name = list.units[i].name;
        if (scale != 1 || n == value) break;
    }
    (void)snprintf(out, capacity, "%s%s", number, name);
}

/* As parse_ints reads it. A list of one needs no brackets. */
static void show_ints(const strait_option_ints *list, char *out, size_t capacity) {
    if (list->n == 0) {
        (void)snprintf(out, capacity, "auto");
        return;
    }
    if (list->n == 1) {
        (void)snprintf(out, capacity, "%lld", (long long)list->items[0]);
        return;
    }
    size_t used = (size_t)snprintf(out, capacity, "[");
    for (int i = 0; i < list->n; i++)
        used += (size_t)snprintf(out + used, capacity - used, "%s%lld", i > 0 ? ", " : "",
                                 (long long)list->items[i]);
    (void)snprintf(out + used, capacity - used, "]");
}

void strait_options_show(const strait_option *option, const void *object,
                         char out[STRAIT_OPTION_TEXT_MAX]) {
    const size_t capacity = STRAIT_OPTION_TEXT_MAX;
    const void *field = (const char *)object + option->offset;
    int choice = 0;
    switch (option->kind) {
    case STRAIT_OPTION_INT:
        (void)snprintf(out, capacity, "%lld", (long long)*(const int64_t *)field);
        return;
    case STRAIT_OPTION_REAL: show_real(*(const double *)field, out, capacity); return;
    case STRAIT_OPTION_BOOL:
        (void)snprintf(out, capacity, "%s", *(const int *)field ? "true" : "false");
        return;
    case STRAIT_OPTION_TEXT:
    case STRAIT_OPTION_TEXTS:
    case STRAIT_OPTION_PATH:
    case STRAIT_OPTION_PATHS: (void)snprintf(out, capacity, "%s", (const char *)field); return;
    case STRAIT_OPTION_CHOICE:
        memcpy(&choice, field, sizeof choice);
        (void)snprintf(out, capacity, "%s", option->choices[choice]);
        return;
    case STRAIT_OPTION_INTS: show_ints(field, out, capacity); return;
    case STRAIT_OPTION_DURATION:
    case STRAIT_OPTION_RATE:
        show_with_unit(option->kind, *(const double *)field, out, capacity);
        return;
    case STRAIT_OPTION_BYTES:
        show_with_unit(option->kind, (double)*(const int64_t *)field, out, capacity);
        return;
    }
}
