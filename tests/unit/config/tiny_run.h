/* tiny_run.h - a run that trains in milliseconds: a small model on shards with a pattern in them.
 */
#pragma once

#include "base/rng/rng.h"
#include "check.h"
#include "config/run.h"
#include "data/shard.h"
#include "scratch.h"

enum {
    TINY_VOCAB = 61
};

/* Each token depends on the previous one, with some noise, so that there is something to learn. */
static inline void tiny_shard(const char *path, int64_t n, uint64_t seed, int64_t vocab) {
    struct strait_shard_writer *writer = NULL;
    const strait_rng rng = {seed, 1};
    int32_t id = 1;
    CHECK_OK(strait_shard_writer_open(path, (strait_shard_spec){.vocab = vocab}, &writer));
    for (int64_t i = 0; i < n; i++) {
        id = (int32_t)((id * 7 + 3 + (int32_t)(strait_rng_u64(rng, (uint64_t)i) % 3)) %
                       (int32_t)vocab);
        CHECK_OK(strait_shard_writer_append(writer, &id, 1));
    }
    CHECK_OK(strait_shard_writer_finish(&writer));
}

/* The run, with its shards written into the scratch folder. */
static inline void tiny_run(const scratch *folder, strait_run *out) {
    static const char text[] =
        "name: tiny\n"
        "model: {width: 24, layers: 2, heads: 3, kv_heads: 3, ffn: 40, context: 16}\n"
        "train: {steps: 12, batch_tokens: 128, learning_rate: 0.01, valid_every: 4, save_every: "
        "4,\n"
        "        warmup: 2, keep_checkpoints: 3}\n"
        "stages: {microbatch: 4}\n"
        "device: {threads: 2}\n";
    tiny_shard(scratch_at(folder, "train.bin"), 5000, 1, TINY_VOCAB);
    tiny_shard(scratch_at(folder, "valid.bin"), 500, 2, TINY_VOCAB);
    CHECK_OK(strait_run_init_text("tiny.yaml", text, sizeof text - 1, NULL, 0, out));
    (void)snprintf(out->data.train, sizeof out->data.train, "%s/train.bin", folder->path);
    (void)snprintf(out->data.valid, sizeof out->data.valid, "%s/valid.bin", folder->path);
}
