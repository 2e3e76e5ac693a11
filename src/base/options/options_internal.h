/* options_internal.h - what the files of base/options share among themselves and with no one else.
 *
 * They build on each other in this order: options_show.c (value to text), options_describe.c (what
 * a value may be), options_key.c (names of keys), options_parse.c (text to value), options_yaml.c
 * (a file to settings), options.c (everything to an object), options_render.c (an object to a
 * file). */
#pragma once

#include "base/options/options.h"

/* One setting of the user's: an option and its value, with its place in the file. */
typedef struct strait_setting {
    const strait_option *option;
    char *text;          // owned by the list
    int is_quoted;       // a quoted scalar, which numbers and booleans do not accept
    size_t line, column; // in the file, from 1
} strait_setting;

typedef struct strait_settings {
    strait_setting *items; // capacity for every row once
    int n;
} strait_settings;

/* A unit of durations, bandwidths or sizes, such as "ms". */
typedef struct strait_unit {
    const char *name;
    double scale;
} strait_unit;

typedef struct strait_unit_list {
    const strait_unit *units; // largest first; one of them has scale 1
    size_t n;
} strait_unit_list;

/* options_show.c: the units of a kind; only for durations, bandwidths and sizes. */
strait_unit_list strait_option_units(strait_option_kind kind);

/* Whether a value is a text or a path, which a file has in quotes. */
int strait_option_is_text(strait_option_kind kind);

/* `text` in quotes, shortened, on one line, for an error message. Returns `out`. */
enum {
    STRAIT_OPTION_QUOTE = 64
};
const char *strait_option_quote(const char *text, char out[STRAIT_OPTION_QUOTE]);

/* options_key.c: the first row of a section such as "train", or NULL. */
const strait_option *strait_option_section(const strait_options *table, const char *key);

/* options_yaml.c: appends the settings of the file to `list`, in their order. Keys are checked,
 * values are not. */
strait_err strait_option_read_yaml(const strait_options *table, const strait_options_source *source,
                                   strait_settings *list);
