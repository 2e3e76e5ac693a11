/* json.h - reading and writing JSON through jansson, with errors of this library.
 *
 * An error names the key that is missing or has the wrong type. A document is a json_t, which the
 * caller releases with json_decref. */
#pragma once

#include "base/error.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* Parses a file. STRAIT_EDATA: it has more than `limit` bytes, or a syntax error, which is reported
 * with line and column. */
strait_err strait_json_load(const char *path, size_t limit, json_t **out);
strait_err strait_json_parse(const char *text, size_t bytes, json_t **out);

/* The same of one line of a file: the error has the column, and the caller adds the line. */
strait_err strait_json_parse_line(const char *text, size_t bytes, json_t **out);

/* Replaces `path` with the document atomically; keys are in insertion order. */
strait_err strait_json_replace(const char *path, const json_t *document);
/* The same without syncing, for a status (strait_file_publish). */
strait_err strait_json_publish(const char *path, const json_t *document);

/* Read members of an object. STRAIT_EDATA: the key is missing or has another type. Strings are
 * borrowed from the document. */
strait_err strait_json_string(const json_t *object, const char *key, const char **out);
strait_err strait_json_int(const json_t *object, const char *key, int64_t *out);
strait_err strait_json_array(const json_t *object, const char *key, const json_t **out);
strait_err strait_json_object(const json_t *object, const char *key, const json_t **out);

/* A string of n bytes of text; bytes that are not UTF-8 become U+FFFD, since JSON has no place for
 * them. NULL: no memory. */
json_t *strait_json_text(const char *text, size_t n);
