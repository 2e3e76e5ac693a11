#include "data/tokenizer/train/builder.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/text/utf8.h"
#include "data/tokenizer/alphabet.h"
#include "data/tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

/* GPT-2's pattern is built into the ByteLevel pre-tokenizer and needs no entry in the file. */
static strait_err choose_pattern(struct strait_tokenizer_builder *builder, const char *name) {
    if (name == NULL || strcmp(name, "gpt2") == 0) return STRAIT_OK;
    if (strcmp(name, "llama3") != 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "pattern \"%s\": expected gpt2 or llama3", name);
    builder->pattern = strait_pattern_llama3;
    return STRAIT_OK;
}

/* Adds a special token. The file holds special tokens as written, next to tokens in the byte-level
 * alphabet. Visible ASCII is the same in both, so that nothing can be misread. */
static strait_err add_special(struct strait_tokenizer_builder *builder, const char *text) {
    const size_t n = strlen(text);
    const unsigned char *bytes = (const unsigned char *)text;
    int is_ascii = n > 1;
    for (size_t i = 0; i < n; i++)
        is_ascii = is_ascii && bytes[i] > ' ' && bytes[i] < 0x7f;
    if (!is_ascii)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "special token \"%s\": expected two or more visible ASCII characters, "
                           "such as <|endoftext|>",
                           text);
    if (strait_vocab_find(&builder->vocab, text, n) >= 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "special token \"%s\" is given twice", text);
    builder->n_specials++;
    return strait_vocab_add(&builder->vocab, (int64_t)builder->vocab.n_ids, text, n);
}

/* Adds the bytes in the order of their characters in the byte-level alphabet, as GPT-2 does. */
static strait_err add_bytes(struct strait_tokenizer_builder *builder) {
    for (uint32_t codepoint = 0; codepoint < 0x200; codepoint++) {
        char text[4];
        unsigned char byte = 0;
        const size_t n = strait_utf8_encode(codepoint, (unsigned char *)text);
        if (strait_alphabet_decode(text, n, &byte) != 1) continue;
        builder->byte_ids[byte] = (int32_t)builder->vocab.n_ids;
        STRAIT_TRY(strait_vocab_add(&builder->vocab, builder->byte_ids[byte], &byte, 1));
    }
    return STRAIT_OK;
}

/* Special tokens get the first ids, so that they stay the same for every size of vocabulary. */
strait_err strait_tokenizer_builder_init(struct strait_tokenizer_builder *builder,
                                         const char *pattern, const char *const *specials,
                                         int n_specials) {
    *builder = (struct strait_tokenizer_builder){0};
    STRAIT_TRY(choose_pattern(builder, pattern));
    for (int i = 0; i < n_specials; i++)
        STRAIT_TRY(add_special(builder, specials[i]));
    return add_bytes(builder);
}

/* Accepts a builder whose init failed. */
void strait_tokenizer_builder_fini(struct strait_tokenizer_builder *builder) {
    strait_vocab_fini(&builder->vocab);
    strait_alloc_free(builder->merges.data);
    *builder = (struct strait_tokenizer_builder){0};
}

/* Two different pairs may join to the same bytes; they share one token and have two merges. */
strait_err strait_tokenizer_builder_merge(struct strait_tokenizer_builder *builder, int32_t left,
                                          int32_t right, int32_t *id) {
    struct strait_vocab *vocab = &builder->vocab;
    strait_buffer both = {0};
    const strait_span a = vocab->tokens[left].key;
    const strait_span b = vocab->tokens[right].key;
    strait_err err = strait_buffer_append(&both, strait_vocab_at(vocab, a), a.n);
    if (err == STRAIT_OK) err = strait_buffer_append(&both, strait_vocab_at(vocab, b), b.n);
    if (err == STRAIT_OK) {
        *id = strait_vocab_find(vocab, both.data, both.n);
        if (*id < 0) {
            *id = (int32_t)vocab->n_ids;
            err = strait_vocab_add(vocab, *id, both.data, both.n);
        }
    }
    if (err == STRAIT_OK)
        err = strait_ids_append(&builder->merges, (const int32_t[]){left, right}, 2);
    strait_alloc_free(both.data);
    return err;
}

/* Appends a token as the file writes it, with a zero after it. */
static strait_err append_token(const struct strait_tokenizer_builder *builder, int32_t id,
                               strait_buffer *out) {
    const strait_span key = builder->vocab.tokens[id].key;
    STRAIT_TRY(strait_buffer_reserve((void **)&out->data, &out->capacity,
                                     out->n + 2 * (size_t)key.n + 1, 1));
    out->n += strait_alphabet_encode(strait_vocab_at(&builder->vocab, key), key.n,
                                     (char *)out->data + out->n);
    out->data[out->n] = '\0';
    return STRAIT_OK;
}

/* jansson reports only that it failed; without memory is the one possible reason here. */
static strait_err check_json(int rc) {
    return rc == 0 ? STRAIT_OK : STRAIT_FAIL(STRAIT_ENOMEM, "tokenizer: JSON document");
}

/* In the order of ids, which JSON objects keep here. */
static strait_err fill_vocab(const struct strait_tokenizer_builder *builder, json_t *vocab,
                             strait_buffer *text) {
    for (int32_t id = 0; (size_t)id < builder->vocab.n_ids; id++) {
        text->n = 0;
        STRAIT_TRY(append_token(builder, id, text));
        STRAIT_TRY(
            check_json(json_object_set_new(vocab, (const char *)text->data, json_integer(id))));
    }
    return STRAIT_OK;
}

/* The form "LEFT RIGHT" is read by old and new versions of Hugging Face tokenizers. */
static strait_err fill_merges(const struct strait_tokenizer_builder *builder, json_t *merges,
                              strait_buffer *text) {
    for (size_t i = 0; i < builder->merges.n; i += 2) {
        text->n = 0;
        STRAIT_TRY(append_token(builder, builder->merges.data[i], text));
        STRAIT_TRY(strait_buffer_append(text, " ", 1));
        STRAIT_TRY(append_token(builder, builder->merges.data[i + 1], text));
        STRAIT_TRY(
            check_json(json_array_append_new(merges, json_string((const char *)text->data))));
    }
    return STRAIT_OK;
}

/* The flags are those of GPT-2's own special token. */
static strait_err fill_added(const struct strait_tokenizer_builder *builder, json_t *added,
                             strait_buffer *text) {
    for (int32_t id = 0; id < builder->n_specials; id++) {
        text->n = 0;
        STRAIT_TRY(append_token(builder, id, text));
        STRAIT_TRY(check_json(json_array_append_new(
            added, json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", id, "content",
                             (const char *)text->data, "single_word", 0, "lstrip", 0, "rstrip", 0,
                             "normalized", 0, "special", 1))));
    }
    return STRAIT_OK;
}

/* All keys are written, as Hugging Face writes them. */
static json_t *byte_level(int has_prefix, int has_regex) {
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", has_prefix,
                     "trim_offsets", 1, "use_regex", has_regex);
}

/* As in the files of Llama 3: split by the pattern, then map to bytes without splitting again. */
static json_t *pre_tokenizer(const struct strait_tokenizer_builder *builder) {
    if (builder->pattern == NULL) return byte_level(0, 1);
    return json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, o]}", "type", "Sequence", "pretokenizers",
                     "type", "Split", "pattern", "Regex", builder->pattern, "behavior", "Isolated",
                     "invert", 0, byte_level(0, 0));
}

/* Wraps the three lists into a document and takes ownership of them, also if it fails. */
static json_t *wrap(const struct strait_tokenizer_builder *builder, json_t *added, json_t *vocab,
                    json_t *merges) {
    json_t *model = json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE",
                              "dropout", "unk_token", "continuing_subword_prefix",
                              "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                              "ignore_merges", 0, "vocab", vocab, "merges", merges);
    return json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:n, s:o, s:o}", "version", "1.0",
                     "truncation", "padding", "added_tokens", added, "normalizer", "pre_tokenizer",
                     pre_tokenizer(builder), "post_processor", "decoder", byte_level(1, 1), "model",
                     model);
}

/* The lists are wrapped even after an error, because wrapping also releases them. */
static strait_err build_document(const struct strait_tokenizer_builder *builder, json_t **out) {
    json_t *added = json_array();
    json_t *vocab = json_object();
    json_t *merges = json_array();
    strait_buffer text = {0};
    strait_err err = fill_added(builder, added, &text);
    if (err == STRAIT_OK) err = fill_vocab(builder, vocab, &text);
    if (err == STRAIT_OK) err = fill_merges(builder, merges, &text);
    strait_alloc_free(text.data);
    json_t *document = wrap(builder, added, vocab, merges);
    if (err == STRAIT_OK && document == NULL) err = check_json(-1);
    if (err == STRAIT_OK)
        *out = document;
    else
        json_decref(document);
    return err;
}

strait_err strait_tokenizer_builder_open(const struct strait_tokenizer_builder *builder,
                                         struct strait_tokenizer **out) {
    json_t *document = NULL;
    STRAIT_TRY(build_document(builder, &document));
    /* Parsing what is written guarantees that training splits words as the finished file does. */
    char *text = json_dumps(document, JSON_COMPACT);
    json_decref(document);
    if (text == NULL) return check_json(-1);
    const strait_err err = strait_tokenizer_parse(text, strlen(text), out);
    free(text);
    return err;
}

/* Written beside and renamed, like every file of the program. */
strait_err strait_tokenizer_builder_write(const struct strait_tokenizer_builder *builder,
                                          const char *path) {
    json_t *document = NULL;
    STRAIT_TRY(build_document(builder, &document));
    const strait_err err = strait_json_replace(path, document);
    json_decref(document);
    return err;
}
