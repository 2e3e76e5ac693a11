/* names.h - names that people type: the known one they probably meant, and all of them in words.
 *
 *     strait_nearest nearest = strait_names_nearest(word, strait_names_slips(word));
 *     for (int i = 0; i < n; i++)
 *         strait_names_try(&nearest, known[i], strlen(known[i]));
 *     if (nearest.name != NULL) ... "did you mean %s?"
 *
 * Nothing allocates; names are lent. */
#pragma once

#include <stddef.h>

enum {
    STRAIT_NAMES_MAX = 64 // letters; longer names have no neighbours
};

/* The best so far. */
typedef struct strait_nearest {
    const char *word;
    const char *name; // NULL: none is near enough
    size_t length;    // of the name that counts: all of it, or how it begins
    int slips;        // those that one more must stay below
} strait_nearest;

/* By how many letters a word such as a command may miss the one that was meant: 2, of three letters
 * 1, of one letter none. */
int strait_names_slips(const char *word);

/* Begins a search for what is at most `slips` away from `word`. */
strait_nearest strait_names_nearest(const char *word, int slips);

/* One more known name, or how it begins; it counts if it is nearer than those before. The slips are
 * letters to add, drop or change to make one word of the other. */
void strait_names_try(strait_nearest *nearest, const char *name, size_t length);

/* The same, where the caller knows how far it is. */
void strait_names_offer(strait_nearest *nearest, const char *name, size_t length, int slips);

/* Appends to the text in `out`, which begins empty: "cpu", then ", cuda", or " or cuda" for the
 * last. What does not fit is left out. */
void strait_names_list(char *out, size_t capacity, const char *name, int is_last);
