/* read.c - helpers of the functions that read sections of tokenizer.json. */
#include "data/tokenizer/internal.h"

#include <string.h>

/* Unknown keys are refused, because one that is ignored could silently change ids. */
strait_err strait_read_check_keys(const json_t *object, const char *where,
                                  const char *const *known) {
    if (!json_is_object(object)) return STRAIT_FAIL(STRAIT_EDATA, "\"%s\" is not an object", where);
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        const char *const *name = known;
        while (*name != NULL && strcmp(*name, key) != 0)
            name++;
        if (*name == NULL)
            return STRAIT_FAIL(STRAIT_EDATA, "\"%s\" has a key \"%.60s\" that is not supported",
                               where, key);
    }
    return STRAIT_OK;
}

/* null counts as missing: some files write every key. */
strait_err strait_read_flag(const json_t *object, const char *key, int fallback, int *out) {
    const json_t *value = json_object_get(object, key);
    if (value == NULL || json_is_null(value)) {
        *out = fallback;
        return STRAIT_OK;
    }
    if (!json_is_boolean(value))
        return STRAIT_FAIL(STRAIT_EDATA, "\"%s\" is not true or false", key);
    *out = json_is_true(value);
    return STRAIT_OK;
}

strait_err strait_read_type(const json_t *object, const char *where, const char **out) {
    if (!json_is_object(object)) return STRAIT_FAIL(STRAIT_EDATA, "\"%s\" is not an object", where);
    const strait_err err = strait_json_string(object, "type", out);
    if (err != STRAIT_OK) strait_err_prefix("\"%s\"", where);
    return err;
}

/* JSON text may contain zeros, so its length is taken from the document. */
strait_err strait_read_text(const json_t *object, const char *key, strait_buffer *out) {
    const char *text = NULL;
    STRAIT_TRY(strait_json_string(object, key, &text));
    out->n = 0;
    return strait_buffer_append(out, text, json_string_length(json_object_get(object, key)));
}

/* The source is kept beside the compiled pattern, since it is part of the fingerprint. */
strait_err strait_read_pattern(const json_t *object, strait_text_step *step) {
    static const char *const known[] = {"String", "Regex", NULL};
    const json_t *pattern = json_object_get(object, "pattern");
    STRAIT_TRY(strait_read_check_keys(pattern, "pattern", known));
    const int is_regex = json_object_get(pattern, "Regex") != NULL;
    STRAIT_TRY(strait_read_text(pattern, is_regex ? "Regex" : "String", &step->find));
    if (!is_regex) return STRAIT_OK;
    return strait_pattern_open((const char *)step->find.data, step->find.n, &step->pattern);
}
