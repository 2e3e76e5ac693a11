/* manifest.h - the JSON file that names the shards of a corpus; see docs/formats.md. */
#pragma once

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"

#include <stdint.h>

struct strait_manifest {
    const char *path; // borrowed
    json_t *document;
    const json_t *shards; // in document
    char folder[STRAIT_PATH_MAX];
    int n_shards;
};

typedef struct strait_manifest_entry {
    char path[STRAIT_PATH_MAX]; // with the manifest's folder before it
    int64_t n_tokens;
    char hash[STRAIT_HASH_TEXT];
} strait_manifest_entry;

/* Reads and checks the file as a whole; the entries are checked one by one as they are asked for.
 * STRAIT_EDATA names the file and the key. */
strait_err strait_manifest_init(struct strait_manifest *manifest, const char *path);
void strait_manifest_fini(struct strait_manifest *manifest); // accepts a zeroed one

strait_err strait_manifest_shard(const struct strait_manifest *manifest, int index,
                                 strait_manifest_entry *out);
