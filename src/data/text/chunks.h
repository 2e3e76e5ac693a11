/* chunks.h - processes text files with several threads and read-ahead.
 *
 * Text is processed in chunks. A chunk holds one long piece of a document or several short
 * documents. While worker threads process one batch of chunks, another thread reads the next batch.
 * Results are delivered in the order of the text, whatever the number of threads. */
#pragma once

#include "base/error.h"
#include "data/buffer.h"
#include "data/text/text.h"

#include <stddef.h>
#include <stdint.h>

typedef struct strait_chunk_end {
    size_t at;                         // offset in the chunk's text where a piece ends
    int ends_document;                 // 0: the document goes on in the next piece
    int begins_document, is_untrained; // as in strait_text_piece
} strait_chunk_end;

typedef struct strait_chunk {
    strait_buffer text;
    strait_chunk_end *ends;
    size_t n_ends, end_capacity;
    int64_t bytes_read; // from the files, up to the end of this chunk and what was read ahead
    strait_ids ids;     // output of `work`, if it needs one; kept allocated between uses
} strait_chunk;

typedef struct strait_chunks_spec {
    strait_text_spec text;
    size_t piece_bytes;  // split longer plain documents (data/text/text.h); 0: never
    int n_threads;       // 0: one per core
    int64_t limit_bytes; // stop reading after about this much text; 0: no limit

    /* Processes one chunk. Called from any thread, in any order. `worker` is smaller than
     * strait_chunks_workers, and no two threads have the same number at the same time: index
     * per-thread state with it. */
    strait_err (*work)(void *arg, int worker, strait_chunk *chunk);

    /* Called for each processed chunk, in order, on the thread of the caller. `bytes_read` of
     * `total` bytes of the files have been read (total 0: unknown). May be NULL. */
    strait_err (*after)(void *arg, strait_chunk *chunk, int64_t bytes_read, int64_t total);
    void *arg;
} strait_chunks_spec;

/* How many workers strait_chunks_run uses for n_threads, 1 to 256. */
int strait_chunks_workers(int n_threads);

/* Processes all the text. Stops at the first error of reading, `work` or `after`, in the order of
 * the text, and returns it with its detail. */
strait_err strait_chunks_run(const strait_chunks_spec *spec);
