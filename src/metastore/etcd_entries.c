/* etcd_entries.c - entries in etcd: commits, each conditional on the one before, and reads by page.
 */
#include "metastore/etcd_state.h"
#include "net/core/identity.h"

#include <stdio.h>
#include <string.h>

enum {
    PAGE = 16,  // entries per answer: with values of 1 MiB an answer stays within what we accept
    NONCE = 16, // bytes, to recognise our own commit after a timeout
    COMMIT_ATTEMPTS = 8
};

/* ---- committing ---- */

static const char *entry_key(const struct strait_etcd *self, const char *key,
                             char out[STRAIT_ETCD_PATH]) {
    (void)snprintf(out, STRAIT_ETCD_PATH, "%s%.*s", self->entries, STRAIT_METASTORE_KEY_MAX, key);
    return out;
}

/* Adds one change to the lists of a transaction; returns 0 on success, as jansson does. */
static int add_change(const struct strait_etcd *self, const strait_metastore_change *c,
                      json_t *compare, json_t *success, json_t *failure) {
    char path[STRAIT_ETCD_PATH];
    const char *key = entry_key(self, c->key, path);
    int failed = 0;
    if (c->expected != STRAIT_METASTORE_ANY) {
        const uint64_t expected = c->expected == STRAIT_METASTORE_ABSENT ? 0 : c->expected;
        failed |= json_array_append_new(compare,
                                        strait_etcd_compare(key, "MOD", "mod_revision", expected));
        failed |= json_array_append_new(failure, strait_etcd_range(key));
    }
    json_t *change = c->data != NULL ? strait_etcd_put(key, c->data, c->bytes)
                                     : json_pack("{s:{s:o}}", "request_delete_range", "key",
                                                 strait_etcd_text(key));
    return failed | json_array_append_new(success, change);
}

/* If a condition fails, the transaction returns the leader and the latest commit first, then the
 * entries with expected versions: handle_failed_commit and check_expected rely on this order. */
static json_t *commit_request(const struct strait_metastore *store,
                              const strait_metastore_change *changes, int n_changes,
                              const unsigned char nonce[NONCE]) {
    const struct strait_etcd *self = store->state;
    json_t *compare = json_pack(
        "[o,o]", strait_etcd_compare(self->leader, "CREATE", "create_revision", store->term),
        strait_etcd_compare(self->commit, "MOD", "mod_revision", self->latest_commit));
    json_t *success = json_pack("[o]", strait_etcd_put(self->commit, nonce, NONCE));
    json_t *failure = json_pack("[o,o]", strait_etcd_range(self->leader),
                                strait_etcd_range(self->commit));
    int failed = 0;
    for (int i = 0; i < n_changes; i++)
        failed |= add_change(self, &changes[i], compare, success, failure);
    json_t *request = json_pack("{s:o,s:o,s:o}", "compare", compare, "success", success, "failure",
                                failure);
    if (failed == 0) return request;
    json_decref(request);
    return NULL;
}

/* The version of every entry with an expected version was returned: names the first that differs.
 */
static strait_err check_expected(const json_t *answer, const strait_metastore_change *changes,
                                 int n_changes) {
    size_t at = 2; // after the leader and the latest commit
    for (int i = 0; i < n_changes; i++) {
        if (changes[i].expected == STRAIT_METASTORE_ANY) continue;
        const json_t *range = strait_etcd_range_of(answer, at++);
        strait_etcd_pair found = {.key = NULL};
        if (strait_etcd_pairs(range) > 0) STRAIT_TRY(strait_etcd_pair_parse(range, 0, &found));
        const uint64_t modified = found.modified;
        strait_etcd_pair_fini(&found);
        const uint64_t expected = changes[i].expected == STRAIT_METASTORE_ABSENT
                                      ? 0
                                      : changes[i].expected;
        if (modified != expected) return strait_metastore_fail_expected(&changes[i], modified);
    }
    return STRAIT_OK;
}

/* Finds out why a transaction was refused. Sets *out_version if it had been executed before, by an
 * attempt that timed out. STRAIT_OK with *out_version 0: we did not know the latest commit,
 * and do now: the caller tries again. */
static strait_err handle_failed_commit(struct strait_metastore *store, const json_t *answer,
                                       const unsigned char nonce[NONCE], uint64_t *out_version) {
    struct strait_etcd *self = store->state;
    strait_etcd_pair leader = {.key = NULL}, latest = {.key = NULL};
    const json_t *first = strait_etcd_range_of(answer, 0),
                 *second = strait_etcd_range_of(answer, 1);
    if (strait_etcd_pairs(first) > 0) STRAIT_TRY(strait_etcd_pair_parse(first, 0, &leader));
    const uint64_t term = leader.created;
    strait_etcd_pair_fini(&leader);
    if (strait_etcd_pairs(second) > 0) STRAIT_TRY(strait_etcd_pair_parse(second, 0, &latest));
    const int is_done = latest.bytes == NONCE && memcmp(latest.data, nonce, NONCE) == 0;
    const uint64_t revision = latest.modified;
    strait_etcd_pair_fini(&latest);
    *out_version = is_done ? revision : 0;
    if (!is_done && term != store->term) return strait_metastore_fail_deposed(store);
    self->latest_commit = revision;
    return STRAIT_OK;
}

static strait_err try_commit(struct strait_metastore *store, const strait_metastore_change *changes,
                             int n_changes, const unsigned char nonce[NONCE],
                             uint64_t *out_version) {
    struct strait_etcd *self = store->state;
    json_t *answer = NULL;
    STRAIT_TRY(strait_etcd_ask(self, "/v3/kv/txn", commit_request(store, changes, n_changes, nonce),
                               &answer));
    strait_err err = STRAIT_OK;
    if (json_is_true(json_object_get(answer, "succeeded"))) {
        err = strait_etcd_revision(answer, out_version);
        if (err == STRAIT_OK) self->latest_commit = *out_version;
    } else {
        err = handle_failed_commit(store, answer, nonce, out_version);
        if (err == STRAIT_OK && *out_version == 0) err = check_expected(answer, changes, n_changes);
    }
    json_decref(answer);
    return err;
}

strait_err strait_etcd_commit(struct strait_metastore *store,
                              const strait_metastore_change *changes, int n_changes,
                              uint64_t *out_version) {
    struct strait_etcd *self = store->state;
    unsigned char nonce[NONCE];
    uint64_t version = 0;
    STRAIT_TRY(strait_identity_random(nonce, sizeof nonce));
    for (int i = 0; i < COMMIT_ATTEMPTS && version == 0; i++) {
        const strait_err err = try_commit(store, changes, n_changes, nonce, &version);
        /* It may have been executed, or may be executed later: reads settle that first. */
        if (err == STRAIT_ETIMEDOUT) self->has_unknown_commit = 1;
        if (err == STRAIT_EDEPOSED) self->lease = 0;
        STRAIT_TRY(err);
    }
    if (version == 0)
        return STRAIT_FAIL(STRAIT_EDATA, "etcd: another program writes to '%s'", self->commit);
    self->has_unknown_commit = 0;
    *out_version = version;
    return STRAIT_OK;
}

/* ---- reading ---- */

struct reading {
    struct strait_etcd *self;
    strait_metastore_visit *visit;
    void *user;
    uint64_t revision; // of the first page; 0: not yet known
    char from[STRAIT_ETCD_PATH], end[STRAIT_ETCD_PATH];
    size_t n_entries, n_bytes;
    int has_more;
};

static strait_err visit_pair(struct reading *r, const strait_etcd_pair *pair) {
    const size_t n_base = strlen(r->self->entries);
    if (strncmp(pair->key, r->self->entries, n_base) != 0 || pair->modified == 0 ||
        strlen(pair->key) >= n_base + STRAIT_METASTORE_KEY_MAX)
        return STRAIT_FAIL(STRAIT_EDATA, "etcd: an entry with an unexpected key: '%.80s'",
                           pair->key);
    r->n_bytes += strlen(pair->key) - n_base + pair->bytes;
    if (++r->n_entries > STRAIT_METASTORE_ENTRIES_MAX || r->n_bytes > STRAIT_METASTORE_TOTAL_MAX)
        return STRAIT_FAIL(STRAIT_EDATA, "etcd: more than %d entries or %d bytes for one run",
                           STRAIT_METASTORE_ENTRIES_MAX, STRAIT_METASTORE_TOTAL_MAX);
    (void)snprintf(r->from, sizeof r->from, "%s", pair->key);
    const strait_metastore_entry entry = {.key = pair->key + n_base,
                                          .data = pair->data,
                                          .bytes = pair->bytes,
                                          .version = pair->modified};
    return r->visit(r->user, &entry);
}

static strait_err read_page(struct reading *r) {
    json_t *answer = NULL;
    /* Later pages begin just after the last key: that key with a zero byte appended. */
    const size_t n_from = strlen(r->from) + (r->revision != 0);
    json_t *request = json_pack("{s:o,s:o,s:o,s:o}", "key", strait_etcd_bytes(r->from, n_from),
                                "range_end", strait_etcd_text(r->end), "limit",
                                strait_etcd_number(PAGE), "revision",
                                strait_etcd_number(r->revision));
    STRAIT_TRY(strait_etcd_ask(r->self, "/v3/kv/range", request, &answer));
    strait_err err = r->revision == 0 ? strait_etcd_revision(answer, &r->revision) : STRAIT_OK;
    for (size_t i = 0; i < strait_etcd_pairs(answer) && err == STRAIT_OK; i++) {
        strait_etcd_pair pair = {.key = NULL};
        err = strait_etcd_pair_parse(answer, i, &pair);
        if (err == STRAIT_OK) err = visit_pair(r, &pair);
        strait_etcd_pair_fini(&pair);
    }
    r->has_more = json_is_true(json_object_get(answer, "more"));
    json_decref(answer);
    return err;
}

strait_err strait_etcd_read(struct strait_metastore *store, const char *prefix,
                            strait_metastore_visit *visit, void *user) {
    struct strait_etcd *self = store->state;
    struct reading r = {.self = self, .visit = visit, .user = user};
    uint64_t version = 0;
    if (store->term != 0 && self->has_unknown_commit) { // afterwards a delayed commit has no effect
        const strait_err err = strait_etcd_commit(store, NULL, 0, &version);
        if (err == STRAIT_EDEPOSED) store->term = 0;
        STRAIT_TRY(err);
    }
    (void)entry_key(self, prefix, r.from);
    (void)entry_key(self, prefix, r.end);
    r.end[strlen(r.end) -
          1]++; // the first key after all with this prefix: no key contains byte 127
    do
        STRAIT_TRY(read_page(&r));
    while (r.has_more);
    return STRAIT_OK;
}
