/* shard.h - one file of token ids: reading and writing it.
 *
 * The file is a header of 256 little-endian 32-bit words, then the ids, two or four bytes each,
 * little-endian:
 *
 *     word 0      magic 20240520
 *     word 1      version: 1 for two-byte ids, 2 for four-byte ids, 3 for documents
 *     word 2, 3   number of ids, low word first
 *     word 4      size of the vocabulary; 0 if unknown
 *     word 5..8   fingerprint of the tokenizer, 16 bytes; zeros if unknown
 *
 * The other words are zero. A shard of documents has four-byte ids with two tags, below: documents
 * are trained on one by one, and some of their tokens are not targets. Files of other programs
 * (llm.c) that fill only words 0 to 2 are read too, as is their four-byte layout with magic
 * 20240801 and version 7. docs/formats.md has the details. */
#pragma once

#include "base/digest/hash.h"
#include "base/error.h"
#include "base/file.h"
#include "data/packing.h"

#include <stddef.h>
#include <stdint.h>

enum {
    STRAIT_SHARD_HEADER_BYTES = 1024
};

/* Tags of an id in a shard of documents. */
enum {
    STRAIT_TOKEN_UNTRAINED = 1 << 29, // part of a prompt: not a target
    STRAIT_TOKEN_FIRST = 1 << 30,     // begins a document
    STRAIT_TOKEN_TAGS = STRAIT_TOKEN_UNTRAINED | STRAIT_TOKEN_FIRST
};

/* An open shard, in the caller's memory. Any number of threads may read it at once. Ids are read
 * with pread instead of a mapping: a file that someone truncates during the run is then an error
 * with a name and not a SIGBUS. */
struct strait_shard {
    const char *path;         // borrowed
    int fd;                   // 0: not open, or given to strait_shard_parse
    const unsigned char *ids; // in the memory given to strait_shard_parse; NULL: in the file
    int64_t bytes;            // of the file when it was opened
    int header_bytes;         // before the first id in the file; 0: a raw file
    int id_bytes;             // per id: 2 or 4
    int64_t n_tokens;
    int is_tagged;                    // of documents
    int64_t *documents;               // the first token of each, ascending from 0; owned
    int64_t n_documents;              // 0 unless is_tagged
    strait_packing packing;           // of the documents into rows; owned
    int64_t vocab;                    // 0 if unknown
    char tokenizer[STRAIT_HASH_TEXT]; // fingerprint; empty if unknown
};

/* Opens the file and checks its header and length. Borrows `path` until fini. STRAIT_EIO: it cannot
 * be read. STRAIT_EDATA: not a shard, truncated, or longer than its header says; the detail tells
 * these apart. */
strait_err strait_shard_init(struct strait_shard *shard, const char *path);
void strait_shard_fini(struct strait_shard *shard); // accepts a zeroed shard

/* Like strait_shard_init, but a file without the header of a shard is raw: nothing but ids of
 * id_bytes (2 or 4), little-endian, as nanoGPT writes them. STRAIT_EDATA also if its size is not a
 * whole number of ids, or if two-byte ids look like four-byte ones. */
strait_err strait_shard_init_raw(struct strait_shard *shard, const char *path, int id_bytes);

/* The same for a file in memory, which must stay valid while the shard is used; for tests. `path`
 * is the name that errors give. Call fini here, too. */
strait_err strait_shard_parse(struct strait_shard *shard, const void *data, size_t bytes,
                              const char *path);

/* Copies ids [first, first + n); the caller ensures that they are inside the shard. STRAIT_EDATA
 * names file, position and id if an id is `vocab` or more (vocab 0 accepts all), or the lengths if
 * the file shrank since it was opened. Never allocates. */
strait_err strait_shard_read(const struct strait_shard *shard, int64_t first, int64_t n,
                             int64_t vocab, int32_t *out);

/* The same, with -1 for tokens that are not trained on. */
strait_err strait_shard_read_targets(const struct strait_shard *shard, int64_t first, int64_t n,
                                     int64_t vocab, int32_t *out);

/* The token after the last one of document i. */
int64_t strait_shard_document_end(const struct strait_shard *shard, int64_t i);

/* STRAIT_EDATA names both lengths if the file is shorter than when it was opened. Reads nothing. */
strait_err strait_shard_check(const struct strait_shard *shard);

/* Checks every id against `vocab` or, if that is 0, against the vocabulary of the header. */
strait_err strait_shard_verify(const struct strait_shard *shard, int64_t vocab);

/* What the header of a new shard states. */
typedef struct strait_shard_spec {
    int64_t vocab;         // also chooses the width of ids: two bytes up to 65536, else four
    const char *tokenizer; // fingerprint, 32 hexadecimal digits; NULL if unknown
    int has_documents;     // ids have the tags of documents
} strait_shard_spec;

struct strait_shard_writer;

/* Starts writing PATH.tmp, which becomes `path` when it is finished. Borrows nothing. STRAIT_EIO:
 * the file cannot be created. STRAIT_EINVAL: the spec is wrong. */
strait_err strait_shard_writer_open(const char *path, strait_shard_spec spec,
                                    struct strait_shard_writer **out);

/* Appends ids. STRAIT_EINVAL: an id is outside the vocabulary. STRAIT_EIO: writing failed. */
strait_err strait_shard_writer_append(struct strait_shard_writer *writer, const int32_t *ids,
                                      size_t n);

/* How many ids were appended so far. */
int64_t strait_shard_writer_count(const struct strait_shard_writer *writer);

/* Completes the header, syncs the file to disk and moves it into place. Closes the writer, also on
 * error; an error leaves an existing file at that path untouched. */
strait_err strait_shard_writer_finish(struct strait_shard_writer **writer);

/* Abandons the shard: removes PATH.tmp and frees the writer. Accepts NULL in *writer. */
void strait_shard_writer_close(struct strait_shard_writer **writer);
