#include "base/options_parts.h"

#include <stdio.h>
#include <string.h>

enum {
    KEY_MAX = 64 // longer keys have no neighbours
};

const strait_option *strait_options_find(const strait_options *table, const char *key) {
    for (int i = 0; i < table->n_rows; i++)
        if (strcmp(table->rows[i].key, key) == 0) return &table->rows[i];
    return NULL;
}

const strait_option *strait_option_section(const strait_options *table, const char *key) {
    const size_t length = strlen(key);
    for (int i = 0; i < table->n_rows; i++) {
        const char *known = table->rows[i].key;
        if (strncmp(known, key, length) == 0 && known[length] == '.') return &table->rows[i];
    }
    return NULL;
}

static int least(int a, int b, int c) {
    const int ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* How many letters to add, drop or change to make one word of the other. */
static int distance(const char *a, const char *b, size_t b_length) {
    int row[KEY_MAX + 1];
    for (size_t j = 0; j <= b_length; j++)
        row[j] = (int)j;
    for (size_t i = 0; a[i] != '\0'; i++) {
        int diagonal = row[0];
        row[0] = (int)i + 1;
        for (size_t j = 0; j < b_length; j++) {
            const int above = row[j + 1];
            row[j + 1] = least(above + 1, row[j] + 1, diagonal + (a[i] != b[j]));
            diagonal = above;
        }
    }
    return row[b_length];
}

int strait_options_distance(const char *word, const char *known) {
    const size_t length = strlen(known);
    return length > KEY_MAX ? KEY_MAX : distance(word, known, length);
}

/* How far `key` is from the first `length` letters of a known one. The right last word in the
 * wrong section is as good as one slip. */
static int score(const char *key, const char *known, size_t length) {
    const char *known_dot = strrchr(known, '.');
    const char *key_dot = strrchr(key, '.');
    const char *key_word = key_dot != NULL ? key_dot + 1 : key;
    if (known[length] == '\0' && known_dot != NULL && strcmp(known_dot + 1, key_word) == 0)
        return 1;
    return length > KEY_MAX ? KEY_MAX : distance(key, known, length);
}

strait_err strait_option_unknown(const strait_options *table, const char *key) {
    char quote[STRAIT_OPTION_QUOTE];
    (void)strait_option_quote(key, quote);
    const char *best = NULL;
    size_t best_length = 0;
    const size_t length = strlen(key);
    int best_score = length < KEY_MAX ? (int)length / 3 + 2 : 0;
    for (int i = 0; i < table->n_rows; i++) {
        const char *known = table->rows[i].key;
        for (const char *end = known; *end != '\0';) {
            end += strcspn(end + 1, ".") + 1;
            const int here = best_score > 0 ? score(key, known, (size_t)(end - known)) : 0;
            if (here >= best_score) continue;
            best = known;
            best_length = (size_t)(end - known);
            best_score = here;
        }
    }
    if (best == NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "unknown key %s; \"strait options\" lists all", quote);
    return STRAIT_FAIL(STRAIT_ECONFIG, "unknown key %s; did you mean %.*s?", quote,
                       (int)best_length, best);
}
