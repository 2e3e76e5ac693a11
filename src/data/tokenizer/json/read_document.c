#include "base/alloc.h"
#include "data/tokenizer/internal.h"

#include <string.h>

static const char nul_key[] = "\"\\u0000\"";
static const char mark_key[] = "\"\\uffff\"";

/* The first occurrence of `word` in [at, end), or NULL. The text may contain zeros. */
static const char *find(const char *at, const char *end, const char *word) {
    const size_t n = strlen(word);
    while ((size_t)(end - at) >= n) {
        at = memchr(at, word[0], (size_t)(end - at) - n + 1);
        if (at == NULL || memcmp(at, word, n) == 0) return at;
        at++;
    }
    return NULL;
}

/* Whether U+FFFF is in the text already, escaped or not: then it cannot stand for something else.
 * An escaped backslash before "uffff" counts, too: that is harmless, and no known file has it. */
static int has_mark(const char *text, const char *end) {
    return find(text, end, STRAIT_NUL_MARK) != NULL || find(text, end, "\\uffff") != NULL ||
           find(text, end, "\\uFFFF") != NULL;
}

/* The key "\u0000", or NULL. A value does not count: a colon follows a key. */
static const char *find_key(const char *text, const char *end) {
    for (const char *at = text; (at = find(at, end, nul_key)) != NULL; at++) {
        const char *after = at + sizeof nul_key - 1;
        while (after < end && (*after == ' ' || (*after >= '\t' && *after <= '\r')))
            after++;
        if (after < end && *after == ':' && (at == text || at[-1] != '\\')) return at;
    }
    return NULL;
}

strait_err strait_read_document(const char *text, size_t bytes, json_t **out, int *has_nul) {
    const char *key = find_key(text, text + bytes);
    *has_nul = 0;
    if (key == NULL || has_mark(text, text + bytes)) return strait_json_parse(text, bytes, out);
    char *copy = NULL;
    STRAIT_TRY(strait_alloc(bytes, 1, "tokenizer.json", (void **)&copy));
    memcpy(copy, text, bytes);
    memcpy(copy + (key - text), mark_key, sizeof mark_key - 1); // of the same length
    const strait_err err = strait_json_parse(copy, bytes, out);
    strait_alloc_free(copy);
    *has_nul = err == STRAIT_OK;
    return err;
}
