/* choose.h - the next token from the logits: temperature, top-k, top-p, and chance as an argument.
 */
#pragma once

#include "base/error.h"

#include <stdint.h>

typedef struct strait_choose_how {
    float temperature; // 0: always the likeliest
    int64_t top_k;     // only the k likeliest; 0: all
    float top_p;       // the fewest likeliest that together reach this probability; 1: all
} strait_choose_how;

struct strait_chooser;

/* Makes room for a vocabulary. STRAIT_ECONFIG when a setting is out of its bounds. */
strait_err strait_chooser_open(int64_t vocab, strait_choose_how how, struct strait_chooser **out);
void strait_chooser_close(struct strait_chooser **chooser); // accepts NULL

/* `chance` in [0, 1) decides; the same logits and chance give the same token. No allocation. */
int32_t strait_chooser_pick(struct strait_chooser *chooser, const float *logits, float chance);
