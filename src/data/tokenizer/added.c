#include "data/tokenizer/added.h"

#include "base/text/utf8.h"

/* The offset of the character that ends before text[at]. */
static size_t previous_start(const unsigned char *text, size_t at) {
    do {
        at--;
    } while (at > 0 && (text[at] & 0xc0) == 0x80);
    return at;
}

/* The longest added token that text[0..n) starts with, or NULL. */
static const strait_added *longest_at(const struct strait_tokenizer *t, int is_normalized,
                                      const unsigned char *text, size_t n) {
    const strait_added *best = NULL;
    for (size_t i = 0; i < t->n_added; i++) {
        const strait_added *added = &t->added[i];
        const size_t length = added->content.n;
        if (added->is_normalized != is_normalized || length == 0 || length > n) continue;
        if (best != NULL && best->content.n >= length) continue;
        if (memcmp(added->content.data, text, length) == 0) best = added;
    }
    return best;
}

/* Words are those of Unicode, so that an added token is not found inside a word of any script. */
static int is_whole_word(const unsigned char *text, size_t n, size_t start, size_t end) {
    if (start > 0 && strait_utf8_is_word(strait_utf8_decode(text + previous_start(text, start))))
        return 0;
    return end == n || !strait_utf8_is_word(strait_utf8_decode(text + end));
}

/* A table of first bytes skips most positions: texts are long and added tokens rare. */
int strait_added_find(const struct strait_tokenizer *t, int is_normalized,
                      const unsigned char *text, size_t n, size_t from, strait_added_match *out) {
    const unsigned char *starts = t->starts[is_normalized];
    for (size_t at = from; at < n; at++) {
        if (!starts[text[at]]) continue;
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
