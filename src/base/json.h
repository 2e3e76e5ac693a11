/* json.h - JSON documents through jansson, with our errors.
 *
 * Readers name the key that is missing or of the wrong kind. A document is a json_t that the
 * caller releases with json_decref. */
#pragma once

#include "base/error.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* Parses `path`; syntax errors come with line and column. Files over `limit` bytes are refused. */
strait_err strait_json_load(const char *path, size_t limit, json_t **out);
strait_err strait_json_parse(const char *text, size_t bytes, json_t **out);

/* Replaces `path` with the document, in one move, keys in the order they were set. */
strait_err strait_json_replace(const char *path, const json_t *document);

/* Members of an object. Strings are borrowed from the document. */
strait_err strait_json_string(const json_t *object, const char *key, const char **out);
strait_err strait_json_int(const json_t *object, const char *key, int64_t *out);
strait_err strait_json_array(const json_t *object, const char *key, const json_t **out);
strait_err strait_json_object(const json_t *object, const char *key, const json_t **out);
