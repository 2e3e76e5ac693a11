/* corpus_writer.h - the files of a corpus while it is being written.
 *
 * Shards and manifest are written to the folder NAME.bin.tmp/ and moved into place together once
 * all are complete. Two invariants follow: a manifest NAME.json only ever names shards that belong
 * to it, and a job that fails or is killed leaves the existing corpus of that name untouched. A
 * lock file in the folder keeps a second process from writing the same corpus.
 *
 * The struct is the caller's memory. One thread uses it at a time. */
#pragma once

#include "base/error.h"
#include "base/file.h"

#include <stdint.h>

typedef struct strait_corpus_writer {
    char stem[STRAIT_PATH_MAX];   // the path of NAME.bin without its ending
    char folder[STRAIT_PATH_MAX]; // NAME.bin.tmp; empty if this writer does not own it
    int is_sharded;               // write NAME-00000.bin and on, instead of NAME.bin
    int lock;                     // of the lock file in `folder`
} strait_corpus_writer;

/* Looks for files of an existing corpus of that name: NAME.json, NAME.bin, NAME-00000.bin and on.
 * `path` receives the first of them in alphabetical order, or an empty string. */
strait_err strait_corpus_writer_find_existing(const char *out, char path[STRAIT_PATH_MAX]);

/* Sets *overwrites to 1 if writing the corpus `out` would overwrite the file `input`, else to 0. */
strait_err strait_corpus_writer_would_overwrite(const char *out, const char *input,
                                                int *overwrites);

/* Creates and locks the folder for NAME.bin and removes what a killed process left in it.
 * STRAIT_ECONFIG: the name does not end in .bin. STRAIT_EIO: the folder cannot be created, or
 * another process holds its lock. Call fini in either case. */
strait_err strait_corpus_writer_init(strait_corpus_writer *writer, const char *out, int is_sharded);

/* The path of shard `index`, and of the manifest, inside the temporary folder. */
strait_err strait_corpus_writer_shard(const strait_corpus_writer *writer, int64_t index,
                                      char path[STRAIT_PATH_MAX]);
strait_err strait_corpus_writer_manifest(const strait_corpus_writer *writer,
                                         char path[STRAIT_PATH_MAX]);

/* Moves n_shards shards and the manifest into place and removes every other file of an existing
 * corpus of that name (surplus shards, or shards of another size). The old manifest is removed
 * first and the new one is moved last: if the process is killed in between, no manifest exists that
 * describes shards it does not belong to. */
strait_err strait_corpus_writer_publish(strait_corpus_writer *writer, int64_t n_shards);

/* Removes the temporary folder with its contents and releases the lock. Accepts a zeroed writer. */
void strait_corpus_writer_fini(strait_corpus_writer *writer);
