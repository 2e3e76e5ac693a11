/* yaml_reader.h - reads YAML event by event, for the two readers of this folder: run files by a
 * table of options, and trees (yaml_tree.h).
 *
 * Only plain YAML is accepted: one document, without anchors, aliases or tags, which can expand a
 * small file without bounds or change the type of a value. Every error is STRAIT_ECONFIG and begins
 * with the file, line and column. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <yaml.h>

typedef struct strait_yaml_reader {
    yaml_parser_t parser;
    yaml_event_t event; // the current one
    const char *name;   // of the file, for errors; borrowed
    const char *text;
    size_t bytes;
} strait_yaml_reader;

/* Borrows name and text until close. STRAIT_ECONFIG: the text is too large. */
strait_err strait_yaml_open(const char *name, const char *text, size_t bytes,
                            strait_yaml_reader *out);
void strait_yaml_close(strait_yaml_reader *r);

/* Reads up to the first event of the document; *is_empty: there is no document. */
strait_err strait_yaml_begin(strait_yaml_reader *r, int *is_empty);

/* Checks that nothing follows the document. */
strait_err strait_yaml_end(strait_yaml_reader *r);

/* Reads the next event, which becomes the current one. */
strait_err strait_yaml_next(strait_yaml_reader *r);

/* The current scalar as text, borrowed until the next event. A zero byte inside would hide the rest
 * of it and is an error. */
strait_err strait_yaml_text(const strait_yaml_reader *r, const char **out);

/* Prepends file, line and column to the noted error. */
void strait_yaml_place(const strait_yaml_reader *r, yaml_mark_t mark);

#define STRAIT_YAML_FAIL(reader, mark, ...)                                                 \
    (strait_err_note(__FILE__, __LINE__, __VA_ARGS__), strait_yaml_place((reader), (mark)), \
     STRAIT_ECONFIG)
