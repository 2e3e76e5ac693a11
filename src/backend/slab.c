#include "backend/slab.h"

#include "base/alloc.h"

enum {
    ALIGNMENT = 256, // lets matrix libraries use their widest loads on every device
    FIRST_CAPACITY = 64
};

/* Appends one part. The slab's size is the furthest end of any part, since overlays go back. */
static strait_err add_at(struct strait_slab *slab, size_t offset, strait_tensor shape,
                         strait_tensor *where) {
    if (slab->n_tensors == slab->capacity) {
        const int capacity = slab->capacity == 0 ? FIRST_CAPACITY : slab->capacity * 2;
        STRAIT_TRY(strait_alloc_grow((void **)&slab->tensors, (size_t)slab->capacity,
                                     (size_t)capacity, sizeof *slab->tensors, "slab"));
        STRAIT_TRY(strait_alloc_grow((void **)&slab->offsets, (size_t)slab->capacity,
                                     (size_t)capacity, sizeof *slab->offsets, "slab offsets"));
        slab->capacity = capacity;
    }
    *where = shape;
    slab->tensors[slab->n_tensors] = where;
    slab->offsets[slab->n_tensors] = offset;
    slab->n_tensors++;
    slab->next = offset + strait_tensor_bytes(shape);
    if (slab->bytes < slab->next) slab->bytes = slab->next;
    return STRAIT_OK;
}

/* Every tensor starts aligned, whatever precedes it. */
strait_err strait_slab_add(struct strait_slab *slab, strait_dtype dtype, int64_t rows, int64_t cols,
                           strait_tensor *where) {
    const size_t offset = (slab->next + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return add_at(slab, offset, (strait_tensor){NULL, dtype, rows, cols}, where);
}

strait_err strait_slab_add_adjacent(struct strait_slab *slab, strait_dtype dtype, int64_t rows,
                                    int64_t cols, strait_tensor *where) {
    return add_at(slab, slab->next, (strait_tensor){NULL, dtype, rows, cols}, where);
}

void strait_slab_overlay(struct strait_slab *slab, size_t mark) {
    slab->next = mark;
}

/* Continues after the longest of the overlaid tensors. */
void strait_slab_close_overlay(struct strait_slab *slab) {
    slab->next = slab->bytes;
}

/* One allocation for all tensors: the device's allocator is slow, and its rounding would add up. */
strait_err strait_slab_commit(struct strait_slab *slab, struct strait_backend *backend) {
    slab->backend = backend;
    STRAIT_TRY(backend->ops->alloc(backend, slab->bytes, &slab->memory));
    for (int i = 0; i < slab->n_tensors; i++)
        slab->tensors[i]->data = (char *)slab->memory + slab->offsets[i];
    return STRAIT_OK;
}

void strait_slab_set_rows(struct strait_slab *slab, int first, int end, int64_t rows) {
    for (int i = first; i < end; i++)
        slab->tensors[i]->rows = rows;
}

/* A slab that was only planned has no memory to release. */
void strait_slab_fini(struct strait_slab *slab) {
    if (slab->memory != NULL) slab->backend->ops->release(slab->backend, slab->memory);
    strait_alloc_free(slab->tensors);
    strait_alloc_free(slab->offsets);
    *slab = (struct strait_slab){0};
}
