#include "infer/score_documents.h"

#include "base/alloc.h"
#include "data/sampler.h"

/* One batch: documents in rows, then rows without targets, so that every batch has one shape. */
static strait_err score_batch(struct strait_trained_model *t, const strait_sampler *sampler,
                              int64_t first, int32_t *ids, float *losses,
                              strait_model_score *score) {
    const int64_t rows = t->use.n_sequences, n = rows * t->use.seq_len;
    const int64_t left = sampler->n_windows - first;
    const int64_t filled = left < rows ? left : rows;
    int32_t *targets = ids + n;
    for (int64_t i = 0; i < n; i++) {
        ids[i] = 0;
        targets[i] = -1;
    }
    STRAIT_TRY(strait_sampler_fill(sampler, first, filled, ids, targets));
    STRAIT_TRY(strait_trained_model_score(t, ids, targets, losses));
    for (int64_t i = 0; i < n; i++) {
        score->loss_sum += (double)losses[i];
        score->n_tokens += targets[i] >= 0;
    }
    return STRAIT_OK;
}

strait_err strait_score_documents(struct strait_trained_model *t,
                                  const struct strait_corpus *corpus,
                                  strait_trained_model_progress progress, strait_model_score *out) {
    const size_t n = (size_t)(t->use.n_sequences * t->use.seq_len);
    strait_model_score score = {0};
    strait_sampler sampler;
    int32_t *ids = NULL;
    float *losses = NULL;
    STRAIT_TRY(strait_sampler_in_order(corpus, t->use.seq_len, &sampler));
    strait_err err = strait_alloc(2 * n, sizeof *ids, "ids", (void **)&ids);
    if (err == STRAIT_OK) err = strait_alloc(n, sizeof *losses, "losses", (void **)&losses);
    for (int64_t i = 0; err == STRAIT_OK && i < sampler.n_windows; i += t->use.n_sequences) {
        err = score_batch(t, &sampler, i, ids, losses, &score);
        if (err == STRAIT_OK && progress.report != NULL)
            progress.report(progress.arg, score.n_tokens);
    }
    if (err == STRAIT_OK && score.n_tokens == 0)
        err = STRAIT_FAIL(STRAIT_EDATA, "%s: no document has a target within the context of %lld",
                          corpus->name, (long long)t->use.seq_len);
    strait_alloc_free(ids);
    strait_alloc_free(losses);
    if (err == STRAIT_OK) *out = score;
    return err;
}
