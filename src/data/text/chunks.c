#include "data/text/chunks.h"

#include "base/alloc.h"
#include "base/pool.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    CHUNK_BYTES = 1 << 17, // of text, about
    N_CHUNKS = 48,         // per batch: enough to balance the load among threads
    ERROR_TEXT = 512
};

/* An error with its detail. Details are thread-local, so a worker's must be carried to the thread
 * of the caller explicitly. */
typedef struct saved_error {
    strait_err err;
    char detail[ERROR_TEXT];
} saved_error;

struct batch {
    strait_chunk chunks[N_CHUNKS];
    saved_error errors[N_CHUNKS];
    int n;
    saved_error read_error; // of reading this batch
};

struct chunk_reader {
    const strait_chunks_spec *spec;
    struct strait_text *text;
    struct strait_pool *pool;
    struct batch *batches; // two: one is processed while the other is read
    struct batch *current, *next;
    strait_text_piece piece; // used by the reading task only, like the two fields below
    int is_over;
    int64_t n_bytes;
    atomic_int next_chunk; // of `current`: the first that no task has claimed
};

static void save_error(saved_error *f, strait_err err) {
    f->err = err;
    if (err != STRAIT_OK) (void)snprintf(f->detail, sizeof f->detail, "%s", strait_err_detail());
}

static strait_err restore_error(const saved_error *f) {
    return f->err == STRAIT_OK ? STRAIT_OK : STRAIT_FAIL(f->err, "%s", f->detail);
}

static strait_err fill_chunk(struct chunk_reader *reader, strait_chunk *chunk) {
    chunk->n_ends = chunk->text.n = 0;
    while (chunk->text.n < CHUNK_BYTES && !reader->is_over) {
        reader->piece.text = chunk->text; // use the chunk's buffer: the piece is appended in place
        const strait_err err = strait_text_next(reader->text, &reader->piece);
        chunk->text = reader->piece.text;
        reader->piece.text = (strait_buffer){0};
        STRAIT_TRY(err);
        reader->is_over = reader->piece.is_over;
        if (reader->is_over) break;
        STRAIT_TRY(strait_buffer_reserve((void **)&chunk->ends, &chunk->end_capacity,
                                         chunk->n_ends + 1, sizeof *chunk->ends));
        chunk->ends[chunk->n_ends++] = (strait_chunk_end){
            chunk->text.n, reader->piece.ends_document, reader->piece.begins_document,
            reader->piece.is_untrained};
    }
    chunk->bytes_read = strait_text_bytes_read(reader->text);
    reader->n_bytes += (int64_t)chunk->text.n;
    if (reader->spec->limit_bytes > 0 && reader->n_bytes >= reader->spec->limit_bytes)
        reader->is_over = 1;
    return STRAIT_OK;
}

static strait_err read_batch(struct chunk_reader *reader, struct batch *batch) {
    batch->n = 0;
    while (batch->n < N_CHUNKS && !reader->is_over) {
        STRAIT_TRY(fill_chunk(reader, &batch->chunks[batch->n]));
        if (batch->chunks[batch->n].n_ends > 0) batch->n++;
    }
    return STRAIT_OK;
}

/* Task 0 reads the next batch; the others process chunks of the current batch until none is left.
 * The two batches share no memory, and each chunk is claimed by exactly one task. */
static void run_task(void *arg, int task) {
    struct chunk_reader *reader = arg;
    if (task == 0) {
        save_error(&reader->next->read_error, read_batch(reader, reader->next));
        return;
    }
    struct batch *batch = reader->current;
    int i;
    while ((i = atomic_fetch_add(&reader->next_chunk, 1)) < batch->n)
        save_error(&batch->errors[i],
                   reader->spec->work(reader->spec->arg, task - 1, &batch->chunks[i]));
}

/* Reports errors and calls `after` in order. All tasks have ended, so nothing is locked. */
static strait_err finish_batch(struct chunk_reader *reader, struct batch *batch) {
    const strait_chunks_spec *spec = reader->spec;
    for (int i = 0; i < batch->n; i++) {
        STRAIT_TRY(restore_error(&batch->errors[i]));
        if (spec->after != NULL)
            STRAIT_TRY(spec->after(spec->arg, &batch->chunks[i], batch->chunks[i].bytes_read,
                                   strait_text_bytes_total(reader->text)));
    }
    return STRAIT_OK;
}

static strait_err start(struct chunk_reader *reader, int n_workers) {
    STRAIT_TRY(strait_alloc(2, sizeof *reader->batches, "text", (void **)&reader->batches));
    STRAIT_TRY(strait_text_open(&reader->spec->text, reader->spec->piece_bytes, &reader->text));
    STRAIT_TRY(strait_pool_open(n_workers, &reader->pool));
    reader->current = &reader->batches[0];
    reader->next = &reader->batches[1];
    return read_batch(reader, reader->current);
}

static strait_err run_all(struct chunk_reader *reader) {
    const int n_workers = strait_chunks_workers(reader->spec->n_threads);
    STRAIT_TRY(start(reader, n_workers));
    while (reader->current->n > 0) {
        atomic_store(&reader->next_chunk, 0);
        strait_pool_run(reader->pool, n_workers + 1, run_task, reader);
        STRAIT_TRY(finish_batch(reader, reader->current));
        STRAIT_TRY(restore_error(&reader->next->read_error));
        struct batch *done = reader->current;
        reader->current = reader->next;
        reader->next = done;
    }
    return STRAIT_OK;
}

int strait_chunks_workers(int n_threads) {
    if (n_threads > 0) return n_threads < 256 ? n_threads : 256;
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > 256 ? 256 : (int)n;
}

strait_err strait_chunks_run(const strait_chunks_spec *spec) {
    struct chunk_reader reader = {.spec = spec};
    const strait_err err = run_all(&reader);
    strait_pool_close(&reader.pool);
    strait_text_close(&reader.text);
    for (int b = 0; reader.batches != NULL && b < 2; b++) {
        for (int i = 0; i < N_CHUNKS; i++) {
            strait_alloc_free(reader.batches[b].chunks[i].text.data);
            strait_alloc_free(reader.batches[b].chunks[i].ends);
            strait_alloc_free(reader.batches[b].chunks[i].ids.data);
        }
    }
    strait_alloc_free(reader.batches);
    return err;
}
