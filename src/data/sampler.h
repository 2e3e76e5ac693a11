/* sampler.h - which tokens the n-th sequence of training is made of.
 *
 * A pure function of (corpus, context, seed, n): nothing is remembered between calls, so that a
 * resumed run, another machine or another thread sees the same sequences.
 *
 * Each shard is cut into windows of `context` inputs; the token after each input is its target, so
 * a window reads context + 1 tokens and shares the last one with the window after it. Windows
 * never cross from one shard into the next. One epoch visits every window once, in an order drawn
 * from the seed and the epoch; where the cut starts in each shard is drawn anew for every epoch,
 * so that later epochs see other windows. */
#pragma once

#include "base/error.h"
#include "data/corpus.h"

#include <stdint.h>

/* A value; borrows the corpus. */
typedef struct strait_sampler {
    const struct strait_corpus *corpus;
    int64_t context;
    int64_t n_windows; // in one epoch, the same in each
    uint64_t seed;
    int is_in_order;
} strait_sampler;

/* STRAIT_EDATA when no shard holds context + 1 tokens. */
strait_err strait_sampler_init(const struct strait_corpus *corpus, int64_t context, uint64_t seed,
                               strait_sampler *out);

/* The windows from the first token on, in order, without shuffling: for validation. Sequence
 * n_windows is the first again. */
strait_err strait_sampler_in_order(const struct strait_corpus *corpus, int64_t context,
                                   strait_sampler *out);

/* Fills n rows of `context` tokens with sequences first_sequence, first_sequence + 1, ...; both
 * arrays have n * context places. first_sequence is step * sequences_per_step + row. An id outside
 * the corpus's vocabulary is STRAIT_EDATA naming shard, position and id. Never allocates; any
 * thread. */
strait_err strait_sampler_fill(const strait_sampler *sampler, int64_t first_sequence, int64_t n,
                               int32_t *inputs, int32_t *targets);

/* Where a sequence starts. */
typedef struct strait_sampler_place {
    int shard;
    int64_t first; // token in that shard
} strait_sampler_place;

strait_sampler_place strait_sampler_find(const strait_sampler *sampler, int64_t sequence);
