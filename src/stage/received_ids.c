#include "stage/received_ids.h"

#include "base/alloc.h"
#include "data/shard.h"

#include <string.h>

strait_err strait_received_ids_init(strait_received_ids *received, int64_t n_batches,
                                    int64_t n_tokens, int64_t vocab) {
    const size_t n = (size_t)(n_batches * n_tokens);
    strait_received_ids_fini(received);
    *received = (strait_received_ids){.n_batches = n_batches, .n_tokens = n_tokens, .vocab = vocab};
    STRAIT_TRY(strait_alloc(n, sizeof(int32_t), "received token ids", (void **)&received->tokens));
    STRAIT_TRY(strait_alloc(n, sizeof(int32_t), "received token ids", (void **)&received->targets));
    return strait_alloc((size_t)n_batches, 1, "received token ids",
                        (void **)&received->has_arrived);
}

void strait_received_ids_fini(strait_received_ids *received) {
    strait_alloc_free(received->tokens);
    strait_alloc_free(received->targets);
    strait_alloc_free(received->has_arrived);
    *received = (strait_received_ids){0};
}

void strait_received_ids_clear(strait_received_ids *received) {
    if (received->has_arrived != NULL)
        memset(received->has_arrived, 0, (size_t)received->n_batches);
}

/* Ids index the embedding table, so ids from the network must be checked before use. */
static int all_in_range(const int32_t *ids, int64_t n, int64_t vocab, int32_t least, int32_t tags) {
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < least || (ids[i] & ~tags) >= vocab) return 0;
    return 1;
}

strait_err strait_received_ids_put(strait_received_ids *received, int64_t batch,
                                   const int32_t *tokens, const int32_t *targets) {
    const int64_t n = received->n_tokens;
    if (received->has_arrived == NULL || batch < 0 || batch >= received->n_batches)
        return STRAIT_FAIL(STRAIT_EPROTO,
                           "received token ids of microbatch %lld, expected 0 to %lld",
                           (long long)batch, (long long)received->n_batches - 1);
    const int32_t tags = received->has_tags ? STRAIT_TOKEN_FIRST : 0;
    if ((tokens != NULL && !all_in_range(tokens, n, received->vocab, 0, tags)) ||
        (targets != NULL && !all_in_range(targets, n, received->vocab, -1, 0)))
        return STRAIT_FAIL(STRAIT_EPROTO,
                           "received token ids of microbatch %lld outside the vocabulary of %lld",
                           (long long)batch, (long long)received->vocab);
    const size_t bytes = (size_t)n * sizeof(int32_t);
    if (tokens != NULL) memcpy(received->tokens + batch * n, tokens, bytes);
    if (targets != NULL) memcpy(received->targets + batch * n, targets, bytes);
    received->has_arrived[batch] = 1;
    return STRAIT_OK;
}

/* A missing microbatch is an error of the sender, which sends them before the command that uses
 * them. */
strait_err strait_received_ids_get(const strait_received_ids *received, int64_t batch,
                                   int32_t *tokens, int32_t *targets) {
    const int64_t n = received->n_tokens;
    if (batch < 0 || batch >= received->n_batches || !received->has_arrived[batch])
        return STRAIT_FAIL(STRAIT_EPROTO, "token ids of microbatch %lld have not been received",
                           (long long)batch);
    memcpy(tokens, received->tokens + batch * n, (size_t)n * sizeof *tokens);
    memcpy(targets, received->targets + batch * n, (size_t)n * sizeof *targets);
    return STRAIT_OK;
}

/* Text without prompts has a target at every position, also where it has not arrived: a replica
 * receives its own microbatches only. */
strait_err strait_received_ids_targets(const strait_received_ids *received, int64_t n,
                                       int64_t *out) {
    int64_t n_without = 0, n_missing = 0;
    for (int64_t i = 0; i < n; i++) {
        const int has_arrived = received->has_arrived[i / received->n_tokens];
        n_missing += !has_arrived;
        n_without += has_arrived && received->targets[i] < 0;
    }
    if (n_without > 0 && n_missing > 0)
        return STRAIT_FAIL(STRAIT_EPROTO,
                           "documents with prompts need the token ids of all microbatches on the "
                           "last stage: %lld tokens have not been received",
                           (long long)n_missing);
    *out = n - n_without;
    return STRAIT_OK;
}
