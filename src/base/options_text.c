#include "base/options_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *noun(strait_option_kind kind) {
    switch (kind) {
    case STRAIT_OPTION_INT: return "whole number";
    case STRAIT_OPTION_REAL: return "number";
    case STRAIT_OPTION_BOOL: return "true or false";
    case STRAIT_OPTION_TEXT: return "text";
    case STRAIT_OPTION_PATH: return "path";
    case STRAIT_OPTION_PATHS: return "path, or several with commas between them";
    case STRAIT_OPTION_CHOICE: return "one of ";
    case STRAIT_OPTION_INTS: return "list of whole numbers";
    case STRAIT_OPTION_DURATION: return "duration such as 25ms or 1.5s";
    case STRAIT_OPTION_RATE: return "rate such as 80mbit or 1gbit";
    case STRAIT_OPTION_BYTES: return "size such as 64MiB or 2GiB";
    }
    return "value";
}

/* A bound in the words the file would use for such a value. */
static void show_bound(const strait_option *option, double bound,
                       char out[STRAIT_OPTION_TEXT_MAX]) {
    const int is_whole = option->kind == STRAIT_OPTION_INT || option->kind == STRAIT_OPTION_INTS;
    const int64_t whole = (int64_t)bound;
    const strait_option plain = {.kind = option->kind == STRAIT_OPTION_INTS ? STRAIT_OPTION_INT
                                                                            : option->kind};
    const int is_int = is_whole || option->kind == STRAIT_OPTION_BYTES;
    strait_options_show(&plain, is_int ? (const void *)&whole : (const void *)&bound, out);
}

void strait_options_describe(const strait_option *option, char out[STRAIT_OPTION_TEXT_MAX]) {
    const size_t capacity = STRAIT_OPTION_TEXT_MAX;
    size_t used = (size_t)snprintf(out, capacity, "%s", noun(option->kind));
    if (option->kind == STRAIT_OPTION_CHOICE)
        for (int i = 0; option->choices[i] != NULL && used < capacity; i++)
            used += (size_t)snprintf(out + used, capacity - used, "%s%s", i > 0 ? ", " : "",
                                     option->choices[i]);
    if (option->min == 0 && option->max == 0) return;
    char low[STRAIT_OPTION_TEXT_MAX];
    char high[STRAIT_OPTION_TEXT_MAX];
    show_bound(option, option->min, low);
    show_bound(option, option->max, high);
    (void)snprintf(out + used, capacity - used, ", %.40s to %.40s", low, high);
}

/* What a preset sets an option to, or NULL. */
static const char *preset_value(const strait_option_preset *preset, const char *key) {
    const size_t length = strlen(key);
    for (int i = 0; preset->settings[i] != NULL; i++)
        if (strncmp(preset->settings[i], key, length) == 0 && preset->settings[i][length] == '=')
            return preset->settings[i] + length + 1;
    return NULL;
}

void strait_options_describe_default(const strait_options *table, const strait_option *option,
                                     char out[STRAIT_OPTION_TEXT_MAX]) {
    const size_t capacity = STRAIT_OPTION_TEXT_MAX;
    size_t used = (size_t)snprintf(out, capacity, "%s", option->initial);
    for (int i = 0; i < table->n_presets && used < capacity; i++) {
        const strait_option_preset *preset = &table->presets[i];
        const char *value = preset_value(preset, option->key);
        if (value == NULL) continue;
        used += (size_t)snprintf(out + used, capacity - used, " (%s with %s %s%s%s%s%s)", value,
                                 preset->key, preset->choice, preset->also != NULL ? ", " : "",
                                 preset->also != NULL ? preset->also : "",
                                 preset->also != NULL ? " " : "",
                                 preset->also != NULL ? preset->chosen : "");
    }
}

typedef struct sink {
    char *out;
    size_t capacity, used;
} sink;

__attribute__((format(printf, 2, 3))) static void put(sink *s, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const size_t left = s->used < s->capacity ? s->capacity - s->used : 0;
    const int n = vsnprintf(left > 0 ? s->out + s->used : NULL, left, format, args);
    va_end(args);
    if (n > 0) s->used += (size_t)n;
}

/* Double quotes; the text is printable, so only these two need a backslash. */
static void put_quoted(sink *s, const char *text) {
    put(s, "\"");
    for (; *text != '\0'; text++)
        put(s, "%s%c", *text == '"' || *text == '\\' ? "\\" : "", *text);
    put(s, "\"");
}

/* Opens the sections of `key` that `before` was not in, and returns what is left of the key. */
static const char *put_sections(sink *s, const char *before, const char *key, int *depth) {
    *depth = 0;
    int is_shared = before != NULL;
    for (const char *dot; (dot = strchr(key, '.')) != NULL; key = dot + 1, ++*depth) {
        const size_t length = (size_t)(dot - key) + 1;
        is_shared = is_shared && strncmp(before, key, length) == 0;
        if (is_shared) before += length;
        if (!is_shared) put(s, "%*s%.*s:\n", 2 * *depth, "", (int)length - 1, key);
    }
    return key;
}

size_t strait_options_render(const strait_options *table, const void *object, char *out,
                             size_t capacity) {
    sink s = {out, capacity, 0};
    if (capacity > 0) out[0] = '\0';
    for (int i = 0; i < table->n_rows; i++) {
        const strait_option *option = &table->rows[i];
        int depth = 0;
        const char *word = put_sections(&s, i > 0 ? table->rows[i - 1].key : NULL, option->key,
                                        &depth);
        char value[STRAIT_OPTION_TEXT_MAX];
        strait_options_show(option, object, value);
        put(&s, "%*s%s: ", 2 * depth, "", word);
        if (strait_option_is_text(option->kind))
            put_quoted(&s, value);
        else
            put(&s, "%s", value);
        put(&s, "\n");
    }
    return s.used;
}
