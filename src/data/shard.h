/* shard.h - one file of token ids.
 *
 * A header of 256 little-endian 32-bit words, then the ids, two or four bytes each, little-endian:
 *
 *     word 0      magic 20240520
 *     word 1      version: 1 for two-byte ids, 2 for four-byte ids
 *     word 2, 3   number of ids, low word first
 *     word 4      size of the vocabulary; 0 when unknown
 *     word 5..8   fingerprint of the tokenizer, 16 bytes; zeros when unknown
 *
 * The rest is zero. Files of other programs that only fill words 0 to 2 are read too, and so is
 * their four-byte layout with magic 20240801 and version 7. docs/formats.md has the details. */
#pragma once

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

#include <stddef.h>
#include <stdint.h>

enum {
    STRAIT_SHARD_HEADER_BYTES = 1024
};

/* An open shard: the caller's memory, read by any number of threads at once. */
struct strait_shard {
    const char *path; // borrowed
    strait_file_map map;
    const unsigned char *ids;
    int id_bytes; // 2 or 4
    int64_t n_tokens;
    int64_t vocab;                    // 0: unknown
    char tokenizer[STRAIT_HASH_TEXT]; // fingerprint; empty: unknown
};

/* Maps the file and checks its header and length. Keeps `path` until fini. A file of another kind,
 * a file cut short and a file with bytes to spare are told apart: STRAIT_EDATA. */
strait_err strait_shard_init(struct strait_shard *shard, const char *path);
void strait_shard_fini(struct strait_shard *shard); // accepts a zeroed shard

/* The same over memory that the caller keeps; for tests. `path` is what errors name. */
strait_err strait_shard_parse(struct strait_shard *shard, const void *data, size_t bytes,
                              const char *path);

/* Copies ids [first, first + n), which must lie inside the shard. An id of `vocab` or more is
 * STRAIT_EDATA naming file, position and id; vocab 0 takes all. Never allocates. */
strait_err strait_shard_read(const struct strait_shard *shard, int64_t first, int64_t n,
                             int64_t vocab, int32_t *out);

/* Checks every id against `vocab` and, when it is 0, against the header's own. */
strait_err strait_shard_verify(const struct strait_shard *shard, int64_t vocab);

/* What a new shard's header says. */
typedef struct strait_shard_spec {
    int64_t vocab;         // also chooses the width: up to 65536 is two bytes
    const char *tokenizer; // fingerprint in hexadecimal; NULL: unknown
} strait_shard_spec;

struct strait_shard_writer;

/* Starts `path`, written beside it as PATH.tmp until it is finished. Keeps nothing of `spec`. */
strait_err strait_shard_writer_open(const char *path, strait_shard_spec spec,
                                    struct strait_shard_writer **out);

/* Appends ids; one outside the vocabulary is STRAIT_EINVAL. */
strait_err strait_shard_writer_append(struct strait_shard_writer *writer, const int32_t *ids,
                                      size_t n);
int64_t strait_shard_writer_count(const struct strait_shard_writer *writer);

/* Completes the header, syncs and moves the file into place; then the writer is closed. */
strait_err strait_shard_writer_finish(struct strait_shard_writer **writer);

/* Gives up: removes what was written. Accepts NULL. */
void strait_shard_writer_close(struct strait_shard_writer **writer);
