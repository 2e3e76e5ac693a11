/* manifest.h - reading the JSON file that lists the shards of a corpus.
 *
 * docs/formats.md describes the format. strait_corpus_write_manifest (corpus.h) writes it. */
#pragma once

#include "base/digest/hash.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

#include <stdint.h>

struct strait_manifest {
    const char *path; // borrowed
    json_t *document;
    const json_t *shards;         // borrowed from `document`
    char folder[STRAIT_PATH_MAX]; // of the manifest, with a slash at its end; may be empty
    int n_shards;
};

typedef struct strait_manifest_entry {
    char path[STRAIT_PATH_MAX]; // relative names are resolved against the manifest's folder
    int64_t n_tokens;
    char hash[STRAIT_HASH_TEXT]; // of the whole shard file
} strait_manifest_entry;

/* Reads the file and checks everything but the entries of single shards. Borrows `path` until fini.
 * STRAIT_EIO: it cannot be read. STRAIT_EDATA names the file and the key. */
strait_err strait_manifest_init(struct strait_manifest *manifest, const char *path);
void strait_manifest_fini(struct strait_manifest *manifest); // accepts a zeroed one

/* The same for a file that may be something else: *is_manifest is 0, and the manifest stays closed,
 * for JSON of another format. */
strait_err strait_manifest_probe(struct strait_manifest *manifest, const char *path,
                                 int *is_manifest);

/* Reads the entry of shard `index`, 0 <= index < n_shards. STRAIT_EDATA names file and key. */
strait_err strait_manifest_shard(const struct strait_manifest *manifest, int index,
                                 strait_manifest_entry *out);
