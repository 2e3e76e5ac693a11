/* beside.h - finds the manifest that "strait tokenize" wrote beside a shard.
 *
 * A run file may name the shard alone. What its manifest says of it holds all the same: a length
 * that differs means that one of the two files is not the one it should be. */
#pragma once

#include "data/manifest.h"

/* The manifest that was read last: shards of one corpus follow each other. Zeroed is empty. */
struct strait_beside {
    struct strait_manifest manifest;
    char path[STRAIT_PATH_MAX];
    int has_manifest; // there is one at `path`
};
void strait_beside_fini(struct strait_beside *beside);

/* Looks for the entry of the shard NAME.bin, or NAME-00000.bin, in NAME.json in its folder. *found
 * is 0 where that is no file, a JSON file of another program, or the manifest of other shards.
 * STRAIT_EDATA: the manifest is damaged; the detail names both files and what to do. */
strait_err strait_beside_find(struct strait_beside *beside, const char *shard,
                              strait_manifest_entry *out, int *found);
