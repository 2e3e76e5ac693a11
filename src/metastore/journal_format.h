/* journal_format.h - the bytes of a journal, made and read. docs/formats.md has the layout.
 *
 * A journal is a header and records, each with a number and a checksum. Nothing here touches a
 * file. */
#pragma once

#include "metastore/table.h"

enum {
    STRAIT_JOURNAL_HEADER = 288,
    STRAIT_JOURNAL_PREFIX = 24, // of a record, before its payload
    STRAIT_JOURNAL_CHANGE = 14, // of a change, beside its key and value
    STRAIT_JOURNAL_PAYLOAD_MAX = STRAIT_METASTORE_COMMIT_MAX + 8 +
                                 STRAIT_JOURNAL_CHANGE * STRAIT_METASTORE_CHANGES_MAX,
    STRAIT_JOURNAL_RECORD_MAX = STRAIT_JOURNAL_PREFIX + STRAIT_JOURNAL_PAYLOAD_MAX
};

/* What a journal says, and where its next record goes. Zeroed is empty. */
struct strait_journal_contents {
    char run[STRAIT_METASTORE_NAME_MAX];
    uint64_t salt;     // of the checksums: nobody can put a record inside a value
    uint64_t sequence; // of the next record
    uint64_t term, version;
    char owner[STRAIT_METASTORE_NAME_MAX]; // of that term
    struct strait_metastore_table facts;
    size_t whole_bytes; // up to the end of the last whole record; what follows was torn
};

void strait_journal_contents_fini(struct strait_journal_contents *image);

void strait_journal_header_pack(const struct strait_journal_contents *image,
                                unsigned char out[STRAIT_JOURNAL_HEADER]);

/* Records into out[STRAIT_JOURNAL_RECORD_MAX], as the next of the image; return their bytes. The
 * image's sequence is for the caller to advance, when the record is on disk. */
size_t strait_journal_term_pack(const struct strait_journal_contents *image, uint64_t term,
                                const char *owner, unsigned char *out);
/* Each fact with its own version; a fact without data is a removal. */
size_t strait_journal_entries_pack(const struct strait_journal_contents *image,
                                   struct strait_metastore_row *const *rows, int n_rows,
                                   unsigned char *out);

/* Reads a whole journal into a zeroed image, which the caller finishes whatever comes back. A
 * last record that is cut short or damaged is left out: it was never acknowledged. STRAIT_EDATA
 * for anything else that is wrong, a damaged record before whole ones above all. */
strait_err strait_journal_parse(const unsigned char *data, size_t bytes,
                                struct strait_journal_contents *out);
