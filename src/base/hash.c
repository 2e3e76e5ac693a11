#include "base/hash.h"

#include "base/file.h"

#include <stdio.h>
#include <xxhash.h>

void strait_hash_text(const void *data, size_t bytes, char out[STRAIT_HASH_TEXT]) {
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash(&digest, XXH3_128bits(data, bytes));
    for (size_t i = 0; i < sizeof digest.digest; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", digest.digest[i]);
}

strait_err strait_hash_file(const char *path, char out[STRAIT_HASH_TEXT]) {
    strait_file_map map = {NULL, 0};
    STRAIT_TRY(strait_file_map_open(path, &map));
    strait_hash_text(map.data, map.bytes, out);
    strait_file_map_close(&map);
    return STRAIT_OK;
}
