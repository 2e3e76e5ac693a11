/* choose.h - the next token from the logits: temperature, top-k, top-p, and chance as an argument.
 */
#pragma once

#include "base/error.h"

#include <stdint.h>

typedef struct strait_token_sampler_params {
    float temperature; // 0: always the likeliest
    int64_t top_k;     // only the k likeliest; 0: all
    float top_p;       // the fewest likeliest that together reach this probability; 1: all
} strait_token_sampler_params;

struct strait_token_sampler;

/* Makes room for a vocabulary. STRAIT_ECONFIG when a setting is out of its bounds. */
strait_err strait_token_sampler_open(int64_t vocab, strait_token_sampler_params how,
                                     struct strait_token_sampler **out);
void strait_token_sampler_close(struct strait_token_sampler **chooser); // accepts NULL

/* `chance` in [0, 1) decides; the same logits and chance give the same token. No allocation. */
int32_t strait_token_sampler_pick(struct strait_token_sampler *chooser, const float *logits,
                                  float chance);
