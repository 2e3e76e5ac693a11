#include "base/options/yaml_tree.h"

#include "base/alloc.h"
#include "base/options/yaml_reader.h"

#include <string.h>

enum {
    DEPTH_MAX = 12 // of nested maps and lists
};

static strait_err read_node(strait_yaml_reader *r, int depth, strait_yaml_node *out);

/* Appends a zeroed node. Earlier nodes may move, so nobody keeps a pointer to one. */
static strait_err append(strait_yaml_node *parent, strait_yaml_node **out) {
    void *memory = parent->items;
    STRAIT_TRY(strait_alloc_grow(&memory, (size_t)parent->n_items, (size_t)parent->n_items + 1,
                                 sizeof *parent->items, "YAML"));
    parent->items = memory;
    *out = &parent->items[parent->n_items++];
    return STRAIT_OK;
}

static strait_err read_scalar(strait_yaml_reader *r, strait_yaml_node *out) {
    const char *text = NULL;
    STRAIT_TRY(strait_yaml_text(r, &text));
    const int is_plain = r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    const int is_null = is_plain && (strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
    return strait_alloc_string(is_null ? "" : text, &out->text);
}

static strait_err read_list(strait_yaml_reader *r, int depth, strait_yaml_node *out) {
    for (;;) {
        strait_yaml_node *item = NULL;
        STRAIT_TRY(strait_yaml_next(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT) return STRAIT_OK;
        STRAIT_TRY(append(out, &item));
        STRAIT_TRY(read_node(r, depth + 1, item));
    }
}

/* Reads the current event as a key of `map` and appends a node for its value. */
static strait_err read_key(strait_yaml_reader *r, strait_yaml_node *map, strait_yaml_node **out) {
    const char *text = NULL;
    if (r->event.type != YAML_SCALAR_EVENT)
        return STRAIT_YAML_FAIL(r, r->event.start_mark,
                                "expected a key, a plain word followed by a colon");
    STRAIT_TRY(strait_yaml_text(r, &text));
    const strait_yaml_node *same = strait_yaml_tree_find(map, text);
    if (same != NULL)
        return STRAIT_YAML_FAIL(r, r->event.start_mark, "%s: given twice, first at line %zu", text,
                                same->line);
    STRAIT_TRY(append(map, out));
    return strait_alloc_string(text, &(*out)->key);
}

static strait_err read_map(strait_yaml_reader *r, int depth, strait_yaml_node *out) {
    for (;;) {
        strait_yaml_node *item = NULL;
        STRAIT_TRY(strait_yaml_next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT) return STRAIT_OK;
        STRAIT_TRY(read_key(r, out, &item));
        STRAIT_TRY(strait_yaml_next(r));
        STRAIT_TRY(read_node(r, depth + 1, item));
    }
}

/* Reads the value that starts with the current event. */
// NOLINTNEXTLINE(misc-no-recursion): the depth is bounded
static strait_err read_node(strait_yaml_reader *r, int depth, strait_yaml_node *out) {
    out->line = r->event.start_mark.line + 1;
    out->column = r->event.start_mark.column + 1;
    if (depth > DEPTH_MAX)
        return STRAIT_YAML_FAIL(r, r->event.start_mark, "nested more than %d deep", DEPTH_MAX);
    if (r->event.type == YAML_SCALAR_EVENT) return read_scalar(r, out);
    const int is_list = r->event.type == YAML_SEQUENCE_START_EVENT;
    out->kind = is_list ? STRAIT_YAML_LIST : STRAIT_YAML_MAP;
    return is_list ? read_list(r, depth, out) : read_map(r, depth, out);
}

static strait_err read_document(strait_yaml_reader *r, strait_yaml_node *out) {
    int is_empty = 0;
    STRAIT_TRY(strait_yaml_begin(r, &is_empty));
    out->kind = STRAIT_YAML_MAP;
    if (is_empty) return STRAIT_OK;
    STRAIT_TRY(read_node(r, 0, out));
    STRAIT_TRY(strait_yaml_end(r));
    if (out->kind == STRAIT_YAML_MAP) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG, "%s:%zu:%zu: expected keys such as \"run:\"", r->name,
                       out->line, out->column);
}

strait_err strait_yaml_tree_read(const char *name, const char *text, size_t bytes,
                                 strait_yaml_node *out) {
    strait_yaml_reader reader;
    strait_yaml_node root = {0};
    STRAIT_TRY(strait_yaml_open(name, text, bytes, &reader));
    const strait_err err = read_document(&reader, &root);
    strait_yaml_close(&reader);
    if (err == STRAIT_OK)
        *out = root;
    else
        strait_yaml_tree_close(&root);
    return err;
}

// NOLINTNEXTLINE(misc-no-recursion): the depth is bounded
void strait_yaml_tree_close(strait_yaml_node *root) {
    for (int i = 0; i < root->n_items; i++)
        strait_yaml_tree_close(&root->items[i]);
    strait_alloc_free(root->items);
    strait_alloc_free(root->key);
    strait_alloc_free(root->text);
    *root = (strait_yaml_node){0};
}

const strait_yaml_node *strait_yaml_tree_find(const strait_yaml_node *map, const char *key) {
    for (int i = 0; i < map->n_items; i++)
        if (map->items[i].key != NULL && strcmp(map->items[i].key, key) == 0) return &map->items[i];
    return NULL;
}
