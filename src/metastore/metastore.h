/* metastore.h - a small replicated key-value store: the entries a run must not lose, and which
 * coordinator may change them.
 *
 * Admitted workers, the assignment of stages and the committed steps are entries: a key, some
 * bytes, a version. They are stored behind this interface by one of three backends:
 *
 *     journal:PATH                     a file of this machine; the default
 *     etcd:http://A:2379,http://B:...  an etcd cluster, which several coordinators may share
 *     memory                           the memory of this process, for tests (memory_store.h)
 *
 * A coordinator opens the metastore, claims leadership until it succeeds (awaiting in between) and
 * reads all entries. It then commits each change before it relies on it, renews its lease in time,
 * and finally resigns or dies. Only the leader commits. Its term fences it: once another
 * coordinator has claimed, commits and renewals of the old one fail with STRAIT_EDEPOSED and change
 * nothing, however late they arrive. Terms only grow.
 *
 * Durable means: when commit returns STRAIT_OK, the changes are on disk (journal: the file is
 * synced, and its folder too if the file was created; etcd: on the disks of a majority) and every
 * later read, by anyone, sees them. A caller may rely on a change only after commit has returned.
 *
 * Errors of every call, besides those it names:
 *     STRAIT_ETIMEDOUT  the backend is unreachable; call again later. A commit has then happened
 *                       entirely or not at all: commit again (the same changes in the same term are
 *                       idempotent), or read. Before repeating conditional changes, read them.
 *     STRAIT_EIO        the disk is full or failing. As above, and nothing committed before is
 *                       lost; once the disk works again the same metastore can be used on.
 *     STRAIT_EDATA      what the backend holds is damaged or of another run. Nothing was changed.
 *     STRAIT_EDEPOSED   only in calls of a leader: another one leads, or our lease expired. The
 *                       metastore has no term any more and may claim again.
 *     STRAIT_EINVAL     a key, value or list is out of bounds.
 *
 * Calls block, for at most config.timeout_ms (journal: for as long as the disk takes). One thread
 * at a time uses a metastore. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum {
    STRAIT_METASTORE_KEY_MAX = 128,            // with the final zero; letters, digits and / . _ - :
    STRAIT_METASTORE_COMMIT_MAX = 1024 * 1024, // bytes of keys and values in one commit
    STRAIT_METASTORE_CHANGES_MAX = 64,         // in one commit
    STRAIT_METASTORE_ENTRIES_MAX = 65536,      // of one run
    STRAIT_METASTORE_TOTAL_MAX = 64 * 1024 * 1024, // bytes of keys and values of one run
    STRAIT_METASTORE_NAME_MAX = 256 // of the owner and of the run, with the final zero
};

struct strait_memory_store;

/* Zeros mean the defaults. open copies the texts; `memory` is borrowed until close. */
typedef struct strait_metastore_config {
    const char *store; // backend and place, as above
    const char *run;   // whose entries; letters, digits and . _ -
    const char *owner; // shown to other coordinators while we lead: name, address or key
    int ttl_ms;        // lease of a leader; default 6000; etcd counts whole seconds
    int timeout_ms;    // the longest a call blocks; default 5000
    /* PEM files for etcd over https; NULL: the system's certificate authorities, no client key. */
    const char *ca_file, *cert_file, *key_file;
    struct strait_memory_store *memory; // memory only
} strait_metastore_config;

typedef struct strait_metastore_leader {
    uint64_t term; // 0: nobody leads
    char owner[STRAIT_METASTORE_NAME_MAX];
} strait_metastore_leader;

/* One entry, borrowed during a visit. Versions start at 1 and grow with every commit. */
typedef struct strait_metastore_entry {
    const char *key;
    const unsigned char *data;
    size_t bytes;
    uint64_t version; // of the commit that last changed it
} strait_metastore_entry;

/* The version a change expects its key to have. Any other number: exactly this version. */
#define STRAIT_METASTORE_ANY    UINT64_C(0)
#define STRAIT_METASTORE_ABSENT UINT64_MAX

typedef struct strait_metastore_change {
    const char *key;
    const void *data; // NULL removes the entry, which need not exist
    size_t bytes;
    uint64_t expected;
} strait_metastore_change;

/* An error ends the read and is returned by it. The callback must not use the metastore. */
typedef strait_err strait_metastore_visit(void *user, const strait_metastore_entry *entry);

struct strait_metastore;

/* Opens a metastore without claiming it; the caller closes it. STRAIT_ECONFIG when `store`, `run`
 * or `owner` is invalid. An etcd cluster need not be running yet. */
strait_err strait_metastore_open(const strait_metastore_config *config,
                                 struct strait_metastore **out);
/* Resigns first if it leads. Accepts NULL. */
void strait_metastore_close(struct strait_metastore **store);

/* Becomes the leader, with a term above all earlier ones that is durable before the call returns.
 * STRAIT_EAGAIN when another one leads; the detail says who. Claiming while leading renews. */
strait_err strait_metastore_claim(struct strait_metastore *store, uint64_t *out_term);
/* Renews the lease. Call it at least every third of ttl_ms. */
strait_err strait_metastore_renew(struct strait_metastore *store);
/* Gives up leadership at once, so that a standby need not wait for the lease to expire. Without a
 * term it does nothing. */
strait_err strait_metastore_resign(struct strait_metastore *store);
/* For a leader whose run did not begin: resigns, and removes what claiming created if no entry was
 * ever committed. The next claim then begins with the first term. */
void strait_metastore_discard(struct strait_metastore *store);
/* Waits until nobody leads or the leader changes; then it is time to claim. STRAIT_ETIMEDOUT when
 * the same leader still leads after wait_ms. */
strait_err strait_metastore_await(struct strait_metastore *store, int wait_ms);
/* Writes who leads now; term 0 when nobody does. */
strait_err strait_metastore_who(struct strait_metastore *store, strait_metastore_leader *out);

/* Returns our term while we lead, else 0. Does not contact the backend. */
uint64_t strait_metastore_term(const struct strait_metastore *store);
/* Returns for how long our lease cannot expire and so no other coordinator can lead, counted from
 * the last renewal on our own clock; 0 when that time is over or we do not lead. A leader that
 * cannot renew must pause before it reaches 0. */
int64_t strait_metastore_lease_left_ms(const struct strait_metastore *store);

/* Commits all changes or none, as one version, which all changed entries then have (out_version may
 * be NULL). STRAIT_EAGAIN when an entry does not have the expected version: nothing has changed;
 * read and decide again. */
strait_err strait_metastore_commit(struct strait_metastore *store,
                                   const strait_metastore_change *changes, int n_changes,
                                   uint64_t *out_version);
/* Commits one entry, whatever its version was before. */
strait_err strait_metastore_put(struct strait_metastore *store, const char *key, const void *data,
                                size_t bytes);

/* Visits the entries whose keys begin with `prefix` ("" for all) in the order of their keys, all as
 * of one moment. Anyone may read; the leader sees every commit of its predecessors. */
strait_err strait_metastore_read(struct strait_metastore *store, const char *prefix,
                                 strait_metastore_visit *visit, void *user);
