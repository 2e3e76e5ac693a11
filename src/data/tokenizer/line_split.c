/* cut.c - where a text may be cut without changing an id.
 *
 * A text is cut after a line feed that follows a visible ASCII character and comes before another.
 * In the patterns below:
 *
 * - no alternative matches across the cut: what matches a line feed goes on, if at all, with white
 *   space only, and the next character is none;
 * - no alternative looks behind, so what is matched after the cut does not depend on what is
 * before;
 * - the one lookahead, \s+(?!\S), meets the cut only with the single line feed before it, and there
 *   the alternative after it, \s+, or one of those before it, matches the same.
 *
 * Unicode composition does not reach across a line feed. Tokens looked for in the text must not
 * hold a line feed nor swallow or examine white space beside them. Anything else is not cut. */
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
