/* metastore_ops.h - the table that a backend of the metastore implements.
 *
 * metastore.c checks every argument against the bounds of metastore.h before it calls a backend,
 * and clears the term when a backend returns STRAIT_EDEPOSED. To add a backend: one file with one
 * table, a line in metastore.c, and an entry in tests/unit/metastore/metastore_contract.c. */
#pragma once

#include "metastore/metastore.h"

struct strait_metastore_ops {
    const char *scheme;
    size_t state_size;

    /* `where` is the text after the scheme's colon. fini accepts a failed or absent init. */
    strait_err (*init)(struct strait_metastore *store, const char *where);
    void (*fini)(struct strait_metastore *store);

    /* Called only without a term; sets it. */
    strait_err (*claim)(struct strait_metastore *store);
    /* These and commit are called only with a term. discard may be NULL if claiming creates
     * nothing. */
    strait_err (*renew)(struct strait_metastore *store);
    strait_err (*resign)(struct strait_metastore *store);
    void (*discard)(struct strait_metastore *store);
    int64_t (*lease_left_ms)(const struct strait_metastore *store);
    strait_err (*await)(struct strait_metastore *store, int wait_ms);
    strait_err (*who)(struct strait_metastore *store, strait_metastore_leader *out);
    strait_err (*commit)(struct strait_metastore *store, const strait_metastore_change *changes,
                         int n_changes, uint64_t *out_version);
    strait_err (*read)(struct strait_metastore *store, const char *prefix,
                       strait_metastore_visit *visit, void *user);
};

struct strait_metastore {
    const struct strait_metastore_ops *ops;
    strait_metastore_config config; // with our own copies of its texts
    uint64_t term;                  // 0: not leading
    void *state;                    // ops->state_size bytes, zeroed before init
};

/* Report two errors that all backends share. `found` is 0 for an entry that does not exist. */
strait_err strait_metastore_fail_deposed(const struct strait_metastore *store);
strait_err strait_metastore_fail_expected(const strait_metastore_change *c, uint64_t found);
