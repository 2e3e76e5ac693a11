/* line_split.c - proof that splitting a text after a line does not change an id.
 *
 * strait_text_find_split splits a text after a line feed that follows a visible ASCII character and
 * precedes another. For the patterns below:
 *
 * - no alternative matches across the split: one that matches a line feed can continue only with
 *   white space, and the next character is not white space;
 * - no alternative has a lookbehind, so matches after the split do not depend on the text before;
 * - the only lookahead, \s+(?!\S), reaches the split only with the single line feed before it, and
 *   there the alternative \s+, or an earlier one, matches the same.
 *
 * Unicode composition does not reach across a line feed. Added tokens must not contain a line feed
 * and must not strip or examine adjacent white space. For all other tokenizers the function returns
 * 0, and their documents are not split. */
#include "data/tokenizer/internal.h"

#include <string.h>

static int is_known_pattern(const strait_text_step *step) {
    const char *const known[] = {strait_pattern_gpt2, strait_pattern_llama3, strait_pattern_qwen2};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (step->find.n == strlen(known[i]) &&
            memcmp(step->find.data, known[i], step->find.n) == 0)
            return 1;
    return 0;
}

int strait_line_split_is_safe(const struct strait_tokenizer *t) {
    for (int i = 0; i < t->normalizers.n; i++)
        if (t->normalizers.items[i].kind != STRAIT_TEXT_STEP_NORMALIZE) return 0;
    if (t->pre_tokenizers.n != 1) return 0;
    const strait_text_step *step = &t->pre_tokenizers.items[0];
    if (step->kind != STRAIT_TEXT_STEP_SPLIT || step->split != STRAIT_SPLIT_ISOLATED ||
        step->is_inverted || step->pattern == NULL || !is_known_pattern(step))
        return 0;
    for (size_t i = 0; i < t->n_added; i++) {
        const strait_added *added = &t->added[i];
        if (added->is_single_word || added->strips_left || added->strips_right) return 0;
        if (memchr(added->content.data, '\n', added->content.n) != NULL) return 0;
    }
    return 1;
}
