/* table.h - entries in memory, sorted by key, for the journal and memory backends.
 *
 * A change is made in two halves, so that a backend can write it to disk in between: prepare
 * allocates all memory and may fail; apply cannot fail. A zeroed table is empty. One thread uses a
 * table. */
#pragma once

#include "metastore/metastore.h"

struct strait_metastore_row {
    strait_metastore_entry entry; // key and data follow this struct; data NULL: a removal
};

struct strait_metastore_table {
    struct strait_metastore_row **rows; // sorted by key
    size_t n_rows, capacity;
    size_t n_bytes; // of keys and values
};

struct strait_metastore_batch {
    struct strait_metastore_row *rows[STRAIT_METASTORE_CHANGES_MAX];
    int n_rows;
};

/* Frees all entries; the table is empty afterwards. */
void strait_metastore_table_fini(struct strait_metastore_table *table);

/* STRAIT_EAGAIN when an entry does not have the expected version, STRAIT_EINVAL when the table
 * would exceed its bounds. */
strait_err strait_metastore_table_check(const struct strait_metastore_table *table,
                                        const strait_metastore_change *changes, int n_changes);

/* Allocates one more change of a batch; at most STRAIT_METASTORE_CHANGES_MAX. */
strait_err strait_metastore_table_prepare(struct strait_metastore_table *table,
                                          struct strait_metastore_batch *batch,
                                          const strait_metastore_change *change);
/* Makes the changes of the batch, in one version. The table owns their memory afterwards. */
void strait_metastore_table_apply(struct strait_metastore_table *table,
                                  struct strait_metastore_batch *batch, uint64_t version);
/* Frees the changes that were not applied. */
void strait_metastore_batch_fini(struct strait_metastore_batch *batch);

/* Visits the entries whose keys begin with `prefix`, by key. */
strait_err strait_metastore_table_read(const struct strait_metastore_table *table,
                                       const char *prefix, strait_metastore_visit *visit,
                                       void *user);
