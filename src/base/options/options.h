/* options.h - one table defines run files, overrides, bounds, defaults and help texts.
 *
 *     {"train.steps", STRAIT_OPTION_INT, STRAIT_OPTION_FIELD(strait_run, train.steps),
 *      .min = 1, .max = 1e9, .initial = "1000", .help = "optimizer updates"},
 *
 * A row names a dotted key and the field of a plain struct that it fills. Nested maps of a YAML
 * file and `--set a.b=c` set the same rows. Every error is STRAIT_ECONFIG and names the place:
 * "RUN.yaml:4:12: train.learning_rate: "fast" is not a number". Rows of one section
 * are consecutive. Nothing here keeps state; threads may share a table.
 */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef enum strait_option_kind {
    STRAIT_OPTION_INT,      // int64_t
    STRAIT_OPTION_REAL,     // double
    STRAIT_OPTION_BOOL,     // int: 0 or 1
    STRAIT_OPTION_TEXT,     // char[]
    STRAIT_OPTION_TEXTS,    // char[]; several, separated by commas
    STRAIT_OPTION_PATH,     // char[]; a relative path is joined to the folder of its source
    STRAIT_OPTION_PATHS,    // char[]; several, separated by commas, each joined likewise
    STRAIT_OPTION_CHOICE,   // int or enum: an index of `choices`
    STRAIT_OPTION_INTS,     // strait_option_ints
    STRAIT_OPTION_DURATION, // double, seconds: "25ms", "1s"
    STRAIT_OPTION_RATE,     // double, bits per second: "80mbit"
    STRAIT_OPTION_BYTES,    // int64_t: "64MiB"
} strait_option_kind;

enum {
    STRAIT_OPTION_INTS_MAX = 64,
    STRAIT_OPTION_TEXT_MAX = 2048 // bytes of any value as text, with the final zero
};

typedef struct strait_option_ints {
    int64_t items[STRAIT_OPTION_INTS_MAX];
    int n;
} strait_option_ints;

typedef struct strait_option {
    const char *key;
    strait_option_kind kind;
    size_t offset, capacity;    // of the field, and its bytes
    double min, max;            // of a number, or of each number of a list; both 0: no bounds
    const char *initial;        // the default, as text
    const char *const *choices; // ended by NULL
    const char *help;
} strait_option;

#define STRAIT_OPTION_FIELD(type, field) offsetof(type, field), sizeof(((type *)0)->field)

/* When the user chooses `choice` for the option `key`, these settings replace the defaults of other
 * options. The user's own settings override them, wherever in the file they are; a later preset
 * overrides an earlier one. */
typedef struct strait_option_preset {
    const char *key, *choice;
    const char *const *settings; // "model.softcap=15", ended by NULL
    const char *also, *chosen;   // only where this option also has this value; NULL: always
} strait_option_preset;

/* A key that had another name in earlier versions. The old name is not read: the error for it says
 * which key to use, so that a file means the same in every version that accepts it. */
typedef struct strait_option_rename {
    const char *old_key, *key;
} strait_option_rename;

typedef struct strait_options {
    const strait_option *rows;
    int n_rows;
    const strait_option_preset *presets;
    int n_presets;
    const strait_option_rename *renames;
    int n_renames;
    /* A key whose value decides what the other keys of its section mean, such as the name of a
     * codec: where an override gives it another value than the file states, the file's other keys
     * of that section are dropped. NULL: there is none. */
    const char *chooser;
} strait_options;

enum {
    STRAIT_OPTIONS_DROPPED = 256 // bytes of a list of keys
};

/* What the user wrote. Everything is borrowed for the call. */
typedef struct strait_options_source {
    const char *name; // of the file, for errors
    const char *text; // YAML; may be empty
    size_t bytes;
    const char *folder;      // where relative paths of the file start; NULL: they stay relative
    const char *const *sets; // "train.learning_rate=0.1", each overrides the file and earlier ones
    int n_sets;
    const char *set_folder; // where relative paths of the overrides start; NULL: they stay
    char *dropped; // STRAIT_OPTIONS_DROPPED bytes: receives the keys that were dropped (chooser),
                   // separated by commas, after what is there; NULL: nobody wants to know
} strait_options_source;

/* Fills every field the table names: defaults, then presets, then the file, then the overrides.
 * is_given has one byte per row and becomes 1 where the file or an override sets the option, else
 * 0; NULL: nobody wants to know. STRAIT_ECONFIG at the first error; the object is then partly
 * filled. */
strait_err strait_options_load(const strait_options *table, const strait_options_source *source,
                               void *object, unsigned char *is_given);

/* The known key that the unknown `key` probably means, or its section: the first *out_length
 * letters of the result. NULL: no key is similar. The right last word in another section is
 * similar. */
const char *strait_options_nearest(const strait_options *table, const char *key,
                                   size_t *out_length);

/* The error for a key that the table does not have: names its new name or the nearest known key.
 * Always STRAIT_ECONFIG. */
strait_err strait_options_unknown(const strait_options *table, const char *key);

/* The new name of a key that was renamed, or NULL. */
const char *strait_options_renamed(const strait_options *table, const char *old_key);

/* The row of a key, or NULL. */
const strait_option *strait_options_find(const strait_options *table, const char *key);

/* Parses `text` into the field of `object` that the row names; relative paths start at `folder`,
 * NULL: they stay relative. STRAIT_ECONFIG says what is expected; the caller names the key. */
strait_err strait_option_parse(const strait_option *option, const char *text, const char *folder,
                               void *object);

/* The value of a field as a file would have it, without quotes. */
void strait_options_show(const strait_option *option, const void *object,
                         char out[STRAIT_OPTION_TEXT_MAX]);

/* Which values an option accepts, for people: "whole number, 1 to 64", "one of llama, yardstick".
 */
void strait_options_describe(const strait_option *option, char out[STRAIT_OPTION_TEXT_MAX]);

/* The default of an option, for people: "0", or "0 (15 with model.family yardstick)". Empty for an
 * empty text. */
void strait_options_describe_default(const strait_options *table, const strait_option *option,
                                     char out[STRAIT_OPTION_TEXT_MAX]);

/* Writes the object as YAML. Rows with is_given 0 become comments, so that they are derived again
 * when the text is loaded; where is_given is NULL every row is written and the text loads to the
 * same values. Works like snprintf: writes at most `capacity` bytes with the final zero and returns
 * the bytes that the whole text needs without it. */
size_t strait_options_render(const strait_options *table, const void *object,
                             const unsigned char *is_given, char *out, size_t capacity);
