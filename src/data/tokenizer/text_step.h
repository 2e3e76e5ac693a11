/* text_step.h - normalisation and pre-tokenisation steps, which turn text into words.
 *
 * The reader of tokenizer.json reduces every normalizer and pre-tokenizer to steps of five kinds: a
 * ByteLevel pre-tokenizer, for example, becomes a PREFIX and a SPLIT. */
#pragma once

#include "base/error.h"
#include "data/buffer.h"
#include "data/tokenizer/normalize.h"
#include "data/tokenizer/pattern.h"

#include <stddef.h>

typedef enum strait_text_step_kind {
    STRAIT_TEXT_STEP_SPLIT,     // split into pieces; all other kinds give one text
    STRAIT_TEXT_STEP_PREFIX,    // put `content` before text that does not start with it
    STRAIT_TEXT_STEP_PREPEND,   // put `content` before any text
    STRAIT_TEXT_STEP_REPLACE,   // replace every match by `content`
    STRAIT_TEXT_STEP_NORMALIZE, // convert to the Unicode normalisation form `form`
} strait_text_step_kind;

/* What happens to the matches of a split ("behavior" in tokenizer.json). */
typedef enum strait_split {
    STRAIT_SPLIT_ISOLATED,      // each is a piece
    STRAIT_SPLIT_REMOVED,       // dropped
    STRAIT_SPLIT_WITH_PREVIOUS, // joined to the text before it
    STRAIT_SPLIT_WITH_NEXT,     // joined to the text after it
    STRAIT_SPLIT_CONTIGUOUS,    // adjacent matches form one piece
} strait_split;

typedef struct strait_text_step {
    strait_text_step_kind kind;
    struct strait_pattern *pattern; // SPLIT, REPLACE; NULL: `find` is literal
    strait_buffer find;             // source of the pattern, or the literal
    strait_buffer content;          // PREFIX, PREPEND, REPLACE
    strait_split split;
    strait_form form;
    int is_inverted;   // SPLIT: the text between matches counts as the match
    int is_start_only; // PREFIX: only at the start of the text
} strait_text_step;

void strait_text_step_fini(strait_text_step *step); // accepts a zeroed step

/* Scratch memory that one thread reuses between calls. */
struct strait_text_step_scratch {
    struct strait_matcher *matcher;
    strait_ids codepoints;
};

/* Applies a step that is not a SPLIT and replaces *out with the result. `is_start` says whether the
 * text is the start of the whole input. STRAIT_EDATA: the pattern failed on this text. */
strait_err strait_text_step_transform(const strait_text_step *step,
                                      struct strait_text_step_scratch *scratch,
                                      const unsigned char *text, size_t n, int is_start,
                                      strait_buffer *out);

/* Receives a piece of n > 0 bytes, valid during the call. */
typedef strait_err (*strait_text_step_emit)(void *arg, const unsigned char *piece, size_t n);

/* Applies a SPLIT: calls `emit` for every non-empty piece, in order, and returns its first error.
 */
strait_err strait_text_step_split(const strait_text_step *step,
                                  struct strait_text_step_scratch *scratch,
                                  const unsigned char *text, size_t n, strait_text_step_emit emit,
                                  void *arg);
