/* sampler.h - which tokens the n-th training sequence consists of.
 *
 * The sampler is a pure function of (corpus, context, seed, n). It keeps no state between calls, so
 * a resumed run, another machine or another thread gets the same sequences.
 *
 * Each shard is cut into windows of `context` inputs; the token after each input is its target, so
 * a window reads context + 1 tokens and shares the last one with the window after it. Windows
 * never cross from one shard into the next. One epoch (pass over the data) visits every window
 * once, in an order drawn from the seed and the epoch. The offset of the first window in each shard
 * is drawn anew for every epoch, so that later epochs train on different windows.
 *
 * A shard of documents (shard.h) has one window per document instead: the document from its first
 * token on, cut off after context + 1 tokens, then padding without targets. If its documents are
 * packed (packing.h), a window is a row of several of them, one after the other; the first input of
 * each, and of the padding, then has the tag STRAIT_TOKEN_FIRST. */
#pragma once

#include "base/error.h"
#include "base/rng/rng.h"
#include "data/corpus.h"

#include <stdint.h>

/* A plain value that may be copied. It borrows the corpus. */
typedef struct strait_sampler {
    const struct strait_corpus *corpus;
    int64_t context;
    int64_t n_windows; // per epoch; the same in every epoch
    uint64_t seed;
    int is_in_order; // windows in file order, without shuffling or offset
} strait_sampler;

/* A sampler for training. STRAIT_EDATA: no shard holds context + 1 tokens. */
strait_err strait_sampler_init(const struct strait_corpus *corpus, int64_t context, uint64_t seed,
                               strait_sampler *out);

/* A sampler for validation: all windows in order, from the first token on. Sequence n_windows is
 * the first window again. STRAIT_EDATA as above. */
strait_err strait_sampler_in_order(const struct strait_corpus *corpus, int64_t context,
                                   strait_sampler *out);

/* Fills n rows of `context` tokens with sequences first_sequence, first_sequence + 1, ...; both
 * arrays have n * context elements. A target of -1 is none. Training passes step *
 * sequences_per_step + row. STRAIT_EDATA names shard, position and id if an id is outside the
 * vocabulary. Never allocates. Any thread. */
strait_err strait_sampler_fill(const strait_sampler *sampler, int64_t first_sequence, int64_t n,
                               int32_t *inputs, int32_t *targets);

/* Counts the targets of n sequences, without those that are -1. Errors as fill. */
strait_err strait_sampler_count_targets(const strait_sampler *sampler, int64_t first_sequence,
                                        int64_t n, int64_t *out);

/* How well the documents of a corpus fit into rows of the context. */
typedef struct strait_sampler_fit {
    int64_t n_cut;  // documents that are longer and lose their ends
    double used;    // share of all positions that have a token; 1 without documents
    int64_t n_rows; // of documents
} strait_sampler_fit;

strait_sampler_fit strait_sampler_measure(const strait_sampler *sampler);

/* The first token of a sequence. */
typedef struct strait_sampler_place {
    int shard;
    int64_t first; // token in that shard
    int64_t end;   // after the last one of the window or of the document
    int64_t row;   // of packed documents, which first and end do not describe; -1: none
} strait_sampler_place;

/* Locates a sequence >= 0 without reading its tokens. Any thread. */
strait_sampler_place strait_sampler_find(const strait_sampler *sampler, int64_t sequence);

/* The image of `index` under a permutation of [0, n) that `rng` determines; n > 0. It keeps no
 * table, so any n costs the same. Part of the frozen order. */
int64_t strait_sampler_permute(strait_rng rng, int64_t n, int64_t index);
