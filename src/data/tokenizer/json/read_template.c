#include "data/tokenizer/internal.h"

#include <string.h>

/* Appends the ids of a special token of the template. */
static strait_err add_ids(const struct strait_tokenizer *t, const json_t *specials,
                          const json_t *piece, strait_ids *out) {
    const char *name = NULL;
    const json_t *special = NULL;
    const json_t *ids = NULL;
    STRAIT_TRY(strait_json_string(piece, "id", &name));
    STRAIT_TRY(strait_json_object(specials, name, &special));
    STRAIT_TRY(strait_json_array(special, "ids", &ids));
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *item = json_array_get(ids, i);
        const int64_t id = json_is_integer(item) ? json_integer_value(item) : -1;
        if (id < 0 || (size_t)id >= t->vocab.n_ids)
            return STRAIT_FAIL(STRAIT_EDATA, "\"%.60s\" has an id outside the vocabulary", name);
        const int32_t narrow = (int32_t)id;
        STRAIT_TRY(strait_ids_append(out, &narrow, 1));
    }
    return STRAIT_OK;
}

/* Reads the template for a single text: special tokens before and after the sequence. The template
 * for pairs of texts is not used. */
static strait_err read_template(struct strait_tokenizer *t, const json_t *object) {
    /* Some files keep three keys of ByteLevel here; they have no meaning for a template. */
    static const char *const known[] = {
        "type",      "single",           "pair", "special_tokens", "trim_offsets",
        "use_regex", "add_prefix_space", NULL};
    const json_t *single = NULL;
    const json_t *specials = NULL;
    int is_after = 0;
    STRAIT_TRY(strait_read_check_keys(object, "post_processor", known));
    STRAIT_TRY(strait_json_array(object, "single", &single));
    STRAIT_TRY(strait_json_object(object, "special_tokens", &specials));
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i);
        const json_t *special = json_object_get(item, "SpecialToken");
        if (special != NULL)
            STRAIT_TRY(add_ids(t, specials, special, is_after ? &t->after : &t->before));
        else if (json_object_get(item, "Sequence") != NULL)
            is_after = 1;
        else
            return STRAIT_FAIL(STRAIT_EDATA,
                               "\"single\": item %zu is neither SpecialToken nor Sequence", i);
    }
    return STRAIT_OK;
}

/* The depth is bounded, since the file decides how deep this recursion goes. */
static strait_err read_one(struct strait_tokenizer *t, const json_t *object, int depth) {
    const char *type = NULL;
    STRAIT_TRY(strait_read_type(object, "post_processor", &type));
    if (strcmp(type, "ByteLevel") == 0) return STRAIT_OK; // affects offsets only
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(t, object);
    if (strcmp(type, "Sequence") != 0 || depth > 8)
        return STRAIT_FAIL(STRAIT_EDATA, "type \"%.60s\" is not supported", type);
    const json_t *list = NULL;
    STRAIT_TRY(strait_json_array(object, "processors", &list));
    for (size_t i = 0; i < json_array_size(list); i++)
        STRAIT_TRY(read_one(t, json_array_get(list, i), depth + 1));
    return STRAIT_OK;
}

/* Without a template nothing is put around a text. */
strait_err strait_read_template(struct strait_tokenizer *t, const json_t *document) {
    const json_t *object = json_object_get(document, "post_processor");
    if (object == NULL || json_is_null(object)) return STRAIT_OK;
    const strait_err err = read_one(t, object, 0);
    if (err != STRAIT_OK) strait_err_prefix("\"post_processor\"");
    return err;
}
