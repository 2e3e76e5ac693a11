#include "data/text/chunks.h"

#include "base/alloc.h"
#include "base/pool.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    PORTION_BYTES = 1 << 17,
    N_PORTIONS = 48, // in a batch: enough to share out evenly
    ERROR_TEXT = 512
};

/* An error and its words, which otherwise stay in the thread where they were noted. */
typedef struct fault {
    strait_err err;
    char detail[ERROR_TEXT];
} fault;

struct batch {
    strait_chunk chunks[N_PORTIONS];
    fault faults[N_PORTIONS];
    int n;
    int64_t taken;
    fault reading;
};

struct feed {
    const strait_chunks_spec *spec;
    struct strait_text *text;
    struct strait_pool *pool;
    struct batch *batches; // two: one is worked on while the other is read
    struct batch *current, *next;
    strait_text_piece piece;
    int is_over;
    int64_t n_bytes;
    atomic_int next_portion;
};

static void note(fault *f, strait_err err) {
    f->err = err;
    if (err != STRAIT_OK) (void)snprintf(f->detail, sizeof f->detail, "%s", strait_err_detail());
}

static strait_err report(const fault *f) {
    return f->err == STRAIT_OK ? STRAIT_OK : STRAIT_FAIL(f->err, "%s", f->detail);
}

static strait_err fill_portion(struct feed *feed, strait_chunk *chunk) {
    chunk->n_ends = chunk->text.n = 0;
    while (chunk->text.n < PORTION_BYTES && !feed->is_over) {
        feed->piece.text = chunk->text; // the piece is appended in place
        const strait_err err = strait_text_next(feed->text, &feed->piece);
        chunk->text = feed->piece.text;
        feed->piece.text = (strait_buffer){0};
        STRAIT_TRY(err);
        feed->is_over = feed->piece.is_over;
        if (feed->is_over) break;
        STRAIT_TRY(strait_buffer_reserve((void **)&chunk->ends, &chunk->end_room, chunk->n_ends + 1,
                                         sizeof *chunk->ends));
        chunk->ends[chunk->n_ends++] = (strait_chunk_end){chunk->text.n, feed->piece.ends_document};
    }
    feed->n_bytes += (int64_t)chunk->text.n;
    if (feed->spec->limit_bytes > 0 && feed->n_bytes >= feed->spec->limit_bytes) feed->is_over = 1;
    return STRAIT_OK;
}

static strait_err read_batch(struct feed *feed, struct batch *batch) {
    batch->n = 0;
    while (batch->n < N_PORTIONS && !feed->is_over) {
        STRAIT_TRY(fill_portion(feed, &batch->chunks[batch->n]));
        if (batch->chunks[batch->n].n_ends > 0) batch->n++;
    }
    batch->taken = strait_text_taken(feed->text);
    return STRAIT_OK;
}

/* Task 0 reads; every task then works on what is left. */
static void run_task(void *arg, int task) {
    struct feed *feed = arg;
    if (task == 0) {
        note(&feed->next->reading, read_batch(feed, feed->next));
        return;
    }
    struct batch *batch = feed->current;
    int i;
    while ((i = atomic_fetch_add(&feed->next_portion, 1)) < batch->n)
        note(&batch->faults[i], feed->spec->work(feed->spec->arg, task - 1, &batch->chunks[i]));
}

static strait_err conclude(struct feed *feed, struct batch *batch) {
    const strait_chunks_spec *spec = feed->spec;
    for (int i = 0; i < batch->n; i++) {
        STRAIT_TRY(report(&batch->faults[i]));
        if (spec->after != NULL)
            STRAIT_TRY(spec->after(spec->arg, &batch->chunks[i], batch->taken,
                                   strait_text_total(feed->text)));
    }
    return STRAIT_OK;
}

static strait_err start(struct feed *feed, int n_workers) {
    STRAIT_TRY(strait_alloc(2, sizeof *feed->batches, "text", (void **)&feed->batches));
    STRAIT_TRY(strait_text_open(&feed->spec->text, feed->spec->piece_bytes, &feed->text));
    STRAIT_TRY(strait_pool_open(n_workers, &feed->pool));
    feed->current = &feed->batches[0];
    feed->next = &feed->batches[1];
    return read_batch(feed, feed->current);
}

static strait_err run_all(struct feed *feed) {
    const int n_workers = strait_chunks_workers(feed->spec->n_threads);
    STRAIT_TRY(start(feed, n_workers));
    while (feed->current->n > 0) {
        atomic_store(&feed->next_portion, 0);
        strait_pool_run(feed->pool, n_workers + 1, run_task, feed);
        STRAIT_TRY(conclude(feed, feed->current));
        STRAIT_TRY(report(&feed->next->reading));
        struct batch *done = feed->current;
        feed->current = feed->next;
        feed->next = done;
    }
    return STRAIT_OK;
}

int strait_chunks_workers(int n_threads) {
    if (n_threads > 0) return n_threads < 256 ? n_threads : 256;
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > 256 ? 256 : (int)n;
}

strait_err strait_chunks_run(const strait_chunks_spec *spec) {
    struct feed feed = {.spec = spec};
    const strait_err err = run_all(&feed);
    strait_pool_close(&feed.pool);
    strait_text_close(&feed.text);
    for (int b = 0; feed.batches != NULL && b < 2; b++) {
        for (int i = 0; i < N_PORTIONS; i++) {
            strait_alloc_free(feed.batches[b].chunks[i].text.data);
            strait_alloc_free(feed.batches[b].chunks[i].ends);
            strait_alloc_free(feed.batches[b].chunks[i].ids.data);
        }
    }
    strait_alloc_free(feed.batches);
    return err;
}
