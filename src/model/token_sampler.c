#include "model/token_sampler.h"

#include "base/alloc.h"

#include <math.h>
#include <stdlib.h>

struct candidate {
    float logit;
    int32_t token;
};

struct strait_token_sampler {
    strait_token_sampler_params how;
    int64_t vocab;
    struct candidate *candidates;
};

strait_err strait_token_sampler_open(int64_t vocab, strait_token_sampler_params how,
                                     struct strait_token_sampler **out) {
    if (!(how.temperature >= 0.0f && how.temperature <= 100.0f))
        return STRAIT_FAIL(STRAIT_ECONFIG, "temperature must lie between 0 and 100");
    if (how.top_k < 0) return STRAIT_FAIL(STRAIT_ECONFIG, "top-k must not be negative");
    if (!(how.top_p > 0.0f && how.top_p <= 1.0f))
        return STRAIT_FAIL(STRAIT_ECONFIG, "top-p must lie above 0 and up to 1");
    struct strait_token_sampler *chooser = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *chooser, "chooser", (void **)&chooser));
    chooser->how = how;
    chooser->vocab = vocab;
    const strait_err err = strait_alloc((size_t)vocab, sizeof *chooser->candidates, "candidates",
                                        (void **)&chooser->candidates);
    if (err != STRAIT_OK) {
        strait_token_sampler_close(&chooser);
        return err;
    }
    *out = chooser;
    return STRAIT_OK;
}

void strait_token_sampler_close(struct strait_token_sampler **chooser) {
    if (*chooser == NULL) return;
    strait_alloc_free((*chooser)->candidates);
    strait_alloc_free(*chooser);
    *chooser = NULL;
}

static int32_t likeliest(const float *logits, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

/* Likelier first; equal ones by their number, so that the order is one and the same everywhere. */
static int by_logit(const void *a, const void *b) {
    const struct candidate *x = a;
    const struct candidate *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->token < y->token ? -1 : x->token > y->token;
}

static double weight(const struct strait_token_sampler *chooser, int64_t i) {
    const struct candidate *c = chooser->candidates;
    return exp((double)(c[i].logit - c[0].logit) / (double)chooser->how.temperature);
}

/* How many of the n likeliest reach the share top_p of their sum, and what they weigh. */
static int64_t cut(const struct strait_token_sampler *chooser, int64_t n, double *weight_sum) {
    double total = 0.0;
    for (int64_t i = 0; i < n; i++)
        total += weight(chooser, i);
    *weight_sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        *weight_sum += weight(chooser, i);
        if (*weight_sum >= (double)chooser->how.top_p * total) return i + 1;
    }
    return n;
}

int32_t strait_token_sampler_pick(struct strait_token_sampler *chooser, const float *logits,
                                  float chance) {
    const strait_token_sampler_params how = chooser->how;
    struct candidate *c = chooser->candidates;
    if (how.temperature == 0.0f || how.top_k == 1) return likeliest(logits, chooser->vocab);
    for (int64_t i = 0; i < chooser->vocab; i++)
        c[i] = (struct candidate){logits[i], (int32_t)i};
    qsort(c, (size_t)chooser->vocab, sizeof *c, by_logit);
    const int64_t allowed = how.top_k > 0 && how.top_k < chooser->vocab ? how.top_k
                                                                        : chooser->vocab;
    double total = 0.0;
    const int64_t n = cut(chooser, allowed, &total);
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += weight(chooser, i);
        if (sum > (double)chance * total) return c[i].token;
    }
    return c[n - 1].token;
}
