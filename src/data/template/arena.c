#include "base/alloc.h"
#include "data/template/syntax.h"

#include <stdalign.h>
#include <string.h>

enum {
    CHUNK_BYTES = 1 << 16,
    ALIGNMENT = 16
};

struct strait_arena_chunk {
    struct strait_arena_chunk *next;
    size_t used, capacity;
    alignas(ALIGNMENT) unsigned char data[];
};

strait_err strait_arena_alloc(struct strait_arena *arena, size_t bytes, void **out) {
    struct strait_arena_chunk *chunk = arena->chunks;
    if (bytes > arena->limit || arena->limit - bytes < arena->used)
        return STRAIT_FAIL(STRAIT_EDATA, "the chat template takes more than %zu MiB",
                           arena->limit >> 20);
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (chunk == NULL || chunk->capacity - chunk->used < bytes) {
        const size_t capacity = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        STRAIT_TRY(strait_alloc(1, sizeof *chunk + capacity, "chat template", (void **)&chunk));
        chunk->capacity = capacity;
        chunk->next = arena->chunks;
        arena->chunks = chunk;
    }
    *out = chunk->data + chunk->used;
    chunk->used += bytes;
    arena->used += bytes;
    return STRAIT_OK;
}

void strait_arena_fini(struct strait_arena *arena) {
    while (arena->chunks != NULL) {
        struct strait_arena_chunk *next = arena->chunks->next;
        strait_alloc_free(arena->chunks);
        arena->chunks = next;
    }
    arena->used = 0;
}
