#include "base/names.h"

#include <stdio.h>
#include <string.h>

static int least(int a, int b, int c) {
    const int ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Levenshtein distance with one row of the table. */
static int distance(const char *a, const char *b, size_t b_length) {
    int row[STRAIT_NAMES_MAX + 1];
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

/* A short word is within two edits of almost everything, and a suggestion would be noise. */
int strait_names_max_edits(const char *word) {
    const size_t length = strlen(word);
    return length < 2 ? -1 : length < 4 ? 1 : 2;
}

strait_nearest strait_names_nearest(const char *word, int n_edits) {
    return (strait_nearest){.word = word, .n_edits = n_edits + 1};
}

/* The first of equally near names wins, so that the order of a table decides. */
void strait_names_offer(strait_nearest *nearest, const char *name, size_t length, int n_edits) {
    if (n_edits >= nearest->n_edits) return;
    nearest->name = name;
    nearest->length = length;
    nearest->n_edits = n_edits;
}

/* The longest names are not compared; the row of the table has a fixed size. */
void strait_names_try(strait_nearest *nearest, const char *name, size_t length) {
    if (length > STRAIT_NAMES_MAX || strlen(nearest->word) > STRAIT_NAMES_MAX) return;
    strait_names_offer(nearest, name, length, distance(nearest->word, name, length));
}

/* Builds "a, b or c" in place, one name per call. */
void strait_names_list(char *out, size_t capacity, const char *name, int is_last) {
    const size_t used = strlen(out);
    const char *before = used == 0 ? "" : is_last ? " or " : ", ";
    (void)snprintf(out + used, capacity - used, "%s%s", before, name);
}
