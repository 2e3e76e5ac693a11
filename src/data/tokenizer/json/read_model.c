#include "base/alloc.h"
#include "data/tokenizer/alphabet.h"
#include "data/tokenizer/internal.h"

#include <stdio.h>
#include <string.h>

/* Computes the key of a token: its text or, for byte-level tokenizers, the bytes that the text
 * stands for. *is_reachable is 0 if the text is not in the byte-level alphabet: then no input can
 * produce the token. */
static strait_err key_of(const struct strait_tokenizer *t, const char *text, size_t n,
                         strait_buffer *out, int *is_reachable) {
    out->n = 0;
    *is_reachable = 1;
    if (!t->is_byte_level) return strait_buffer_append(out, text, n);
    STRAIT_TRY(strait_buffer_reserve((void **)&out->data, &out->capacity, n + 1, 1));
    const int64_t count = strait_alphabet_decode(text, n, out->data);
    if (count < 0) *is_reachable = 0;
    out->n = count < 0 ? 0 : (size_t)count;
    return STRAIT_OK;
}

/* Tokens that no input can produce keep their ids, so that sizes agree with the model. */
static strait_err read_vocab(struct strait_tokenizer *t, const json_t *vocab, strait_buffer *key) {
    const char *text;
    json_t *value;
    json_object_foreach((json_t *)vocab, text, value) {
        const int is_nul = t->has_nul_token && strcmp(text, STRAIT_NUL_MARK) == 0;
        const size_t n = is_nul ? 1 : strlen(text);
        int is_reachable = 0;
        if (!json_is_integer(value))
            return STRAIT_FAIL(STRAIT_EDATA, "\"vocab\": the id of \"%.60s\" is not an integer",
                               text);
        STRAIT_TRY(key_of(t, is_nul ? "" : text, n, key, &is_reachable));
        const int64_t id = json_integer_value(value);
        STRAIT_TRY(is_reachable ? strait_vocab_add(&t->vocab, id, key->data, key->n)
                                : strait_vocab_add_hidden(&t->vocab, id, is_nul ? "" : text, n));
    }
    if (t->vocab.n_ids == 0) return STRAIT_FAIL(STRAIT_EDATA, "\"vocab\" is empty");
    return STRAIT_OK;
}

/* The two sides of a merge, written as ["a", "b"] or "a b"; borrowed from the document. */
struct merge_pair {
    const char *left, *right;
    size_t n_left, n_right;
};

/* A token that contains a space can only be written in the second form. */
static strait_err read_pair(const json_t *item, size_t index, struct merge_pair *out) {
    if (json_is_string(item)) {
        const char *text = json_string_value(item);
        const size_t n = json_string_length(item);
        const char *space = memchr(text, ' ', n);
        if (space != NULL && memchr(space + 1, ' ', n - (size_t)(space - text) - 1) == NULL) {
            out->left = text;
            out->n_left = (size_t)(space - text);
            out->right = space + 1;
            out->n_right = n - out->n_left - 1;
            return STRAIT_OK;
        }
    }
    const json_t *left = json_array_get(item, 0);
    const json_t *right = json_array_get(item, 1);
    if (json_array_size(item) != 2 || !json_is_string(left) || !json_is_string(right))
        return STRAIT_FAIL(STRAIT_EDATA,
                           "\"merges\": item %zu is neither \"LEFT RIGHT\" nor [\"LEFT\", "
                           "\"RIGHT\"]",
                           index);
    *out = (struct merge_pair){json_string_value(left), json_string_value(right),
                               json_string_length(left), json_string_length(right)};
    return STRAIT_OK;
}

/* A token that no input can produce is not an error; merges that use it are left out. */
static strait_err find_token(const struct strait_tokenizer *t, const char *text, size_t n,
                             strait_buffer *key, int32_t *out) {
    int is_reachable = 0;
    STRAIT_TRY(key_of(t, text, n, key, &is_reachable));
    *out = is_reachable ? strait_vocab_find(&t->vocab, key->data, key->n) : -1;
    if (is_reachable && *out < 0)
        return STRAIT_FAIL(STRAIT_EDATA, "\"%.*s\" is not in \"vocab\"", n < 60 ? (int)n : 60,
                           text);
    return STRAIT_OK;
}

/* Scratch for one merge. */
struct merge_scratch {
    strait_buffer key, whole;
};

/* Both sides and their concatenation must be tokens, else the merge could never be applied. */
static strait_err read_merge(struct strait_tokenizer *t, const struct merge_pair *pair,
                             uint32_t rank, struct merge_scratch *scratch) {
    int32_t left = -1;
    int32_t right = -1;
    scratch->whole.n = 0;
    STRAIT_TRY(find_token(t, pair->left, pair->n_left, &scratch->key, &left));
    STRAIT_TRY(strait_buffer_append(&scratch->whole, scratch->key.data, scratch->key.n));
    STRAIT_TRY(find_token(t, pair->right, pair->n_right, &scratch->key, &right));
    STRAIT_TRY(strait_buffer_append(&scratch->whole, scratch->key.data, scratch->key.n));
    if (left < 0 || right < 0) return STRAIT_OK; // no input can lead to it
    const int32_t id = strait_vocab_find(&t->vocab, scratch->whole.data, scratch->whole.n);
    if (id < 0) return STRAIT_FAIL(STRAIT_EDATA, "their concatenation is not in \"vocab\"");
    strait_merges_put(&t->merges, left, right, rank, id);
    return STRAIT_OK;
}

/* The position of a merge is its rank: earlier ones are applied first. */
static strait_err read_merges(struct strait_tokenizer *t, const json_t *merges,
                              struct merge_scratch *scratch) {
    const size_t n = json_array_size(merges);
    if (n > UINT32_MAX / 4)
        return STRAIT_FAIL(STRAIT_EDATA, "\"merges\" has too many items (%zu)", n);
    STRAIT_TRY(strait_merges_init(&t->merges, n));
    t->n_merges = n;
    for (size_t i = 0; i < n; i++) {
        struct merge_pair pair;
        STRAIT_TRY(read_pair(json_array_get(merges, i), i, &pair));
        const strait_err err = read_merge(t, &pair, (uint32_t)i, scratch);
        if (err == STRAIT_EDATA)
            strait_err_prefix("\"merges\": item %zu, \"%.40s\" and \"%.40s\"", i, pair.left,
                              pair.right);
        STRAIT_TRY(err);
    }
    return STRAIT_OK;
}

/* Looks up the token of each byte. */
static void find_byte_ids(struct strait_tokenizer *t) {
    for (int i = 0; i < 256; i++) {
        const unsigned char byte = (unsigned char)i;
        char name[8];
        const int n = snprintf(name, sizeof name, "<0x%02X>", byte);
        t->byte_ids[i] = t->is_byte_level       ? strait_vocab_find(&t->vocab, &byte, 1)
                         : t->has_byte_fallback ? strait_vocab_find(&t->vocab, name, (size_t)n)
                                                : -1;
    }
}

/* Without an unknown token, characters that have no token are dropped and counted. */
static strait_err read_unk(struct strait_tokenizer *t, const json_t *model, strait_buffer *key) {
    const json_t *unk = json_object_get(model, "unk_token");
    t->unk = -1;
    if (unk == NULL || json_is_null(unk)) return STRAIT_OK;
    const char *text = NULL;
    STRAIT_TRY(strait_json_string(model, "unk_token", &text));
    const strait_err err = find_token(t, text, json_string_length(unk), key, &t->unk);
    if (err != STRAIT_OK) strait_err_prefix("\"unk_token\"");
    return err;
}

/* Rejects an option that is not off (null, "", false or 0), because it would change ids. */
static strait_err check_off(const json_t *model, const char *key) {
    const json_t *value = json_object_get(model, key);
    if (value == NULL || json_is_null(value) || json_is_false(value)) return STRAIT_OK;
    if (json_is_string(value) && json_string_length(value) == 0) return STRAIT_OK;
    if (json_is_number(value) && !(json_number_value(value) > 0.0)) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA, "\"%s\" is set, which is not supported", key);
}

/* Old files have no type. They are accepted as BPE, since "merges" is required later. */
static strait_err check_type(const json_t *model) {
    if (json_object_get(model, "type") == NULL) return STRAIT_OK;
    const char *type = NULL;
    STRAIT_TRY(strait_json_string(model, "type", &type));
    if (strcmp(type, "BPE") == 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA, "type \"%.60s\" is not supported; expected BPE", type);
}

/* These options give other ids and are used by no current model. */
static strait_err read_options(struct strait_tokenizer *t, const json_t *model) {
    static const char *const known[] = {"type",
                                        "dropout",
                                        "unk_token",
                                        "continuing_subword_prefix",
                                        "end_of_word_suffix",
                                        "fuse_unk",
                                        "byte_fallback",
                                        "ignore_merges",
                                        "vocab",
                                        "merges",
                                        NULL};
    static const char *const off[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    STRAIT_TRY(check_type(model));
    STRAIT_TRY(strait_read_check_keys(model, "model", known));
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        STRAIT_TRY(check_off(model, off[i]));
    STRAIT_TRY(strait_read_flag(model, "fuse_unk", 0, &t->fuses_unk));
    STRAIT_TRY(strait_read_flag(model, "byte_fallback", 0, &t->has_byte_fallback));
    return strait_read_flag(model, "ignore_merges", 0, &t->ignores_merges);
}

/* The vocabulary comes first, because everything else refers to its ids. */
static strait_err read_fields(struct strait_tokenizer *t, const json_t *model,
                              struct merge_scratch *scratch) {
    const json_t *vocab = NULL;
    const json_t *merges = NULL;
    STRAIT_TRY(read_options(t, model));
    STRAIT_TRY(strait_json_object(model, "vocab", &vocab));
    STRAIT_TRY(strait_json_array(model, "merges", &merges));
    STRAIT_TRY(read_vocab(t, vocab, &scratch->key));
    STRAIT_TRY(read_unk(t, model, &scratch->key));
    STRAIT_TRY(read_merges(t, merges, scratch));
    find_byte_ids(t);
    return STRAIT_OK;
}

/* The scratch is shared by all tokens: a large file has hundreds of thousands. */
strait_err strait_read_model(struct strait_tokenizer *t, const json_t *document) {
    const json_t *model = NULL;
    struct merge_scratch scratch = {{0}, {0}};
    STRAIT_TRY(strait_json_object(document, "model", &model));
    const strait_err err = read_fields(t, model, &scratch);
    strait_alloc_free(scratch.key.data);
    strait_alloc_free(scratch.whole.data);
    if (err != STRAIT_OK) strait_err_prefix("\"model\"");
    return err;
}
