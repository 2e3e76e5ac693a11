#include "data/sampler.h"

#include <assert.h>
#include <string.h>

enum {
    FEISTEL_ROUNDS = 6 // four already give a pseudo-random permutation; part of the frozen order
};

/* The number of windows of a shard. When shuffling, up to one window less than would fit, so that
 * the first window may start at any of `context` offsets without changing the number. */
static int64_t windows_in(const strait_sampler *sampler, const struct strait_shard *shard) {
    const int64_t n = shard->n_tokens;
    const int64_t context = sampler->context;
    if (shard->is_tagged)
        return shard->packing.n_rows > 0 ? shard->packing.n_rows : shard->n_documents;
    if (n <= context) return 0;
    if (sampler->is_in_order) return (n - 1) / context;
    return n < 2 * context ? 1 : (n - context) / context;
}

/* The offset of the first window of a shard in this epoch. */
static int64_t phase_of(const strait_sampler *sampler, int64_t epoch, int shard) {
    if (sampler->is_in_order) return 0;
    const struct strait_shard *s = &sampler->corpus->shards[shard];
    const int64_t spare = s->n_tokens - 1 - windows_in(sampler, s) * sampler->context;
    const int64_t places = spare < sampler->context ? spare + 1 : sampler->context;
    const strait_rng rng = {sampler->seed, strait_rng_stream("sampler.phase") + (uint64_t)epoch};
    return (int64_t)(strait_rng_u64(rng, (uint64_t)shard) % (uint64_t)places);
}

/* A Feistel network over 2 * half_bits bits: a permutation for any round function. Computing the
 * permutation index by index needs no table, so a corpus of any size is shuffled without memory. */
static uint64_t feistel(strait_rng rng, unsigned half_bits, uint64_t x) {
    const uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    uint64_t left = x >> half_bits;
    uint64_t right = x & mask;
    for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
        const uint64_t next = left ^ (strait_rng_u64(rng, round << 32 | right) & mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

/* The network permutes [0, 4^k) with 4^k >= n; applying it again while the result is n or more
 * (cycle walking) gives a permutation of [0, n). It takes at most four applications on average,
 * since 4^k <= 4 n. */
int64_t strait_sampler_permute(strait_rng rng, int64_t n, int64_t index) {
    unsigned half_bits = 1;
    while ((uint64_t)1 << 2 * half_bits < (uint64_t)n)
        half_bits++;
    uint64_t x = (uint64_t)index;
    do {
        x = feistel(rng, half_bits, x);
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

static strait_sampler_place place_of(const strait_sampler *sampler, int shard, int64_t document) {
    const struct strait_shard *s = &sampler->corpus->shards[shard];
    return (strait_sampler_place){shard, s->documents[document],
                                  strait_shard_document_end(s, document), -1};
}

strait_sampler_place strait_sampler_find(const strait_sampler *sampler, int64_t sequence) {
    assert(sequence >= 0);
    const int64_t epoch = sequence / sampler->n_windows;
    int64_t window = sequence % sampler->n_windows;
    if (!sampler->is_in_order) {
        const strait_rng rng = {sampler->seed,
                                strait_rng_stream("sampler.order") + (uint64_t)epoch};
        window = strait_sampler_permute(rng, sampler->n_windows, window);
    }
    int shard = 0; // the shard that holds the window; there are few, so a scan is fast enough
    for (;; shard++) {
        const int64_t n = windows_in(sampler, &sampler->corpus->shards[shard]);
        if (window < n) break;
        window -= n;
    }
    const struct strait_shard *found = &sampler->corpus->shards[shard];
    if (found->packing.n_rows > 0) return (strait_sampler_place){.shard = shard, .row = window};
    if (found->is_tagged) return place_of(sampler, shard, window);
    const int64_t first = phase_of(sampler, epoch, shard) + window * sampler->context;
    return (strait_sampler_place){shard, first, first + sampler->context + 1, -1};
}

/* How many tokens of a document a row reads as inputs. */
static int64_t n_inputs(const strait_sampler *sampler, const strait_sampler_place *place) {
    const int64_t n = place->end - place->first - 1;
    return n < sampler->context ? n : sampler->context;
}

static strait_err read_document(const strait_sampler *sampler, const strait_sampler_place *place,
                                int32_t *inputs, int32_t *targets) {
    const struct strait_corpus *corpus = sampler->corpus;
    const struct strait_shard *shard = &corpus->shards[place->shard];
    const int64_t n = n_inputs(sampler, place);
    STRAIT_TRY(strait_shard_read(shard, place->first, n, corpus->vocab, inputs));
    return strait_shard_read_targets(shard, place->first + 1, n, corpus->vocab, targets);
}

/* Fills the rest of a row, from n on. It has no target; causal attention keeps it from what is
 * before it. */
static void pad(const strait_sampler *sampler, int64_t n, int32_t *inputs, int32_t *targets) {
    for (int64_t i = n; i < sampler->context; i++) {
        inputs[i] = 0;
        targets[i] = -1;
    }
}

/* A document has a row of its own, so that its tokens see no other one. */
static strait_err fill_document(const strait_sampler *sampler, const strait_sampler_place *place,
                                int32_t *inputs, int32_t *targets) {
    STRAIT_TRY(read_document(sampler, place, inputs, targets));
    pad(sampler, n_inputs(sampler, place), inputs, targets);
    return STRAIT_OK;
}

/* Documents one after the other; who computes with them finds their bounds by the tags. */
static strait_err fill_packed(const strait_sampler *sampler, const strait_sampler_place *place,
                              int32_t *inputs, int32_t *targets) {
    const strait_packing *packing = &sampler->corpus->shards[place->shard].packing;
    int64_t at = 0;
    for (int64_t i = packing->rows[place->row]; i < packing->rows[place->row + 1]; i++) {
        const strait_sampler_place one = place_of(sampler, place->shard, packing->order[i]);
        STRAIT_TRY(read_document(sampler, &one, inputs + at, targets + at));
        inputs[at] |= STRAIT_TOKEN_FIRST;
        at += n_inputs(sampler, &one);
    }
    pad(sampler, at, inputs, targets);
    if (at < sampler->context) inputs[at] |= STRAIT_TOKEN_FIRST;
    return STRAIT_OK;
}

static strait_err count_document(const strait_sampler *sampler, const strait_sampler_place *place,
                                 int64_t *count) {
    const struct strait_corpus *corpus = sampler->corpus;
    const int64_t n = n_inputs(sampler, place);
    int32_t piece[512];
    for (int64_t first = 0; first < n; first += 512) {
        const int64_t some = n - first < 512 ? n - first : 512;
        STRAIT_TRY(strait_shard_read_targets(&corpus->shards[place->shard],
                                             place->first + 1 + first, some, corpus->vocab, piece));
        for (int64_t i = 0; i < some; i++)
            *count += piece[i] >= 0;
    }
    return STRAIT_OK;
}

/* The same for a row of packed documents. */
static strait_err count_packed(const strait_sampler *sampler, const strait_sampler_place *place,
                               int64_t *count) {
    const strait_packing *packing = &sampler->corpus->shards[place->shard].packing;
    for (int64_t i = packing->rows[place->row]; i < packing->rows[place->row + 1]; i++) {
        const strait_sampler_place one = place_of(sampler, place->shard, packing->order[i]);
        STRAIT_TRY(count_document(sampler, &one, count));
    }
    return STRAIT_OK;
}

strait_sampler_fit strait_sampler_measure(const strait_sampler *sampler) {
    const struct strait_corpus *corpus = sampler->corpus;
    strait_sampler_fit fit = {.used = 1.0};
    double used = 0;
    for (int i = 0; i < corpus->n_shards; i++) {
        const struct strait_shard *shard = &corpus->shards[i];
        if (shard->is_tagged) fit.n_rows += windows_in(sampler, shard);
        for (int64_t k = 0; k < shard->n_documents; k++) {
            fit.n_cut += strait_shard_document_end(shard, k) - shard->documents[k] >
                         sampler->context + 1;
            used += (double)strait_packing_inputs(shard, k, sampler->context);
        }
    }
    if (fit.n_rows > 0) fit.used = used / ((double)fit.n_rows * (double)sampler->context);
    return fit;
}

strait_err strait_sampler_count_targets(const strait_sampler *sampler, int64_t first_sequence,
                                        int64_t n, int64_t *out) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        const strait_sampler_place place = strait_sampler_find(sampler, first_sequence + i);
        if (place.row >= 0)
            STRAIT_TRY(count_packed(sampler, &place, &count));
        else if (sampler->corpus->shards[place.shard].is_tagged)
            STRAIT_TRY(count_document(sampler, &place, &count));
        else
            count += sampler->context;
    }
    *out = count;
    return STRAIT_OK;
}

static strait_err count_windows(strait_sampler *sampler) {
    const struct strait_corpus *corpus = sampler->corpus;
    if (sampler->context < 1)
        return STRAIT_FAIL(STRAIT_EINVAL, "a context of %lld tokens", (long long)sampler->context);
    for (int i = 0; i < corpus->n_shards; i++)
        sampler->n_windows += windows_in(sampler, &corpus->shards[i]);
    if (sampler->n_windows == 0)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s: no shard holds %lld tokens, one more than the context; lower "
                           "model.context or bring more text",
                           corpus->name, (long long)sampler->context + 1);
    return STRAIT_OK;
}

strait_err strait_sampler_init(const struct strait_corpus *corpus, int64_t context, uint64_t seed,
                               strait_sampler *out) {
    strait_sampler sampler = {.corpus = corpus, .context = context, .seed = seed};
    STRAIT_TRY(count_windows(&sampler));
    *out = sampler;
    return STRAIT_OK;
}

strait_err strait_sampler_in_order(const struct strait_corpus *corpus, int64_t context,
                                   strait_sampler *out) {
    strait_sampler sampler = {.corpus = corpus, .context = context, .is_in_order = 1};
    STRAIT_TRY(count_windows(&sampler));
    *out = sampler;
    return STRAIT_OK;
}

strait_err strait_sampler_fill(const strait_sampler *sampler, int64_t first_sequence, int64_t n,
                               int32_t *inputs, int32_t *targets) {
    const struct strait_corpus *corpus = sampler->corpus;
    const int64_t context = sampler->context;
    for (int64_t row = 0; row < n; row++) {
        const strait_sampler_place place = strait_sampler_find(sampler, first_sequence + row);
        const struct strait_shard *shard = &corpus->shards[place.shard];
        int32_t *input = inputs + row * context;
        int32_t *target = targets + row * context;
        if (shard->is_tagged) {
            STRAIT_TRY(place.row >= 0 ? fill_packed(sampler, &place, input, target)
                                      : fill_document(sampler, &place, input, target));
            continue;
        }
        /* Targets are the inputs shifted by one; only the last target is not among the inputs. */
        STRAIT_TRY(strait_shard_read(shard, place.first, context, corpus->vocab, input));
        memcpy(target, input + 1, (size_t)(context - 1) * sizeof *target);
        STRAIT_TRY(strait_shard_read(shard, place.first + context, 1, corpus->vocab,
                                     target + context - 1));
    }
    return STRAIT_OK;
}
