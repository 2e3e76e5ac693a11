/* names.h - suggestions for mistyped names ("did you mean ...?") and lists of names in messages.
 *
 *     strait_nearest nearest = strait_names_nearest(word, strait_names_max_edits(word));
 *     for (int i = 0; i < n; i++)
 *         strait_names_try(&nearest, known[i], strlen(known[i]));
 *     if (nearest.name != NULL) ... "did you mean %s?"
 *
 * Nothing allocates; names are borrowed. */
#pragma once

#include <stddef.h>

enum {
    STRAIT_NAMES_MAX = 64 // longest name that is compared, in letters
};

/* The nearest known name found so far. */
typedef struct strait_nearest {
    const char *word;
    const char *name; // NULL: no name is near enough
    size_t length;    // how much of the name was compared: all of it, or a prefix
    int n_edits;      // the edit distance that the next name must stay below
} strait_nearest;

/* The edit distance at which a word still counts as a misspelling: 2; 1 for words of up to three
 * letters; 0 for one letter. */
int strait_names_max_edits(const char *word);

/* Begins a search for names within edit distance `n_edits` of `word`. */
strait_nearest strait_names_nearest(const char *word, int n_edits);

/* Considers one more known name, or a prefix of it; it is kept if it is nearer than all before. The
 * distance counts letters to insert, delete or replace. */
void strait_names_try(strait_nearest *nearest, const char *name, size_t length);

/* The same for a caller that has computed the distance itself. */
void strait_names_offer(strait_nearest *nearest, const char *name, size_t length, int n_edits);

/* Appends a name to the list in `out`, which starts empty: "cpu", then ", cuda", or " or cuda" for
 * the last. A name that does not fit is omitted. */
void strait_names_list(char *out, size_t capacity, const char *name, int is_last);
