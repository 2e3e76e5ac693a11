/* documents.h - the documents of packed microbatches (data/packing.h): found by the tags of token
 * ids, which are removed, and kept for each slot until it is filled again. */
#pragma once

#include "base/error.h"
#include "model/layer.h"

#include <stdint.h>

/* Zeroed is closed; of a run that does not pack, it stays so. */
struct strait_slot_documents {
    int32_t *starts;    // per slot n_tokens + 1
    int64_t *n;         // documents of each slot
    int64_t n_tokens;   // of a microbatch
    int64_t row_length; // a row of the context begins a document in any case
};

strait_err strait_slot_documents_open(struct strait_slot_documents *documents, int n_slots,
                                      int64_t n_tokens, int64_t row_length);
void strait_slot_documents_close(struct strait_slot_documents *documents);

/* Notes the documents of the ids of a slot and removes the tags. Does nothing where closed. */
void strait_slot_documents_take(struct strait_slot_documents *documents, int slot, int32_t *ids);

/* Those of a slot, borrowed until it is filled again; none where closed. */
strait_documents strait_slot_documents_of(const struct strait_slot_documents *documents, int slot);
