/* journal_format.h - packs and parses the bytes of a journal. docs/formats.md has the layout.
 *
 * A journal is a header followed by records, each with a sequence number and a checksum. Nothing
 * here accesses a file. */
#pragma once

#include "metastore/table.h"

enum {
    STRAIT_JOURNAL_HEADER = 288,
    STRAIT_JOURNAL_PREFIX = 24, // of a record, before its payload
    STRAIT_JOURNAL_CHANGE = 14, // of a change, besides its key and value
    STRAIT_JOURNAL_PAYLOAD_MAX = STRAIT_METASTORE_COMMIT_MAX + 8 +
                                 STRAIT_JOURNAL_CHANGE * STRAIT_METASTORE_CHANGES_MAX,
    STRAIT_JOURNAL_RECORD_MAX = STRAIT_JOURNAL_PREFIX + STRAIT_JOURNAL_PAYLOAD_MAX
};

/* The contents of a journal, and where its next record goes. Zeroed is empty. */
struct strait_journal_contents {
    char run[STRAIT_METASTORE_NAME_MAX];
    uint64_t salt;     // of the checksums, random: a value cannot contain a valid record
    uint64_t sequence; // of the next record
    uint64_t term, version;
    char owner[STRAIT_METASTORE_NAME_MAX]; // of that term
    struct strait_metastore_table entries;
    size_t valid_bytes; // up to the end of the last complete record; the rest is torn
};

/* Frees the entries and zeroes the contents. */
void strait_journal_contents_fini(struct strait_journal_contents *contents);

/* Writes the header of a journal. */
void strait_journal_header_pack(const struct strait_journal_contents *contents,
                                unsigned char out[STRAIT_JOURNAL_HEADER]);

/* Write the next record into out[STRAIT_JOURNAL_RECORD_MAX] and return its bytes. The caller
 * advances contents->sequence once the record is on disk. */
size_t strait_journal_term_pack(const struct strait_journal_contents *contents, uint64_t term,
                                const char *owner, unsigned char *out);
/* Each entry with its own version; an entry without data is a removal. */
size_t strait_journal_entries_pack(const struct strait_journal_contents *contents,
                                   struct strait_metastore_row *const *rows, int n_rows,
                                   unsigned char *out);

/* Parses a journal into zeroed contents, which the caller finalises whatever is returned. A last
 * record that is cut short or damaged is ignored: it was never acknowledged. STRAIT_EDATA for any
 * other damage, in particular a damaged record followed by complete ones. */
strait_err strait_journal_parse(const unsigned char *data, size_t bytes,
                                struct strait_journal_contents *out);
