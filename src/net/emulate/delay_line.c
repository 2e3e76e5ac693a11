/* delay_line.c - positions count bytes since the start and never wrap; `position & (capacity - 1)`
 * is the index in the ring. Marks give the due time of ranges of bytes. */
#include "net/emulate/delay_line.h"

#include "base/alloc.h"

#include <string.h>

enum {
    BYTES_PER_MARK = 1024, // one due time per kilobyte on average; equal times share one
    SMALLEST = 64 * 1024   // bytes of a ring: several TLS records
};

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Copies the content into a larger ring. Positions count since the start, so they stay valid. */
static void move_bytes(const struct strait_delay_line *from, unsigned char *ring, size_t capacity) {
    for (uint64_t at = from->head; at < from->tail; at++)
        ring[at & (capacity - 1)] = from->ring[at & (from->capacity - 1)];
}

/* A power of two, so that a mask replaces the division for a position in the ring. */
static size_t capacity_for(size_t bytes, size_t least) {
    size_t capacity = least;
    while (capacity < bytes)
        capacity *= 2;
    return capacity;
}

size_t strait_delay_line_bytes(size_t bytes) {
    const size_t capacity = capacity_for(bytes, SMALLEST);
    return capacity + capacity / BYTES_PER_MARK * sizeof(struct strait_delay_line_mark);
}

strait_err strait_delay_line_reserve(struct strait_delay_line *line, size_t bytes) {
    const size_t capacity = capacity_for(bytes, line->capacity > 0 ? line->capacity : SMALLEST);
    if (capacity == line->capacity) return STRAIT_OK;
    /* Both are allocated before anything changes, so that a failure leaves the line usable. They
     * are written before they are read, and most of them is never used: zeroing would commit it
     * all. */
    const size_t n_marks = capacity / BYTES_PER_MARK;
    void *ring = NULL, *marks = NULL;
    STRAIT_TRY(strait_alloc_unset(capacity, 1, "link send buffer", &ring));
    const strait_err err = strait_alloc_unset(n_marks, sizeof(struct strait_delay_line_mark),
                                              "link send marks", &marks);
    if (err != STRAIT_OK) {
        strait_alloc_free(ring);
        return err;
    }
    move_bytes(line, ring, capacity);
    for (uint64_t i = line->first_mark; i < line->end_mark; i++)
        ((struct strait_delay_line_mark *)marks)[i % n_marks] = line->marks[i % line->n_marks];
    strait_alloc_free(line->ring);
    strait_alloc_free(line->marks);
    line->ring = ring;
    line->marks = marks;
    line->capacity = capacity;
    line->n_marks = n_marks;
    return STRAIT_OK;
}

void strait_delay_line_fini(struct strait_delay_line *line) {
    strait_alloc_free(line->ring);
    strait_alloc_free(line->marks);
    *line = (struct strait_delay_line){0};
}

size_t strait_delay_line_capacity(const struct strait_delay_line *line) {
    /* Without a free mark no due time can be recorded: the line counts as full. */
    if (line->end_mark - line->first_mark == line->n_marks) return 0;
    return line->capacity - (size_t)(line->tail - line->head);
}

int strait_delay_line_is_empty(const struct strait_delay_line *line) {
    return line->tail == line->head;
}

unsigned char *strait_delay_line_space(struct strait_delay_line *line, size_t *out_capacity) {
    const size_t at = (size_t)(line->tail & (line->capacity - 1));
    *out_capacity = smaller(strait_delay_line_capacity(line), line->capacity - at);
    return line->ring + at;
}

void strait_delay_line_added(struct strait_delay_line *line, size_t bytes, int64_t due_ns) {
    line->tail += bytes;
    if (line->end_mark > line->first_mark) {
        struct strait_delay_line_mark *latest = &line->marks[(line->end_mark - 1) % line->n_marks];
        if (latest->due_ns == due_ns) { // always so without emulation: one mark suffices
            latest->end = line->tail;
            return;
        }
    }
    line->marks[line->end_mark++ % line->n_marks] = (struct strait_delay_line_mark){
        .due_ns = due_ns, .end = line->tail};
}

int64_t strait_delay_line_release(struct strait_delay_line *line, int64_t now_ns) {
    while (line->first_mark < line->end_mark) {
        const struct strait_delay_line_mark *mark = &line->marks[line->first_mark % line->n_marks];
        if (mark->due_ns > now_ns) return mark->due_ns;
        line->released = mark->end;
        line->first_mark++;
    }
    return INT64_MAX;
}

unsigned char *strait_delay_line_ready(const struct strait_delay_line *line, size_t *out_bytes) {
    const size_t at = (size_t)(line->head & (line->capacity - 1));
    *out_bytes = smaller((size_t)(line->released - line->head), line->capacity - at);
    return line->ring + at;
}

void strait_delay_line_sent(struct strait_delay_line *line, size_t bytes) {
    line->head += bytes; // the ring never shrinks: the next burst needs as much
}
