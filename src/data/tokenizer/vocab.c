#include "data/tokenizer/vocab.h"

#include "base/alloc.h"

/* Appends bytes to the blob. */
static strait_err store(struct strait_vocab *vocab, const void *data, size_t n, strait_span *out) {
    if (vocab->blob.n + n > UINT32_MAX)
        return STRAIT_FAIL(STRAIT_EDATA, "the tokens of the vocabulary exceed 4 GiB");
    const strait_span span = {(uint32_t)vocab->blob.n, (uint32_t)n};
    STRAIT_TRY(strait_buffer_append(&vocab->blob, data, n));
    *out = span;
    return STRAIT_OK;
}

/* Inserts into the first free slot. */
static void place(uint32_t *slots, size_t n_slots, uint64_t hash, uint32_t value) {
    size_t at = hash & (n_slots - 1);
    while (slots[at] != 0)
        at = (at + 1) & (n_slots - 1);
    slots[at] = value;
}

/* Doubles the table. A load of at most one half keeps probe sequences short. */
static strait_err rehash(struct strait_vocab *vocab) {
    const size_t n_slots = vocab->n_slots == 0 ? 1024 : vocab->n_slots * 2;
    uint32_t *slots = NULL;
    STRAIT_TRY(strait_alloc(n_slots, sizeof *slots, "vocabulary index", (void **)&slots));
    for (size_t i = 0; i < vocab->n_slots; i++) {
        if (vocab->slots[i] == 0) continue;
        const strait_span key = vocab->tokens[vocab->slots[i] - 1].key;
        place(slots, n_slots, strait_buffer_hash(strait_vocab_at(vocab, key), key.n),
              vocab->slots[i]);
    }
    strait_alloc_free(vocab->slots);
    vocab->slots = slots;
    vocab->n_slots = n_slots;
    return STRAIT_OK;
}

strait_err strait_vocab_add_hidden(struct strait_vocab *vocab, int64_t id, const void *key,
                                   size_t n) {
    if (id < 0 || id >= STRAIT_VOCAB_MAX)
        return STRAIT_FAIL(STRAIT_EDATA, "token \"%.*s\" has id %lld; expected 0 to %d", (int)n,
                           (const char *)key, (long long)id, STRAIT_VOCAB_MAX - 1);
    const size_t index = (size_t)id;
    /* The allocator returns zeroed memory: ids that are never defined have no flags. */
    STRAIT_TRY(strait_buffer_reserve((void **)&vocab->tokens, &vocab->capacity, index + 1,
                                     sizeof *vocab->tokens));
    strait_token *token = &vocab->tokens[index];
    if ((token->flags & STRAIT_TOKEN_PRESENT) != 0)
        return STRAIT_FAIL(STRAIT_EDATA, "token \"%.*s\" has id %lld, which another token has too",
                           (int)n, (const char *)key, (long long)id);
    STRAIT_TRY(store(vocab, key, n, &token->key));
    token->out = token->key;
    token->flags = STRAIT_TOKEN_PRESENT;
    if (index >= vocab->n_ids) vocab->n_ids = index + 1;
    return STRAIT_OK;
}

/* Slots hold id + 1, so that zeroed memory is an empty table. */
strait_err strait_vocab_add(struct strait_vocab *vocab, int64_t id, const void *key, size_t n) {
    if ((vocab->n_used + 1) * 2 > vocab->n_slots) STRAIT_TRY(rehash(vocab));
    STRAIT_TRY(strait_vocab_add_hidden(vocab, id, key, n));
    place(vocab->slots, vocab->n_slots, strait_buffer_hash(key, n), (uint32_t)id + 1);
    vocab->n_used++;
    return STRAIT_OK;
}

/* What a token decodes to may differ from its key, for example in the byte-level alphabet. */
strait_err strait_vocab_set_out(struct strait_vocab *vocab, int32_t id, const void *out, size_t n) {
    return store(vocab, out, n, &vocab->tokens[id].out);
}

/* Keys may contain zeros and are compared by length and bytes. */
int32_t strait_vocab_find(const struct strait_vocab *vocab, const void *key, size_t n) {
    if (vocab->n_slots == 0) return -1;
    size_t at = strait_buffer_hash(key, n) & (vocab->n_slots - 1);
    for (; vocab->slots[at] != 0; at = (at + 1) & (vocab->n_slots - 1)) {
        const strait_span span = vocab->tokens[vocab->slots[at] - 1].key;
        if (span.n == n && memcmp(strait_vocab_at(vocab, span), key, n) == 0)
            return (int32_t)(vocab->slots[at] - 1);
    }
    return -1;
}

/* A zeroed vocabulary is closed. */
void strait_vocab_fini(struct strait_vocab *vocab) {
    strait_alloc_free(vocab->blob.data);
    strait_alloc_free(vocab->tokens);
    strait_alloc_free(vocab->slots);
    *vocab = (struct strait_vocab){0};
}
