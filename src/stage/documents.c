#include "stage/documents.h"

#include "base/alloc.h"
#include "data/shard.h"

strait_err strait_slot_documents_open(struct strait_slot_documents *documents, int n_slots,
                                      int64_t n_tokens, int64_t row_length) {
    const size_t n = (size_t)n_slots;
    documents->n_tokens = n_tokens;
    documents->row_length = row_length;
    STRAIT_TRY(strait_alloc(n, sizeof *documents->n, "documents", (void **)&documents->n));
    return strait_alloc(n * (size_t)(n_tokens + 1), sizeof *documents->starts, "documents",
                        (void **)&documents->starts);
}

void strait_slot_documents_close(struct strait_slot_documents *documents) {
    strait_alloc_free(documents->starts);
    strait_alloc_free(documents->n);
    *documents = (struct strait_slot_documents){0};
}

void strait_slot_documents_take(struct strait_slot_documents *documents, int slot, int32_t *ids) {
    if (documents->starts == NULL) return;
    int32_t *starts = documents->starts + slot * (documents->n_tokens + 1);
    int64_t n = 0;
    for (int64_t i = 0; i < documents->n_tokens; i++) {
        if (i % documents->row_length == 0 || (ids[i] & STRAIT_TOKEN_FIRST) != 0)
            starts[n++] = (int32_t)i;
        ids[i] &= ~STRAIT_TOKEN_FIRST;
    }
    starts[n] = (int32_t)documents->n_tokens;
    documents->n[slot] = n;
}

strait_documents strait_slot_documents_of(const struct strait_slot_documents *documents, int slot) {
    if (documents->starts == NULL) return (strait_documents){0};
    return (strait_documents){documents->starts + slot * (documents->n_tokens + 1),
                              documents->n[slot]};
}
