#include "data/shard.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "data/buffer.h"
#include "data/shard_layout.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAGIC = STRAIT_SHARD_MAGIC,
    MAGIC_OTHER_WIDE = 20240801, // four-byte ids as other programs write them
    VERSION_OTHER_WIDE = 7,
    FINGERPRINT_AT = STRAIT_SHARD_FINGERPRINT,
    PIECE_BYTES = 16384, // read at a time
    PROBE_IDS = 256      // of a raw file, to tell four-byte from two-byte ids
};

/* The header is 256 words of 32 bits, as in llm.c and other programs. */
static uint32_t header_word(const unsigned char *header, int index) {
    return strait_get_u32(header + (size_t)index * 4);
}

/* The bytes per id, which magic and version determine; 0 if they are not known. */
static int id_bytes_of(const unsigned char *header) {
    const uint32_t version = header_word(header, 1);
    if (header_word(header, 0) == MAGIC && version == STRAIT_SHARD_NARROW) return 2;
    if (header_word(header, 0) == MAGIC &&
        (version == STRAIT_SHARD_WIDE || version == STRAIT_SHARD_TAGGED))
        return 4;
    if (header_word(header, 0) == MAGIC_OTHER_WIDE && version == VERSION_OTHER_WIDE) return 4;
    return 0;
}

/* Converts the fingerprint to hexadecimal; all zeros means unknown and gives an empty string. */
static void read_fingerprint(const unsigned char *header, char out[STRAIT_HASH_TEXT]) {
    unsigned any = 0;
    for (int i = 0; i < STRAIT_SHARD_PRINT_BYTES; i++) {
        any |= header[FINGERPRINT_AT + i];
        (void)snprintf(out + (size_t)i * 2, 3, "%02x", header[FINGERPRINT_AT + i]);
    }
    if (any == 0) out[0] = '\0';
}

/* The three errors have three remedies: another file, a new copy, a newer program. */
static strait_err check_kind(const unsigned char *data, size_t bytes, const char *path,
                             int *id_bytes) {
    if (bytes == 0) return STRAIT_FAIL(STRAIT_EDATA, "%s: is empty; copy it again", path);
    if (bytes < 4 || (strait_get_u32(data) != MAGIC && strait_get_u32(data) != MAGIC_OTHER_WIDE))
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s: not a token shard (its first word is not %d); create one with "
                           "\"strait tokenize\", or set data.format to uint16 or uint32 for a "
                           "file of nothing but token ids",
                           path, MAGIC);
    if (bytes < STRAIT_SHARD_HEADER_BYTES)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s: truncated at %zu bytes, inside the header of %d; copy it again",
                           path, bytes, STRAIT_SHARD_HEADER_BYTES);
    *id_bytes = id_bytes_of(data);
    if (*id_bytes == 0)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s: shard version %u; this program reads 1 (two-byte ids), 2 "
                           "(four-byte ids) and 3 (documents)",
                           path, header_word(data, 1));
    return STRAIT_OK;
}

/* Checks the header of a file of `bytes`, of which `header` has the first 1024, or all if fewer. */
static strait_err parse_header(struct strait_shard *shard, const unsigned char *header,
                               size_t bytes, const char *path) {
    int id_bytes = 0;
    STRAIT_TRY(check_kind(header, bytes, path, &id_bytes));
    const uint64_t n = (uint64_t)header_word(header, 3) << 32 | header_word(header, 2);
    const uint64_t have = bytes - STRAIT_SHARD_HEADER_BYTES;
    /* Dividing avoids the overflow of n * id_bytes for a header with any value of n. */
    if (n > have / (unsigned)id_bytes)
        return STRAIT_FAIL(
            STRAIT_EDATA,
            "%s: truncated: the header announces %llu tokens, the file has %llu; copy "
            "it again or tokenize the text again",
            path, (unsigned long long)n, (unsigned long long)(have / (unsigned)id_bytes));
    if (n * (unsigned)id_bytes != have)
        return STRAIT_FAIL(
            STRAIT_EDATA,
            "%s: %llu bytes follow the %llu tokens that the header announces; copy it "
            "again or tokenize the text again",
            path, (unsigned long long)(have - n * (unsigned)id_bytes), (unsigned long long)n);
    shard->path = path;
    shard->bytes = (int64_t)bytes;
    shard->header_bytes = STRAIT_SHARD_HEADER_BYTES;
    shard->id_bytes = id_bytes;
    shard->n_tokens = (int64_t)n;
    shard->is_tagged = header_word(header, 0) == MAGIC &&
                       header_word(header, 1) == STRAIT_SHARD_TAGGED;
    shard->vocab = header_word(header, 4);
    read_fingerprint(header, shard->tokenizer);
    return STRAIT_OK;
}

static strait_err index_documents(struct strait_shard *shard);

strait_err strait_shard_parse(struct strait_shard *shard, const void *data, size_t bytes,
                              const char *path) {
    STRAIT_TRY(parse_header(shard, data, bytes, path));
    shard->ids = (const unsigned char *)data + STRAIT_SHARD_HEADER_BYTES;
    return index_documents(shard);
}

/* Every second of the first ids is 0 where a file of four-byte ids is read as two-byte ones:
 * training on that would succeed, on nonsense. */
static int looks_wide(const unsigned char *ids, size_t n) {
    for (size_t i = 1; i < n; i += 2)
        if (ids[2 * i] != 0 || ids[2 * i + 1] != 0) return 0;
    return n >= PROBE_IDS;
}

static strait_err parse_raw(struct strait_shard *shard, const unsigned char *start, size_t n_start,
                            int64_t bytes, int id_bytes) {
    if (bytes == 0 || bytes % id_bytes != 0)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s: %lld bytes are not a whole number of %d-bit token ids; check "
                           "data.format, or copy the file again",
                           shard->path, (long long)bytes, 8 * id_bytes);
    if (id_bytes == 2 && looks_wide(start, n_start / 2))
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s: every second of its first 16-bit token ids is 0: set data.format "
                           "to uint32",
                           shard->path);
    shard->bytes = bytes;
    shard->id_bytes = id_bytes;
    shard->n_tokens = bytes / id_bytes;
    return STRAIT_OK;
}

/* Magic and version tell a shard from a raw file: as ids they would be four unlikely ones. */
static strait_err init_as(struct strait_shard *shard, const char *path, int raw_bytes) {
    unsigned char header[STRAIT_SHARD_HEADER_BYTES] = {0};
    int64_t bytes = 0;
    size_t n_read = 0;
    int fd = 0;
    *shard = (struct strait_shard){.path = path};
    STRAIT_TRY(strait_file_open(path, &fd, &bytes));
    strait_err err = strait_file_read_at(fd, path, 0, header, sizeof header, &n_read);
    if (err == STRAIT_OK)
        err = raw_bytes > 0 && id_bytes_of(header) == 0
                  ? parse_raw(shard, header, n_read, bytes, raw_bytes)
                  : parse_header(shard, header, (size_t)bytes, path);
    if (err != STRAIT_OK) {
        (void)close(fd);
        return err;
    }
    shard->fd = fd;
    return index_documents(shard);
}

strait_err strait_shard_init(struct strait_shard *shard, const char *path) {
    return init_as(shard, path, 0);
}

strait_err strait_shard_init_raw(struct strait_shard *shard, const char *path, int id_bytes) {
    return init_as(shard, path, id_bytes);
}

void strait_shard_fini(struct strait_shard *shard) {
    strait_alloc_free(shard->documents);
    strait_packing_fini(&shard->packing);
    if (shard->fd > 0) (void)close(shard->fd);
    *shard = (struct strait_shard){0};
}

strait_err strait_shard_check(const struct strait_shard *shard) {
    struct stat info;
    if (shard->fd == 0) return STRAIT_OK;
    if (fstat(shard->fd, &info) != 0)
        return STRAIT_FAIL(STRAIT_EIO, "%s: cannot be examined", shard->path);
    if (info.st_size >= shard->bytes) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA,
                       "%s: shrank from %lld to %lld bytes while in use: restore the file, then "
                       "resume the run",
                       shard->path, (long long)shard->bytes, (long long)info.st_size);
}

/* After a read that ended too early; the file may have grown again since. */
static strait_err fail_short(const struct strait_shard *shard) {
    STRAIT_TRY(strait_shard_check(shard));
    return STRAIT_FAIL(STRAIT_EDATA, "%s: changed while in use; resume the run", shard->path);
}

/* What copy_ids writes. */
typedef enum contents {
    IDS,     // without tags
    TARGETS, // -1 for tokens that are not trained on
    WORDS,   // as they are in the file
} contents;

/* Converts n ids to `out`, which may be NULL, and returns the largest id. One comparison per id is
 * cheap enough for the training loop; the exact position is searched only after a failure. */
static uint32_t convert(const struct strait_shard *shard, const unsigned char *at, int64_t n,
                        contents what, int32_t *out) {
    const uint32_t tags = shard->is_tagged ? STRAIT_TOKEN_TAGS : 0;
    const uint32_t masked = shard->is_tagged && what == TARGETS ? STRAIT_TOKEN_UNTRAINED : 0;
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t word = shard->id_bytes == 2
                                  ? (uint32_t)at[2 * i] | (uint32_t)at[2 * i + 1] << 8
                                  : strait_get_u32(at + 4 * i);
        const uint32_t id = word & ~tags;
        largest = id > largest ? id : largest;
        if (out != NULL) out[i] = (word & masked) != 0 ? -1 : (int32_t)(what == WORDS ? word : id);
    }
    return largest;
}

/* Copies n ids to `out`, which may be NULL, and writes the largest to *largest. */
static strait_err copy_ids(const struct strait_shard *shard, int64_t first, int64_t n,
                           contents what, int32_t *out, uint32_t *largest) {
    unsigned char piece[PIECE_BYTES];
    const int64_t per_piece = PIECE_BYTES / shard->id_bytes;
    *largest = 0;
    while (n > 0) {
        const int64_t some = n < per_piece ? n : per_piece;
        const size_t bytes = (size_t)(some * shard->id_bytes);
        const int64_t at = first * shard->id_bytes;
        const unsigned char *ids = shard->ids != NULL ? shard->ids + at : piece;
        size_t n_read = bytes;
        if (shard->ids == NULL)
            STRAIT_TRY(strait_file_read_at(shard->fd, shard->path, shard->header_bytes + at, piece,
                                           bytes, &n_read));
        if (n_read < bytes) return fail_short(shard);
        const uint32_t top = convert(shard, ids, some, what, out);
        *largest = top > *largest ? top : *largest;
        if (out != NULL) out += some;
        first += some;
        n -= some;
    }
    return STRAIT_OK;
}

/* Finds the first id of `vocab` or more and describes it. */
static strait_err report_bad_id(const struct strait_shard *shard, int64_t first, int64_t n,
                                int64_t vocab) {
    for (int64_t i = first; i < first + n; i++) {
        uint32_t id = 0;
        STRAIT_TRY(copy_ids(shard, i, 1, IDS, NULL, &id));
        if (id < vocab) continue;
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s: token %lld has id %u, outside the vocabulary of %lld; tokenize "
                           "the text with the model's tokenizer",
                           shard->path, (long long)i, id, (long long)vocab);
    }
    return fail_short(shard); // the id is another one by now
}

/* The bound for ids. A header may claim a vocabulary larger than int32_t can hold; ids must not
 * become negative then. */
static int64_t limit_of(int64_t vocab) {
    return vocab > 0 && vocab < INT32_MAX ? vocab : INT32_MAX;
}

static strait_err read_checked(const struct strait_shard *shard, int64_t first, int64_t n,
                               int64_t vocab, contents what, int32_t *out) {
    const int64_t limit = limit_of(vocab);
    uint32_t largest = 0;
    STRAIT_TRY(copy_ids(shard, first, n, what, out, &largest));
    return largest < limit ? STRAIT_OK : report_bad_id(shard, first, n, limit);
}

strait_err strait_shard_read(const struct strait_shard *shard, int64_t first, int64_t n,
                             int64_t vocab, int32_t *out) {
    return read_checked(shard, first, n, vocab, IDS, out);
}

strait_err strait_shard_read_targets(const struct strait_shard *shard, int64_t first, int64_t n,
                                     int64_t vocab, int32_t *out) {
    return read_checked(shard, first, n, vocab, TARGETS, out);
}

/* Appends the documents that begin among the words of tokens [first, first + n). */
static strait_err add_documents(struct strait_shard *shard, size_t *capacity, const int32_t *words,
                                int64_t first, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if ((words[i] & STRAIT_TOKEN_FIRST) == 0) continue;
        STRAIT_TRY(strait_buffer_reserve((void **)&shard->documents, capacity,
                                         (size_t)shard->n_documents + 1, sizeof *shard->documents));
        shard->documents[shard->n_documents++] = first + i;
    }
    return STRAIT_OK;
}

static strait_err read_documents(struct strait_shard *shard) {
    int32_t words[1024];
    size_t capacity = 0;
    for (int64_t first = 0; first < shard->n_tokens; first += 1024) {
        const int64_t left = shard->n_tokens - first;
        const int64_t n = left < 1024 ? left : 1024;
        uint32_t largest = 0;
        STRAIT_TRY(copy_ids(shard, first, n, WORDS, words, &largest));
        STRAIT_TRY(add_documents(shard, &capacity, words, first, n));
    }
    if (shard->n_documents > 0 && shard->documents[0] == 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA,
                       "%s: its first token does not begin a document; copy it again "
                       "or tokenize the text again",
                       shard->path);
}

/* The index is made from the tags each time: a copy in the file could contradict them. */
static strait_err index_documents(struct strait_shard *shard) {
    if (!shard->is_tagged) return STRAIT_OK;
    const strait_err err = read_documents(shard);
    if (err != STRAIT_OK) strait_shard_fini(shard);
    return err;
}

int64_t strait_shard_document_end(const struct strait_shard *shard, int64_t i) {
    return i + 1 < shard->n_documents ? shard->documents[i + 1] : shard->n_tokens;
}

strait_err strait_shard_verify(const struct strait_shard *shard, int64_t vocab) {
    return strait_shard_read(shard, 0, shard->n_tokens, vocab > 0 ? vocab : shard->vocab, NULL);
}
