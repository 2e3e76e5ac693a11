/* portions.h - text read ahead and worked on by several threads.
 *
 * The text comes in portions: a long piece of one document, or several short documents. While the
 * threads work on some portions, one of them reads the next. */
#pragma once

#include "base/error.h"
#include "data/buffer.h"
#include "data/text/text.h"

#include <stddef.h>
#include <stdint.h>

typedef struct strait_chunk_end {
    size_t at;         // where a piece ends in the portion's text
    int ends_document; // or only a part of one
} strait_chunk_end;

typedef struct strait_chunk {
    strait_buffer text;
    strait_chunk_end *ends;
    size_t n_ends, end_capacity;
    strait_ids ids; // for the work to fill
} strait_chunk;

typedef struct strait_chunks_spec {
    strait_text_spec text;
    size_t piece_bytes;  // split long plain documents (data/text.h); 0: never
    int n_threads;       // 0: one per core
    int64_t limit_bytes; // stop reading after about so much text; 0: never

    /* Any thread, in any order. `worker` is below strait_chunks_workers; no two threads have the
     * same at one time. */
    strait_err (*work)(void *arg, int worker, strait_chunk *chunk);

    /* The caller's thread, in order. `bytes_read` of `total` bytes are read (total 0: unknown). May
     * be NULL. */
    strait_err (*after)(void *arg, strait_chunk *chunk, int64_t bytes_read, int64_t total);
    void *arg;
} strait_chunks_spec;

/* How many workers strait_chunks_run uses for n_threads. */
int strait_chunks_workers(int n_threads);

/* Runs through all the text. The first error, of reading or of work, ends it. */
strait_err strait_chunks_run(const strait_chunks_spec *spec);
