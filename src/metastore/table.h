/* record_table.h - facts in memory, by key, for the stores that keep them there.
 *
 * A change is made in two halves, so that a store can write it down in between: prepare takes all
 * the memory and may fail; apply cannot. Zeroed is empty. One thread. */
#pragma once

#include "metastore/metastore.h"

struct strait_metastore_row {
    strait_metastore_entry entry; // its key and data follow this struct; data is NULL in a removal
};

struct strait_metastore_table {
    struct strait_metastore_row **rows; // by key
    size_t n_rows, capacity;
    size_t n_bytes; // of keys and values
};

struct strait_metastore_batch {
    struct strait_metastore_row *rows[STRAIT_METASTORE_CHANGES_MAX];
    int n_rows;
};

void strait_metastore_table_fini(struct strait_metastore_table *table);

/* Are the facts as the changes expect (STRAIT_EAGAIN), and is there room (STRAIT_EINVAL)? */
strait_err strait_metastore_table_check(const struct strait_metastore_table *table,
                                        const strait_metastore_change *changes, int n_changes);

/* Takes the memory for one more change; drop gives back what apply did not take. */
strait_err strait_metastore_table_prepare(struct strait_metastore_table *table,
                                          struct strait_metastore_batch *batch,
                                          const strait_metastore_change *change);
void strait_metastore_table_apply(struct strait_metastore_table *table,
                                  struct strait_metastore_batch *batch, uint64_t version);
void strait_metastore_batch_drop(struct strait_metastore_batch *batch);

strait_err strait_metastore_table_read(const struct strait_metastore_table *table,
                                       const char *prefix, strait_metastore_visit *visit,
                                       void *user);
