/* shard_layout.h - the numbers of the file format and names that shard.c reads and shard_writer.c
 * writes. */
#pragma once

enum {
    STRAIT_SHARD_MAGIC = 20240520,
    STRAIT_SHARD_NARROW = 1,           // versions: two-byte ids,
    STRAIT_SHARD_WIDE = 2,             // four-byte ids,
    STRAIT_SHARD_TAGGED = 3,           // four-byte ids with the tags of documents
    STRAIT_SHARD_FINGERPRINT = 20,     // byte offset in the header
    STRAIT_SHARD_PRINT_BYTES = 16,     // of the fingerprint
    STRAIT_SHARD_NARROW_VOCAB = 65536, // the largest vocabulary whose ids fit into two bytes
    STRAIT_SHARD_INDEX_DIGITS = 5      // at least, of a shard's index in its file name
};
