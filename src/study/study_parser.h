/* study_parser.h - what the two files that read a study share. */
#pragma once

#include "config/run.h"
#include "study/study.h"

typedef struct strait_study_parser {
    const strait_study_source *source;
    strait_yaml_node root;
    const strait_yaml_node *size; // the map `small` or `full`; NULL: the file has none
    strait_run *scratch;          // values are parsed into it, to check them
} strait_study_parser;

/* Describes an error at a node of the file. Always STRAIT_ECONFIG. */
strait_err strait_study_fail(const strait_study_parser *parser, const strait_yaml_node *node,
                             const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The value of a key for the size in use: of the map of the size, or else of the file; or NULL. */
const strait_yaml_node *strait_study_pick(const strait_study_parser *parser, const char *key);

/* Appends the options of a map as "key=value", nested maps as dotted keys. Keys of the list
 * `words`, ended by NULL, are not options and are skipped. Relative paths become those of the file.
 */
strait_err strait_study_options(const strait_study_parser *parser, const strait_yaml_node *map,
                                const char *const *words, strait_strings *out);

/* Appends one option, checked, as "key=value"; relative paths start at `folder`. */
strait_err strait_study_option(const strait_study_parser *parser, const char *key, const char *text,
                               const char *folder, strait_strings *out);

/* study_rows.c: variants and axes to rows. */
strait_err strait_study_expand(const strait_study_parser *parser, strait_study *study);
