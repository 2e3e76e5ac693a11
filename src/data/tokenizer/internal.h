/* parts.h - what a tokenizer is made of; for the files of this folder only. */
#pragma once

#include "base/hash.h"
#include "base/json.h"
#include "data/tokenizer/merges.h"
#include "data/tokenizer/text_step.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocab.h"

#include <stdint.h>

enum {
    STRAIT_TEXT_STEPS_MAX = 32
};

/* A list of steps in the order they are taken. */
typedef struct strait_text_steps {
    strait_text_step items[STRAIT_TEXT_STEPS_MAX];
    int n;
} strait_text_steps;

/* A token that is looked for in the text itself. */
typedef struct strait_added {
    strait_buffer content;
    int32_t id;
    int is_special, is_single_word, strips_left, strips_right;
    int is_normalized; // looked for after normalisation
} strait_added;

struct strait_tokenizer {
    struct strait_vocab vocab;
    struct strait_merges merges;
    size_t n_merges;

    int is_byte_level; // keys are bytes, not characters
    int has_byte_fallback, fuses_unk, ignores_merges;
    int32_t unk;           // -1: none
    int32_t byte_ids[256]; // byte-level: the byte; fallback: "<0x00>" and on; -1: none

    strait_added *added;
    size_t n_added;
    unsigned char starts[2][256]; // [is_normalized]: an added token starts with this byte

    strait_text_steps normalizers, pre_tokenizers;
    int splits_at_metaspace; // no merge joins a character and a U+2581 after it
    int may_cut_lines;

    int n_strip; // decoding leaves out so many spaces at the start
    size_t longest_out;
    strait_ids before, after; // the template's tokens
    char fingerprint[STRAIT_HASH_TEXT];
};

/* Each reads its part of the document into a zeroed tokenizer. STRAIT_EDATA names the key. */
strait_err strait_read_steps(struct strait_tokenizer *t, const json_t *document);
strait_err strait_read_model(struct strait_tokenizer *t, const json_t *document);
strait_err strait_read_added(struct strait_tokenizer *t, const json_t *document);
strait_err strait_read_decoder(struct strait_tokenizer *t, const json_t *document);
strait_err strait_read_template(struct strait_tokenizer *t, const json_t *document);

/* Helpers of the readers. `known` is a list of names ended by NULL. */
strait_err strait_read_check_keys(const json_t *object, const char *where,
                                  const char *const *known);
strait_err strait_read_flag(const json_t *object, const char *key, int fallback, int *out);
strait_err strait_read_type(const json_t *object, const char *where, const char **out);
strait_err strait_read_text(const json_t *object, const char *key, strait_buffer *out);

/* {"String": ...} or {"Regex": ...} into step->find and step->pattern. */
strait_err strait_read_pattern(const json_t *object, strait_text_step *step);

/* Whether the words of this tokenizer provably start anew after a line; see cut.c. */
int strait_line_split_is_safe(const struct strait_tokenizer *t);

/* Split patterns that this program writes or knows well. */
extern const char strait_pattern_gpt2[];
extern const char strait_pattern_llama3[];
extern const char strait_pattern_qwen2[];
