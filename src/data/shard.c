#include "data/shard.h"

#include "base/alloc.h"
#include "base/bytes.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAGIC = 20240520,
    MAGIC_OTHER_WIDE = 20240801, // four-byte ids as other programs write them
    VERSION_NARROW = 1,
    VERSION_WIDE = 2,
    VERSION_OTHER_WIDE = 7,
    FINGERPRINT_AT = 5 * 4, // byte offset in the header
    FINGERPRINT_BYTES = 16,
    NARROW_VOCAB = 65536, // the largest vocabulary whose ids fit into two bytes
    BUFFER_IDS = 16384,   // converted per write
    PIECE_BYTES = 16384,  // read at a time
    PROBE_IDS = 256       // of a raw file, to tell four-byte from two-byte ids
};

/* The header is 256 words of 32 bits, as in llm.c and other programs. */
static uint32_t header_word(const unsigned char *header, int index) {
    return strait_get_u32(header + (size_t)index * 4);
}

/* The bytes per id, which magic and version determine; 0 if they are not known. */
static int id_bytes_of(const unsigned char *header) {
    if (header_word(header, 0) == MAGIC && header_word(header, 1) == VERSION_NARROW) return 2;
    if (header_word(header, 0) == MAGIC && header_word(header, 1) == VERSION_WIDE) return 4;
    if (header_word(header, 0) == MAGIC_OTHER_WIDE && header_word(header, 1) == VERSION_OTHER_WIDE)
        return 4;
    return 0;
}

/* Converts the fingerprint to hexadecimal; all zeros means unknown and gives an empty string. */
static void read_fingerprint(const unsigned char *header, char out[STRAIT_HASH_TEXT]) {
    unsigned any = 0;
    for (int i = 0; i < FINGERPRINT_BYTES; i++) {
        any |= header[FINGERPRINT_AT + i];
        (void)snprintf(out + (size_t)i * 2, 3, "%02x", header[FINGERPRINT_AT + i]);
    }
    if (any == 0) out[0] = '\0';
}

/* The three errors have three remedies: another file, a new copy, a newer program. */
static strait_err check_kind(const unsigned char *data, size_t bytes, const char *path,
                             int *id_bytes) {
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
                           "%s: shard version %u; this program reads 1 (two-byte ids) and 2 "
                           "(four-byte ids)",
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
    shard->vocab = header_word(header, 4);
    read_fingerprint(header, shard->tokenizer);
    return STRAIT_OK;
}

strait_err strait_shard_parse(struct strait_shard *shard, const void *data, size_t bytes,
                              const char *path) {
    STRAIT_TRY(parse_header(shard, data, bytes, path));
    shard->ids = (const unsigned char *)data + STRAIT_SHARD_HEADER_BYTES;
    return STRAIT_OK;
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
    return STRAIT_OK;
}

strait_err strait_shard_init(struct strait_shard *shard, const char *path) {
    return init_as(shard, path, 0);
}

strait_err strait_shard_init_raw(struct strait_shard *shard, const char *path, int id_bytes) {
    return init_as(shard, path, id_bytes);
}

void strait_shard_fini(struct strait_shard *shard) {
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

/* Converts n ids to `out`, which may be NULL, and returns the largest. One comparison per id is
 * cheap enough for the training loop; the exact position is searched only after a failure. */
static uint32_t convert(const unsigned char *at, int id_bytes, int64_t n, int32_t *out) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t id = id_bytes == 2 ? (uint32_t)at[2 * i] | (uint32_t)at[2 * i + 1] << 8
                                          : strait_get_u32(at + 4 * i);
        largest = id > largest ? id : largest;
        if (out != NULL) out[i] = (int32_t)id;
    }
    return largest;
}

/* Copies n ids to `out`, which may be NULL, and writes the largest to *largest. */
static strait_err copy_ids(const struct strait_shard *shard, int64_t first, int64_t n, int32_t *out,
                           uint32_t *largest) {
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
        const uint32_t top = convert(ids, shard->id_bytes, some, out);
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
        STRAIT_TRY(copy_ids(shard, i, 1, NULL, &id));
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

strait_err strait_shard_read(const struct strait_shard *shard, int64_t first, int64_t n,
                             int64_t vocab, int32_t *out) {
    const int64_t limit = limit_of(vocab);
    uint32_t largest = 0;
    STRAIT_TRY(copy_ids(shard, first, n, out, &largest));
    return largest < limit ? STRAIT_OK : report_bad_id(shard, first, n, limit);
}

strait_err strait_shard_verify(const struct strait_shard *shard, int64_t vocab) {
    return strait_shard_read(shard, 0, shard->n_tokens, vocab > 0 ? vocab : shard->vocab, NULL);
}

struct strait_shard_writer {
    char path[STRAIT_PATH_MAX];
    char temp_path[STRAIT_PATH_MAX]; // PATH.tmp; empty once there is nothing to remove
    FILE *file;
    int64_t vocab, count;
    int id_bytes;
    unsigned char header[STRAIT_SHARD_HEADER_BYTES]; // its count is filled in by finish
    unsigned char buffer[BUFFER_IDS * 4];
};

/* Only lower case: a fingerprint has one spelling. */
static int digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static strait_err put_fingerprint(unsigned char *header, const char *text) {
    if (text == NULL) return STRAIT_OK;
    for (size_t i = 0; i < FINGERPRINT_BYTES; i++) {
        const int high = digit(text[2 * i]);
        const int low = high < 0 ? -1 : digit(text[2 * i + 1]);
        if (low < 0)
            return STRAIT_FAIL(STRAIT_EINVAL, "fingerprint \"%s\": expected 32 hexadecimal digits",
                               text);
        header[FINGERPRINT_AT + i] = (unsigned char)(high << 4 | low);
    }
    return STRAIT_OK;
}

/* The width of ids follows from the vocabulary, not from the ids, so that all shards of a corpus
 * agree. */
static strait_err start_writer(struct strait_shard_writer *writer, const char *path,
                               strait_shard_spec spec) {
    if (spec.vocab < 1 || spec.vocab > INT32_MAX)
        return STRAIT_FAIL(STRAIT_EINVAL, "%s: vocabulary of %lld", path, (long long)spec.vocab);
    STRAIT_TRY(strait_file_path(writer->path, "%s", path));
    STRAIT_TRY(strait_file_path(writer->temp_path, "%s.tmp", path));
    writer->vocab = spec.vocab;
    writer->id_bytes = spec.vocab <= NARROW_VOCAB ? 2 : 4;
    strait_put_u32(writer->header, MAGIC);
    strait_put_u32(writer->header + 4, writer->id_bytes == 2 ? VERSION_NARROW : VERSION_WIDE);
    strait_put_u32(writer->header + 16, (uint32_t)spec.vocab);
    STRAIT_TRY(put_fingerprint(writer->header, spec.tokenizer));
    writer->file = fopen(writer->temp_path, "wb");
    if (writer->file == NULL)
        return STRAIT_FAIL(STRAIT_EIO,
                           "%s: cannot create; does the folder exist, and is it writable?",
                           writer->temp_path);
    if (fwrite(writer->header, 1, sizeof writer->header, writer->file) != sizeof writer->header)
        return STRAIT_FAIL(STRAIT_EIO, "%s: cannot write; is the disk full?", writer->temp_path);
    return STRAIT_OK;
}

strait_err strait_shard_writer_open(const char *path, strait_shard_spec spec,
                                    struct strait_shard_writer **out) {
    struct strait_shard_writer *writer = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *writer, "shard writer", (void **)&writer));
    const strait_err err = start_writer(writer, path, spec);
    if (err == STRAIT_OK)
        *out = writer;
    else
        strait_shard_writer_close(&writer);
    return err;
}

static strait_err write_block(struct strait_shard_writer *writer, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= writer->vocab)
            return STRAIT_FAIL(STRAIT_EINVAL, "%s: id %d is outside the vocabulary of %lld",
                               writer->path, ids[i], (long long)writer->vocab);
        if (writer->id_bytes == 4) {
            strait_put_u32(writer->buffer + 4 * i, (uint32_t)ids[i]);
        } else {
            writer->buffer[2 * i] = (unsigned char)ids[i];
            writer->buffer[2 * i + 1] = (unsigned char)(ids[i] >> 8);
        }
    }
    const size_t bytes = n * (size_t)writer->id_bytes;
    if (fwrite(writer->buffer, 1, bytes, writer->file) != bytes)
        return STRAIT_FAIL(STRAIT_EIO, "%s: cannot write; is the disk full?", writer->temp_path);
    writer->count += (int64_t)n;
    return STRAIT_OK;
}

/* In blocks of fixed size, so that the buffer never grows. */
strait_err strait_shard_writer_append(struct strait_shard_writer *writer, const int32_t *ids,
                                      size_t n) {
    while (n > 0) {
        const size_t some = n < BUFFER_IDS ? n : BUFFER_IDS;
        STRAIT_TRY(write_block(writer, ids, some));
        ids += some;
        n -= some;
    }
    return STRAIT_OK;
}

int64_t strait_shard_writer_count(const struct strait_shard_writer *writer) {
    return writer->count;
}

strait_err strait_shard_writer_finish(struct strait_shard_writer **writer) {
    struct strait_shard_writer *w = *writer;
    strait_put_u32(w->header + 8, (uint32_t)w->count);
    strait_put_u32(w->header + 12, (uint32_t)(w->count >> 32));
    strait_err err = STRAIT_OK;
    if (fseek(w->file, 0, SEEK_SET) != 0 ||
        fwrite(w->header, 1, sizeof w->header, w->file) != sizeof w->header)
        err = STRAIT_FAIL(STRAIT_EIO, "%s: cannot write; is the disk full?", w->temp_path);
    /* The data must be on disk before the rename, or a crash could leave a truncated shard. */
    if (err == STRAIT_OK) err = strait_file_finish(&w->file, w->temp_path);
    if (err == STRAIT_OK) err = strait_file_move(w->temp_path, w->path);
    if (err == STRAIT_OK) w->temp_path[0] = '\0';
    strait_shard_writer_close(writer);
    return err;
}

/* Removes the unfinished file; after finish there is none. */
void strait_shard_writer_close(struct strait_shard_writer **writer) {
    struct strait_shard_writer *w = *writer;
    if (w == NULL) return;
    if (w->file != NULL) (void)fclose(w->file);
    if (w->temp_path[0] != '\0') (void)unlink(w->temp_path);
    strait_alloc_free(w);
    *writer = NULL;
}
