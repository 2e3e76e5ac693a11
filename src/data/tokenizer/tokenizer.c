#include "data/tokenizer/tokenizer.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/file.h"
#include "data/tokenizer/internal.h"

#include <string.h>

enum {
    FILE_LIMIT = 1 << 29 // bytes of tokenizer.json; Gemma's has 33 MB
};

/* The functions below serialise a tokenizer for its fingerprint. Shards and checkpoints store the
 * fingerprint, so their output must never change for an existing tokenizer. */
static strait_err put_number(strait_buffer *out, uint64_t value) {
    unsigned char bytes[8];
    strait_put_u64(bytes, value);
    return strait_buffer_append(out, bytes, sizeof bytes);
}

/* Lengths come first, so that two different tokenizers never serialise to the same bytes. */
static strait_err put_text(strait_buffer *out, const unsigned char *text, size_t n) {
    STRAIT_TRY(put_number(out, n));
    return strait_buffer_append(out, text, n);
}

static strait_err put_steps(strait_buffer *out, const strait_text_steps *steps) {
    STRAIT_TRY(put_number(out, (uint64_t)steps->n));
    for (int i = 0; i < steps->n; i++) {
        const strait_text_step *step = &steps->items[i];
        const uint64_t flags = (uint64_t)step->kind | (uint64_t)step->split << 8 |
                               (uint64_t)step->form << 16 | (uint64_t)step->is_inverted << 24 |
                               (uint64_t)step->is_start_only << 25 |
                               (uint64_t)(step->pattern != NULL) << 26;
        STRAIT_TRY(put_number(out, flags));
        STRAIT_TRY(put_text(out, step->find.data, step->find.n));
        STRAIT_TRY(put_text(out, step->content.data, step->content.n));
    }
    return STRAIT_OK;
}

static strait_err put_added(strait_buffer *out, const strait_added *added) {
    const uint64_t flags = (uint64_t)added->id | (uint64_t)added->is_special << 32 |
                           (uint64_t)added->is_single_word << 33 |
                           (uint64_t)added->strips_left << 34 |
                           (uint64_t)added->strips_right << 35 |
                           (uint64_t)added->is_normalized << 36;
    STRAIT_TRY(put_number(out, flags));
    return put_text(out, added->content.data, added->content.n);
}

/* Appends the merges in the order of their ranks, which does not depend on the table's layout.
 * Ranks without a merge are zeros. */
static strait_err put_merges(strait_buffer *out, const struct strait_merges *merges,
                             size_t n_ranks) {
    const size_t start = out->n;
    STRAIT_TRY(strait_buffer_reserve((void **)&out->data, &out->capacity, start + n_ranks * 8, 1));
    memset(out->data + start, 0, n_ranks * 8);
    for (size_t i = 0; i < merges->n_slots; i++) {
        const strait_merge *merge = &merges->slots[i];
        if (merge->id < 0) continue;
        out->n = start + (size_t)merge->rank * 8;
        STRAIT_TRY(put_number(out, merge->pair));
    }
    out->n = start + n_ranks * 8;
    return STRAIT_OK;
}

/* Serialises everything that determines ids, and nothing else. */
static strait_err serialise(const struct strait_tokenizer *t, strait_buffer *out) {
    const uint64_t flags = (uint64_t)t->is_byte_level | (uint64_t)t->has_byte_fallback << 1 |
                           (uint64_t)t->fuses_unk << 2 | (uint64_t)t->ignores_merges << 3 |
                           (uint64_t)(uint32_t)t->unk << 32;
    STRAIT_TRY(put_number(out, flags));
    STRAIT_TRY(put_steps(out, &t->normalizers));
    STRAIT_TRY(put_steps(out, &t->pre_tokenizers));
    for (size_t i = 0; i < t->n_added; i++)
        STRAIT_TRY(put_added(out, &t->added[i]));
    for (size_t id = 0; id < t->vocab.n_ids; id++) {
        const strait_span key = t->vocab.tokens[id].key;
        STRAIT_TRY(put_text(out, strait_vocab_at(&t->vocab, key), key.n));
    }
    return put_merges(out, &t->merges, t->n_merges);
}

/* Whether a token contains a metaspace that follows another character. */
static int joins_at_metaspace(const struct strait_tokenizer *t, int32_t id) {
    static const unsigned char metaspace[] = {0xe2, 0x96, 0x81};
    const strait_span key = t->vocab.tokens[id].key;
    const unsigned char *text = strait_vocab_at(&t->vocab, key);
    for (size_t i = 3; i + 3 <= key.n; i++)
        if (memcmp(text + i, metaspace, 3) == 0 && memcmp(text + i - 3, metaspace, 3) != 0)
            return 1;
    for (size_t i = 1; i < 3 && i + 3 <= key.n; i++)
        if (memcmp(text + i, metaspace, 3) == 0) return 1;
    return 0;
}

/* Whether words may be split before metaspaces; see encode_metaspaced in encoder.c. */
static int may_split_at_metaspace(const struct strait_tokenizer *t) {
    if (t->is_byte_level || t->ignores_merges) return 0;
    for (size_t i = 0; i < t->merges.n_slots; i++)
        if (t->merges.slots[i].id >= 0 && joins_at_metaspace(t, t->merges.slots[i].id)) return 0;
    return strait_vocab_find(&t->vocab, "\xe2\x96\x81", 3) >= 0;
}

/* Derives what encoding and decoding need from what was read. */
static strait_err finish(struct strait_tokenizer *t) {
    for (size_t id = 0; id < t->vocab.n_ids; id++)
        if (t->vocab.tokens[id].out.n > t->longest_out) t->longest_out = t->vocab.tokens[id].out.n;
    t->splits_at_metaspace = may_split_at_metaspace(t);
    t->can_split_lines = strait_line_split_is_safe(t);
    strait_buffer all = {0};
    const strait_err err = serialise(t, &all);
    if (err == STRAIT_OK) strait_hash_text(all.data, all.n, t->fingerprint);
    strait_alloc_free(all.data);
    return err;
}

/* Truncation and padding change ids; files for training do not use them. */
static strait_err check_null(const json_t *document, const char *key) {
    const json_t *value = json_object_get(document, key);
    if (value == NULL || json_is_null(value)) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA, "\"%s\" is not supported; set it to null", key);
}

/* A key that is not known may change ids, so it is an error instead of being ignored. */
static strait_err check_document(const json_t *document) {
    static const char *const known[] = {
        "version",       "truncation", "padding",        "added_tokens", "normalizer",
        "pre_tokenizer", "model",      "post_processor", "decoder",      NULL};
    STRAIT_TRY(strait_read_check_keys(document, "tokenizer.json", known));
    STRAIT_TRY(check_null(document, "truncation"));
    return check_null(document, "padding");
}

/* The order matters: the steps say whether tokens are bytes, which the model and the added tokens
 * need to know. */
static strait_err read_sections(struct strait_tokenizer *t, const json_t *document) {
    STRAIT_TRY(check_document(document));
    STRAIT_TRY(strait_read_steps(t, document));
    STRAIT_TRY(strait_read_model(t, document));
    STRAIT_TRY(strait_read_added(t, document));
    STRAIT_TRY(strait_read_decoder(t, document));
    return strait_read_template(t, document);
}

/* Both ways to open a tokenizer end here. */
static strait_err build(const json_t *document, int has_nul, struct strait_tokenizer **out) {
    struct strait_tokenizer *t = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *t, "tokenizer", (void **)&t));
    t->has_nul_token = has_nul;
    strait_err err = read_sections(t, document);
    if (err == STRAIT_OK) err = finish(t);
    if (err == STRAIT_OK)
        *out = t;
    else
        strait_tokenizer_close(&t);
    return err;
}

strait_err strait_tokenizer_parse(const char *json, size_t bytes, struct strait_tokenizer **out) {
    json_t *document = NULL;
    int has_nul = 0;
    STRAIT_TRY(strait_read_document(json, bytes, &document, &has_nul));
    const strait_err err = build(document, has_nul, out);
    json_decref(document);
    return err;
}

/* Parsing errors of JSON usually mean a download that was interrupted. */
strait_err strait_tokenizer_open(const char *path, struct strait_tokenizer **out) {
    json_t *document = NULL;
    char *text = NULL;
    size_t bytes = 0;
    int has_nul = 0;
    STRAIT_TRY(strait_file_read(path, FILE_LIMIT, &text, &bytes));
    strait_err err = strait_read_document(text, bytes, &document, &has_nul);
    strait_alloc_free(text);
    if (err != STRAIT_OK) strait_err_prefix("not a complete tokenizer.json: %s", path);
    STRAIT_TRY(err);
    err = build(document, has_nul, out);
    json_decref(document);
    if (err != STRAIT_OK) strait_err_prefix("%s", path);
    return err;
}

/* All steps are released, used or not: unused ones are zeroed. */
void strait_tokenizer_close(struct strait_tokenizer **tokenizer) {
    struct strait_tokenizer *t = *tokenizer;
    if (t == NULL) return;
    for (int i = 0; i < STRAIT_TEXT_STEPS_MAX; i++) {
        strait_text_step_fini(&t->normalizers.items[i]);
        strait_text_step_fini(&t->pre_tokenizers.items[i]);
    }
    for (size_t i = 0; i < t->n_added; i++)
        strait_alloc_free(t->added[i].content.data);
    strait_alloc_free(t->added);
    strait_alloc_free(t->sorted_added);
    strait_alloc_free(t->before.data);
    strait_alloc_free(t->after.data);
    strait_merges_fini(&t->merges);
    strait_vocab_fini(&t->vocab);
    strait_alloc_free(t);
    *tokenizer = NULL;
}

int32_t strait_tokenizer_vocab(const struct strait_tokenizer *tokenizer) {
    return (int32_t)tokenizer->vocab.n_ids;
}

/* Ids may have gaps, so the number of tokens can be smaller than the vocabulary. */
int32_t strait_tokenizer_count(const struct strait_tokenizer *tokenizer) {
    int32_t count = 0;
    for (size_t id = 0; id < tokenizer->vocab.n_ids; id++)
        count += (tokenizer->vocab.tokens[id].flags & STRAIT_TOKEN_PRESENT) != 0;
    return count;
}

const char *strait_tokenizer_fingerprint(const struct strait_tokenizer *tokenizer) {
    return tokenizer->fingerprint;
}

/* Added tokens first: they also win when text is encoded. */
int32_t strait_tokenizer_find(const struct strait_tokenizer *tokenizer, const void *bytes,
                              size_t n) {
    for (size_t i = 0; i < tokenizer->n_added; i++) {
        const strait_buffer *content = &tokenizer->added[i].content;
        if (content->n == n && memcmp(content->data, bytes, n) == 0) return tokenizer->added[i].id;
    }
    return strait_vocab_find(&tokenizer->vocab, bytes, n);
}

const unsigned char *strait_tokenizer_bytes(const struct strait_tokenizer *tokenizer, int32_t id,
                                            size_t *n) {
    if (id < 0 || (size_t)id >= tokenizer->vocab.n_ids) return NULL;
    const strait_span out = tokenizer->vocab.tokens[id].out;
    *n = out.n;
    return strait_vocab_at(&tokenizer->vocab, out);
}

/* Ids from a model may be outside the vocabulary. */
int strait_tokenizer_is_special(const struct strait_tokenizer *tokenizer, int32_t id) {
    return id >= 0 && (size_t)id < tokenizer->vocab.n_ids &&
           (tokenizer->vocab.tokens[id].flags & STRAIT_TOKEN_SPECIAL) != 0;
}

/* Files do not say which token ends a text; these are the names in common use. */
int32_t strait_tokenizer_end(const struct strait_tokenizer *tokenizer) {
    static const char *const names[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const int32_t id = strait_tokenizer_find(tokenizer, names[i], strlen(names[i]));
        if (strait_tokenizer_is_special(tokenizer, id)) return id;
    }
    return -1;
}

int strait_tokenizer_can_split_lines(const struct strait_tokenizer *tokenizer) {
    return tokenizer->can_split_lines;
}
