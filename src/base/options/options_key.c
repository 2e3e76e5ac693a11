#include "base/names.h"
#include "base/options/options_internal.h"

#include <string.h>

const strait_option *strait_options_find(const strait_options *table, const char *key) {
    for (int i = 0; i < table->n_rows; i++)
        if (strcmp(table->rows[i].key, key) == 0) return &table->rows[i];
    return NULL;
}

/* Sections have no rows of their own: a key is a section if another key starts with it. */
const strait_option *strait_option_section(const strait_options *table, const char *key) {
    const size_t length = strlen(key);
    for (int i = 0; i < table->n_rows; i++) {
        const char *known = table->rows[i].key;
        if (strncmp(known, key, length) == 0 && known[length] == '.') return &table->rows[i];
    }
    return NULL;
}

/* Considers the first `length` letters of a known key. The right last word in a wrong section
 * counts as one wrong letter. */
static void offer(strait_nearest *nearest, const char *known, size_t length) {
    const char *known_dot = strrchr(known, '.');
    const char *key_dot = strrchr(nearest->word, '.');
    const char *key_word = key_dot != NULL ? key_dot + 1 : nearest->word;
    if (known[length] == '\0' && known_dot != NULL && strcmp(known_dot + 1, key_word) == 0)
        strait_names_offer(nearest, known, length, 1);
    else
        strait_names_try(nearest, known, length);
}

const char *strait_options_nearest(const strait_options *table, const char *key,
                                   size_t *out_length) {
    const size_t length = strlen(key);
    strait_nearest nearest = strait_names_nearest(
        key, length < STRAIT_NAMES_MAX ? (int)length / 3 + 1 : -1);
    for (int i = 0; i < table->n_rows; i++) {
        const char *known = table->rows[i].key;
        /* Each prefix that ends at a dot is a section and may be what was meant. */
        for (const char *end = known; *end != '\0';) {
            end += strcspn(end + 1, ".") + 1;
            offer(&nearest, known, (size_t)(end - known));
        }
    }
    *out_length = nearest.length;
    return nearest.name;
}

/* Old keys are refused with their new name rather than accepted: run files stay in one language. */
const char *strait_options_renamed(const strait_options *table, const char *old_key) {
    for (int i = 0; i < table->n_renames; i++)
        if (strcmp(table->renames[i].old_key, old_key) == 0) return table->renames[i].key;
    return NULL;
}

/* Old names are looked up first, since the nearest name may be a different option. */
strait_err strait_options_unknown(const strait_options *table, const char *key) {
    char quote[STRAIT_OPTION_QUOTE];
    size_t length = 0;
    const char *renamed = strait_options_renamed(table, key);
    if (renamed != NULL) return STRAIT_FAIL(STRAIT_ECONFIG, "%s was renamed: use %s", key, renamed);
    const char *nearest = strait_options_nearest(table, key, &length);
    (void)strait_option_quote(key, quote);
    if (nearest == NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "unknown key %s; \"strait options\" lists all", quote);
    if (strncmp(key, nearest, length) == 0 && key[length] == '.') // right section, no key of it
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "unknown key %s; \"strait options %.*s\" lists those of %.*s", quote,
                           (int)length, nearest, (int)length, nearest);
    return STRAIT_FAIL(STRAIT_ECONFIG, "unknown key %s; did you mean %.*s?", quote, (int)length,
                       nearest);
}
