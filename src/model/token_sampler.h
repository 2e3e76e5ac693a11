/* token_sampler.h - draws the next token from logits: temperature, top-k and top-p. The random
 * number is an argument, so that the same arguments give the same token on every machine. */
#pragma once

#include "base/error.h"

#include <stdint.h>

typedef struct strait_token_sampler_params {
    float temperature; // 0: always the most likely token
    int64_t top_k;     // only the k most likely tokens; 0: all
    float top_p; // only the fewest most likely tokens whose probabilities reach this sum; 1: all
} strait_token_sampler_params;

struct strait_token_sampler;

/* Allocates memory for a vocabulary. STRAIT_ECONFIG if a parameter is out of bounds. */
strait_err strait_token_sampler_open(int64_t vocab, strait_token_sampler_params params,
                                     struct strait_token_sampler **out);
void strait_token_sampler_close(struct strait_token_sampler **sampler); // accepts NULL

/* Draws a token by `random`, uniform in [0, 1). Does not allocate. One thread at a time. */
int32_t strait_token_sampler_pick(struct strait_token_sampler *sampler, const float *logits,
                                  float random);
