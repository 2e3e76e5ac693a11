/* Reads the file event by event, so that every error has a line and a column. Only plain YAML is
 * accepted: one document of nested maps, without anchors, aliases or tags. The table bounds the
 * depth: a map that is not a known section is rejected before its content is read. */
#include "base/alloc.h"
#include "base/options/options_internal.h"
#include "base/options/yaml_reader.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_MAX = 256,
    SECTIONS_MAX = 64
};

/* A section that the file has opened: its first row and the length of its name. */
typedef struct opened {
    const strait_option *first;
    size_t length;
} opened;

typedef struct walk {
    strait_yaml_reader reader;
    const strait_options *table;
    strait_settings *list;
    opened sections[SECTIONS_MAX];
    int n_sections;
} walk;

#define FAIL_AT(w, mark, ...) STRAIT_YAML_FAIL(&(w)->reader, mark, __VA_ARGS__)

static strait_err next(walk *w) {
    return strait_yaml_next(&w->reader);
}

/* YAML leaves open what a repeated key means, so it is an error. */
static strait_err refuse_twice(walk *w, const char *key, yaml_mark_t mark) {
    const strait_option *option = strait_options_find(w->table, key);
    for (int i = 0; option != NULL && i < w->list->n; i++)
        if (w->list->items[i].option == option)
            return FAIL_AT(w, mark, "%s: given twice, first at line %zu", key,
                           w->list->items[i].line);
    return STRAIT_OK;
}

static strait_err keep(walk *w, const char *key, const char *text, int is_quoted,
                       yaml_mark_t mark) {
    char *copy = NULL;
    STRAIT_TRY(strait_alloc_string(text, &copy));
    assert(w->list->n < w->table->n_rows);
    w->list->items[w->list->n++] = (strait_setting){strait_options_find(w->table, key), copy,
                                                    is_quoted, mark.line + 1, mark.column + 1};
    return STRAIT_OK;
}

static strait_err read_scalar(walk *w, const char *key) {
    const char *text = NULL;
    STRAIT_TRY(strait_yaml_text(&w->reader, &text));
    const int is_quoted = w->reader.event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    const int is_null = !is_quoted &&
                        (text[0] == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
    if (strait_options_find(w->table, key) != NULL)
        return keep(w, key, is_null ? "" : text, is_quoted, w->reader.event.start_mark);
    if (is_null) return STRAIT_OK; // a section with nothing in it
    return FAIL_AT(w, w->reader.event.start_mark, "%s: is a section, expected keys such as %s", key,
                   strait_option_section(w->table, key)->key);
}

/* Reads one key of {path: a, weight: 2} and its value. */
static strait_err read_source_key(walk *w, const char *key, char path[STRAIT_OPTION_TEXT_MAX],
                                  char weight[STRAIT_OPTION_QUOTE]) {
    const yaml_mark_t mark = w->reader.event.start_mark;
    const char *text = NULL;
    if (w->reader.event.type != YAML_SCALAR_EVENT)
        return FAIL_AT(w, mark, "%s: expected {path: FILE, weight: NUMBER}", key);
    STRAIT_TRY(strait_yaml_text(&w->reader, &text));
    const int is_path = strcmp(text, "path") == 0;
    if (!is_path && strcmp(text, "weight") != 0)
        return FAIL_AT(w, mark, "%s: expected the keys path and weight", key);
    char *out = is_path ? path : weight;
    const size_t capacity = is_path ? STRAIT_OPTION_TEXT_MAX : STRAIT_OPTION_QUOTE;
    if (out[0] != '\0') return FAIL_AT(w, mark, "%s: %s is given twice", key, text);
    STRAIT_TRY(next(w));
    if (w->reader.event.type != YAML_SCALAR_EVENT)
        return FAIL_AT(w, w->reader.event.start_mark, "%s: expected a text", key);
    STRAIT_TRY(strait_yaml_text(&w->reader, &text));
    if (text[0] == '\0' || strlen(text) >= capacity || strchr(text, ',') != NULL)
        return FAIL_AT(w, w->reader.event.start_mark, "%s: empty, too long, or has a comma", key);
    (void)snprintf(out, capacity, "%s", text);
    return STRAIT_OK;
}

/* The map {path: a.bin, weight: 2} of a list of paths becomes the text "a.bin:2". */
static strait_err read_source(walk *w, const char *key, char out[STRAIT_OPTION_TEXT_MAX]) {
    const yaml_mark_t start = w->reader.event.start_mark;
    char path[STRAIT_OPTION_TEXT_MAX] = "", weight[STRAIT_OPTION_QUOTE] = "";
    for (;;) {
        STRAIT_TRY(next(w));
        if (w->reader.event.type == YAML_MAPPING_END_EVENT) break;
        STRAIT_TRY(read_source_key(w, key, path, weight));
    }
    char *end = NULL;
    const double number = strtod(weight, &end);
    if (path[0] == '\0' || weight[0] == '\0' || *end != '\0' || !(number > 0.0) || number > 1e9)
        return FAIL_AT(w, start, "%s: expected a path and a weight above 0", key);
    if ((size_t)snprintf(out, STRAIT_OPTION_TEXT_MAX, "%s:%s", path, weight) >=
        STRAIT_OPTION_TEXT_MAX)
        return FAIL_AT(w, start, "%s: the path is too long", key);
    return STRAIT_OK;
}

/* A list becomes the text "[1,2,3]", one of paths or texts "a,b", one of sources "a:2,b:1". */
static strait_err read_list(walk *w, const char *key) {
    const yaml_mark_t start = w->reader.event.start_mark;
    const strait_option *option = strait_options_find(w->table, key);
    const int is_ints = option != NULL && option->kind == STRAIT_OPTION_INTS;
    const int is_texts = option != NULL && option->kind == STRAIT_OPTION_TEXTS;
    const int is_paths = option != NULL && option->kind == STRAIT_OPTION_PATHS;
    if (!is_ints && !is_texts && !is_paths)
        return FAIL_AT(w, start, "%s: does not take a list", key);
    char text[STRAIT_OPTION_TEXT_MAX] = "[";
    size_t used = is_ints ? 1 : 0;
    for (int i = 0;; i++) {
        STRAIT_TRY(next(w));
        if (w->reader.event.type == YAML_SEQUENCE_END_EVENT) break;
        char source[STRAIT_OPTION_TEXT_MAX];
        const char *item = source;
        const int is_source = w->reader.event.type == YAML_MAPPING_START_EVENT && is_paths;
        if (!is_source && w->reader.event.type != YAML_SCALAR_EVENT)
            return FAIL_AT(w, w->reader.event.start_mark, "%s: expected a list of %s", key,
                           is_ints    ? "whole numbers"
                           : is_texts ? "texts"
                                      : "paths");
        STRAIT_TRY(is_source ? read_source(w, key, source) : strait_yaml_text(&w->reader, &item));
        if (strlen(item) + used + 4 > sizeof text)
            return FAIL_AT(w, w->reader.event.start_mark, "%s: the list is too long", key);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? "," : "", item);
    }
    (void)snprintf(text + used, sizeof text - used, is_ints ? "]" : "");
    return keep(w, key, text, 0, start);
}

static strait_err read_map(walk *w, const char *prefix);

static strait_err read_value(walk *w, const char *key) {
    switch (w->reader.event.type) {
    case YAML_SCALAR_EVENT: return read_scalar(w, key);
    case YAML_SEQUENCE_START_EVENT: return read_list(w, key);
    default: break;
    }
    const strait_option *first = strait_option_section(w->table, key);
    if (first == NULL) {
        char what[STRAIT_OPTION_TEXT_MAX];
        strait_options_describe(strait_options_find(w->table, key), what);
        return FAIL_AT(w, w->reader.event.start_mark, "%s: is a map, expected %s", key, what);
    }
    return read_map(w, key);
}

/* A section in two places is an error like a repeated key; it may hide that one overrides the
 * other. */
static strait_err note_section(walk *w, const char *key, yaml_mark_t mark) {
    const opened this = {strait_option_section(w->table, key), strlen(key)};
    if (this.first == NULL) return STRAIT_OK;
    for (int i = 0; i < w->n_sections; i++)
        if (w->sections[i].first == this.first && w->sections[i].length == this.length)
            return FAIL_AT(w, mark, "%s: given twice; put its keys together", key);
    assert(w->n_sections < SECTIONS_MAX);
    w->sections[w->n_sections++] = this;
    return STRAIT_OK;
}

/* Reads the current event as a key and puts the names of its sections in front of it. */
static strait_err read_key(walk *w, const char *prefix, char key[KEY_MAX]) {
    const yaml_mark_t mark = w->reader.event.start_mark;
    if (w->reader.event.type != YAML_SCALAR_EVENT)
        return FAIL_AT(w, mark, "expected a key, a plain word followed by a colon");
    const char *word = NULL;
    STRAIT_TRY(strait_yaml_text(&w->reader, &word));
    const int used = snprintf(key, KEY_MAX, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", word);
    const int is_known = used < KEY_MAX && (strait_options_find(w->table, key) != NULL ||
                                            strait_option_section(w->table, key) != NULL);
    if (!is_known) {
        const strait_err err = strait_options_unknown(w->table, key);
        strait_yaml_place(&w->reader, mark);
        return err;
    }
    STRAIT_TRY(refuse_twice(w, key, mark));
    return note_section(w, key, mark);
}

static strait_err read_map(walk *w, const char *prefix) {
    for (;;) {
        char key[KEY_MAX];
        STRAIT_TRY(next(w));
        if (w->reader.event.type == YAML_MAPPING_END_EVENT) return STRAIT_OK;
        STRAIT_TRY(read_key(w, prefix, key));
        STRAIT_TRY(next(w));
        STRAIT_TRY(read_value(w, key));
    }
}

static strait_err read_root(walk *w) {
    if (w->reader.event.type == YAML_MAPPING_START_EVENT) return read_map(w, "");
    const int is_empty = w->reader.event.type == YAML_SCALAR_EVENT &&
                         w->reader.event.data.scalar.length == 0;
    if (is_empty) return STRAIT_OK;
    return FAIL_AT(w, w->reader.event.start_mark, "expected sections such as \"train:\" with keys");
}

strait_err strait_option_read_yaml(const strait_options *table, const strait_options_source *source,
                                   strait_settings *list) {
    walk w = {.table = table, .list = list};
    int is_empty = 0;
    STRAIT_TRY(strait_yaml_open(source->name, source->text, source->bytes, &w.reader));
    strait_err err = strait_yaml_begin(&w.reader, &is_empty);
    if (err == STRAIT_OK && !is_empty) err = read_root(&w);
    if (err == STRAIT_OK && !is_empty) err = strait_yaml_end(&w.reader);
    strait_yaml_close(&w.reader);
    return err;
}
