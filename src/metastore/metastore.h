/* record.h - the store of record: the facts a run must not lose, and who may change them.
 *
 * Members, leases, assignments and committed steps are facts: a key, some bytes, a version. They
 * live behind this interface in one of three stores:
 *
 *     journal:PATH                     a file of this machine; the default
 *     etcd:http://A:2379,http://B:...  an etcd cluster, which several coordinators may share
 *     memory                           a hub inside this process, for tests (record_hub.h)
 *
 * A coordinator's life: open; claim until it succeeds (await in between); read everything; then
 * commit each fact before relying on it and renew in time; resign or die. Only the leader commits.
 * Its term fences it: as soon as another has claimed, commits and renewals of the old one fail
 * with STRAIT_EDEPOSED and change nothing, however late they arrive. Terms only grow.
 *
 * Durable means: when commit returns STRAIT_OK the changes are on disk (journal: synced, and the
 * folder too where a file was made; etcd: on the disks of a majority) and every later read, by
 * anybody, sees them. Not before: a fact is relied on after commit has returned, never earlier.
 *
 * Errors of every call, besides those it names:
 *     STRAIT_ETIMEDOUT  the store is out of reach; call again later. A commit has then happened
 *                       whole or not at all: commit again (same changes, same term: harmless), or
 *                       read. Conditional changes are read back first.
 *     STRAIT_EIO        the disk is full or failing. As above, and nothing committed before is
 *                       lost; once there is room the same record goes on.
 *     STRAIT_EDATA      what the store holds is damaged or not ours. Nothing was changed.
 *     STRAIT_EDEPOSED   only in calls of a leader: another leads, or our lease ran out. The
 *                       record has no term any more and may claim again.
 *     STRAIT_EINVAL     a key, value or list out of bounds.
 *
 * Calls block, for at most config.timeout_ms (journal: for as long as the disk takes). One thread
 * at a time uses a record. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum {
    STRAIT_METASTORE_KEY_MAX = 128, // with the ending zero; letters, digits and / . _ - :
    STRAIT_METASTORE_COMMIT_MAX = 1024 * 1024,     // bytes of keys and values in one commit
    STRAIT_METASTORE_CHANGES_MAX = 64,             // in one commit
    STRAIT_METASTORE_ENTRIES_MAX = 65536,          // in a store, for one run
    STRAIT_METASTORE_TOTAL_MAX = 64 * 1024 * 1024, // bytes of keys and values in a store
    STRAIT_METASTORE_NAME_MAX = 256 // of the owner and of the run, with the ending zero
};

struct strait_metastore_hub;

/* Zeros mean the default. Texts are copied by open, pointers are borrowed until close. */
typedef struct strait_metastore_config {
    const char *store; // as above
    const char *run;   // which run's facts; letters, digits and . _ -
    const char *owner; // what other coordinators learn of us while we lead: name, address, key
    int ttl_ms;        // how long a silent leader is still one; 6000; etcd counts whole seconds
    int timeout_ms;    // the longest a call blocks; 5000
    /* etcd over https; NULL: the system's authorities, no key of our own. PEM files. */
    const char *ca_file, *cert_file, *key_file;
    struct strait_metastore_hub *hub; // memory only
} strait_metastore_config;

typedef struct strait_metastore_leader {
    uint64_t term; // 0: nobody leads
    char owner[STRAIT_METASTORE_NAME_MAX];
} strait_metastore_leader;

/* One fact, lent during a visit. Versions start at 1 and grow with every change of any fact. */
typedef struct strait_metastore_entry {
    const char *key;
    const unsigned char *data;
    size_t bytes;
    uint64_t version; // of the commit that last changed it
} strait_metastore_entry;

/* What a change expects of its key. Any other number: exactly this version. */
#define STRAIT_METASTORE_ANY    UINT64_C(0)
#define STRAIT_METASTORE_ABSENT UINT64_MAX

typedef struct strait_metastore_change {
    const char *key;
    const void *data; // NULL removes the fact, which need not be there
    size_t bytes;
    uint64_t expected;
} strait_metastore_change;

/* An error ends the reading and is passed on. It may not use the record. */
typedef strait_err strait_metastore_visit(void *user, const strait_metastore_entry *entry);

struct strait_metastore;

/* Finds the store; claims nothing. STRAIT_ECONFIG when `store` makes no sense. An etcd cluster
 * need not be there yet. */
strait_err strait_metastore_open(const strait_metastore_config *config,
                                 struct strait_metastore **out);
/* Resigns first if it leads. Accepts NULL. */
void strait_metastore_close(struct strait_metastore **store);

/* Becomes the leader, with a term above all earlier ones, durable before it returns. STRAIT_EAGAIN
 * when another leads; the words say who. Claiming again while leading renews. */
strait_err strait_metastore_claim(struct strait_metastore *store, uint64_t *out_term);
/* Makes the lease new; call every third of ttl_ms. */
strait_err strait_metastore_renew(struct strait_metastore *store);
/* Gives leadership up at once, so that a standby need not wait for the lease. */
strait_err strait_metastore_resign(struct strait_metastore *store);
/* For a leader who will not go on: resigns, and takes away what claiming made where no fact came to
 * be in it. Who claims next then begins with the first term. */
void strait_metastore_discard(struct strait_metastore *store);
/* Waits until nobody leads, or the leader changes: time to claim. STRAIT_ETIMEDOUT when the same
 * one still leads after wait_ms. */
strait_err strait_metastore_await(struct strait_metastore *store, int wait_ms);
/* Who leads now; term 0 when nobody does. */
strait_err strait_metastore_who(struct strait_metastore *store, strait_metastore_leader *out);

/* Our term while we lead, else 0. Does not ask the store. */
uint64_t strait_metastore_term(const struct strait_metastore *store);
/* For how long nobody else can lead, counted from the last renewal on our own clock; 0 when that
 * time is over or we do not lead. A leader that cannot renew pauses before it reaches 0. */
int64_t strait_metastore_sure_ms(const struct strait_metastore *store);

/* All changes or none, in one version, which all changed facts then have (out_version may be NULL).
 * STRAIT_EAGAIN when a fact is not as expected: nothing has changed; read and decide again. */
strait_err strait_metastore_commit(struct strait_metastore *store,
                                   const strait_metastore_change *changes, int n_changes,
                                   uint64_t *out_version);
/* One fact, whatever it was before. */
strait_err strait_metastore_put(struct strait_metastore *store, const char *key, const void *data,
                                size_t bytes);

/* Visits the facts whose keys begin with `prefix` ("" for all), by key, as they were at one moment.
 * Anybody may read; the leader sees every commit of its predecessors. */
strait_err strait_metastore_read(struct strait_metastore *store, const char *prefix,
                                 strait_metastore_visit *visit, void *user);
