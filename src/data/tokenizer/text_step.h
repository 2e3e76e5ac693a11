/* step.h - the steps by which a tokenizer file turns text into words.
 *
 * Normalizers and pre-tokenizers of the file are made of five kinds: the reader takes them apart
 * (a ByteLevel pre-tokenizer, say, is a PREFIX and a SPLIT). */
#pragma once

#include "base/error.h"
#include "data/buffer.h"
#include "data/tokenizer/normalize.h"
#include "data/tokenizer/pattern.h"

#include <stddef.h>

typedef enum strait_text_step_kind {
    STRAIT_TEXT_STEP_SPLIT,     // cut into pieces; the only kind that makes several out of one
    STRAIT_TEXT_STEP_PREFIX,    // put `content` before text that does not start with it
    STRAIT_TEXT_STEP_PREPEND,   // put `content` before any text
    STRAIT_TEXT_STEP_REPLACE,   // `content` in place of every match
    STRAIT_TEXT_STEP_NORMALIZE, // Unicode form
} strait_text_step_kind;

/* What becomes of the matches of a split. */
typedef enum strait_split {
    STRAIT_SPLIT_ISOLATED,
    STRAIT_SPLIT_REMOVED,
    STRAIT_SPLIT_WITH_PREVIOUS,
    STRAIT_SPLIT_WITH_NEXT,
    STRAIT_SPLIT_CONTIGUOUS,
} strait_split;

typedef struct strait_text_step {
    strait_text_step_kind kind;
    struct strait_pattern *pattern; // SPLIT, REPLACE; NULL: `find` is literal
    strait_buffer find;             // source of the pattern, or the literal
    strait_buffer content;          // PREFIX, PREPEND, REPLACE
    strait_split split;
    strait_form form;
    int is_inverted;   // SPLIT: the gaps are the matches
    int is_start_only; // PREFIX: only at the start of the text
} strait_text_step;

void strait_text_step_fini(strait_text_step *step); // accepts a zeroed step

/* Memory that one thread reuses between calls. */
struct strait_text_step_scratch {
    struct strait_matcher *matcher;
    strait_ids codepoints;
};

/* Replaces *out by the text after a step that is not a SPLIT. */
strait_err strait_text_step_transform(const strait_text_step *step,
                                      struct strait_text_step_scratch *scratch,
                                      const unsigned char *text, size_t n, int is_start,
                                      strait_buffer *out);

typedef strait_err (*strait_text_step_emit)(void *arg, const unsigned char *piece, size_t n);

/* Calls emit for every piece that is not empty, in order. */
strait_err strait_text_step_split(const strait_text_step *step,
                                  struct strait_text_step_scratch *scratch,
                                  const unsigned char *text, size_t n, strait_text_step_emit emit,
                                  void *arg);
