/* vocab.h - the vocabulary: for each token id, the bytes that encoding matches (its key) and the
 * bytes that decoding writes (its output).
 *
 * The two differ: a LLaMA-2 token "_the" decodes to " the". The vocabulary is filled by one
 * thread while the tokenizer is opened; after that any thread may read it. */
#pragma once

#include "base/error.h"
#include "data/buffer.h"

#include <stddef.h>
#include <stdint.h>

enum {
    STRAIT_VOCAB_MAX = 1 << 24, // ids; bounds the memory that a damaged file can ask for

    /* Flags of a token. */
    STRAIT_TOKEN_PRESENT = 1, // the file defines this id
    STRAIT_TOKEN_SPECIAL = 2,
    STRAIT_TOKEN_ADDED = 4
};

/* A range of bytes in the vocabulary's blob. Offsets, because the blob moves when it grows. */
typedef struct strait_span {
    uint32_t at, n;
} strait_span;

typedef struct strait_token {
    strait_span key; // what encoding matches
    strait_span out; // what decoding writes
    unsigned flags;
} strait_token;

struct strait_vocab {
    strait_buffer blob;     // bytes of all keys and outputs
    strait_token *tokens;   // by id; ids may have gaps
    size_t n_ids, capacity; // n_ids is the largest id plus one
    uint32_t *slots;        // hash table from key to id + 1; 0: free
    size_t n_slots, n_used;
};

/* Defines `id` with this key, which is also its output. STRAIT_EDATA: the id is negative, too large
 * or already defined. */
strait_err strait_vocab_add(struct strait_vocab *vocab, int64_t id, const void *key, size_t n);

/* The same, but strait_vocab_find does not find the key: for tokens that only added tokens or no
 * text at all can produce. */
strait_err strait_vocab_add_hidden(struct strait_vocab *vocab, int64_t id, const void *key,
                                   size_t n);

/* Changes the output of a defined id. The old bytes stay in the blob. */
strait_err strait_vocab_set_out(struct strait_vocab *vocab, int32_t id, const void *out, size_t n);

/* The id of a key, or -1. */
int32_t strait_vocab_find(const struct strait_vocab *vocab, const void *key, size_t n);

/* The bytes of a span, valid until the vocabulary next changes. */
static inline const unsigned char *strait_vocab_at(const struct strait_vocab *vocab,
                                                   strait_span span) {
    return vocab->blob.data + span.at;
}

void strait_vocab_fini(struct strait_vocab *vocab); // accepts a zeroed vocabulary
