#include "data/tokenizer/text_step.h"

#include "base/alloc.h"
#include "base/text/utf8.h"

void strait_text_step_fini(strait_text_step *step) {
    strait_pattern_close(&step->pattern);
    strait_alloc_free(step->find.data);
    strait_alloc_free(step->content.data);
    *step = (strait_text_step){0};
}

/* The first occurrence of a literal in text[from..n). An empty literal never matches. */
static strait_match find_literal(const strait_buffer *find, const unsigned char *text, size_t n,
                                 size_t from) {
    while (find->n > 0 && n - from >= find->n) {
        const unsigned char *at = memchr(text + from, find->data[0], n - from - find->n + 1);
        if (at == NULL) break;
        from = (size_t)(at - text);
        if (memcmp(at, find->data, find->n) == 0) return (strait_match){from, from + find->n};
        from++;
    }
    return (strait_match){SIZE_MAX, SIZE_MAX};
}

/* The first match of the step's pattern or literal at or after `from`. */
static strait_err find_next(const strait_text_step *step, struct strait_text_step_scratch *scratch,
                            const unsigned char *text, size_t n, size_t from, strait_match *out) {
    if (from > n) {
        *out = (strait_match){SIZE_MAX, SIZE_MAX};
        return STRAIT_OK;
    }
    if (step->pattern != NULL)
        return strait_pattern_find(step->pattern, scratch->matcher, text, n, from, out);
    *out = find_literal(&step->find, text, n, from);
    return STRAIT_OK;
}

/* The offset to search from after a match: its end, and one character further if it was empty, so
 * that the search advances. */
static size_t search_start_after(strait_match match, const unsigned char *text, size_t n) {
    if (match.end > match.start) return match.end;
    return match.end + (match.end < n ? strait_utf8_length(text + match.end, n - match.end) : 1);
}

/* An empty match replaces nothing but inserts, as in Hugging Face. */
static strait_err replace(const strait_text_step *step, struct strait_text_step_scratch *scratch,
                          const unsigned char *text, size_t n, strait_buffer *out) {
    size_t copied = 0;
    for (size_t from = 0;;) {
        strait_match match;
        STRAIT_TRY(find_next(step, scratch, text, n, from, &match));
        if (match.start == SIZE_MAX) break;
        STRAIT_TRY(strait_buffer_append(out, text + copied, match.start - copied));
        STRAIT_TRY(strait_buffer_append(out, step->content.data, step->content.n));
        copied = match.end;
        from = search_start_after(match, text, n);
    }
    return strait_buffer_append(out, text + copied, n - copied);
}

/* A prefix is added only where the text does not have it already. */
static int starts_with(const unsigned char *text, size_t n, const strait_buffer *start) {
    return n >= start->n && memcmp(text, start->data, start->n) == 0;
}

strait_err strait_text_step_transform(const strait_text_step *step,
                                      struct strait_text_step_scratch *scratch,
                                      const unsigned char *text, size_t n, int is_start,
                                      strait_buffer *out) {
    out->n = 0;
    if (n == 0) return strait_buffer_append(out, NULL, 0);
    switch (step->kind) {
    case STRAIT_TEXT_STEP_NORMALIZE:
        return strait_normalize(step->form, text, n, &scratch->codepoints, out);
    case STRAIT_TEXT_STEP_REPLACE: return replace(step, scratch, text, n, out);
    case STRAIT_TEXT_STEP_PREFIX:
        if ((step->is_start_only && !is_start) || starts_with(text, n, &step->content)) break;
        STRAIT_TRY(strait_buffer_append(out, step->content.data, step->content.n));
        break;
    case STRAIT_TEXT_STEP_PREPEND:
        STRAIT_TRY(strait_buffer_append(out, step->content.data, step->content.n));
        break;
    case STRAIT_TEXT_STEP_SPLIT: break;
    }
    return strait_buffer_append(out, text, n);
}

/* Joins segments (matches and the text between them) into pieces as the split behaviour says. */
struct joiner {
    strait_split split;
    const unsigned char *text;
    size_t start, end; // the current piece; may be empty
    int was_match;     // whether the last segment was a match
    strait_text_step_emit emit;
    void *arg;
};

/* Emits the current piece, unless it is empty. */
static strait_err flush(struct joiner *j) {
    const size_t start = j->start;
    const size_t end = j->end;
    j->start = j->end;
    return end > start ? j->emit(j->arg, j->text + start, end - start) : STRAIT_OK;
}

/* Whether a segment is joined to the current piece, which ends where the segment starts. */
static int joins(const struct joiner *j, int is_match) {
    switch (j->split) {
    case STRAIT_SPLIT_CONTIGUOUS: return is_match == j->was_match;
    case STRAIT_SPLIT_WITH_PREVIOUS: return is_match && !j->was_match;
    case STRAIT_SPLIT_WITH_NEXT: return !is_match && j->was_match;
    case STRAIT_SPLIT_ISOLATED:
    case STRAIT_SPLIT_REMOVED: break;
    }
    return 0;
}

/* An empty segment changes nothing, not even whether the last one was a match. */
static strait_err add_segment(struct joiner *j, size_t start, size_t end, int is_match) {
    if (start == end) return STRAIT_OK;
    if (j->start < j->end && joins(j, is_match)) {
        j->end = end;
    } else {
        STRAIT_TRY(flush(j));
        j->start = start;
        j->end = is_match && j->split == STRAIT_SPLIT_REMOVED ? start : end;
    }
    j->was_match = is_match;
    return STRAIT_OK;
}

strait_err strait_text_step_split(const strait_text_step *step,
                                  struct strait_text_step_scratch *scratch,
                                  const unsigned char *text, size_t n, strait_text_step_emit emit,
                                  void *arg) {
    struct joiner j = {.split = step->split, .text = text, .emit = emit, .arg = arg};
    size_t done = 0;
    for (size_t from = 0;;) {
        strait_match match;
        STRAIT_TRY(find_next(step, scratch, text, n, from, &match));
        if (match.start == SIZE_MAX) break;
        STRAIT_TRY(add_segment(&j, done, match.start, step->is_inverted));
        STRAIT_TRY(add_segment(&j, match.start, match.end, !step->is_inverted));
        done = match.end;
        from = search_start_after(match, text, n);
    }
    STRAIT_TRY(add_segment(&j, done, n, step->is_inverted));
    return flush(&j);
}
