/* etcd_state.h - the state of the etcd backend, shared by etcd.c (leases and leadership) and
 * etcd_entries.c (commits and reads). */
#pragma once

#include "metastore/etcd_http.h"
#include "metastore/etcd_json.h"
#include "metastore/metastore_ops.h"

enum {
    STRAIT_ETCD_BASE = STRAIT_METASTORE_NAME_MAX + 16, // strait/RUN/entry/ and the like
    STRAIT_ETCD_PATH = STRAIT_ETCD_BASE + STRAIT_METASTORE_KEY_MAX
};

struct strait_etcd {
    struct strait_etcd_http http;
    uint64_t lease;         // 0: none
    int64_t lease_end_ns;   // on our clock; etcd ends it no earlier
    uint64_t latest_commit; // revision of the latest commit we know of
    int has_unknown_commit; // one timed out: it may still take effect
    char leader[STRAIT_ETCD_BASE], commit[STRAIT_ETCD_BASE], entries[STRAIT_ETCD_BASE];
};

/* Sends the request and releases it. A request of NULL is reported as STRAIT_ENOMEM. */
strait_err strait_etcd_ask(struct strait_etcd *self, const char *path, json_t *request,
                           json_t **out);

/* As in metastore_ops.h. After a commit without changes, delayed earlier ones have no effect. */
strait_err strait_etcd_commit(struct strait_metastore *store,
                              const strait_metastore_change *changes, int n_changes,
                              uint64_t *out_version);
strait_err strait_etcd_read(struct strait_metastore *store, const char *prefix,
                            strait_metastore_visit *visit, void *user);
