/* options_parts.h - what the files of the options share among themselves and with no one else. */
#pragma once

#include "base/options.h"

/* One thing the user asked for: an option and its value, with where that was written. */
typedef struct strait_setting {
    const strait_option *option;
    char *text;          // owned by the list
    int is_quoted;       // a quoted scalar: only a text may be one
    size_t line, column; // in the file, from 1; line 0: not from the file
} strait_setting;

typedef struct strait_settings {
    strait_setting *items; // room for every row once
    int n;
} strait_settings;

/* options_value.c: text to field and back. The error says what is wrong with the value alone. */
strait_err strait_option_parse(const strait_option *option, const char *text, const char *folder,
                               void *object);

/* Text, or paths: in quotes where a file is written. */
int strait_option_is_text(strait_option_kind kind);

/* `text` in quotes, shortened, on one line, for an error message. */
enum {
    STRAIT_OPTION_QUOTE = 64
};
const char *strait_option_quote(const char *text, char out[STRAIT_OPTION_QUOTE]);

/* options_key.c: the error for an unknown `key`: names its new name or the nearest known key. */
strait_err strait_option_unknown(const strait_options *table, const char *key);

/* The first row of a section, "train", or NULL. */
const strait_option *strait_option_section(const strait_options *table, const char *key);

/* options_yaml.c: the file's settings, in order, appended to `list`. Values are not looked at. */
strait_err strait_option_read_yaml(const strait_options *table, const strait_options_source *source,
                                   strait_settings *list);
