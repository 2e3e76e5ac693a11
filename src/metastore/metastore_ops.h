/* record_ops.h - what a store of record implements, and what record.c does for all of them.
 *
 * record.c has checked every argument against the bounds of record.h before it calls a store, and
 * forgets the term when a store says STRAIT_EDEPOSED. To add a store: one file with one table, a
 * line in record.c, and tests/unit/swarm/record_contract.c. */
#pragma once

#include "metastore/metastore.h"

struct strait_metastore_ops {
    const char *scheme;
    size_t state_size;

    /* `where` is what follows the scheme's colon. fini tolerates a failed or absent init. */
    strait_err (*init)(struct strait_metastore *store, const char *where);
    void (*fini)(struct strait_metastore *store);

    strait_err (*claim)(struct strait_metastore *store);  // sets the term; only called without one
    strait_err (*renew)(struct strait_metastore *store);  // only called with a term, as are
    strait_err (*resign)(struct strait_metastore *store); // resign, sure_ms and commit
    void (*discard)(struct strait_metastore *store);      // likewise; NULL: claiming made nothing
    int64_t (*sure_ms)(const struct strait_metastore *store);
    strait_err (*await)(struct strait_metastore *store, int wait_ms);
    strait_err (*who)(struct strait_metastore *store, strait_metastore_leader *out);
    strait_err (*commit)(struct strait_metastore *store, const strait_metastore_change *changes,
                         int n_changes, uint64_t *out_version);
    strait_err (*read)(struct strait_metastore *store, const char *prefix,
                       strait_metastore_visit *visit, void *user);
};

struct strait_metastore {
    const struct strait_metastore_ops *ops;
    strait_metastore_config config; // its texts are ours
    uint64_t term;                  // 0: not leading
    void *state;                    // ops->state_size bytes, zeroed before init
};

/* The words of two errors that all stores have. `found` is 0 for a fact that is not there. */
strait_err strait_metastore_fail_deposed(const struct strait_metastore *store);
strait_err strait_metastore_fail_expected(const strait_metastore_change *c, uint64_t found);
