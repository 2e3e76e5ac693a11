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
    uint64_t lease;  // 0: none
    int64_t sure_ns; // the lease cannot have expired before
    uint64_t chain;  // revision of the latest commit we know of
    int has_doubt;   // a commit that timed out may still arrive
    char leader[STRAIT_ETCD_BASE], commit[STRAIT_ETCD_BASE], entries[STRAIT_ETCD_BASE];
};

/* Sends the request and releases it. A request of NULL is reported as STRAIT_ENOMEM. */
strait_err strait_etcd_ask(struct strait_etcd *self, const char *path, json_t *request,
                           json_t **out);

/* As in metastore_ops.h. A commit without changes settles whether earlier ones took effect. */
strait_err strait_etcd_commit(struct strait_metastore *store,
                              const strait_metastore_change *changes, int n_changes,
                              uint64_t *out_version);
strait_err strait_etcd_read(struct strait_metastore *store, const char *prefix,
                            strait_metastore_visit *visit, void *user);
