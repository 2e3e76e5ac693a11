/* delay_line.h - a ring of bytes each of which may leave only when it is due.
 *
 * It delays the bytes of an emulated link. A link without emulation uses it too, as its send
 * buffer: all bytes are then due at once, and there is one code path for both (tls/conn_send.c).
 *
 * Bytes pass three positions: added at `tail`, released when due, sent from `head`. One thread.
 * Allocates only when it is opened or enlarged. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct strait_delay_line_mark {
    int64_t due_ns;
    uint64_t end; // bytes before this position are due at due_ns
};

struct strait_delay_line { // zeroed is closed
    unsigned char *ring;
    size_t capacity;                      // a power of two
    uint64_t head, released, tail;        // positions since the start: sent, due, added
    struct strait_delay_line_mark *marks; // ring of n_marks
    uint64_t first_mark, end_mark;        // positions since the start
    size_t n_marks;
};

/* Enlarges the capacity to at least `bytes`; keeps the content. Moves the ring, so nobody may hold
 * a pointer into it. STRAIT_ENOMEM leaves it as it was. */
strait_err strait_delay_line_reserve(struct strait_delay_line *line, size_t bytes);
/* The memory that a delay line with a capacity of `bytes` takes. */
size_t strait_delay_line_bytes(size_t bytes);
void strait_delay_line_fini(struct strait_delay_line *line);

/* Bytes that can be added now. */
size_t strait_delay_line_capacity(const struct strait_delay_line *line);
int strait_delay_line_is_empty(const struct strait_delay_line *line);

/* Returns where bytes can be written, in one piece; *out_capacity may be less than the whole
 * capacity, because the ring wraps. */
unsigned char *strait_delay_line_space(struct strait_delay_line *line, size_t *out_capacity);
/* Reports that `bytes` were written there, due at `due_ns`, not before those added earlier. */
void strait_delay_line_added(struct strait_delay_line *line, size_t bytes, int64_t due_ns);

/* Releases the bytes that are due; returns when the next are, INT64_MAX when there are none. */
int64_t strait_delay_line_release(struct strait_delay_line *line, int64_t now_ns);

/* Returns released bytes that were not sent, in one piece; may be fewer than all. */
unsigned char *strait_delay_line_ready(const struct strait_delay_line *line, size_t *out_bytes);
/* Reports that the first `bytes` of them were sent. */
void strait_delay_line_sent(struct strait_delay_line *line, size_t bytes);
