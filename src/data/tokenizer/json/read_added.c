#include "base/alloc.h"
#include "data/tokenizer/added.h"
#include "data/tokenizer/alphabet.h"

#include <string.h>

/* Checks that an id which is already in the vocabulary has the same text there: either as written
 * or, for byte-level tokenizers, in the byte-level alphabet. */
static strait_err check_same(const struct strait_tokenizer *t, const strait_added *added) {
    const strait_span key = t->vocab.tokens[added->id].key;
    const unsigned char *bytes = strait_vocab_at(&t->vocab, key);
    if (key.n == added->content.n && memcmp(bytes, added->content.data, key.n) == 0)
        return STRAIT_OK;
    if (t->is_byte_level && key.n <= added->content.n) {
        void *decoded = NULL;
        STRAIT_TRY(strait_alloc(added->content.n, 1, "added token", &decoded));
        const int64_t n = strait_alphabet_decode((const char *)added->content.data,
                                                 added->content.n, decoded);
        const int is_same = n == (int64_t)key.n && memcmp(decoded, bytes, key.n) == 0;
        strait_alloc_free(decoded);
        if (is_same) return STRAIT_OK;
    }
    return STRAIT_FAIL(STRAIT_EDATA, "id %d is \"%.*s\" in \"vocab\"", added->id, (int)key.n,
                       (const char *)bytes);
}

/* "normalized" is by default on for ordinary and off for special tokens, as in Hugging Face. */
static strait_err read_flags(const json_t *item, strait_added *added) {
    STRAIT_TRY(strait_read_flag(item, "special", 0, &added->is_special));
    STRAIT_TRY(strait_read_flag(item, "single_word", 0, &added->is_single_word));
    STRAIT_TRY(strait_read_flag(item, "lstrip", 0, &added->strips_left));
    STRAIT_TRY(strait_read_flag(item, "rstrip", 0, &added->strips_right));
    return strait_read_flag(item, "normalized", !added->is_special, &added->is_normalized);
}

/* The id is checked here, because it indexes arrays from now on. */
static strait_err read_fields(const json_t *item, strait_added *added) {
    static const char *const known[] = {"id",     "content",    "single_word", "lstrip",
                                        "rstrip", "normalized", "special",     NULL};
    int64_t id = 0;
    STRAIT_TRY(strait_read_check_keys(item, "added_tokens", known));
    STRAIT_TRY(strait_read_text(item, "content", &added->content));
    STRAIT_TRY(strait_json_int(item, "id", &id));
    if (id < 0 || id >= STRAIT_VOCAB_MAX)
        return STRAIT_FAIL(STRAIT_EDATA, "id %lld: expected 0 to %d", (long long)id,
                           STRAIT_VOCAB_MAX - 1);
    added->id = (int32_t)id;
    return read_flags(item, added);
}

/* Normalises the content of a token that is matched in normalised text. */
static strait_err normalize_content(const struct strait_tokenizer *t, strait_added *added) {
    struct strait_text_step_scratch scratch = {0};
    strait_buffer next = {0};
    strait_err err = strait_matcher_open(&scratch.matcher);
    for (int i = 0; err == STRAIT_OK && i < t->normalizers.n; i++) {
        err = strait_text_step_transform(&t->normalizers.items[i], &scratch, added->content.data,
                                         added->content.n, 1, &next);
        const strait_buffer swap = added->content;
        added->content = next;
        next = swap;
    }
    strait_alloc_free(next.data);
    strait_alloc_free(scratch.codepoints.data);
    strait_matcher_close(&scratch.matcher);
    return err;
}

/* Adds the token to the vocabulary. Its key is hidden: only matching in the text produces it. */
static strait_err add_to_vocab(struct strait_tokenizer *t, const strait_added *added) {
    const size_t id = (size_t)added->id;
    if (id < t->vocab.n_ids && (t->vocab.tokens[id].flags & STRAIT_TOKEN_PRESENT) != 0)
        STRAIT_TRY(check_same(t, added));
    else
        STRAIT_TRY(
            strait_vocab_add_hidden(&t->vocab, added->id, added->content.data, added->content.n));
    STRAIT_TRY(strait_vocab_set_out(&t->vocab, added->id, added->content.data, added->content.n));
    t->vocab.tokens[id].flags |= (unsigned)STRAIT_TOKEN_ADDED |
                                 (added->is_special ? (unsigned)STRAIT_TOKEN_SPECIAL : 0u);
    return STRAIT_OK;
}

/* Counted before it is read, so that close frees it also after an error. */
static strait_err add_one(struct strait_tokenizer *t, const json_t *item) {
    strait_added *added = &t->added[t->n_added++];
    STRAIT_TRY(read_fields(item, added));
    STRAIT_TRY(add_to_vocab(t, added));
    if (added->is_normalized && t->normalizers.n > 0) return normalize_content(t, added);
    return STRAIT_OK;
}

/* Messages name the item by its position, because its content may be unprintable. */
strait_err strait_read_added(struct strait_tokenizer *t, const json_t *document) {
    const json_t *list = json_object_get(document, "added_tokens");
    if (list == NULL || json_is_null(list)) return STRAIT_OK;
    STRAIT_TRY(strait_json_array(document, "added_tokens", &list));
    const size_t n = json_array_size(list);
    STRAIT_TRY(strait_alloc(n, sizeof *t->added, "added tokens", (void **)&t->added));
    for (size_t i = 0; i < n; i++) {
        const strait_err err = add_one(t, json_array_get(list, i));
        if (err != STRAIT_OK) strait_err_prefix("\"added_tokens\": item %zu", i);
        STRAIT_TRY(err);
    }
    return strait_added_sort(t);
}
