/* logits.c - logits RUN OUT.safetensors N ID...: continues the tokens greedily by N more and writes
 * all tokens, and the logits after each, for tools/convert/check-hf-export.py. */
#include "base/alloc.h"
#include "infer/trained_model.h"
#include "store/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Fills tokens[n_given..n) and logits [n x vocab]. */
static strait_err continue_tokens(struct strait_trained_model *model, int32_t *tokens, int n_given,
                                  int n, float *logits) {
    const int64_t vocab = model->plan.shape.vocab;
    for (int i = 0; i < n; i++) {
        const float *next = NULL;
        int32_t best = 0;
        STRAIT_TRY(strait_staged_model_feed(model->stages, tokens[i], &next));
        memcpy(logits + i * vocab, next, (size_t)vocab * sizeof *logits);
        for (int32_t v = 1; v < vocab; v++)
            if (next[v] > next[best]) best = v;
        if (i + 1 >= n_given && i + 1 < n) tokens[i + 1] = best;
    }
    return STRAIT_OK;
}

static strait_err write_all(const char *path, int32_t *tokens, int n, float *logits,
                            int64_t vocab) {
    const strait_safetensors_item items[] = {
        {"tokens", {tokens, STRAIT_I32, 1, n}, .is_vector = 1},
        {"logits", {logits, STRAIT_F32, n, vocab}, .is_vector = 0}};
    const strait_safetensors_content content = {.items = items, .n_items = 2};
    return strait_safetensors_write(path, &content);
}

static strait_err run(int argc, char **argv) {
    const strait_backend_spec backend = {.name = "cpu", .n_threads = 1};
    struct strait_trained_model *model = NULL;
    int32_t *tokens = NULL;
    float *logits = NULL;
    const int n_given = argc - 4, n = n_given + (int)strtol(argv[3], NULL, 10);
    STRAIT_TRY(strait_trained_model_open(argv[1], NULL, backend, 0, &model));
    const int64_t vocab = model->plan.shape.vocab;
    strait_err err = strait_alloc((size_t)n, sizeof *tokens, "tokens", (void **)&tokens);
    if (err == STRAIT_OK)
        err = strait_alloc((size_t)(n * vocab), sizeof *logits, "logits", (void **)&logits);
    for (int i = 0; err == STRAIT_OK && i < n_given; i++)
        tokens[i] = (int32_t)strtol(argv[4 + i], NULL, 10);
    if (err == STRAIT_OK) err = continue_tokens(model, tokens, n_given, n, logits);
    if (err == STRAIT_OK) err = write_all(argv[2], tokens, n, logits, vocab);
    strait_alloc_free(logits);
    strait_alloc_free(tokens);
    strait_trained_model_close(&model);
    return err;
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    const strait_err err = run(argc, argv);
    if (err != STRAIT_OK) fprintf(stderr, "logits: %s\n", strait_err_detail());
    return err == STRAIT_OK ? 0 : 3;
}
