/* line.h - a ring of bytes that may leave only when they are due: the delay of an emulated link,
 * and the send buffer of any other. One thread. Allocates when opened or enlarged only. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct strait_delay_line_mark {
    int64_t due_ns;
    uint64_t end; // the bytes before this position are due
};

struct strait_delay_line { // zeroed is closed
    unsigned char *ring;
    size_t capacity;                      // a power of two
    uint64_t head, released, tail;        // positions since the start: sent, due, added
    struct strait_delay_line_mark *marks; // ring of n_marks
    uint64_t first_mark, end_mark;        // positions since the start
    size_t n_marks;
};

/* Makes room for at least `bytes`; keeps what is inside. Moves the ring: not while someone holds
 * pointers into it. */
strait_err strait_delay_line_reserve(struct strait_delay_line *line, size_t bytes);
size_t strait_delay_line_bytes(size_t bytes); // of memory that a line takes with room for so many
void strait_delay_line_fini(struct strait_delay_line *line);

size_t strait_delay_line_capacity(
    const struct strait_delay_line *line); // bytes that can be added now
int strait_delay_line_is_empty(const struct strait_delay_line *line);

/* Where bytes can be put, in one piece; *out_room may be less than all the room there is. */
unsigned char *strait_delay_line_space(struct strait_delay_line *line, size_t *out_capacity);
/* `bytes` were put there and are due at `due_ns`, never before those added earlier. */
void strait_delay_line_added(struct strait_delay_line *line, size_t bytes, int64_t due_ns);

/* Lets go what is due by now; says when the next is, INT64_MAX when nothing waits. */
int64_t strait_delay_line_release(struct strait_delay_line *line, int64_t now_ns);

/* What has been let go and not been sent, in one piece; may be less than all. */
unsigned char *strait_delay_line_ready(const struct strait_delay_line *line, size_t *out_bytes);
void strait_delay_line_sent(struct strait_delay_line *line, size_t bytes);
