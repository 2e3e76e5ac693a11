/* received_ids.h - token ids that a worker without shards received from its coordinator: all
 * microbatches of one step, or of a validation. One thread uses it at a time. */
#pragma once

#include "base/error.h"

#include <stdint.h>

typedef struct strait_received_ids {
    int32_t *tokens, *targets;  // n_batches * n_tokens each
    unsigned char *has_arrived; // per microbatch
    int64_t n_batches, n_tokens;
    int64_t vocab;
    int has_tags; // tokens may have STRAIT_TOKEN_FIRST: documents share rows
} strait_received_ids;

/* Allocates space for n_batches microbatches of n_tokens ids below `vocab`. */
strait_err strait_received_ids_init(strait_received_ids *received, int64_t n_batches,
                                    int64_t n_tokens, int64_t vocab);
void strait_received_ids_fini(strait_received_ids *received); // accepts a zeroed one

/* Forgets what has arrived. Accepts a zeroed one. */
void strait_received_ids_clear(strait_received_ids *received);

/* Copies one microbatch in; either pointer may be NULL. STRAIT_EPROTO: it is out of range, or an id
 * is outside the vocabulary. A target may be -1. */
strait_err strait_received_ids_put(strait_received_ids *received, int64_t batch,
                                   const int32_t *tokens, const int32_t *targets);

/* Copies one microbatch out. STRAIT_EPROTO: it has not arrived. */
strait_err strait_received_ids_get(const strait_received_ids *received, int64_t batch,
                                   int32_t *tokens, int32_t *targets);

/* Counts the targets among the first n positions that are not -1. STRAIT_EPROTO: some are -1, and
 * not all microbatches have arrived, so that the others cannot be counted. */
strait_err strait_received_ids_targets(const strait_received_ids *received, int64_t n,
                                       int64_t *out);
