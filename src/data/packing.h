/* packing.h - which documents of a shard share a row of the context.
 *
 * Documents are put into rows in the order of the shard: each into the fullest of a few open rows
 * that still has capacity for it. The result depends on nothing but their lengths and the context,
 * so every machine computes the same rows. */
#pragma once

#include "base/error.h"

#include <stdint.h>

struct strait_shard;

/* Zeroed is empty. Row r has the documents order[rows[r]] to order[rows[r + 1] - 1]. */
typedef struct strait_packing {
    int64_t *order; // numbers of documents
    int64_t *rows;  // n_rows + 1
    int64_t n_rows; // 0: not packed
} strait_packing;

/* How many tokens of document i a row of `context` reads as inputs: the last token of a document is
 * a target only, and what is beyond the context is cut off. */
int64_t strait_packing_inputs(const struct strait_shard *shard, int64_t i, int64_t context);

/* Packs the documents of a shard, and replaces an earlier packing in it. A document of one token,
 * which has no target, is in no row. */
strait_err strait_packing_fill(struct strait_shard *shard, int64_t context);
void strait_packing_fini(strait_packing *packing); // accepts a zeroed one
