/* shards.h - small shards for tests. */
#pragma once

#include "data/shard.h"
#include "folder.h"

/* A shard of n ids: start, start + 1, ... modulo vocab. */
static inline void put_shard(const char *path, int64_t n, int64_t start, strait_shard_spec spec) {
    struct strait_shard_writer *writer = NULL;
    CHECK_OK(strait_shard_writer_open(path, spec, &writer));
    for (int64_t i = 0; i < n; i++) {
        const int32_t id = (int32_t)((start + i) % spec.vocab);
        CHECK_OK(strait_shard_writer_append(writer, &id, 1));
    }
    CHECK_OK(strait_shard_writer_finish(&writer));
}
