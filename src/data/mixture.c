#include "data/mixture.h"

#include "base/alloc.h"
#include "base/rng/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The weight after the last colon of a source; 0 if there is none. *n is then the length of its
 * name. */
static double weight_of(const char *source, size_t *n) {
    char text[64];
    size_t colon = *n;
    while (colon > 0 && source[colon - 1] != ':')
        colon--;
    const size_t length = *n - colon;
    if (colon == 0 || length == 0 || length >= sizeof text) return 0.0;
    memcpy(text, source + colon, length);
    text[length] = '\0';
    char *end = NULL;
    const double weight = strtod(text, &end);
    if (*end != '\0' || !(weight > 0.0) || !isfinite(weight)) return 0.0;
    *n = colon - 1;
    return weight;
}

static int count_weights(const char *name, int *n_sources) {
    int n = 0;
    *n_sources = 0;
    for (const char *at = name;; at++) {
        size_t length = strcspn(at, ",");
        const char *next = at + length;
        n += weight_of(at, &length) > 0.0;
        (*n_sources)++;
        at = next;
        if (*at == '\0') return n;
    }
}

int strait_mixture_has_weights(const char *name) {
    int n = 0;
    return count_weights(name, &n) > 0;
}

/* Shards of one source were compared with each other; sources are compared with the first that
 * says something. */
static strait_err merge(struct strait_mixture *m, const struct strait_corpus *corpus) {
    if (corpus->vocab != 0 && m->vocab != 0 && corpus->vocab != m->vocab)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s: vocabulary of %lld, but the sources before it have %lld",
                           corpus->name, (long long)corpus->vocab, (long long)m->vocab);
    if (corpus->tokenizer[0] != '\0' && m->tokenizer[0] != '\0' &&
        strcmp(corpus->tokenizer, m->tokenizer) != 0)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s: tokenized with tokenizer %s, but the sources before it with %s; "
                           "tokenize all with the same",
                           corpus->name, corpus->tokenizer, m->tokenizer);
    if (corpus->vocab != 0) m->vocab = corpus->vocab;
    if (corpus->tokenizer[0] != '\0') m->tokenizer = corpus->tokenizer;
    m->n_tokens += corpus->n_tokens;
    m->n_documents += corpus->n_documents;
    return STRAIT_OK;
}

static strait_err add_source(struct strait_mixture *m, const char *name, double weight,
                             strait_corpus_format format) {
    strait_mixture_source *source = &m->sources[m->n_sources++];
    source->weight = weight;
    STRAIT_TRY(strait_corpus_open_as(name, format, &source->corpus));
    return merge(m, source->corpus);
}

static strait_err add_sources(struct strait_mixture *m, strait_corpus_format format) {
    int n = 0;
    const int n_weights = count_weights(m->name, &n);
    if (n_weights == 0) return add_source(m, m->name, 1.0, format);
    if (n_weights < n)
        return STRAIT_FAIL(
            STRAIT_ECONFIG,
            "\"%s\": %d of %d sources have a weight above 0; give one to all or to none", m->name,
            n_weights, n);
    if (n > STRAIT_MIXTURE_SOURCES)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%d sources; at most %d can be mixed", n,
                           STRAIT_MIXTURE_SOURCES);
    for (const char *at = m->name; n > 0; n--) {
        size_t length = strcspn(at, ",");
        const char *next = at + length + 1;
        char path[STRAIT_PATH_MAX];
        const double weight = weight_of(at, &length);
        STRAIT_TRY(strait_file_path(path, "%.*s", (int)length, at));
        STRAIT_TRY(add_source(m, path, weight, format));
        at = next;
    }
    return STRAIT_OK;
}

/* Turns weights into whole numbers that add up to a round: rounded down first, then those that lost
 * most get one more. */
static strait_err divide_round(struct strait_mixture *m) {
    double sum = 0.0, lost[STRAIT_MIXTURE_SOURCES];
    int64_t left = STRAIT_MIXTURE_ROUND;
    for (int i = 0; i < m->n_sources; i++)
        sum += m->sources[i].weight;
    for (int i = 0; i < m->n_sources; i++) {
        const double exact = m->sources[i].weight / sum * STRAIT_MIXTURE_ROUND;
        m->sources[i].share = (int64_t)floor(exact);
        lost[i] = exact - floor(exact);
        left -= m->sources[i].share;
    }
    for (; left > 0; left--) {
        int most = 0;
        for (int i = 1; i < m->n_sources; i++)
            if (lost[i] > lost[most]) most = i;
        m->sources[most].share++;
        lost[most] = -1.0;
    }
    int64_t before = 0;
    for (int i = 0; i < m->n_sources; i++) {
        if (m->sources[i].share == 0)
            return STRAIT_FAIL(STRAIT_ECONFIG,
                               "%s: its weight %g is less than a thousandth of the sum %g: raise "
                               "it or leave the source out",
                               m->sources[i].corpus->name, m->sources[i].weight, sum);
        m->sources[i].before = before;
        before += m->sources[i].share;
    }
    return STRAIT_OK;
}

strait_err strait_mixture_open(const char *name, strait_corpus_format format,
                               struct strait_mixture **out) {
    struct strait_mixture *m = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *m, "training data", (void **)&m));
    m->tokenizer = "";
    strait_err err = strait_alloc_string(name, &m->name);
    if (err == STRAIT_OK) err = add_sources(m, format);
    if (err == STRAIT_OK) err = divide_round(m);
    if (err == STRAIT_OK)
        *out = m;
    else
        strait_mixture_close(&m);
    return err;
}

void strait_mixture_close(struct strait_mixture **mixture) {
    struct strait_mixture *m = *mixture;
    if (m == NULL) return;
    for (int i = 0; i < m->n_sources; i++)
        strait_corpus_close(&m->sources[i].corpus);
    strait_alloc_free(m->name);
    strait_alloc_free(m);
    *mixture = NULL;
}

strait_err strait_mixture_expect(struct strait_mixture *mixture, int64_t vocab,
                                 const char *tokenizer) {
    for (int i = 0; i < mixture->n_sources; i++)
        STRAIT_TRY(strait_corpus_expect(mixture->sources[i].corpus, vocab, tokenizer));
    return STRAIT_OK;
}

strait_err strait_mixture_check(const struct strait_mixture *mixture) {
    for (int i = 0; i < mixture->n_sources; i++)
        STRAIT_TRY(strait_corpus_check(mixture->sources[i].corpus));
    return STRAIT_OK;
}

strait_err strait_mixture_pack(struct strait_mixture *mixture, int64_t context) {
    if (mixture->n_documents == 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "data.pack: %s has no documents; they are written by strait tokenize "
                           "--format chat. Text without bounds fills its rows in any case",
                           mixture->name);
    for (int i = 0; i < mixture->n_sources; i++)
        STRAIT_TRY(strait_corpus_pack(mixture->sources[i].corpus, context));
    return STRAIT_OK;
}

/* Every source has an order of its own: two copies of one file must not be read in step. */
strait_err strait_mixture_start(struct strait_mixture *mixture, int64_t context, uint64_t seed) {
    mixture->seed = seed;
    for (int i = 0; i < mixture->n_sources; i++) {
        strait_mixture_source *source = &mixture->sources[i];
        const strait_rng rng = {seed, strait_rng_stream("mixture.source")};
        const uint64_t own = mixture->n_sources == 1 ? seed : strait_rng_u64(rng, (uint64_t)i);
        STRAIT_TRY(strait_sampler_init(source->corpus, context, own, &source->sampler));
    }
    return STRAIT_OK;
}

strait_mixture_place strait_mixture_find(const struct strait_mixture *mixture, int64_t sequence) {
    if (mixture->n_sources == 1) return (strait_mixture_place){0, sequence};
    const int64_t round = sequence / STRAIT_MIXTURE_ROUND;
    const strait_rng rng = {mixture->seed, strait_rng_stream("mixture.order") + (uint64_t)round};
    const int64_t x = strait_sampler_permute(rng, STRAIT_MIXTURE_ROUND,
                                             sequence % STRAIT_MIXTURE_ROUND);
    int i = mixture->n_sources - 1;
    while (x < mixture->sources[i].before)
        i--;
    const strait_mixture_source *source = &mixture->sources[i];
    return (strait_mixture_place){i, round * source->share + x - source->before};
}

strait_err strait_mixture_fill(const struct strait_mixture *mixture, int64_t first_sequence,
                               int64_t n, int32_t *inputs, int32_t *targets) {
    const int64_t context = mixture->sources[0].sampler.context;
    if (mixture->n_sources == 1)
        return strait_sampler_fill(&mixture->sources[0].sampler, first_sequence, n, inputs,
                                   targets);
    for (int64_t row = 0; row < n; row++) {
        const strait_mixture_place place = strait_mixture_find(mixture, first_sequence + row);
        STRAIT_TRY(strait_sampler_fill(&mixture->sources[place.source].sampler, place.sequence, 1,
                                       inputs + row * context, targets + row * context));
    }
    return STRAIT_OK;
}

strait_err strait_mixture_count_targets(const struct strait_mixture *mixture,
                                        int64_t first_sequence, int64_t n, int64_t *out) {
    int64_t count = 0;
    for (int64_t row = 0; row < n; row++) {
        const strait_mixture_place place = strait_mixture_find(mixture, first_sequence + row);
        int64_t some = 0;
        STRAIT_TRY(strait_sampler_count_targets(&mixture->sources[place.source].sampler,
                                                place.sequence, 1, &some));
        count += some;
    }
    *out = count;
    return STRAIT_OK;
}
