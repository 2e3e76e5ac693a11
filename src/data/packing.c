#include "data/packing.h"

#include "base/alloc.h"
#include "data/shard.h"

enum {
    OPEN_ROWS = 64 // more fill rows hardly better; part of the frozen order
};

/* A row that is being filled: a list of documents through `next`. */
struct open_row {
    int64_t first, last, n_inputs;
};

struct packer {
    strait_packing *out;
    int64_t *next; // of each document, in its row; -1: the last
    struct open_row open[OPEN_ROWS];
    int n_open;
    int64_t n_ordered;
};

int64_t strait_packing_inputs(const struct strait_shard *shard, int64_t i, int64_t context) {
    const int64_t n = strait_shard_document_end(shard, i) - shard->documents[i] - 1;
    return n < context ? n : context;
}

static void close_row(struct packer *p, int which) {
    strait_packing *out = p->out;
    out->rows[out->n_rows++] = p->n_ordered;
    for (int64_t i = p->open[which].first; i >= 0; i = p->next[i])
        out->order[p->n_ordered++] = i;
    out->rows[out->n_rows] = p->n_ordered;
    p->open[which] = p->open[--p->n_open];
}

/* The fullest open row, of those with at most `most` inputs; -1: none. */
static int fullest(const struct packer *p, int64_t most) {
    int best = -1;
    for (int i = 0; i < p->n_open; i++)
        if (p->open[i].n_inputs <= most &&
            (best < 0 || p->open[i].n_inputs > p->open[best].n_inputs))
            best = i;
    return best;
}

static void add(struct packer *p, int64_t document, int64_t n, int64_t context) {
    const int into = fullest(p, context - n);
    p->next[document] = -1;
    if (into >= 0) {
        p->next[p->open[into].last] = document;
        p->open[into].last = document;
        p->open[into].n_inputs += n;
        return;
    }
    if (p->n_open == OPEN_ROWS) close_row(p, fullest(p, context));
    p->open[p->n_open++] = (struct open_row){document, document, n};
}

strait_err strait_packing_fill(struct strait_shard *shard, int64_t context) {
    const int64_t n = shard->n_documents;
    struct packer p = {.out = &shard->packing};
    strait_packing_fini(&shard->packing);
    if (n == 0) return STRAIT_OK;
    strait_err err = strait_alloc((size_t)n, sizeof *p.next, "documents", (void **)&p.next);
    if (err == STRAIT_OK)
        err = strait_alloc((size_t)n, sizeof *p.out->order, "documents", (void **)&p.out->order);
    if (err == STRAIT_OK)
        err = strait_alloc((size_t)n + 1, sizeof *p.out->rows, "documents", (void **)&p.out->rows);
    for (int64_t i = 0; err == STRAIT_OK && i < n; i++) {
        const int64_t some = strait_packing_inputs(shard, i, context);
        if (some > 0) add(&p, i, some, context);
    }
    while (err == STRAIT_OK && p.n_open > 0)
        close_row(&p, 0);
    strait_alloc_free(p.next);
    return err;
}

void strait_packing_fini(strait_packing *packing) {
    strait_alloc_free(packing->order);
    strait_alloc_free(packing->rows);
    *packing = (strait_packing){0};
}
