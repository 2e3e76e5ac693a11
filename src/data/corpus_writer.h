/* draft.h - a corpus until it is whole: shards and manifest lie in NAME.bin.tmp/, and come to their
 * places together.
 *
 * So NAME.json, where it is there, names shards that belong to it, and what is not finished leaves
 * the corpus of that name as it was. The caller's memory; one thread. */
#pragma once

#include "base/error.h"
#include "base/file.h"

#include <stdint.h>

typedef struct strait_corpus_writer {
    char stem[STRAIT_PATH_MAX];   // the path of NAME.bin without its ending
    char folder[STRAIT_PATH_MAX]; // empty: there is none
    int is_cut;                   // NAME-00000.bin and on, instead of NAME.bin
    int lock;
} strait_corpus_writer;

/* Whether there is a corpus of that name, or a part of one: NAME.json, NAME.bin, NAME-00000.bin and
 * on. `path` is one of its files then, and empty otherwise. */
strait_err strait_corpus_writer_find_existing(const char *out, char path[STRAIT_PATH_MAX]);

/* Whether `input` is a file that a corpus of that name would replace. */
strait_err strait_corpus_writer_would_overwrite(const char *out, const char *input,
                                                int *overwrites);

/* Makes the folder for NAME.bin, empty: what a process that was killed left there is removed.
 * STRAIT_ECONFIG where the name does not end in .bin; STRAIT_EIO where the folder cannot be made,
 * or another process has it. */
strait_err strait_corpus_writer_init(strait_corpus_writer *writer, const char *out, int is_cut);

/* Paths in the folder. */
strait_err strait_corpus_writer_shard(const strait_corpus_writer *writer, int64_t index,
                                      char path[STRAIT_PATH_MAX]);
strait_err strait_corpus_writer_manifest(const strait_corpus_writer *writer,
                                         char path[STRAIT_PATH_MAX]);

/* Moves n_shards shards and the manifest to their places, and removes every other file of a corpus
 * of that name: more shards, or those of another cut. The old manifest goes first and the new one
 * comes last, so that a stop in between leaves shards that none claims to know. */
strait_err strait_corpus_writer_publish(strait_corpus_writer *writer, int64_t n_shards);

/* Removes the folder and what is still in it. Accepts a zeroed one. */
void strait_corpus_writer_fini(strait_corpus_writer *writer);
