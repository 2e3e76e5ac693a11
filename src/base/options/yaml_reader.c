#include "base/options/yaml_reader.h"

#include <string.h>

enum {
    BYTES_MAX = 1 << 20
};

void strait_yaml_place(const strait_yaml_reader *r, yaml_mark_t mark) {
    strait_err_prefix("%s:%zu:%zu", r->name, mark.line + 1, mark.column + 1);
}

/* Whether a line is indented with a tab. Editors insert tabs unasked, and libyaml's message for
 * them is unclear. Lines count from 0. */
static int is_tab_indented(const strait_yaml_reader *r, size_t line) {
    const char *end = r->text + r->bytes;
    const char *at = r->text;
    for (; line > 0 && at < end; at++)
        line -= *at == '\n';
    while (at < end && *at == ' ')
        at++;
    return at < end && *at == '\t';
}

static strait_err parser_failed(const strait_yaml_reader *r) {
    if (r->parser.error == YAML_MEMORY_ERROR)
        return STRAIT_FAIL(STRAIT_ENOMEM, "%s: parsing YAML", r->name);
    const char *problem = r->parser.problem != NULL ? r->parser.problem : "syntax error";
    if (r->parser.error == YAML_READER_ERROR)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s: not valid YAML: byte %zu: %s", r->name,
                           r->parser.problem_offset, problem);
    if (is_tab_indented(r, r->parser.problem_mark.line))
        return STRAIT_YAML_FAIL(r, r->parser.problem_mark,
                                "not valid YAML: a tab; indent with spaces");
    return STRAIT_YAML_FAIL(r, r->parser.problem_mark, "not valid YAML: %s", problem);
}

static strait_err refuse_extras(const strait_yaml_reader *r) {
    const yaml_char_t *anchor = NULL;
    const yaml_char_t *tag = NULL;
    switch (r->event.type) {
    case YAML_ALIAS_EVENT:
        return STRAIT_YAML_FAIL(r, r->event.start_mark,
                                "aliases are not supported: repeat the value");
    case YAML_SCALAR_EVENT:
        anchor = r->event.data.scalar.anchor;
        tag = r->event.data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = r->event.data.sequence_start.anchor;
        tag = r->event.data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = r->event.data.mapping_start.anchor;
        tag = r->event.data.mapping_start.tag;
        break;
    default: break;
    }
    if (anchor != NULL)
        return STRAIT_YAML_FAIL(r, r->event.start_mark,
                                "anchors are not supported: repeat the value");
    if (tag != NULL)
        return STRAIT_YAML_FAIL(r, r->event.start_mark, "tags are not supported: drop the !");
    return STRAIT_OK;
}

/* Reads the next event, which becomes the current one. */
strait_err strait_yaml_next(strait_yaml_reader *r) {
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->parser, &r->event)) return parser_failed(r);
    return refuse_extras(r);
}

/* The current scalar as text. A zero byte inside would hide the rest of it and is an error. */
strait_err strait_yaml_text(const strait_yaml_reader *r, const char **out) {
    const char *text = (const char *)r->event.data.scalar.value;
    if (strlen(text) != r->event.data.scalar.length)
        return STRAIT_YAML_FAIL(r, r->event.start_mark, "the text contains a zero byte");
    *out = text;
    return STRAIT_OK;
}

strait_err strait_yaml_begin(strait_yaml_reader *r, int *is_empty) {
    STRAIT_TRY(strait_yaml_next(r)); // the stream's start
    STRAIT_TRY(strait_yaml_next(r)); // the document's
    *is_empty = r->event.type == YAML_STREAM_END_EVENT;
    return *is_empty ? STRAIT_OK : strait_yaml_next(r);
}

strait_err strait_yaml_end(strait_yaml_reader *r) {
    STRAIT_TRY(strait_yaml_next(r)); // the document's
    STRAIT_TRY(strait_yaml_next(r));
    if (r->event.type == YAML_STREAM_END_EVENT) return STRAIT_OK;
    return STRAIT_YAML_FAIL(r, r->event.start_mark, "a second document; only one is read");
}

/* Bytes of the byte order mark that some editors write at the start of a file. */
static size_t mark_bytes(const char *text, size_t bytes) {
    static const char mark[] = "\xef\xbb\xbf";
    const size_t n = sizeof mark - 1;
    return bytes >= n && memcmp(text, mark, n) == 0 ? n : 0;
}

strait_err strait_yaml_open(const char *name, const char *text, size_t bytes,
                            strait_yaml_reader *out) {
    if (bytes > BYTES_MAX)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s: %zu bytes, more than the %d allowed", name, bytes,
                           BYTES_MAX);
    *out = (strait_yaml_reader){.name = name, .text = text, .bytes = bytes};
    if (!yaml_parser_initialize(&out->parser))
        return STRAIT_FAIL(STRAIT_ENOMEM, "%s: YAML parser", name);
    yaml_parser_set_encoding(&out->parser, YAML_UTF8_ENCODING);
    const size_t n_mark = mark_bytes(text, bytes);
    yaml_parser_set_input_string(&out->parser, (const unsigned char *)text + n_mark,
                                 bytes - n_mark);
    return STRAIT_OK;
}

void strait_yaml_close(strait_yaml_reader *r) {
    yaml_event_delete(&r->event);
    yaml_parser_delete(&r->parser);
}
