#include "data/beside.h"

#include "data/shard_layout.h"

#include <string.h>

void strait_beside_fini(struct strait_beside *beside) {
    if (beside->has_manifest) strait_manifest_fini(&beside->manifest);
    beside->has_manifest = 0;
    beside->path[0] = '\0';
}

/* The length of the path without ".bin" and the index of a shard; 0: it has no such name. */
static size_t stem_of(const char *shard, int has_index) {
    static const char ending[] = ".bin";
    size_t n = strlen(shard);
    if (n < sizeof ending || strcmp(shard + n - (sizeof ending - 1), ending) != 0) return 0;
    n -= sizeof ending - 1;
    if (!has_index) return n;
    const size_t all = n;
    while (n > 0 && shard[n - 1] >= '0' && shard[n - 1] <= '9')
        n--;
    return n > 1 && shard[n - 1] == '-' && all - n >= STRAIT_SHARD_INDEX_DIGITS ? n - 1 : 0;
}

/* Reads the file at `path` unless it was read last. */
static strait_err read_manifest(struct strait_beside *beside, const char *path) {
    if (strcmp(beside->path, path) == 0) return STRAIT_OK;
    strait_beside_fini(beside);
    STRAIT_TRY(strait_manifest_probe(&beside->manifest, path, &beside->has_manifest));
    memcpy(beside->path, path, strlen(path) + 1);
    beside->manifest.path = beside->path;
    return STRAIT_OK;
}

static strait_err find_in(struct strait_beside *beside, const char *path, const char *shard,
                          strait_manifest_entry *out, int *found) {
    if (!strait_file_exists(path)) return STRAIT_OK;
    STRAIT_TRY(read_manifest(beside, path));
    for (int i = 0; beside->has_manifest && i < beside->manifest.n_shards && !*found; i++) {
        STRAIT_TRY(strait_manifest_shard(&beside->manifest, i, out));
        *found = strcmp(out->path, shard) == 0;
    }
    return STRAIT_OK;
}

strait_err strait_beside_find(struct strait_beside *beside, const char *shard,
                              strait_manifest_entry *out, int *found) {
    *found = 0;
    for (int has_index = 0; has_index < 2 && !*found; has_index++) {
        char path[STRAIT_PATH_MAX];
        const size_t n = stem_of(shard, has_index);
        if (n == 0) continue;
        STRAIT_TRY(strait_file_path(path, "%.*s.json", (int)n, shard));
        const strait_err err = find_in(beside, path, shard, out, found);
        if (err == STRAIT_EDATA)
            strait_err_prefix("the manifest beside %s cannot be used: restore it, or remove it to "
                              "read the shard without it",
                              shard);
        STRAIT_TRY(err);
    }
    return STRAIT_OK;
}
