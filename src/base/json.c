#include "base/json.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/text/utf8.h"

#include <stdlib.h>
#include <string.h>

/* A key that occurs twice is an error: programs disagree on which of them counts. */
static json_t *parse(const char *text, size_t bytes, json_error_t *error) {
    return json_loadb(text, bytes, JSON_REJECT_DUPLICATES, error);
}

/* The parser would say of NUL which of its own flags allows it. */
static const char *reason(const json_error_t *error) {
    return json_error_code(error) == json_error_null_character
               ? "the character NUL (\\u0000) is not supported"
               : error->text;
}

strait_err strait_json_parse(const char *text, size_t bytes, json_t **out) {
    json_error_t error;
    json_t *document = parse(text, bytes, &error);
    if (document == NULL)
        return STRAIT_FAIL(STRAIT_EDATA, "line %d, column %d: %s", error.line, error.column,
                           reason(&error));
    *out = document;
    return STRAIT_OK;
}

strait_err strait_json_parse_line(const char *text, size_t bytes, json_t **out) {
    json_error_t error;
    json_t *document = parse(text, bytes, &error);
    if (document == NULL)
        return STRAIT_FAIL(STRAIT_EDATA, "column %d: %s", error.column, reason(&error));
    *out = document;
    return STRAIT_OK;
}

/* The limit bounds memory for a file that is not what it should be. */
strait_err strait_json_load(const char *path, size_t limit, json_t **out) {
    char *text = NULL;
    size_t bytes = 0;
    STRAIT_TRY(strait_file_read(path, limit, &text, &bytes));
    const strait_err err = strait_json_parse(text, bytes, out);
    if (err != STRAIT_OK) strait_err_prefix("%s", path);
    strait_alloc_free(text);
    return err;
}

typedef strait_err write_fn(const char *path, const void *data, size_t bytes);

/* Indented and in the order of insertion, because people read and compare these files. */
static strait_err write_document(const char *path, const json_t *document, write_fn *write) {
    char *text = json_dumps(document, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    if (text == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "%s: JSON text", path);
    const strait_err err = write(path, text, strlen(text));
    free(text);
    return err;
}

strait_err strait_json_replace(const char *path, const json_t *document) {
    return write_document(path, document, strait_file_replace);
}

strait_err strait_json_publish(const char *path, const json_t *document) {
    return write_document(path, document, strait_file_publish);
}

/* Callers add the file; "missing" and "of another type" have different causes, so they are told
 * apart. */
static strait_err wrong(const json_t *value, const char *key, const char *expected) {
    if (value == NULL) return STRAIT_FAIL(STRAIT_EDATA, "\"%s\" is missing", key);
    return STRAIT_FAIL(STRAIT_EDATA, "\"%s\" is not %s", key, expected);
}

strait_err strait_json_string(const json_t *object, const char *key, const char **out) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value)) return wrong(value, key, "a string");
    *out = json_string_value(value);
    return STRAIT_OK;
}

/* A real number is refused even if it is whole: counts are written as integers. */
strait_err strait_json_int(const json_t *object, const char *key, int64_t *out) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value)) return wrong(value, key, "an integer");
    *out = json_integer_value(value);
    return STRAIT_OK;
}

strait_err strait_json_array(const json_t *object, const char *key, const json_t **out) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_array(value)) return wrong(value, key, "an array");
    *out = value;
    return STRAIT_OK;
}

strait_err strait_json_object(const json_t *object, const char *key, const json_t **out) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_object(value)) return wrong(value, key, "an object");
    *out = value;
    return STRAIT_OK;
}

json_t *strait_json_text(const char *text, size_t n) {
    static const char unknown[] = "\xef\xbf\xbd"; // U+FFFD
    json_t *string = json_stringn(text, n);
    char *clean = NULL;
    size_t n_clean = 0;
    if (string != NULL || strait_alloc(n + 1, 3, "text", (void **)&clean) != STRAIT_OK)
        return string;
    for (size_t i = 0; i < n;) {
        const size_t length = strait_utf8_length((const unsigned char *)text + i, n - i);
        memcpy(clean + n_clean, length > 0 ? text + i : unknown, length > 0 ? length : 3);
        n_clean += length > 0 ? length : 3;
        i += length > 0 ? length : 1;
    }
    string = json_stringn(clean, n_clean);
    strait_alloc_free(clean);
    return string;
}
