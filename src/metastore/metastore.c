/* metastore.c - checks arguments, keeps the term, and passes calls on to the backend. */
#include "base/alloc.h"
#include "metastore/metastore_ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

extern const struct strait_metastore_ops strait_metastore_memory, strait_metastore_journal,
    strait_metastore_etcd;

static const struct strait_metastore_ops *const backends[] = {
    &strait_metastore_memory,
    &strait_metastore_journal,
    &strait_metastore_etcd,
};
enum {
    N_BACKENDS = sizeof backends / sizeof *backends,
    TTL_MS = 6000, // a standby takes over after this time; long enough for a slow disk of etcd
    TTL_MAX_MS = 3600 * 1000,
    TIMEOUT_MS = 5000 // below the lease, so that a leader notices in time that it cannot renew
};

/* ---- bounds ---- */

/* Returns whether the text is 1 to capacity - 1 letters, digits or `marks`. Keys become parts of
 * etcd keys and of journal records, so the set is small. */
static int is_word(const char *text, const char *marks, size_t capacity) {
    const size_t n = strnlen(text, capacity);
    if (n == 0 || n == capacity) return 0;
    for (const char *at = text; *at != 0; at++) {
        const int is_letter = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z');
        const int is_digit = *at >= '0' && *at <= '9';
        if (!is_letter && !is_digit && strchr(marks, *at) == NULL) return 0;
    }
    return 1;
}

static strait_err check_key(const char *key) {
    if (key != NULL && is_word(key, "/._-:", STRAIT_METASTORE_KEY_MAX)) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EINVAL,
                       "metastore: key '%.40s': expected 1 to %d letters, digits or / . _ - :",
                       key != NULL ? key : "", STRAIT_METASTORE_KEY_MAX - 1);
}

/* A key may occur once per commit: etcd rejects transactions that write a key twice. */
static strait_err check_changes(const strait_metastore_change *changes, int n_changes) {
    if (n_changes < 1 || n_changes > STRAIT_METASTORE_CHANGES_MAX)
        return STRAIT_FAIL(STRAIT_EINVAL, "metastore: %d changes at once, expected 1 to %d",
                           n_changes, STRAIT_METASTORE_CHANGES_MAX);
    size_t left = STRAIT_METASTORE_COMMIT_MAX;
    for (int i = 0; i < n_changes; i++) {
        const strait_metastore_change *c = &changes[i];
        STRAIT_TRY(check_key(c->key));
        const size_t bytes = c->data != NULL ? c->bytes : 0;
        if (bytes > left || strlen(c->key) > left - bytes)
            return STRAIT_FAIL(STRAIT_EINVAL,
                               "metastore: '%s' does not fit into one commit of %d bytes", c->key,
                               STRAIT_METASTORE_COMMIT_MAX);
        left -= bytes + strlen(c->key);
        for (int k = 0; k < i; k++)
            if (strcmp(changes[k].key, c->key) == 0)
                return STRAIT_FAIL(STRAIT_EINVAL, "metastore: '%s' occurs twice in one commit",
                                   c->key);
    }
    return STRAIT_OK;
}

/* The name of the run becomes part of keys; that of the owner is only shown. */
static strait_err check_config(const strait_metastore_config *config) {
    if (config->run == NULL || !is_word(config->run, "._-", STRAIT_METASTORE_NAME_MAX))
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "metastore: run '%.40s': expected letters, digits or . _ -",
                           config->run != NULL ? config->run : "");
    if (config->owner == NULL || strnlen(config->owner, STRAIT_METASTORE_NAME_MAX) == 0 ||
        strnlen(config->owner, STRAIT_METASTORE_NAME_MAX) == STRAIT_METASTORE_NAME_MAX)
        return STRAIT_FAIL(STRAIT_ECONFIG, "metastore: the owner's name has 1 to %d bytes",
                           STRAIT_METASTORE_NAME_MAX - 1);
    if (config->ttl_ms < 0 || config->ttl_ms > TTL_MAX_MS || config->timeout_ms < 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "metastore: a lease of %d ms and a limit of %d ms for calls: "
                           "expected 0 (default) to %d, and 0 or more",
                           config->ttl_ms, config->timeout_ms, TTL_MAX_MS);
    return STRAIT_OK;
}

/* ---- opening and closing ---- */

/* "journal:PATH" names a backend and a place; "memory" needs no place. */
static const struct strait_metastore_ops *find_backend(const char *store, const char **out_where) {
    for (int i = 0; i < N_BACKENDS; i++) {
        const size_t n = strlen(backends[i]->scheme);
        if (strncmp(store, backends[i]->scheme, n) != 0) continue;
        if (store[n] != ':' && store[n] != 0) continue;
        *out_where = store[n] == ':' ? store + n + 1 : store + n;
        return backends[i];
    }
    return NULL;
}

/* Lists the members of a config that are texts, which are copied and freed alike. */
static void texts_of(strait_metastore_config *config, const char **out[6]) {
    const char **texts[6] = {&config->store,   &config->run,       &config->owner,
                             &config->ca_file, &config->cert_file, &config->key_file};
    memcpy((void *)out, (const void *)texts, sizeof texts);
}

/* Copies all texts, so that the caller's may be temporary. */
static strait_err copy_config(struct strait_metastore *store,
                              const strait_metastore_config *config) {
    strait_metastore_config given = *config;
    const char **from[6], **to[6];
    store->config = given;
    texts_of(&given, from);
    texts_of(&store->config, to);
    for (int i = 0; i < 6; i++)
        *to[i] = NULL; // close frees them all, also after a failed copy
    for (int i = 0; i < 6; i++) {
        char *text = NULL;
        if (*from[i] == NULL) continue;
        STRAIT_TRY(strait_alloc_string(*from[i], &text));
        *to[i] = text;
    }
    if (store->config.ttl_ms == 0) store->config.ttl_ms = TTL_MS;
    if (store->config.timeout_ms == 0) store->config.timeout_ms = TIMEOUT_MS;
    return STRAIT_OK;
}

strait_err strait_metastore_open(const strait_metastore_config *config,
                                 struct strait_metastore **out) {
    const char *where = "";
    const struct strait_metastore_ops *ops = find_backend(
        config->store != NULL ? config->store : "", &where);
    if (ops == NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "metastore '%.60s': expected journal:PATH or "
                           "etcd:http://HOST:PORT,http://HOST:PORT,...",
                           config->store != NULL ? config->store : "");
    STRAIT_TRY(check_config(config));
    void *memory = NULL;
    STRAIT_TRY(
        strait_alloc(1, sizeof(struct strait_metastore) + ops->state_size, "metastore", &memory));
    struct strait_metastore *store = memory;
    store->ops = ops;
    store->state = store + 1;
    strait_err err = copy_config(store, config);
    if (err == STRAIT_OK) err = ops->init(store, where);
    if (err != STRAIT_OK) {
        strait_metastore_close(&store);
        return err;
    }
    *out = store;
    return STRAIT_OK;
}

/* Keeps the caller's error detail: why it closes matters more than whether resigning worked. A
 * lease that was not revoked expires by itself. */
static void resign_keeping_detail(struct strait_metastore *store) {
    char detail[512];
    (void)snprintf(detail, sizeof detail, "%s", strait_err_detail());
    if (strait_metastore_resign(store) != STRAIT_OK)
        strait_err_note(__FILE__, __LINE__, "%s", detail);
}

void strait_metastore_close(struct strait_metastore **store) {
    struct strait_metastore *r = *store;
    if (r == NULL) return;
    resign_keeping_detail(r);
    r->ops->fini(r);
    const char **texts[6];
    texts_of(&r->config, texts);
    for (int i = 0; i < 6; i++)
        strait_alloc_free((void *)(uintptr_t)*texts[i]); // NOLINT(performance-no-int-to-ptr)
    strait_alloc_free(r);
    *store = NULL;
}

/* ---- leading ---- */

/* Without a term, later calls fail here instead of reaching the backend again. */
static strait_err forget_if_deposed(struct strait_metastore *store, strait_err err) {
    if (err == STRAIT_EDEPOSED) store->term = 0;
    return err;
}

strait_err strait_metastore_fail_deposed(const struct strait_metastore *store) {
    return STRAIT_FAIL(
        STRAIT_EDEPOSED,
        "run '%s': '%s' is no longer its coordinator: another one has taken over, or "
        "the lease of %d ms expired",
        store->config.run, store->config.owner, store->config.ttl_ms);
}

strait_err strait_metastore_fail_expected(const strait_metastore_change *c, uint64_t found) {
    if (c->expected == STRAIT_METASTORE_ABSENT)
        return STRAIT_FAIL(STRAIT_EAGAIN,
                           "metastore: entry '%s' exists already, in version %" PRIu64, c->key,
                           found);
    return STRAIT_FAIL(STRAIT_EAGAIN,
                       "metastore: entry '%s' is in version %" PRIu64 ", expected %" PRIu64
                       "; read it and decide again",
                       c->key, found, c->expected);
}

static strait_err fail_without_term(const struct strait_metastore *store) {
    return STRAIT_FAIL(STRAIT_EDEPOSED, "run '%s': '%s' is not its coordinator", store->config.run,
                       store->config.owner);
}

strait_err strait_metastore_claim(struct strait_metastore *store, uint64_t *out_term) {
    strait_err err = STRAIT_OK;
    if (store->term != 0)
        err = forget_if_deposed(store, store->ops->renew(store));
    else
        err = store->ops->claim(store);
    if (err == STRAIT_OK) *out_term = store->term;
    return err;
}

strait_err strait_metastore_renew(struct strait_metastore *store) {
    if (store->term == 0) return fail_without_term(store);
    return forget_if_deposed(store, store->ops->renew(store));
}

/* The term is cleared even after an error: a leader that wants to resign must not commit any more.
 */
strait_err strait_metastore_resign(struct strait_metastore *store) {
    if (store->term == 0) return STRAIT_OK;
    const strait_err err = store->ops->resign(store);
    store->term = 0;
    return err == STRAIT_EDEPOSED ? STRAIT_OK : err;
}

void strait_metastore_discard(struct strait_metastore *store) {
    if (store->term > 0 && store->ops->discard != NULL) store->ops->discard(store);
    resign_keeping_detail(store);
}

strait_err strait_metastore_await(struct strait_metastore *store, int wait_ms) {
    return store->ops->await(store, wait_ms);
}

strait_err strait_metastore_who(struct strait_metastore *store, strait_metastore_leader *out) {
    return store->ops->who(store, out);
}

uint64_t strait_metastore_term(const struct strait_metastore *store) {
    return store->term;
}

int64_t strait_metastore_lease_left_ms(const struct strait_metastore *store) {
    return store->term != 0 ? store->ops->lease_left_ms(store) : 0;
}

/* ---- entries ---- */

strait_err strait_metastore_commit(struct strait_metastore *store,
                                   const strait_metastore_change *changes, int n_changes,
                                   uint64_t *out_version) {
    uint64_t version = 0;
    STRAIT_TRY(check_changes(changes, n_changes));
    if (store->term == 0) return fail_without_term(store);
    STRAIT_TRY(forget_if_deposed(store, store->ops->commit(store, changes, n_changes, &version)));
    if (out_version != NULL) *out_version = version;
    return STRAIT_OK;
}

/* NULL data would mean a removal. */
strait_err strait_metastore_put(struct strait_metastore *store, const char *key, const void *data,
                                size_t bytes) {
    const strait_metastore_change change = {.key = key, .data = data, .bytes = bytes};
    if (data == NULL) return STRAIT_FAIL(STRAIT_EINVAL, "metastore: no value to put");
    return strait_metastore_commit(store, &change, 1, NULL);
}

strait_err strait_metastore_read(struct strait_metastore *store, const char *prefix,
                                 strait_metastore_visit *visit, void *user) {
    if (prefix[0] != 0) STRAIT_TRY(check_key(prefix));
    return store->ops->read(store, prefix, visit, user);
}
