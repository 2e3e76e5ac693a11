/* slab.h - many tensors planned into one allocation.
 *
 * Add every tensor, then commit: one allocation, and each tensor's data is filled in. A slab that
 * is never committed is a memory plan. */
#pragma once

#include "backend/backend.h"
#include "tensor/tensor.h"

struct strait_slab {
    strait_tensor **parts; // whom to tell at commit; borrowed until then
    size_t *offsets;
    int n_parts, capacity;
    size_t bytes; // so far
    size_t next;  // where the next part may begin
    struct strait_backend *backend;
    void *memory;
};

/* Plans `where` as rows x cols values. `where` must stay put until commit or fini. */
strait_err strait_slab_add(struct strait_slab *slab, strait_dtype dtype, int64_t rows, int64_t cols,
                           strait_tensor *where);

/* Like add, but right behind the previous part, without a gap: adjacent matrices of equal width can
 * then be used as one. */
strait_err strait_slab_add_adjacent(struct strait_slab *slab, strait_dtype dtype, int64_t rows,
                                    int64_t cols, strait_tensor *where);

/* Lets parts that never live at the same time share memory: the next one begins where the slab
 * stood at `mark`, an earlier slab->next, over whatever came since. close_overlay goes on behind
 * all of it. */
void strait_slab_overlay(struct strait_slab *slab, size_t mark);
void strait_slab_close_overlay(struct strait_slab *slab);

/* Makes the memory, zeroed, and tells every part where it lies. */
strait_err strait_slab_commit(struct strait_slab *slab, struct strait_backend *backend);

void strait_slab_fini(struct strait_slab *slab); // releases everything; accepts a zeroed slab
