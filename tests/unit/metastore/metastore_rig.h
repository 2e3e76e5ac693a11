/* metastore_rig.h - one kind of metastore, ready to be asked what every store must do. */
#pragma once

#include "check.h"
#include "metastore/metastore.h"

#include <stdio.h>

/* Creates an empty store of one backend, and can make its leader lose the lease. */
struct metastore_world {
    void *state;
    strait_metastore_config config; // of every metastore of this world, except its owner
};

struct metastore_kind {
    const char *name;
    void (*open)(struct metastore_world *world);
    void (*close)(struct metastore_world *world);
    /* Ends the lease of the leader without notifying it. */
    void (*expire)(struct metastore_world *world);
};

/* Runs the suite on one backend; returns the exit code of the tests. */
int record_contract(const struct metastore_kind *which);

static inline struct strait_metastore *metastore_rig_open(const struct metastore_world *world,
                                                          const char *owner) {
    strait_metastore_config config = world->config;
    config.owner = owner;
    struct strait_metastore *store = NULL;
    CHECK_OK(strait_metastore_open(&config, &store));
    return store;
}

static inline uint64_t metastore_rig_claim(struct strait_metastore *store) {
    uint64_t term = 0;
    CHECK_OK(strait_metastore_claim(store, &term));
    CHECK(term > 0 && strait_metastore_term(store) == term);
    return term;
}

static inline void metastore_rig_put(struct strait_metastore *store, const char *key,
                                     const char *text) {
    CHECK_OK(strait_metastore_put(store, key, text, strlen(text)));
}

/* All entries under a prefix as "key=text key=text ", for comparison. */
struct metastore_rig_list {
    char text[4096];
    size_t n;
    uint64_t version; // of the last
};

static inline strait_err metastore_rig_add(void *user, const strait_metastore_entry *entry) {
    struct metastore_rig_list *list = user;
    const int n = snprintf(list->text + list->n, sizeof list->text - list->n, "%s=%.*s ",
                           entry->key, (int)entry->bytes, (const char *)entry->data);
    list->n += (size_t)n;
    list->version = entry->version;
    return STRAIT_OK;
}

static inline void metastore_rig_expect(struct strait_metastore *store, const char *prefix,
                                        const char *expected) {
    struct metastore_rig_list list = {.n = 0};
    CHECK_OK(strait_metastore_read(store, prefix, metastore_rig_add, &list));
    assert_string_equal(list.text, expected);
}
