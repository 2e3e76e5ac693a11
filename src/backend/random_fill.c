#include "backend/random_fill.h"

#include "base/alloc.h"
#include "base/pool.h"

enum {
    PIECES = 2,
    PIECE = 1 << 22, // values per copy: large, because a shared device is slow to switch
    TASK = 1 << 14   // values computed by one thread at a time
};

/* A pinned buffer and the event after which it may be overwritten. */
struct piece {
    float *values;
    struct strait_event sent;
};

struct strait_random_fill {
    struct strait_stream *stream;
    struct strait_pool *pool;
    int64_t capacity;            // values that fit into a piece
    struct piece pieces[PIECES]; // values are NULL where numbers are written in place
    int next;                    // the piece to use next
};

/* Values [first, first + count) of a tensor. */
struct share {
    strait_random_fill_params params;
    int64_t first, count, n_cols;
    float *values;
};

/* Computes one task's numbers. The deviation multiplies in double precision and rounds once, so the
 * bits do not depend on how work is split. */
static void draw_task(void *arg, int task) {
    const struct share *s = arg;
    const int64_t from = (int64_t)task * TASK;
    const int64_t count = s->count - from < TASK ? s->count - from : TASK;
    float *values = s->values + from;
    strait_rng_normals(s->params.rng, (uint64_t)(s->first + from), values, (size_t)count);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)((double)values[i] * s->params.deviation);
    const int is_padded = s->params.cols > 0 && s->params.cols < s->n_cols;
    for (int64_t i = 0; is_padded && i < count; i++)
        if ((s->first + from + i) % s->n_cols >= s->params.cols) values[i] = 0.0f;
}

static strait_err open_into(struct strait_random_fill *d, int64_t most) {
    struct strait_backend *be = d->stream->backend;
    STRAIT_TRY(strait_pool_open(most > TASK ? be->n_threads : 1, &d->pool));
    d->capacity = most < PIECE ? most : PIECE;
    for (int i = 0; i < PIECES && !be->ops->is_host; i++) {
        STRAIT_TRY(be->ops->alloc_host(be, (size_t)d->capacity * sizeof(float),
                                       (void **)&d->pieces[i].values));
        STRAIT_TRY(be->ops->event_open(be, &d->pieces[i].sent));
    }
    return STRAIT_OK;
}

strait_err strait_random_fill_open(struct strait_stream *stream, int64_t most,
                                   struct strait_random_fill **out) {
    struct strait_random_fill *d = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *d, "random fill", (void **)&d));
    d->stream = stream;
    const strait_err err = open_into(d, most);
    if (err != STRAIT_OK) {
        strait_random_fill_close(&d);
        return err;
    }
    *out = d;
    return STRAIT_OK;
}

void strait_random_fill_close(struct strait_random_fill **draw) {
    struct strait_random_fill *d = *draw;
    if (d == NULL) return;
    struct strait_backend *be = d->stream->backend;
    for (int i = 0; i < PIECES; i++) {
        struct piece *piece = &d->pieces[i];
        int is_reached = 0;
        if (piece->sent.backend != NULL) {
            (void)be->ops->event_query(&piece->sent, 1, &is_reached);
            be->ops->event_close(&piece->sent);
        }
        if (piece->values != NULL) be->ops->release_host(be, piece->values);
    }
    strait_pool_close(&d->pool);
    strait_alloc_free(d);
    *draw = NULL;
}

/* The split into tasks depends on the count alone, so any number of threads gives the same bits. */
static void draw(struct strait_random_fill *d, struct share *share) {
    strait_pool_run(d->pool, (int)((share->count + TASK - 1) / TASK), draw_task, share);
}

/* Waits until a piece's last copy is done, fills it, and queues its copy. */
static strait_err draw_and_send(struct strait_random_fill *d, struct share *share, float *to) {
    const struct strait_backend_ops *ops = d->stream->backend->ops;
    struct piece *piece = &d->pieces[d->next];
    int is_reached = 0;
    d->next = (d->next + 1) % PIECES;
    STRAIT_TRY(ops->event_query(&piece->sent, 1, &is_reached));
    share->values = piece->values;
    draw(d, share);
    STRAIT_TRY(ops->upload(d->stream, to, piece->values, (size_t)share->count * sizeof *to));
    return ops->event_record(d->stream, &piece->sent);
}

strait_err strait_random_fill_normals(struct strait_random_fill *d, strait_tensor to,
                                      strait_random_fill_params params) {
    const int64_t n = to.rows * to.cols;
    for (int64_t first = 0; first < n; first += d->capacity) {
        float *values = (float *)to.data + first;
        struct share share = {.params = params,
                              .first = first,
                              .count = n - first < d->capacity ? n - first : d->capacity,
                              .n_cols = to.cols,
                              .values = values};
        if (d->pieces[0].values == NULL)
            draw(d, &share);
        else
            STRAIT_TRY(draw_and_send(d, &share, values));
    }
    return STRAIT_OK;
}

strait_err strait_random_fill_once(struct strait_stream *stream, strait_tensor to,
                                   strait_random_fill_params params) {
    struct strait_random_fill *d = NULL;
    STRAIT_TRY(strait_random_fill_open(stream, to.rows * to.cols, &d));
    const strait_err err = strait_random_fill_normals(d, to, params);
    strait_random_fill_close(&d);
    return err;
}
