/* Parses any bytes as a token shard; if they are accepted, reads every id. */
#include "data/shard.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct strait_shard shard = {0};
    if (strait_shard_parse(&shard, data, size, "fuzz.bin") != STRAIT_OK) return 0;
    if (STRAIT_SHARD_HEADER_BYTES + (size_t)shard.n_tokens * (size_t)shard.id_bytes != size)
        abort(); // an accepted shard must account for every byte
    int32_t ids[64];
    for (int64_t first = 0; first < shard.n_tokens; first += 64) {
        const int64_t left = shard.n_tokens - first;
        const int64_t n = left < 64 ? left : 64;
        if (strait_shard_read(&shard, first, n, shard.vocab, ids) != STRAIT_OK) continue;
        for (int64_t i = 0; i < n; i++)
            if (ids[i] < 0 || (shard.vocab > 0 && ids[i] >= shard.vocab)) abort();
    }
    for (int64_t i = 0; i < shard.n_documents; i++)
        if (strait_shard_document_end(&shard, i) <= shard.documents[i]) abort();
    (void)strait_shard_verify(&shard, 0);
    strait_shard_fini(&shard);
    return 0;
}
