#include "data/buffer.h"

#include "base/alloc.h"

enum {
    FIRST_ROOM = 64
};

strait_err strait_buffer_room(void **memory, size_t *capacity, size_t want, size_t size) {
    if (want <= *capacity) return STRAIT_OK;
    size_t room = *capacity < FIRST_ROOM ? FIRST_ROOM : *capacity * 2;
    if (room < want) room = want;
    STRAIT_TRY(strait_alloc_grow(memory, *capacity, room, size, "text memory"));
    *capacity = room;
    return STRAIT_OK;
}

strait_err strait_buffer_append(strait_buffer *bytes, const void *data, size_t n) {
    const size_t room = bytes->n + n + 1; // data is never NULL after an append, even of nothing
    STRAIT_TRY(strait_buffer_room((void **)&bytes->data, &bytes->capacity, room, 1));
    if (n > 0) memcpy(bytes->data + bytes->n, data, n);
    bytes->n += n;
    return STRAIT_OK;
}
