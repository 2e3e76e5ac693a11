/* vocab.h - token ids, the bytes that encoding matches, and the bytes that decoding gives. */
#pragma once

#include "base/error.h"
#include "data/buffer.h"

#include <stddef.h>
#include <stdint.h>

enum {
    STRAIT_VOCAB_MAX = 1 << 24,
    STRAIT_TOKEN_PRESENT = 1, // the file names this id
    STRAIT_TOKEN_SPECIAL = 2,
    STRAIT_TOKEN_ADDED = 4
};

typedef struct strait_span {
    uint32_t at, n;
} strait_span;

typedef struct strait_token {
    strait_span key; // what merges are made of
    strait_span out; // what decoding writes
    unsigned flags;
} strait_token;

struct strait_vocab {
    strait_buffer blob;
    strait_token *tokens; // by id
    size_t n_ids, capacity;
    uint32_t *slots; // id + 1 by hash of the key; 0: free
    size_t n_slots, n_used;
};

/* Gives `id` its key and decodes to the same bytes. STRAIT_EDATA for an id that is negative, too
 * large or taken. */
strait_err strait_vocab_add(struct strait_vocab *vocab, int64_t id, const void *key, size_t n);

/* The same, but the key is not found by strait_vocab_find. */
strait_err strait_vocab_add_hidden(struct strait_vocab *vocab, int64_t id, const void *key,
                                   size_t n);

/* Changes what `id` decodes to. */
strait_err strait_vocab_set_out(struct strait_vocab *vocab, int32_t id, const void *out, size_t n);

/* The id of a key, or -1. Any thread. */
int32_t strait_vocab_find(const struct strait_vocab *vocab, const void *key, size_t n);

static inline const unsigned char *strait_vocab_at(const struct strait_vocab *vocab,
                                                   strait_span span) {
    return vocab->blob.data + span.at;
}

void strait_vocab_fini(struct strait_vocab *vocab);
