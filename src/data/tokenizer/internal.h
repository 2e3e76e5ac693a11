/* internal.h - the fields of a tokenizer and the functions that read them from tokenizer.json.
 *
 * Only the files of this folder include it. Encoding runs in this order: added tokens that are
 * matched as written, normalizers, added tokens that are matched after normalisation,
 * pre-tokenizers, and byte-pair encoding of each word. */
#pragma once

#include "base/digest/hash.h"
#include "base/json.h"
#include "data/tokenizer/merges.h"
#include "data/tokenizer/text_step.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocab.h"

#include <stdint.h>

enum {
    STRAIT_TEXT_STEPS_MAX = 32 // per list; real files have at most five
};

/* Steps in the order in which they are applied. */
typedef struct strait_text_steps {
    strait_text_step items[STRAIT_TEXT_STEPS_MAX];
    int n;
} strait_text_steps;

/* A token that is matched in the text itself, before byte-pair encoding. */
typedef struct strait_added {
    strait_buffer content;
    int32_t id;
    int is_special;
    int is_single_word;            // matches only between characters that are not part of a word
    int strips_left, strips_right; // also matches adjacent white space
    int is_normalized;             // matched after normalisation, not before
} strait_added;

/* Sorted added tokens from `first` up to `end`. */
typedef struct strait_added_range {
    size_t first, end;
} strait_added_range;

struct strait_tokenizer {
    struct strait_vocab vocab;
    struct strait_merges merges;
    size_t n_merges; // in the file; unreachable ones are not in `merges`

    int is_byte_level;     // words start as bytes, not as characters
    int has_byte_fallback; // a character without a token becomes its bytes, "<0x00>" and on
    int fuses_unk;         // consecutive unknown characters become one unknown token
    int ignores_merges;    // a word that is a token is not merged
    int has_nul_token;     // "vocab" has the key "\u0000" (strait_read_document)
    int32_t unk;           // the unknown token; -1 if there is none
    int32_t byte_ids[256]; // the token of each byte, for byte level or byte fallback; else -1

    strait_added *added;
    size_t n_added;
    const strait_added **sorted_added; // strait_added_sort; those without a text are left out
    strait_added_range starts[2][256]; // [is_normalized][byte]: those that start with this byte

    strait_text_steps normalizers, pre_tokenizers;
    int splits_at_metaspace; // no merge joins a character with a U+2581 that follows it
    int can_split_lines;     // strait_line_split_is_safe

    int n_strip;              // spaces that decoding removes at the start of a text
    size_t longest_out;       // bytes of the longest decoded token
    strait_ids before, after; // tokens that the post-processor's template puts around a text
    char fingerprint[STRAIT_HASH_TEXT];
};

/* Stands for the key "\u0000" of "vocab" in a parsed document: U+FFFF, which is not a character. */
#define STRAIT_NUL_MARK "\xef\xbf\xbf"

/* Parses the text of a tokenizer.json. The JSON library reads no key with a NUL, but vocabularies
 * of SentencePiece have a token of that one character: its key becomes STRAIT_NUL_MARK, and
 * *has_nul 1. STRAIT_EDATA: a syntax error, with line and column. */
strait_err strait_read_document(const char *text, size_t bytes, json_t **out, int *has_nul);

/* Each reads one section of the document into *t, which was zeroed at first. Call them in this
 * order: the model depends on is_byte_level of the steps, added tokens on the vocabulary and the
 * normalizers. STRAIT_EDATA names the key that is wrong or not supported. */
strait_err strait_read_steps(struct strait_tokenizer *t, const json_t *document);
strait_err strait_read_model(struct strait_tokenizer *t, const json_t *document);
strait_err strait_read_added(struct strait_tokenizer *t, const json_t *document);
strait_err strait_read_decoder(struct strait_tokenizer *t, const json_t *document);
strait_err strait_read_template(struct strait_tokenizer *t, const json_t *document);

/* STRAIT_EDATA if `object` is not an object or has a key that is not in `known`, a list that ends
 * with NULL: a setting that is not implemented must not be ignored. `where` names it in errors. */
strait_err strait_read_check_keys(const json_t *object, const char *where,
                                  const char *const *known);

/* Reads a boolean; `fallback` if the key is absent or null. */
strait_err strait_read_flag(const json_t *object, const char *key, int fallback, int *out);

/* Reads the string "type", borrowed from the object. */
strait_err strait_read_type(const json_t *object, const char *where, const char **out);

/* Replaces *out with the string under `key`. */
strait_err strait_read_text(const json_t *object, const char *key, strait_buffer *out);

/* Reads "pattern": {"String": ...} or {"Regex": ...} into step->find and step->pattern. */
strait_err strait_read_pattern(const json_t *object, strait_text_step *step);

/* Whether a text may be split after a line without changing an id; line_split.c has the proof. */
int strait_line_split_is_safe(const struct strait_tokenizer *t);

/* Split patterns that this program writes, or for which line_split.c proves something. */
extern const char strait_pattern_gpt2[];
extern const char strait_pattern_llama3[];
extern const char strait_pattern_qwen2[];
