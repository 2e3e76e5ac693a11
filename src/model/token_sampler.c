#include "model/token_sampler.h"

#include "base/alloc.h"

#include <math.h>
#include <stdlib.h>

/* A token with its logit, so that sorting keeps the two together. */
struct candidate {
    float logit;
    int32_t token;
};

struct strait_token_sampler {
    strait_token_sampler_params params;
    int64_t vocab;
    struct candidate *candidates;
};

strait_err strait_token_sampler_open(int64_t vocab, strait_token_sampler_params params,
                                     struct strait_token_sampler **out) {
    if (!(params.temperature >= 0.0f && params.temperature <= 100.0f))
        return STRAIT_FAIL(STRAIT_ECONFIG, "temperature must be between 0 and 100");
    if (params.top_k < 0) return STRAIT_FAIL(STRAIT_ECONFIG, "top-k must not be negative");
    if (!(params.top_p > 0.0f && params.top_p <= 1.0f))
        return STRAIT_FAIL(STRAIT_ECONFIG, "top-p must be above 0 and at most 1");
    struct strait_token_sampler *sampler = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *sampler, "token sampler", (void **)&sampler));
    sampler->params = params;
    sampler->vocab = vocab;
    const strait_err err = strait_alloc((size_t)vocab, sizeof *sampler->candidates, "candidates",
                                        (void **)&sampler->candidates);
    if (err != STRAIT_OK) {
        strait_token_sampler_close(&sampler);
        return err;
    }
    *out = sampler;
    return STRAIT_OK;
}

void strait_token_sampler_close(struct strait_token_sampler **sampler) {
    if (*sampler == NULL) return;
    strait_alloc_free((*sampler)->candidates);
    strait_alloc_free(*sampler);
    *sampler = NULL;
}

/* The first of equals, as the order of by_logit. */
static int32_t most_likely(const float *logits, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

/* More likely first. Ties are broken by id: qsort is not stable, and the order must not depend on
 * the C library. */
static int by_logit(const void *a, const void *b) {
    const struct candidate *x = a;
    const struct candidate *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->token < y->token ? -1 : x->token > y->token;
}

/* Unnormalised probability of candidate i. Relative to the largest logit, so that exp cannot
 * overflow. */
static double weight(const struct strait_token_sampler *sampler, int64_t i) {
    const struct candidate *c = sampler->candidates;
    return exp((double)(c[i].logit - c[0].logit) / (double)sampler->params.temperature);
}

/* The number of candidates, of the first n, whose weights reach top_p of the sum of all n, and the
 * sum of their weights. */
static int64_t keep_top_p(const struct strait_token_sampler *sampler, int64_t n,
                          double *weight_sum) {
    double total = 0.0;
    for (int64_t i = 0; i < n; i++)
        total += weight(sampler, i);
    *weight_sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        *weight_sum += weight(sampler, i);
        if (*weight_sum >= (double)sampler->params.top_p * total) return i + 1;
    }
    return n;
}

int32_t strait_token_sampler_pick(struct strait_token_sampler *sampler, const float *logits,
                                  float random) {
    const strait_token_sampler_params params = sampler->params;
    struct candidate *c = sampler->candidates;
    if (params.temperature == 0.0f || params.top_k == 1) return most_likely(logits, sampler->vocab);
    for (int64_t i = 0; i < sampler->vocab; i++)
        c[i] = (struct candidate){logits[i], (int32_t)i};
    qsort(c, (size_t)sampler->vocab, sizeof *c, by_logit);
    const int64_t allowed = params.top_k > 0 && params.top_k < sampler->vocab ? params.top_k
                                                                              : sampler->vocab;
    double total = 0.0;
    const int64_t n = keep_top_p(sampler, allowed, &total);
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += weight(sampler, i);
        if (sum > (double)random * total) return c[i].token;
    }
    return c[n - 1].token; // only by rounding of the sums
}
