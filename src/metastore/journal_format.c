/* journal_format.c - see journal_format.h and docs/formats.md. */
#include "metastore/journal_format.h"

#include "base/bytes.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    VERSION = 1,
    RECORD_MAGIC = 0x4c4e524a, // "JRNL"
    KIND_TERM = 1,             // a new leader; its term fences all earlier ones
    KIND_ENTRIES = 2,
    CHECKED_BYTES = 16 // of a record's prefix, before its checksum
};
static const unsigned char file_magic[8] = {'S', 'T', 'R', 'A', 'I', 'T', 'J', '\n'};

/* Zeroed contents can be used again: a leader that resigned may claim again. */
void strait_journal_contents_fini(struct strait_journal_contents *contents) {
    strait_metastore_table_fini(&contents->entries);
    *contents = (struct strait_journal_contents){.salt = 0};
}

/* ---- packing ---- */

void strait_journal_header_pack(const struct strait_journal_contents *contents,
                                unsigned char out[STRAIT_JOURNAL_HEADER]) {
    memset(out, 0, STRAIT_JOURNAL_HEADER);
    strait_writer w = {out, STRAIT_JOURNAL_HEADER, 0};
    strait_writer_copy(&w, file_magic, sizeof file_magic);
    strait_writer_uint(&w, VERSION, 4);
    strait_writer_uint(&w, strlen(contents->run), 4);
    strait_writer_copy(&w, contents->run, STRAIT_METASTORE_NAME_MAX);
    strait_writer_uint(&w, contents->salt, 8);
    strait_writer_uint(&w, XXH3_64bits(out, STRAIT_JOURNAL_HEADER - 8), 8);
}

/* The prefix seeds the checksum of the payload, so neither can be exchanged alone. */
static uint64_t checksum(uint64_t salt, const unsigned char *record, size_t payload) {
    const uint64_t seed = XXH3_64bits_withSeed(record, CHECKED_BYTES, salt);
    return XXH3_64bits_withSeed(record + STRAIT_JOURNAL_PREFIX, payload, seed);
}

/* Writes the prefix of a payload that ends at the writer's position. */
static size_t finish_record(const struct strait_journal_contents *contents, const strait_writer *w,
                            unsigned char *out) {
    const size_t bytes = (size_t)(w->at - out);
    strait_put_u32(out, RECORD_MAGIC);
    strait_put_u32(out + 4, (uint32_t)(bytes - STRAIT_JOURNAL_PREFIX));
    strait_put_u64(out + 8, contents->sequence);
    strait_put_u64(out + CHECKED_BYTES,
                   checksum(contents->salt, out, bytes - STRAIT_JOURNAL_PREFIX));
    return bytes;
}

size_t strait_journal_term_pack(const struct strait_journal_contents *contents, uint64_t term,
                                const char *owner, unsigned char *out) {
    const size_t n = strnlen(owner, STRAIT_METASTORE_NAME_MAX - 1);
    strait_writer w = {out + STRAIT_JOURNAL_PREFIX, STRAIT_JOURNAL_PAYLOAD_MAX, 0};
    strait_writer_uint(&w, KIND_TERM, 1);
    strait_writer_uint(&w, term, 8);
    strait_writer_uint(&w, contents->version, 8);
    strait_writer_uint(&w, n, 2);
    strait_writer_copy(&w, owner, n);
    return finish_record(contents, &w, out);
}

size_t strait_journal_entries_pack(const struct strait_journal_contents *contents,
                                   struct strait_metastore_row *const *rows, int n_rows,
                                   unsigned char *out) {
    strait_writer w = {out + STRAIT_JOURNAL_PREFIX, STRAIT_JOURNAL_PAYLOAD_MAX, 0};
    strait_writer_uint(&w, KIND_ENTRIES, 1);
    strait_writer_uint(&w, (uint64_t)n_rows, 2);
    for (int i = 0; i < n_rows; i++) {
        const strait_metastore_entry *entry = &rows[i]->entry;
        strait_writer_uint(&w, entry->version, 8);
        strait_writer_uint(&w, entry->data != NULL, 1);
        strait_writer_uint(&w, strlen(entry->key), 1);
        strait_writer_copy(&w, entry->key, strlen(entry->key));
        strait_writer_uint(&w, entry->bytes, 4);
        if (entry->bytes > 0) strait_writer_copy(&w, entry->data, entry->bytes);
    }
    return finish_record(contents, &w, out);
}

/* ---- parsing ---- */

/* The header is written once and synced, so it is never torn: any difference is damage. */
static strait_err parse_header(const unsigned char *data, size_t bytes,
                               struct strait_journal_contents *out) {
    if (bytes < STRAIT_JOURNAL_HEADER || memcmp(data, file_magic, sizeof file_magic) != 0)
        return STRAIT_FAIL(
            STRAIT_EDATA,
            "not a journal, or truncated within its first %d bytes; restore a backup, or "
            "move the file away to start again",
            STRAIT_JOURNAL_HEADER);
    const uint32_t version = strait_get_u32(data + 8), length = strait_get_u32(data + 12);
    if (version != VERSION)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "a journal of version %u, expected %d: written by another "
                           "version of strait",
                           version, VERSION);
    const uint64_t sum = XXH3_64bits(data, STRAIT_JOURNAL_HEADER - 8);
    if (length >= STRAIT_METASTORE_NAME_MAX ||
        strait_get_u64(data + STRAIT_JOURNAL_HEADER - 8) != sum)
        return STRAIT_FAIL(STRAIT_EDATA, "the journal's header is damaged; restore a backup");
    memcpy(out->run, data + 16, length);
    out->run[length] = 0;
    out->salt = strait_get_u64(data + 16 + STRAIT_METASTORE_NAME_MAX);
    out->valid_bytes = STRAIT_JOURNAL_HEADER;
    return STRAIT_OK;
}

/* Returns the bytes of the complete record at `data`; 0: there is none. */
static size_t complete_record(uint64_t salt, const unsigned char *data, size_t bytes) {
    if (bytes < STRAIT_JOURNAL_PREFIX || strait_get_u32(data) != RECORD_MAGIC) return 0;
    const size_t length = strait_get_u32(data + 4);
    if (length > STRAIT_JOURNAL_PAYLOAD_MAX || length > bytes - STRAIT_JOURNAL_PREFIX) return 0;
    if (strait_get_u64(data + CHECKED_BYTES) != checksum(salt, data, length)) return 0;
    return STRAIT_JOURNAL_PREFIX + length;
}

/* Each record was synced before the next was begun. A torn record is therefore the last: if a
 * complete one follows, the file was damaged later. */
static int has_complete_record(uint64_t salt, const unsigned char *data, size_t bytes) {
    for (size_t i = 0; i + STRAIT_JOURNAL_PREFIX <= bytes; i++)
        if (data[i] == (RECORD_MAGIC & 255) && complete_record(salt, data + i, bytes - i) > 0)
            return 1;
    return 0;
}

/* Terms and versions only grow: a smaller one means that records of two journals were mixed. */
static strait_err parse_term(strait_reader *r, struct strait_journal_contents *out) {
    const uint64_t term = strait_reader_uint(r, 8), version = strait_reader_uint(r, 8);
    const size_t n = strait_reader_uint(r, 2);
    if (n >= STRAIT_METASTORE_NAME_MAX || term <= out->term || version < out->version)
        return STRAIT_FAIL(STRAIT_EDATA, "a term that does not follow the one before it");
    strait_reader_copy(r, out->owner, n);
    out->owner[n] = 0;
    out->term = term;
    out->version = version;
    return STRAIT_OK;
}

/* Applied one at a time rather than per record: the record is complete, so all will be. */
static strait_err parse_change(strait_reader *r, struct strait_journal_contents *out,
                               struct strait_metastore_batch *batch) {
    char key[STRAIT_METASTORE_KEY_MAX] = "";
    const uint64_t version = strait_reader_uint(r, 8);
    const uint64_t is_put = strait_reader_uint(r, 1);
    const size_t n = strait_reader_uint(r, 1);
    if (n == 0 || n >= sizeof key || is_put > 1)
        return STRAIT_FAIL(STRAIT_EDATA, "an entry without a valid key");
    strait_reader_copy(r, key, n);
    const size_t bytes = strait_reader_uint(r, 4);
    if (r->is_short || bytes > r->left || strlen(key) != n || (!is_put && bytes > 0))
        return STRAIT_FAIL(STRAIT_EDATA, "an entry that is cut short");
    const strait_metastore_change change = {
        .key = key, .data = is_put ? r->at : NULL, .bytes = bytes};
    if (strait_metastore_table_check(&out->entries, &change, 1) != STRAIT_OK) return STRAIT_EDATA;
    STRAIT_TRY(strait_metastore_table_prepare(&out->entries, batch, &change));
    r->at += bytes;
    r->left -= bytes;
    if (version > out->version) out->version = version;
    strait_metastore_table_apply(&out->entries, batch, version);
    return STRAIT_OK;
}

/* The batch is freed in any case: a change that failed half-way owns memory. */
static strait_err parse_entries(strait_reader *r, struct strait_journal_contents *out) {
    const uint64_t n = strait_reader_uint(r, 2);
    struct strait_metastore_batch batch = {.n_rows = 0};
    strait_err err = STRAIT_OK;
    if (n > STRAIT_METASTORE_CHANGES_MAX)
        err = STRAIT_FAIL(STRAIT_EDATA, "too many entries in one record");
    for (uint64_t i = 0; i < n && err == STRAIT_OK; i++)
        err = parse_change(r, out, &batch);
    strait_metastore_batch_fini(&batch);
    return err;
}

/* The checksum is valid, so anything wrong here was written so: never accept it as torn. */
static strait_err parse_record(const unsigned char *record, size_t bytes,
                               struct strait_journal_contents *out) {
    strait_reader r = {record + STRAIT_JOURNAL_PREFIX, bytes - STRAIT_JOURNAL_PREFIX, 0};
    if (strait_get_u64(record + 8) != out->sequence)
        return STRAIT_FAIL(STRAIT_EDATA, "a record is missing");
    const uint64_t kind = strait_reader_uint(&r, 1);
    if (kind == KIND_TERM)
        STRAIT_TRY(parse_term(&r, out));
    else if (kind == KIND_ENTRIES)
        STRAIT_TRY(parse_entries(&r, out));
    else
        return STRAIT_FAIL(STRAIT_EDATA, "a record of an unknown kind");
    if (r.is_short || r.left > 0) return STRAIT_FAIL(STRAIT_EDATA, "a record of the wrong length");
    out->sequence++;
    return STRAIT_OK;
}

strait_err strait_journal_parse(const unsigned char *data, size_t bytes,
                                struct strait_journal_contents *out) {
    STRAIT_TRY(parse_header(data, bytes, out));
    while (out->valid_bytes < bytes) {
        const unsigned char *at = data + out->valid_bytes;
        const size_t left = bytes - out->valid_bytes;
        const size_t n = complete_record(out->salt, at, left);
        if (n == 0 && has_complete_record(out->salt, at + 1, left - 1))
            return STRAIT_FAIL(STRAIT_EDATA,
                               "damaged at byte %zu, followed by complete records; restore a "
                               "backup; nothing was changed",
                               out->valid_bytes);
        if (n == 0) return STRAIT_OK; // torn: it was never acknowledged
        const strait_err err = parse_record(at, n, out);
        if (err == STRAIT_EDATA) strait_err_prefix("at byte %zu", out->valid_bytes);
        STRAIT_TRY(err);
        out->valid_bytes += n;
    }
    return STRAIT_OK;
}
