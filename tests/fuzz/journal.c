/* Fuzzes the journal parser: with the input as it is, and with valid checksums around it, so that
 * the parsers of records are reached. */
#include "base/bytes.h"
#include "metastore/journal_format.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    BYTES_MAX = 1 << 16
};

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes);

static void seal(unsigned char *record, size_t payload, uint64_t salt, uint64_t sequence) {
    strait_put_u32(record, 0x4c4e524a);
    strait_put_u32(record + 4, (uint32_t)payload);
    strait_put_u64(record + 8, sequence);
    const uint64_t seed = XXH3_64bits_withSeed(record, 16, salt);
    strait_put_u64(record + 16,
                   XXH3_64bits_withSeed(record + STRAIT_JOURNAL_PREFIX, payload, seed));
}

/* Builds records from the input: two bytes of length, then the payload of each. */
static size_t wrap(const unsigned char *data, size_t bytes, unsigned char *out) {
    const struct strait_journal_contents contents = {.run = "fuzz", .salt = 5};
    size_t n = STRAIT_JOURNAL_HEADER;
    strait_journal_header_pack(&contents, out);
    for (uint64_t sequence = 0; bytes > 2; sequence++) {
        size_t payload = strait_get_u16(data);
        if (payload > bytes - 2) payload = bytes - 2;
        if (n + STRAIT_JOURNAL_PREFIX + payload > BYTES_MAX) break;
        memcpy(out + n + STRAIT_JOURNAL_PREFIX, data + 2, payload);
        seal(out + n, payload, contents.salt, sequence);
        n += STRAIT_JOURNAL_PREFIX + payload;
        data += 2 + payload;
        bytes -= 2 + payload;
    }
    memcpy(out + n, data, bytes < BYTES_MAX - n ? bytes : BYTES_MAX - n); // ends in a torn record
    return n + (bytes < BYTES_MAX - n ? bytes : BYTES_MAX - n);
}

/* Parsing only the valid bytes must give the same contents. */
static void check(const unsigned char *data, size_t bytes) {
    struct strait_journal_contents contents = {.salt = 0}, again = {.salt = 0};
    if (strait_journal_parse(data, bytes, &contents) == STRAIT_OK) {
        if (contents.valid_bytes > bytes) abort();
        if (strait_journal_parse(data, contents.valid_bytes, &again) != STRAIT_OK) abort();
        if (again.valid_bytes != contents.valid_bytes || again.version != contents.version ||
            again.entries.n_bytes != contents.entries.n_bytes)
            abort();
    }
    strait_journal_contents_fini(&contents);
    strait_journal_contents_fini(&again);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes) {
    static unsigned char wrapped[BYTES_MAX];
    if (bytes < 1 || bytes > BYTES_MAX / 2) return 0;
    if (data[0] == 'S') { // the first byte of a journal
        check(data, bytes);
        return 0;
    }
    check(wrapped, wrap(data + 1, bytes - 1, wrapped));
    return 0;
}
