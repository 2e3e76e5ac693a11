#include "base/options/options_internal.h"
#include "base/text/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The offending text is quoted and shortened; the caller adds the key. */
static strait_err wrong(const char *text, const char *expected) {
    char quote[STRAIT_OPTION_QUOTE];
    return STRAIT_FAIL(STRAIT_ECONFIG, "%s is not %s", strait_option_quote(text, quote), expected);
}

/* Bounds of 0 and 0 mean that the table sets none. */
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
 * Unlike strtod it accepts no hexadecimal numbers, no infinity and no leading space. */
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

/* strtoll skips leading space, which is rejected here because a YAML value has none. */
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

/* Bounds are checked after parsing, so that both errors name the text of the user. */
static strait_err parse_real(const strait_option *option, const char *text, double *out) {
    const char *end = NULL;
    const double value = read_real(text, &end);
    if (end == text || *end != '\0') return wrong(text, "a number");
    STRAIT_TRY(check_bounds(option, text, value));
    *out = value;
    return STRAIT_OK;
}

static strait_err parse_with_unit(const strait_option *option, const char *text, double *out) {
    const strait_unit_list list = strait_option_units(option->kind);
    const char *end = NULL;
    const double number = read_real(text, &end);
    /* A bare number has no unit; only 0, and a size, which is then in bytes, are clear without one.
     */
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

/* Above 2^53 a double no longer holds every whole number. */
static strait_err parse_bytes(const strait_option *option, const char *text, int64_t *out) {
    double bytes = 0;
    STRAIT_TRY(parse_with_unit(option, text, &bytes));
    if (bytes > 9007199254740992.0) return wrong(text, "a size below 8 PiB");
    *out = (int64_t)bytes;
    return STRAIT_OK;
}

/* The words that YAML 1.1 reads as booleans. */
static strait_err parse_bool(const char *text, int *out) {
    static const char *const words[] = {"false", "no", "off", "true", "yes", "on"};
    for (int i = 0; i < 6; i++) {
        if (strcmp(text, words[i]) != 0) continue;
        *out = i >= 3;
        return STRAIT_OK;
    }
    return wrong(text, "true or false");
}

/* The field is an enum, whose values are the positions in the list. */
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

/* "1, 2, 3", with or without brackets; "auto" is the empty list. */
static strait_err parse_ints(const strait_option *option, const char *text,
                             strait_option_ints *out) {
    strait_option_ints list = {{0}, 0};
    if (strcmp(text, "auto") == 0) text = "";
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

/* Whether a text can be written to YAML and read again unchanged: UTF-8 without control characters,
 * line separators, byte order marks and noncharacters. */
static int is_printable(const char *text) {
    const unsigned char *at = (const unsigned char *)text;
    for (size_t left = strlen(text), n; left > 0; left -= n, at += n) {
        n = strait_utf8_length(at, left);
        const uint32_t code = n > 0 ? strait_utf8_decode(at) : 0;
        if (code < 0x20 || (code >= 0x7F && code < 0xA0)) return 0;
        if (code == 0x2028 || code == 0x2029 || code == 0xFEFF) return 0;
        if (code == 0xFFFE || code == 0xFFFF) return 0;
    }
    return 1;
}

/* Appends `n` bytes of text to the field; a relative path is joined to the folder first. */
static strait_err append_text(const strait_option *option, const char *text, size_t n,
                              const char *folder, char *field) {
    const int is_path = option->kind == STRAIT_OPTION_PATH || option->kind == STRAIT_OPTION_PATHS;
    const int is_joined = is_path && folder != NULL && n > 0 && text[0] != '/';
    const size_t used = strlen(field);
    if (is_joined && !is_printable(folder)) return wrong(folder, "a folder named in UTF-8");
    if (used + (is_joined ? strlen(folder) + 1 : 0) + n >= option->capacity)
        return STRAIT_FAIL(STRAIT_ECONFIG, "longer than %zu bytes%s", option->capacity - 1,
                           is_joined ? " with its folder" : "");
    (void)snprintf(field + used, option->capacity - used, "%s%s%.*s", is_joined ? folder : "",
                   is_joined ? "/" : "", (int)n, text);
    return STRAIT_OK;
}

/* The folder is joined to each path of a list, not to the list. */
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

/* The field keeps its value when an error is returned, except for text. */
strait_err strait_option_parse(const strait_option *option, const char *text, const char *folder,
                               void *object) {
    void *field = (char *)object + option->offset;
    switch (option->kind) {
    case STRAIT_OPTION_INT: return parse_int(option, text, field);
    case STRAIT_OPTION_REAL: return parse_real(option, text, field);
    case STRAIT_OPTION_BOOL: return parse_bool(text, field);
    case STRAIT_OPTION_TEXT:
    case STRAIT_OPTION_TEXTS:
    case STRAIT_OPTION_PATH:
    case STRAIT_OPTION_PATHS: return parse_text(option, text, folder, field);
    case STRAIT_OPTION_CHOICE: return parse_choice(option, text, field);
    case STRAIT_OPTION_INTS: return parse_ints(option, text, field);
    case STRAIT_OPTION_DURATION:
    case STRAIT_OPTION_RATE: return parse_with_unit(option, text, field);
    case STRAIT_OPTION_BYTES: return parse_bytes(option, text, field);
    }
    return STRAIT_FAIL(STRAIT_EINVAL, "%s: the kind of its row is unknown", option->key);
}
