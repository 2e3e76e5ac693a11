/* etcd_state.h - what etcd.c, who leads, and etcd_facts.c, what is known, share. */
#pragma once

#include "metastore/etcd_http.h"
#include "metastore/etcd_json.h"
#include "metastore/metastore_ops.h"

enum {
    STRAIT_ETCD_BASE = STRAIT_METASTORE_NAME_MAX + 16, // strait/RUN/fact/
    STRAIT_ETCD_PATH = STRAIT_ETCD_BASE + STRAIT_METASTORE_KEY_MAX
};

struct strait_etcd {
    struct strait_etcd_http http;
    uint64_t lease;  // 0: none
    int64_t sure_ns; // until then it cannot have run out
    uint64_t chain;  // revision of the latest commit that we know of
    int has_doubt;   // one that timed out may still arrive
    char leader[STRAIT_ETCD_BASE], commit[STRAIT_ETCD_BASE], facts[STRAIT_ETCD_BASE];
};

/* Asks, and releases the request; one that is NULL is out of memory. */
strait_err strait_etcd_ask(struct strait_etcd *self, const char *path, json_t *request,
                           json_t **out);

/* As record_ops.h has them; commit also without changes, which settles what is in doubt. */
strait_err strait_etcd_commit(struct strait_metastore *store,
                              const strait_metastore_change *changes, int n_changes,
                              uint64_t *out_version);
strait_err strait_etcd_read(struct strait_metastore *store, const char *prefix,
                            strait_metastore_visit *visit, void *user);
