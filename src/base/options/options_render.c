#include "base/options/options_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct sink {
    char *out;
    size_t capacity, used;
} sink;

/* Counts what does not fit, so that a caller can measure first and allocate then. */
__attribute__((format(printf, 2, 3))) static void put(sink *s, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const size_t left = s->used < s->capacity ? s->capacity - s->used : 0;
    const int n = vsnprintf(left > 0 ? s->out + s->used : NULL, left, format, args);
    va_end(args);
    if (n > 0) s->used += (size_t)n;
}

/* Writes text in double quotes. It is printable, so only quotes and backslashes need a backslash.
 */
static void put_quoted(sink *s, const char *text) {
    put(s, "\"");
    for (; *text != '\0'; text++)
        put(s, "%s%c", *text == '"' || *text == '\\' ? "\\" : "", *text);
    put(s, "\"");
}

/* Writes the headers of the sections of `key` that the previous key was not in. Returns the last
 * word of the key. */
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

/* Defaults are written as comments, so that the file shows which values the user has set. */
size_t strait_options_render(const strait_options *table, const void *object,
                             const unsigned char *is_given, char *out, size_t capacity) {
    sink s = {out, capacity, 0};
    if (capacity > 0) out[0] = '\0';
    for (int i = 0; i < table->n_rows; i++) {
        const strait_option *option = &table->rows[i];
        int depth = 0;
        const char *word = put_sections(&s, i > 0 ? table->rows[i - 1].key : NULL, option->key,
                                        &depth);
        char value[STRAIT_OPTION_TEXT_MAX];
        strait_options_show(option, object, value);
        const int is_comment = is_given != NULL && !is_given[i];
        put(&s, "%*s%s%s: ", 2 * depth, "", is_comment ? "# " : "", word);
        if (strait_option_is_text(option->kind))
            put_quoted(&s, value);
        else
            put(&s, "%s", value);
        put(&s, "\n");
    }
    return s.used;
}
