/* slab.h - many tensors planned into one allocation.
 *
 * Add every tensor, then commit: commit makes one allocation and sets each tensor's data. A slab
 * that is never committed is a memory plan: slab->bytes says what it would take. One thread uses a
 * slab. */
#pragma once

#include "backend/backend.h"
#include "tensor/tensor.h"

struct strait_slab {
    strait_tensor **tensors; // tensors whose data commit sets; borrowed until then, see set_rows
    size_t *offsets;
    int n_tensors, capacity;
    size_t bytes; // size of the allocation as planned so far
    size_t next;  // offset from which the next tensor may start
    struct strait_backend *backend;
    void *memory;
};

/* Plans `where` as rows x cols values and sets all of it but data. `where` must not move until
 * commit or fini. STRAIT_ENOMEM leaves the slab as it was. */
strait_err strait_slab_add(struct strait_slab *slab, strait_dtype dtype, int64_t rows, int64_t cols,
                           strait_tensor *where);

/* Like add, but directly after the previous tensor, without alignment: adjacent matrices of equal
 * width can then be used as one. */
strait_err strait_slab_add_adjacent(struct strait_slab *slab, strait_dtype dtype, int64_t rows,
                                    int64_t cols, strait_tensor *where);

/* Lets tensors that are never live at the same time share memory: the next tensor starts at `mark`,
 * an earlier slab->next, and overlaps those added since. close_overlay continues after all of them.
 */
void strait_slab_overlay(struct strait_slab *slab, size_t mark);
void strait_slab_close_overlay(struct strait_slab *slab);

/* Allocates the memory on `backend`, zeroed, and sets the data of every tensor. The slab keeps the
 * backend until fini. */
strait_err strait_slab_commit(struct strait_slab *slab, struct strait_backend *backend);

/* Sets the rows of the tensors that were added as numbers first to end - 1, to no more than each
 * was planned with: a part of each, in the same memory. The tensors must not have moved. */
void strait_slab_set_rows(struct strait_slab *slab, int first, int end, int64_t rows);

void strait_slab_fini(struct strait_slab *slab); // releases everything; accepts a zeroed slab
