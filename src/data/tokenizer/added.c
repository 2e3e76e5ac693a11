#include "data/tokenizer/added.h"

#include "base/alloc.h"
#include "base/text/utf8.h"

#include <stdlib.h>
#include <string.h>

/* The offset of the character that ends before text[at]. */
static size_t previous_start(const unsigned char *text, size_t at) {
    do {
        at--;
    } while (at > 0 && (text[at] & 0xc0) == 0x80);
    return at;
}

/* By kind, then by bytes. Of equal ones the first in the file comes first, which the encoder takes.
 */
static int compare(const void *left, const void *right) {
    const strait_added *a = *(const strait_added *const *)left;
    const strait_added *b = *(const strait_added *const *)right;
    const size_t n = a->content.n < b->content.n ? a->content.n : b->content.n;
    if (a->is_normalized != b->is_normalized) return a->is_normalized - b->is_normalized;
    const int order = memcmp(a->content.data, b->content.data, n);
    if (order != 0) return order;
    if (a->content.n != b->content.n) return a->content.n < b->content.n ? -1 : 1;
    return a < b ? -1 : a > b;
}

strait_err strait_added_sort(struct strait_tokenizer *t) {
    size_t n = 0;
    STRAIT_TRY(strait_alloc(t->n_added, sizeof *t->sorted_added, "added tokens",
                            (void **)&t->sorted_added));
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].content.n > 0) t->sorted_added[n++] = &t->added[i];
    if (n > 0) qsort((void *)t->sorted_added, n, sizeof *t->sorted_added, compare);
    for (size_t i = n; i-- > 0;) {
        const strait_added *added = t->sorted_added[i];
        strait_added_range *range = &t->starts[added->is_normalized][added->content.data[0]];
        if (range->end == 0) range->end = i + 1;
        range->first = i;
    }
    return STRAIT_OK;
}

/* The first token of a range whose byte at `depth` is at least `byte`. All have such a byte. */
static size_t first_from(const struct strait_tokenizer *t, strait_added_range range, size_t depth,
                         unsigned byte) {
    while (range.first < range.end) {
        const size_t middle = range.first + (range.end - range.first) / 2;
        if (t->sorted_added[middle]->content.data[depth] < byte)
            range.first = middle + 1;
        else
            range.end = middle;
    }
    return range.first;
}

/* The longest added token that text[0..n) starts with, or NULL. The range of those that agree with
 * the text shrinks byte by byte, since thousands of tokens may start alike. */
static const strait_added *longest_at(const struct strait_tokenizer *t, int is_normalized,
                                      const unsigned char *text, size_t n) {
    strait_added_range range = t->starts[is_normalized][text[0]];
    const strait_added *best = NULL;
    for (size_t depth = 1; range.first < range.end; depth++) {
        if (t->sorted_added[range.first]->content.n == depth) best = t->sorted_added[range.first];
        while (range.first < range.end && t->sorted_added[range.first]->content.n == depth)
            range.first++;
        if (depth == n) break;
        const size_t first = first_from(t, range, depth, text[depth]);
        range.end = first_from(t, range, depth, text[depth] + 1u);
        range.first = first;
    }
    return best;
}

/* Words are those of Unicode, so that an added token is not found inside a word of any script. */
static int is_whole_word(const unsigned char *text, size_t n, size_t start, size_t end) {
    if (start > 0 && strait_utf8_is_word(strait_utf8_decode(text + previous_start(text, start))))
        return 0;
    return end == n || !strait_utf8_is_word(strait_utf8_decode(text + end));
}

/* Most positions have a byte with which no added token starts. */
int strait_added_find(const struct strait_tokenizer *t, int is_normalized,
                      const unsigned char *text, size_t n, size_t from, strait_added_match *out) {
    for (size_t at = from; at < n; at++) {
        const strait_added *added = longest_at(t, is_normalized, text + at, n - at);
        if (added == NULL) continue;
        size_t start = at;
        size_t end = at + added->content.n;
        if (added->is_single_word && !is_whole_word(text, n, start, end)) {
            at = end - 1; // as in Hugging Face: no match may start inside a rejected one
            continue;
        }
        while (added->strips_left && start > from &&
               strait_utf8_is_space(strait_utf8_decode(text + previous_start(text, start))))
            start = previous_start(text, start);
        while (added->strips_right && end < n &&
               strait_utf8_is_space(strait_utf8_decode(text + end)))
            end += strait_utf8_length(text + end, n - end);
        *out = (strait_added_match){start, end, at, at + added->content.n, added->id};
        return 1;
    }
    return 0;
}
