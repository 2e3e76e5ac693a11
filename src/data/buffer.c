#include "data/buffer.h"

#include "base/alloc.h"

enum {
    FIRST_CAPACITY = 64
};

/* Doubling keeps the cost of appending constant on average. */
strait_err strait_buffer_reserve(void **memory, size_t *capacity, size_t want, size_t size) {
    if (want <= *capacity) return STRAIT_OK;
    size_t grown = *capacity < FIRST_CAPACITY ? FIRST_CAPACITY : *capacity * 2;
    if (grown < want) grown = want;
    STRAIT_TRY(strait_alloc_grow(memory, *capacity, grown, size, "text memory"));
    *capacity = grown;
    return STRAIT_OK;
}

strait_err strait_buffer_append(strait_buffer *bytes, const void *data, size_t n) {
    const size_t capacity = bytes->n + n + 1; // one more, so that data is not NULL even if n is 0
    STRAIT_TRY(strait_buffer_reserve((void **)&bytes->data, &bytes->capacity, capacity, 1));
    if (n > 0) memcpy(bytes->data + bytes->n, data, n);
    bytes->n += n;
    return STRAIT_OK;
}
