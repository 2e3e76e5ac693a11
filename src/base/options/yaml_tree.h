/* yaml_tree.h - a YAML file as a tree, for files whose keys are not known in advance: studies.
 *
 * Run files are read by their table of options instead (options.h). The same plain YAML is
 * accepted, and every error begins with file, line and column. */
#pragma once

#include "base/error.h"

#include <stddef.h>

typedef enum strait_yaml_kind {
    STRAIT_YAML_SCALAR,
    STRAIT_YAML_LIST,
    STRAIT_YAML_MAP,
} strait_yaml_kind;

typedef struct strait_yaml_node {
    strait_yaml_kind kind;
    char *key;           // in a map; NULL in a list
    char *text;          // of a scalar; empty for null
    size_t line, column; // of the value, from 1
    struct strait_yaml_node *items;
    int n_items;
} strait_yaml_node;

/* Reads one document into *out; an empty file becomes an empty map. A key that occurs twice in one
 * map is an error. The caller closes *out; on error there is nothing to close. */
strait_err strait_yaml_tree_read(const char *name, const char *text, size_t bytes,
                                 strait_yaml_node *out);
void strait_yaml_tree_close(strait_yaml_node *root); // accepts a zeroed one

/* The member of a map, or NULL. */
const strait_yaml_node *strait_yaml_tree_find(const strait_yaml_node *map, const char *key);
