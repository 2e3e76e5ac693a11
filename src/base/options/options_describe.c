#include "base/options/options_internal.h"

#include <stdio.h>
#include <string.h>

/* Names a kind of value for people, without its bounds. */
static const char *noun(strait_option_kind kind) {
    switch (kind) {
    case STRAIT_OPTION_INT: return "whole number";
    case STRAIT_OPTION_REAL: return "number";
    case STRAIT_OPTION_BOOL: return "true or false";
    case STRAIT_OPTION_TEXT: return "text";
    case STRAIT_OPTION_TEXTS: return "list of texts";
    case STRAIT_OPTION_PATH: return "path";
    case STRAIT_OPTION_PATHS: return "path, or several separated by commas";
    case STRAIT_OPTION_CHOICE: return "one of ";
    case STRAIT_OPTION_INTS: return "list of whole numbers";
    case STRAIT_OPTION_DURATION: return "duration such as 25ms or 1.5s";
    case STRAIT_OPTION_RATE: return "rate such as 80mbit or 1gbit";
    case STRAIT_OPTION_BYTES: return "size such as 64MiB or 2GiB";
    }
    return "value";
}

/* A bound as the file would write such a value. */
static void show_bound(const strait_option *option, double bound,
                       char out[STRAIT_OPTION_TEXT_MAX]) {
    const int is_whole = option->kind == STRAIT_OPTION_INT || option->kind == STRAIT_OPTION_INTS;
    const int64_t whole = (int64_t)bound;
    const strait_option plain = {.kind = option->kind == STRAIT_OPTION_INTS ? STRAIT_OPTION_INT
                                                                            : option->kind};
    const int is_int = is_whole || option->kind == STRAIT_OPTION_BYTES;
    strait_options_show(&plain, is_int ? (const void *)&whole : (const void *)&bound, out);
}

/* Used by help and by errors, so that both name the same bounds. */
void strait_options_describe(const strait_option *option, char out[STRAIT_OPTION_TEXT_MAX]) {
    const size_t capacity = STRAIT_OPTION_TEXT_MAX;
    size_t used = (size_t)snprintf(out, capacity, "%s", noun(option->kind));
    if (option->kind == STRAIT_OPTION_CHOICE)
        for (int i = 0; option->choices[i] != NULL && used < capacity; i++)
            used += (size_t)snprintf(out + used, capacity - used, "%s%s", i > 0 ? ", " : "",
                                     option->choices[i]);
    if (option->min == 0 && option->max == 0) return; // no bounds
    char low[STRAIT_OPTION_TEXT_MAX];
    char high[STRAIT_OPTION_TEXT_MAX];
    show_bound(option, option->min, low);
    show_bound(option, option->max, high);
    (void)snprintf(out + used, capacity - used, ", %.40s to %.40s", low, high);
}

/* The value that a preset gives an option, or NULL. */
static const char *preset_value(const strait_option_preset *preset, const char *key) {
    const size_t length = strlen(key);
    for (int i = 0; preset->settings[i] != NULL; i++)
        if (strncmp(preset->settings[i], key, length) == 0 && preset->settings[i][length] == '=')
            return preset->settings[i] + length + 1;
    return NULL;
}

/* Presets are listed with the default, because a user who reads it may have chosen one. */
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
