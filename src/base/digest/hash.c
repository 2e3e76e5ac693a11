#include "base/digest/hash.h"

#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY // allows a state on the stack
#include <xxhash.h>

/* The canonical form has the same digits on machines of either byte order. */
static void write_text(XXH128_hash_t hash, char out[STRAIT_HASH_TEXT]) {
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash(&digest, hash);
    for (size_t i = 0; i < sizeof digest.digest; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", digest.digest[i]);
}

void strait_hash_text(const void *data, size_t bytes, char out[STRAIT_HASH_TEXT]) {
    write_text(XXH3_128bits(data, bytes), out);
}

/* Reads in chunks: a mapped file would count as memory of the process, and a save would seem to
 * double the model's memory. */
strait_err strait_hash_file(const char *path, char out[STRAIT_HASH_TEXT]) {
    unsigned char piece[1 << 16];
    XXH3_state_t state;
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        char why[128] = "";
        (void)strerror_r(errno, why, sizeof why);
        return STRAIT_FAIL(STRAIT_EIO, "%s: cannot open: %s", path, why);
    }
    (void)XXH3_128bits_reset(&state);
    size_t n;
    while ((n = fread(piece, 1, sizeof piece, file)) > 0)
        (void)XXH3_128bits_update(&state, piece, n);
    const int failed = ferror(file);
    (void)fclose(file);
    if (failed)
        return STRAIT_FAIL(STRAIT_EIO, "%s: a read error occurred before the end of the file",
                           path);
    write_text(XXH3_128bits_digest(&state), out);
    return STRAIT_OK;
}
