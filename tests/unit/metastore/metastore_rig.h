/* record_rig.h - one kind of store of record, ready to be asked what every store must do. */
#pragma once

#include "check.h"
#include "metastore/metastore.h"

#include <stdio.h>

/* Makes a store, empty, and what it takes to lose leadership in it. */
struct record_world {
    void *state;
    strait_metastore_config config; // of a record of this world, but for its owner
};

struct record_kind {
    const char *name;
    void (*open)(struct record_world *world);
    void (*close)(struct record_world *world);
    /* Makes whoever leads lose its lease without a word to it. */
    void (*expire)(struct record_world *world);
};

/* The suite, run on one kind; the tests' exit code. */
int record_contract(const struct record_kind *which);

static inline struct strait_metastore *record_rig_open(const struct record_world *world,
                                                       const char *owner) {
    strait_metastore_config config = world->config;
    config.owner = owner;
    struct strait_metastore *store = NULL;
    CHECK_OK(strait_metastore_open(&config, &store));
    return store;
}

static inline uint64_t record_rig_claim(struct strait_metastore *store) {
    uint64_t term = 0;
    CHECK_OK(strait_metastore_claim(store, &term));
    CHECK(term > 0 && strait_metastore_term(store) == term);
    return term;
}

static inline void record_rig_put(struct strait_metastore *store, const char *key,
                                  const char *text) {
    CHECK_OK(strait_metastore_put(store, key, text, strlen(text)));
}

/* All facts under a prefix as "key=text key=text ", for comparing. */
struct record_rig_list {
    char text[4096];
    size_t n;
    uint64_t version; // of the last
};

static inline strait_err record_rig_add(void *user, const strait_metastore_entry *entry) {
    struct record_rig_list *list = user;
    const int n = snprintf(list->text + list->n, sizeof list->text - list->n, "%s=%.*s ",
                           entry->key, (int)entry->bytes, (const char *)entry->data);
    list->n += (size_t)n;
    list->version = entry->version;
    return STRAIT_OK;
}

static inline void record_rig_expect(struct strait_metastore *store, const char *prefix,
                                     const char *expected) {
    struct record_rig_list list = {.n = 0};
    CHECK_OK(strait_metastore_read(store, prefix, record_rig_add, &list));
    assert_string_equal(list.text, expected);
}
