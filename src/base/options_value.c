#include "base/options_internal.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct unit {
    const char *name;
    double scale;
} unit;

/* Largest first; each list has one of scale one. */
static const unit durations[] = {{"h", 3600}, {"min", 60}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}};
static const unit rates[] = {{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}};
static const unit sizes[] = {{"TiB", 1099511627776.0},
                             {"GiB", 1073741824.0},
                             {"MiB", 1048576.0},
                             {"KiB", 1024.0},
                             {"TB", 1e12},
                             {"GB", 1e9},
                             {"MB", 1e6},
                             {"KB", 1e3},
                             {"B", 1}};

typedef struct unit_list {
    const unit *units;
    size_t n;
    const char *examples;
} unit_list;

static unit_list units_of(strait_option_kind kind) {
    switch (kind) {
    case STRAIT_OPTION_DURATION:
        return (unit_list){durations, sizeof durations / sizeof *durations, "25ms or 1.5s"};
    case STRAIT_OPTION_RATE:
        return (unit_list){rates, sizeof rates / sizeof *rates, "80mbit or 1gbit"};
    default: return (unit_list){sizes, sizeof sizes / sizeof *sizes, "64MiB or 2GiB"};
    }
}

const char *strait_option_quote(const char *text, char out[STRAIT_OPTION_QUOTE]) {
    size_t n = 0;
    out[n++] = '"';
    for (; *text != '\0' && n < STRAIT_OPTION_QUOTE - 6; text++)
        out[n++] = iscntrl((unsigned char)*text) ? '?' : *text;
    (void)snprintf(out + n, STRAIT_OPTION_QUOTE - n, "%s\"", *text != '\0' ? "..." : "");
    return out;
}

static strait_err wrong(const char *text, const char *expected) {
    char quote[STRAIT_OPTION_QUOTE];
    return STRAIT_FAIL(STRAIT_ECONFIG, "%s is not %s", strait_option_quote(text, quote), expected);
}

static strait_err check_bounds(const strait_option *option, const char *text, double value) {
    if (option->min == 0 && option->max == 0) return STRAIT_OK;
    if (value >= option->min && value <= option->max) return STRAIT_OK;
    char quote[STRAIT_OPTION_QUOTE];
    char what[STRAIT_OPTION_TEXT_MAX];
    strait_options_describe(option, what);
    return STRAIT_FAIL(STRAIT_ECONFIG, "%s is out of bounds: expected a %s",
                       strait_option_quote(text, quote), what);
}

/* Reads a decimal number at the front of `text`; *end is where it stops, `text` if there is none.
 * Unlike strtod it knows no hexadecimal, no infinity and no leading space. */
static double read_real(const char *text, const char **end) {
    const char *digits = text + (*text == '-' || *text == '+');
    *end = text;
    if (!isdigit((unsigned char)*digits) && !(*digits == '.' && isdigit((unsigned char)digits[1])))
        return 0;
    if (digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X')) return 0;
    char *stop = NULL;
    const double value = strtod(text, &stop);
    if (isfinite(value)) *end = stop;
    return value;
}

static strait_err parse_int(const strait_option *option, const char *text, int64_t *out) {
    char *end = NULL;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || isspace((unsigned char)*text))
        return wrong(text, "a whole number");
    if (errno != 0) return wrong(text, "a number of at most 18 digits");
    STRAIT_TRY(check_bounds(option, text, (double)value));
    *out = value;
    return STRAIT_OK;
}

static strait_err parse_real(const strait_option *option, const char *text, double *out) {
    const char *end = NULL;
    const double value = read_real(text, &end);
    if (end == text || *end != '\0') return wrong(text, "a number");
    STRAIT_TRY(check_bounds(option, text, value));
    *out = value;
    return STRAIT_OK;
}

static strait_err parse_with_unit(const strait_option *option, const char *text, double *out) {
    const unit_list list = units_of(option->kind);
    const char *end = NULL;
    const double number = read_real(text, &end);
    double scale = *end == '\0' && (number == 0 || option->kind == STRAIT_OPTION_BYTES) ? 1 : 0;
    for (size_t i = 0; i < list.n; i++)
        if (strcmp(end, list.units[i].name) == 0) scale = list.units[i].scale;
    if (end == text || scale == 0) {
        char quote[STRAIT_OPTION_QUOTE];
        char what[STRAIT_OPTION_TEXT_MAX];
        strait_options_describe(option, what);
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s is not a %s", strait_option_quote(text, quote),
                           what);
    }
    if (number < 0) return wrong(text, "zero or more");
    STRAIT_TRY(check_bounds(option, text, number * scale));
    *out = number * scale;
    return STRAIT_OK;
}

static strait_err parse_bytes(const strait_option *option, const char *text, int64_t *out) {
    double bytes = 0;
    STRAIT_TRY(parse_with_unit(option, text, &bytes));
    if (bytes > 9007199254740992.0) return wrong(text, "a size below 8 PiB");
    *out = (int64_t)bytes;
    return STRAIT_OK;
}

static strait_err parse_bool(const char *text, int *out) {
    static const char *const words[] = {"false", "no", "off", "true", "yes", "on"};
    for (int i = 0; i < 6; i++) {
        if (strcmp(text, words[i]) != 0) continue;
        *out = i >= 3;
        return STRAIT_OK;
    }
    return wrong(text, "true or false");
}

static strait_err parse_choice(const strait_option *option, const char *text, void *field) {
    for (int i = 0; option->choices[i] != NULL; i++) {
        if (strcmp(text, option->choices[i]) != 0) continue;
        memcpy(field, &i, sizeof i);
        return STRAIT_OK;
    }
    char what[STRAIT_OPTION_TEXT_MAX];
    strait_options_describe(option, what);
    return wrong(text, what);
}

/* "1, 2, 3", with or without brackets. */
static strait_err parse_ints(const strait_option *option, const char *text,
                             strait_option_ints *out) {
    strait_option_ints list = {{0}, 0};
    const char *at = text + strspn(text, " ");
    const int is_open = *at == '[';
    if (is_open) at += 1 + strspn(at + 1, " ");
    while (*at != '\0' && *at != ']') {
        const size_t length = strcspn(at, " ,]");
        char item[24] = "";
        if (length >= sizeof item) return wrong(text, "a list of whole numbers");
        memcpy(item, at, length);
        if (list.n == STRAIT_OPTION_INTS_MAX)
            return STRAIT_FAIL(STRAIT_ECONFIG, "more than %d numbers", STRAIT_OPTION_INTS_MAX);
        STRAIT_TRY(parse_int(option, item, &list.items[list.n++]));
        at += length;
        at += strspn(at, " ");
        if (*at == ',') at += 1 + strspn(at + 1, " ");
    }
    const int is_closed = *at == ']';
    if (is_open != is_closed || at[is_closed] != '\0')
        return wrong(text, "a list of whole numbers");
    *out = list;
    return STRAIT_OK;
}

/* The code point at *at, which moves past it; 0 for what is not UTF-8. */
static uint32_t next_code_point(const unsigned char **at) {
    const unsigned char *p = *at;
    const int extra = p[0] < 0x80 ? 0 : p[0] >= 0xF0 ? 3 : p[0] >= 0xE0 ? 2 : 1;
    static const unsigned char masks[] = {0x7F, 0x1F, 0x0F, 0x07};
    static const uint32_t smallest[] = {0, 0x80, 0x800, 0x10000};
    if (p[0] >= 0xF8 || (p[0] >= 0x80 && p[0] < 0xC0)) return 0;
    uint32_t code = p[0] & masks[extra];
    for (int i = 1; i <= extra; i++) {
        if ((p[i] & 0xC0) != 0x80) return 0;
        code = code << 6 | (p[i] & 0x3F);
    }
    *at = p + extra + 1;
    return code < smallest[extra] ? 0 : code;
}

/* Whether a text survives being written to YAML and read again: UTF-8 with no control characters,
 * no line separators and none of the code points that are no characters. */
static int is_printable(const char *text) {
    const unsigned char *at = (const unsigned char *)text;
    while (*at != '\0') {
        const uint32_t code = next_code_point(&at);
        if (code < 0x20 || (code >= 0x7F && code < 0xA0)) return 0;
        if (code == 0x2028 || code == 0x2029 || code == 0xFEFF) return 0;
        if ((code >= 0xD800 && code < 0xE000) || code == 0xFFFE || code == 0xFFFF) return 0;
        if (code > 0x10FFFF) return 0;
    }
    return 1;
}

int strait_option_is_text(strait_option_kind kind) {
    return kind == STRAIT_OPTION_TEXT || kind == STRAIT_OPTION_PATH || kind == STRAIT_OPTION_PATHS;
}

/* Appends `n` bytes of text, behind the folder where they are a relative path. */
static strait_err append_text(const strait_option *option, const char *text, size_t n,
                              const char *folder, char *field) {
    const int is_joined = option->kind != STRAIT_OPTION_TEXT && folder != NULL && n > 0 &&
                          text[0] != '/';
    const size_t used = strlen(field);
    if (is_joined && !is_printable(folder)) return wrong(folder, "a folder named in UTF-8");
    if (used + (is_joined ? strlen(folder) + 1 : 0) + n >= option->capacity)
        return STRAIT_FAIL(STRAIT_ECONFIG, "longer than %zu bytes%s", option->capacity - 1,
                           is_joined ? " with its folder" : "");
    (void)snprintf(field + used, option->capacity - used, "%s%s%.*s", is_joined ? folder : "",
                   is_joined ? "/" : "", (int)n, text);
    return STRAIT_OK;
}

static strait_err parse_text(const strait_option *option, const char *text, const char *folder,
                             char *field) {
    if (!is_printable(text)) return wrong(text, "printable UTF-8 text");
    field[0] = '\0';
    if (option->kind != STRAIT_OPTION_PATHS)
        return append_text(option, text, strlen(text), folder, field);
    for (;; text++) {
        const size_t n = strcspn(text, ",");
        STRAIT_TRY(append_text(option, text, n, folder, field));
        text += n;
        if (*text == '\0') return STRAIT_OK;
        STRAIT_TRY(append_text(option, text, 1, NULL, field));
    }
}

strait_err strait_option_parse(const strait_option *option, const char *text, const char *folder,
                               void *object) {
    void *field = (char *)object + option->offset;
    switch (option->kind) {
    case STRAIT_OPTION_INT: return parse_int(option, text, field);
    case STRAIT_OPTION_REAL: return parse_real(option, text, field);
    case STRAIT_OPTION_BOOL: return parse_bool(text, field);
    case STRAIT_OPTION_TEXT:
    case STRAIT_OPTION_PATH:
    case STRAIT_OPTION_PATHS: return parse_text(option, text, folder, field);
    case STRAIT_OPTION_CHOICE: return parse_choice(option, text, field);
    case STRAIT_OPTION_INTS: return parse_ints(option, text, field);
    case STRAIT_OPTION_DURATION:
    case STRAIT_OPTION_RATE: return parse_with_unit(option, text, field);
    case STRAIT_OPTION_BYTES: return parse_bytes(option, text, field);
    }
    return STRAIT_FAIL(STRAIT_EINVAL, "%s: a row of no known kind", option->key);
}

/* The shortest decimal that reads back as the same double; no exponent for a whole number. */
static void show_real(double value, char *out, size_t capacity) {
    if (value == floor(value) && fabs(value) < 1e15) {
        (void)snprintf(out, capacity, "%.0f", value);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(out, capacity, "%.*g", digits, value);
        if (strtod(out, NULL) == value) return;
    }
}

/* In the largest unit that gives a whole number and reads back as the same value; else in the unit
 * of scale one. */
static void show_with_unit(strait_option_kind kind, double value, char *out, size_t capacity) {
    const unit_list list = units_of(kind);
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

static void show_ints(const strait_option_ints *list, char *out, size_t capacity) {
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
