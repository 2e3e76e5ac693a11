/* mixture.h - the training data of a run: one corpus, or several that are drawn from by weight.
 *
 * A mixture is named by a list of sources with commas between them, each followed by a colon and
 * its weight: "web/part-?.bin:3,books.json:1". A list without weights is one corpus (corpus.h).
 *
 * Which source a sequence comes from is a pure function of (weights, seed, sequence), like
 * everything in sampler.h: the sequences of a run are cut into rounds of STRAIT_MIXTURE_ROUND, each
 * source has the share of a round that its weight says, and the seed permutes each round. A source
 * that is shorter than its share is read again from the start, in another order. */
#pragma once

#include "base/error.h"
#include "data/corpus.h"
#include "data/sampler.h"

#include <stdint.h>

enum {
    STRAIT_MIXTURE_ROUND = 1000, // sequences; part of the frozen order
    STRAIT_MIXTURE_SOURCES = 64
};

typedef struct strait_mixture_source {
    struct strait_corpus *corpus;
    double weight;
    int64_t share, before; // sequences of a round: of this source, and of the sources before it
    strait_sampler sampler;
} strait_mixture_source;

struct strait_mixture {
    char *name; // as the run file spells it; used in errors
    strait_mixture_source sources[STRAIT_MIXTURE_SOURCES];
    int n_sources;
    uint64_t seed;
    int64_t vocab;         // of the first source that states it; 0 if none does
    const char *tokenizer; // fingerprint, likewise; empty if none does
    int64_t n_tokens;
    int64_t n_documents; // of all sources; 0: none has any
};

/* Opens all sources. They must agree on vocabulary and tokenizer where they state them. STRAIT_EIO
 * and STRAIT_EDATA as in strait_corpus_open. STRAIT_ECONFIG: only some of the sources have a
 * weight, or one has less than half a thousandth of the sum. */
strait_err strait_mixture_open(const char *name, strait_corpus_format format,
                               struct strait_mixture **out);
void strait_mixture_close(struct strait_mixture **mixture); // accepts NULL in *mixture

/* Whether any source of a list has a weight. */
int strait_mixture_has_weights(const char *name);

/* strait_corpus_expect and strait_corpus_check of every source. */
strait_err strait_mixture_expect(struct strait_mixture *mixture, int64_t vocab,
                                 const char *tokenizer);
strait_err strait_mixture_check(const struct strait_mixture *mixture);

/* strait_corpus_pack of every source; before start. STRAIT_ECONFIG: none has documents. */
strait_err strait_mixture_pack(struct strait_mixture *mixture, int64_t context);

/* Sets how tokens are divided into sequences. STRAIT_EDATA: a source is shorter than one. */
strait_err strait_mixture_start(struct strait_mixture *mixture, int64_t context, uint64_t seed);

/* Fills rows as strait_sampler_fill does. Requires start. Never allocates. Any thread. */
strait_err strait_mixture_fill(const struct strait_mixture *mixture, int64_t first_sequence,
                               int64_t n, int32_t *inputs, int32_t *targets);

/* Counts targets as strait_sampler_count_targets does. */
strait_err strait_mixture_count_targets(const struct strait_mixture *mixture,
                                        int64_t first_sequence, int64_t n, int64_t *out);

/* The source of a sequence, and the sequence's number within it. Requires start. */
typedef struct strait_mixture_place {
    int source;
    int64_t sequence;
} strait_mixture_place;

strait_mixture_place strait_mixture_find(const struct strait_mixture *mixture, int64_t sequence);
