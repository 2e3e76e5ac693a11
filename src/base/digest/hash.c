#include "base/digest/hash.h"

#include "base/alloc.h"
#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY // allows a state on the stack
#include <xxhash.h>

enum {
    AHEAD = 16 << 20 // bytes that the disk reads while earlier ones are hashed
};

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

struct strait_hash {
    XXH3_state_t state; // strait_alloc aligns it as it has to be
};

strait_err strait_hash_open(struct strait_hash **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof **out, "hash", &memory));
    *out = memory;
    (void)XXH3_128bits_reset(&(*out)->state);
    return STRAIT_OK;
}

void strait_hash_add(struct strait_hash *hash, const void *data, size_t bytes) {
    (void)XXH3_128bits_update(&hash->state, data, bytes);
}

void strait_hash_finish(struct strait_hash **hash, char out[STRAIT_HASH_TEXT]) {
    write_text(XXH3_128bits_digest(&(*hash)->state), out);
    strait_hash_close(hash);
}

void strait_hash_close(struct strait_hash **hash) {
    strait_alloc_free(*hash);
    *hash = NULL;
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
    size_t n, done = 0;
    while ((n = fread(piece, 1, sizeof piece, file)) > 0) {
        if (done % AHEAD == 0) strait_file_prefetch(file, done, (size_t)2 * AHEAD);
        (void)XXH3_128bits_update(&state, piece, n);
        done += n;
    }
    const int failed = ferror(file);
    (void)fclose(file);
    if (failed)
        return STRAIT_FAIL(STRAIT_EIO, "%s: a read error occurred before the end of the file",
                           path);
    write_text(XXH3_128bits_digest(&state), out);
    return STRAIT_OK;
}
