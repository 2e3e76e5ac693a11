/* Reads the file event by event, so that every error has a line and a column. Only plain YAML is
 * accepted: one document of nested maps, without anchors, aliases or tags. The table bounds the
 * depth: a map that is not a known section is rejected before its content is read. */
#include "base/alloc.h"
#include "base/options/options_internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

enum {
    BYTES_MAX = 1 << 20,
    KEY_MAX = 256,
    SECTIONS_MAX = 64
};

/* A section that the file has opened: its first row and the length of its name. */
typedef struct opened {
    const strait_option *first;
    size_t length;
} opened;

typedef struct walk {
    yaml_parser_t parser;
    yaml_event_t event; // the current one
    const strait_options *table;
    const strait_options_source *source;
    strait_settings *list;
    opened sections[SECTIONS_MAX];
    int n_sections;
} walk;

#define FAIL_AT(w, mark, ...) \
    (strait_err_note(__FILE__, __LINE__, __VA_ARGS__), place((w), (mark)), STRAIT_ECONFIG)

static void place(const walk *w, yaml_mark_t mark) {
    strait_err_prefix("%s:%zu:%zu", w->source->name, mark.line + 1, mark.column + 1);
}

/* Whether a line is indented with a tab. Editors insert tabs unasked, and libyaml's message for
 * them is unclear. Lines count from 0. */
static int is_tab_indented(const strait_options_source *source, size_t line) {
    const char *end = source->text + source->bytes;
    const char *at = source->text;
    for (; line > 0 && at < end; at++)
        line -= *at == '\n';
    while (at < end && *at == ' ')
        at++;
    return at < end && *at == '\t';
}

static strait_err parser_failed(const walk *w) {
    if (w->parser.error == YAML_MEMORY_ERROR)
        return STRAIT_FAIL(STRAIT_ENOMEM, "%s: parsing YAML", w->source->name);
    const char *problem = w->parser.problem != NULL ? w->parser.problem : "syntax error";
    if (w->parser.error == YAML_READER_ERROR)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s: byte %zu: %s", w->source->name,
                           w->parser.problem_offset, problem);
    if (is_tab_indented(w->source, w->parser.problem_mark.line))
        return FAIL_AT(w, w->parser.problem_mark, "not valid YAML: a tab; indent with spaces");
    return FAIL_AT(w, w->parser.problem_mark, "not valid YAML: %s", problem);
}

/* Anchors, aliases and tags can expand a small file without bounds or change the type of a value.
 */
static strait_err refuse_extras(const walk *w) {
    const yaml_char_t *anchor = NULL;
    const yaml_char_t *tag = NULL;
    switch (w->event.type) {
    case YAML_ALIAS_EVENT:
        return FAIL_AT(w, w->event.start_mark, "aliases are not supported: repeat the value");
    case YAML_SCALAR_EVENT:
        anchor = w->event.data.scalar.anchor;
        tag = w->event.data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = w->event.data.sequence_start.anchor;
        tag = w->event.data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = w->event.data.mapping_start.anchor;
        tag = w->event.data.mapping_start.tag;
        break;
    default: break;
    }
    if (anchor != NULL)
        return FAIL_AT(w, w->event.start_mark, "anchors are not supported: repeat the value");
    if (tag != NULL) return FAIL_AT(w, w->event.start_mark, "tags are not supported: drop the !");
    return STRAIT_OK;
}

/* Reads the next event, which becomes the current one. */
static strait_err next(walk *w) {
    yaml_event_delete(&w->event);
    if (!yaml_parser_parse(&w->parser, &w->event)) return parser_failed(w);
    return refuse_extras(w);
}

/* The current scalar as text. A zero byte inside would hide the rest of it and is an error. */
static strait_err scalar_text(const walk *w, const char **out) {
    const char *text = (const char *)w->event.data.scalar.value;
    if (strlen(text) != w->event.data.scalar.length)
        return FAIL_AT(w, w->event.start_mark, "the text contains a zero byte");
    *out = text;
    return STRAIT_OK;
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
    STRAIT_TRY(scalar_text(w, &text));
    const int is_quoted = w->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    const int is_null = !is_quoted &&
                        (text[0] == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
    if (strait_options_find(w->table, key) != NULL)
        return keep(w, key, is_null ? "" : text, is_quoted, w->event.start_mark);
    if (is_null) return STRAIT_OK; // a section with nothing in it
    return FAIL_AT(w, w->event.start_mark, "%s: is a section, expected keys such as %s", key,
                   strait_option_section(w->table, key)->key);
}

/* A list becomes the text "[1,2,3]", one of paths or texts "a,b". */
static strait_err read_list(walk *w, const char *key) {
    const yaml_mark_t start = w->event.start_mark;
    const strait_option *option = strait_options_find(w->table, key);
    const int is_ints = option != NULL && option->kind == STRAIT_OPTION_INTS;
    const int is_texts = option != NULL && option->kind == STRAIT_OPTION_TEXTS;
    if (!is_ints && !is_texts && (option == NULL || option->kind != STRAIT_OPTION_PATHS))
        return FAIL_AT(w, start, "%s: does not take a list", key);
    char text[STRAIT_OPTION_TEXT_MAX] = "[";
    size_t used = is_ints ? 1 : 0;
    for (int i = 0;; i++) {
        STRAIT_TRY(next(w));
        if (w->event.type == YAML_SEQUENCE_END_EVENT) break;
        const char *item = NULL;
        if (w->event.type != YAML_SCALAR_EVENT)
            return FAIL_AT(w, w->event.start_mark, "%s: expected a list of %s", key,
                           is_ints    ? "whole numbers"
                           : is_texts ? "texts"
                                      : "paths");
        STRAIT_TRY(scalar_text(w, &item));
        if (strlen(item) + used + 4 > sizeof text)
            return FAIL_AT(w, w->event.start_mark, "%s: the list is too long", key);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? "," : "", item);
    }
    (void)snprintf(text + used, sizeof text - used, is_ints ? "]" : "");
    return keep(w, key, text, 0, start);
}

static strait_err read_map(walk *w, const char *prefix);

static strait_err read_value(walk *w, const char *key) {
    switch (w->event.type) {
    case YAML_SCALAR_EVENT: return read_scalar(w, key);
    case YAML_SEQUENCE_START_EVENT: return read_list(w, key);
    default: break;
    }
    const strait_option *first = strait_option_section(w->table, key);
    if (first == NULL) {
        char what[STRAIT_OPTION_TEXT_MAX];
        strait_options_describe(strait_options_find(w->table, key), what);
        return FAIL_AT(w, w->event.start_mark, "%s: is a map, expected %s", key, what);
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
    const yaml_mark_t mark = w->event.start_mark;
    if (w->event.type != YAML_SCALAR_EVENT)
        return FAIL_AT(w, mark, "expected a key, a plain word followed by a colon");
    const char *word = NULL;
    STRAIT_TRY(scalar_text(w, &word));
    const int used = snprintf(key, KEY_MAX, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", word);
    const int is_known = used < KEY_MAX && (strait_options_find(w->table, key) != NULL ||
                                            strait_option_section(w->table, key) != NULL);
    if (!is_known) {
        const strait_err err = strait_options_unknown(w->table, key);
        place(w, mark);
        return err;
    }
    STRAIT_TRY(refuse_twice(w, key, mark));
    return note_section(w, key, mark);
}

static strait_err read_map(walk *w, const char *prefix) {
    for (;;) {
        char key[KEY_MAX];
        STRAIT_TRY(next(w));
        if (w->event.type == YAML_MAPPING_END_EVENT) return STRAIT_OK;
        STRAIT_TRY(read_key(w, prefix, key));
        STRAIT_TRY(next(w));
        STRAIT_TRY(read_value(w, key));
    }
}

static strait_err read_root(walk *w) {
    if (w->event.type == YAML_MAPPING_START_EVENT) return read_map(w, "");
    const int is_empty = w->event.type == YAML_SCALAR_EVENT && w->event.data.scalar.length == 0;
    if (is_empty) return STRAIT_OK;
    return FAIL_AT(w, w->event.start_mark, "expected sections such as \"train:\" with keys");
}

static strait_err expect_end(walk *w) {
    STRAIT_TRY(next(w)); // the document's
    STRAIT_TRY(next(w));
    if (w->event.type == YAML_STREAM_END_EVENT) return STRAIT_OK;
    return FAIL_AT(w, w->event.start_mark, "a second document; only one is read");
}

static strait_err read_document(walk *w) {
    STRAIT_TRY(next(w)); // the stream's start
    STRAIT_TRY(next(w)); // the document's
    if (w->event.type == YAML_STREAM_END_EVENT) return STRAIT_OK;
    STRAIT_TRY(next(w));
    STRAIT_TRY(read_root(w));
    return expect_end(w);
}

/* Bytes of the byte order mark that some editors write at the start of a file. */
static size_t mark_bytes(const strait_options_source *source) {
    static const char mark[] = "\xef\xbb\xbf";
    const size_t n = sizeof mark - 1;
    return source->bytes >= n && memcmp(source->text, mark, n) == 0 ? n : 0;
}

strait_err strait_option_read_yaml(const strait_options *table, const strait_options_source *source,
                                   strait_settings *list) {
    if (source->bytes > BYTES_MAX)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s: %zu bytes, more than the %d allowed", source->name,
                           source->bytes, BYTES_MAX);
    walk w = {.table = table, .source = source, .list = list};
    if (!yaml_parser_initialize(&w.parser))
        return STRAIT_FAIL(STRAIT_ENOMEM, "%s: YAML parser", source->name);
    yaml_parser_set_encoding(&w.parser, YAML_UTF8_ENCODING);
    const size_t n_mark = mark_bytes(source);
    yaml_parser_set_input_string(&w.parser, (const unsigned char *)source->text + n_mark,
                                 source->bytes - n_mark);
    const strait_err err = read_document(&w);
    yaml_event_delete(&w.event);
    yaml_parser_delete(&w.parser);
    return err;
}
