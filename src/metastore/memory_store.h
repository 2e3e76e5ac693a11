/* memory_store.h - the storage of the memory backend, for tests: all metastores that use one memory
 * store share its entries, its leader and a clock that the test advances.
 *
 * Entries live as long as the memory store. One thread at a time uses it. */
#pragma once

#include "metastore/metastore.h"

/* The clock starts at 0 and moves only by strait_memory_store_advance_clock. STRAIT_ENOMEM. */
strait_err strait_memory_store_open(struct strait_memory_store **out);
void strait_memory_store_close(
    struct strait_memory_store **memory); // accepts NULL; close its metastores first

/* Advances the clock: leases expire. */
void strait_memory_store_advance_clock(struct strait_memory_store *memory, int64_t ms);

/* From now on every call fails with `err`, as with an unreachable cluster or a full disk; STRAIT_OK
 * ends that. With `is_late`, commits take effect and are then reported as failed. */
void strait_memory_store_inject_error(struct strait_memory_store *memory, strait_err err,
                                      int is_late);
