/* record_ops.h - what a store of record implements, and what record.c does for all of them.
 *
 * record.c has checked every argument against the bounds of record.h before it calls a store, and
 * forgets the term when a store says STRAIT_EDEPOSED. To add a store: one file with one table, a
 * line in record.c, and tests/unit/swarm/record_contract.c. */
#pragma once

#include "swarm/record.h"

struct strait_record_ops {
    const char *scheme;
    size_t state_size;

    /* `where` is what follows the scheme's colon. fini tolerates a failed or absent init. */
    strait_err (*init)(struct strait_record *record, const char *where);
    void (*fini)(struct strait_record *record);

    strait_err (*claim)(struct strait_record *record);  // sets the term; only called without one
    strait_err (*renew)(struct strait_record *record);  // only called with a term, as are
    strait_err (*resign)(struct strait_record *record); // resign, sure_ms and commit
    void (*discard)(struct strait_record *record);      // likewise; NULL: claiming made nothing
    int64_t (*sure_ms)(const struct strait_record *record);
    strait_err (*await)(struct strait_record *record, int wait_ms);
    strait_err (*who)(struct strait_record *record, strait_record_leader *out);
    strait_err (*commit)(struct strait_record *record, const strait_record_change *changes,
                         int n_changes, uint64_t *out_version);
    strait_err (*read)(struct strait_record *record, const char *prefix, strait_record_visit *visit,
                       void *user);
};

struct strait_record {
    const struct strait_record_ops *ops;
    strait_record_config config; // its texts are ours
    uint64_t term;               // 0: not leading
    void *state;                 // ops->state_size bytes, zeroed before init
};

/* The words of two errors that all stores have. `found` is 0 for a fact that is not there. */
strait_err strait_record_fail_deposed(const struct strait_record *record);
strait_err strait_record_fail_expected(const strait_record_change *c, uint64_t found);
