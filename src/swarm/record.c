#include "base/alloc.h"
#include "swarm/record_ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

extern const struct strait_record_ops strait_record_memory, strait_record_journal,
    strait_record_etcd;

static const struct strait_record_ops *const stores[] = {
    &strait_record_memory,
    &strait_record_journal,
    &strait_record_etcd,
};
enum {
    N_STORES = sizeof stores / sizeof *stores,
    TTL_MS = 6000,
    TTL_MAX_MS = 3600 * 1000,
    TIMEOUT_MS = 5000
};

/* ---- bounds ---- */

static int is_word(const char *text, const char *marks, size_t room) {
    const size_t n = strnlen(text, room);
    if (n == 0 || n == room) return 0;
    for (const char *at = text; *at != 0; at++) {
        const int is_letter = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z');
        const int is_digit = *at >= '0' && *at <= '9';
        if (!is_letter && !is_digit && strchr(marks, *at) == NULL) return 0;
    }
    return 1;
}

static strait_err check_key(const char *key) {
    if (key != NULL && is_word(key, "/._-:", STRAIT_RECORD_KEY_MAX)) return STRAIT_OK;
    return STRAIT_FAIL(
        STRAIT_EINVAL,
        "store of record: key '%.40s': expected 1 to %d letters, digits or / . _ - :",
        key != NULL ? key : "", STRAIT_RECORD_KEY_MAX - 1);
}

static strait_err check_changes(const strait_record_change *changes, int n_changes) {
    if (n_changes < 1 || n_changes > STRAIT_RECORD_CHANGES_MAX)
        return STRAIT_FAIL(STRAIT_EINVAL, "store of record: %d changes at once, expected 1 to %d",
                           n_changes, STRAIT_RECORD_CHANGES_MAX);
    size_t left = STRAIT_RECORD_COMMIT_MAX;
    for (int i = 0; i < n_changes; i++) {
        const strait_record_change *c = &changes[i];
        STRAIT_TRY(check_key(c->key));
        const size_t bytes = c->data != NULL ? c->bytes : 0;
        if (bytes > left || strlen(c->key) > left - bytes)
            return STRAIT_FAIL(STRAIT_EINVAL,
                               "store of record: '%s' is too much for one commit of %d bytes",
                               c->key, STRAIT_RECORD_COMMIT_MAX);
        left -= bytes + strlen(c->key);
        for (int k = 0; k < i; k++)
            if (strcmp(changes[k].key, c->key) == 0)
                return STRAIT_FAIL(STRAIT_EINVAL, "store of record: '%s' twice in one commit",
                                   c->key);
    }
    return STRAIT_OK;
}

static strait_err check_config(const strait_record_config *config) {
    if (config->run == NULL || !is_word(config->run, "._-", STRAIT_RECORD_NAME_MAX))
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "store of record: run '%.40s': expected letters, digits or . _ -",
                           config->run != NULL ? config->run : "");
    if (config->owner == NULL || strnlen(config->owner, STRAIT_RECORD_NAME_MAX) == 0 ||
        strnlen(config->owner, STRAIT_RECORD_NAME_MAX) == STRAIT_RECORD_NAME_MAX)
        return STRAIT_FAIL(STRAIT_ECONFIG, "store of record: the owner's name has 1 to %d bytes",
                           STRAIT_RECORD_NAME_MAX - 1);
    if (config->ttl_ms < 0 || config->ttl_ms > TTL_MAX_MS || config->timeout_ms < 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "store of record: a lease of %d ms and a limit of %d ms for calls: "
                           "expected 0 (default) to %d, and 0 or more",
                           config->ttl_ms, config->timeout_ms, TTL_MAX_MS);
    return STRAIT_OK;
}

/* ---- life ---- */

static const struct strait_record_ops *find_store(const char *store, const char **out_where) {
    for (int i = 0; i < N_STORES; i++) {
        const size_t n = strlen(stores[i]->scheme);
        if (strncmp(store, stores[i]->scheme, n) != 0) continue;
        if (store[n] != ':' && store[n] != 0) continue;
        *out_where = store[n] == ':' ? store + n + 1 : store + n;
        return stores[i];
    }
    return NULL;
}

/* The texts of a config: in the end ours, at first the caller's. */
static void texts_of(strait_record_config *config, const char **out[6]) {
    const char **texts[6] = {&config->store,   &config->run,       &config->owner,
                             &config->ca_file, &config->cert_file, &config->key_file};
    memcpy((void *)out, (const void *)texts, sizeof texts);
}

static strait_err copy_config(struct strait_record *record, const strait_record_config *config) {
    strait_record_config given = *config;
    const char **from[6], **to[6];
    record->config = given;
    texts_of(&given, from);
    texts_of(&record->config, to);
    for (int i = 0; i < 6; i++)
        *to[i] = NULL; // one that fails leaves the rest closed
    for (int i = 0; i < 6; i++) {
        char *text = NULL;
        if (*from[i] == NULL) continue;
        STRAIT_TRY(strait_alloc_string(*from[i], &text));
        *to[i] = text;
    }
    if (record->config.ttl_ms == 0) record->config.ttl_ms = TTL_MS;
    if (record->config.timeout_ms == 0) record->config.timeout_ms = TIMEOUT_MS;
    return STRAIT_OK;
}

strait_err strait_record_open(const strait_record_config *config, struct strait_record **out) {
    const char *where = "";
    const struct strait_record_ops *ops = find_store(config->store != NULL ? config->store : "",
                                                     &where);
    if (ops == NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "store of record '%.60s': expected journal:PATH or "
                           "etcd:http://HOST:PORT,http://HOST:PORT,...",
                           config->store != NULL ? config->store : "");
    STRAIT_TRY(check_config(config));
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_record) + ops->state_size, "store of record",
                            &memory));
    struct strait_record *record = memory;
    record->ops = ops;
    record->state = record + 1;
    strait_err err = copy_config(record, config);
    if (err == STRAIT_OK) err = ops->init(record, where);
    if (err != STRAIT_OK) {
        strait_record_close(&record);
        return err;
    }
    *out = record;
    return STRAIT_OK;
}

/* A lease that stays runs out by itself; and why a caller closes counts more than how that goes. */
static void resign_quietly(struct strait_record *record) {
    char words[512];
    (void)snprintf(words, sizeof words, "%s", strait_err_detail());
    if (strait_record_resign(record) != STRAIT_OK) strait_err_note(__FILE__, __LINE__, "%s", words);
}

void strait_record_close(struct strait_record **record) {
    struct strait_record *r = *record;
    if (r == NULL) return;
    resign_quietly(r);
    r->ops->fini(r);
    const char **texts[6];
    texts_of(&r->config, texts);
    for (int i = 0; i < 6; i++)
        strait_alloc_free((void *)(uintptr_t)*texts[i]); // NOLINT(performance-no-int-to-ptr)
    strait_alloc_free(r);
    *record = NULL;
}

/* ---- leading ---- */

static strait_err forget_if_deposed(struct strait_record *record, strait_err err) {
    if (err == STRAIT_EDEPOSED) record->term = 0;
    return err;
}

strait_err strait_record_fail_deposed(const struct strait_record *record) {
    return STRAIT_FAIL(STRAIT_EDEPOSED,
                       "run '%s': '%s' is not its coordinator any more; another has taken over or "
                       "the lease of %d ms ran out",
                       record->config.run, record->config.owner, record->config.ttl_ms);
}

strait_err strait_record_fail_expected(const strait_record_change *c, uint64_t found) {
    if (c->expected == STRAIT_RECORD_ABSENT)
        return STRAIT_FAIL(STRAIT_EAGAIN, "fact '%s' is there already, in version %" PRIu64, c->key,
                           found);
    return STRAIT_FAIL(STRAIT_EAGAIN,
                       "fact '%s' is in version %" PRIu64 ", expected %" PRIu64
                       "; read it again and decide anew",
                       c->key, found, c->expected);
}

static strait_err fail_without_term(const struct strait_record *record) {
    return STRAIT_FAIL(STRAIT_EDEPOSED, "run '%s': '%s' does not lead it", record->config.run,
                       record->config.owner);
}

strait_err strait_record_claim(struct strait_record *record, uint64_t *out_term) {
    strait_err err = STRAIT_OK;
    if (record->term != 0)
        err = forget_if_deposed(record, record->ops->renew(record));
    else
        err = record->ops->claim(record);
    if (err == STRAIT_OK) *out_term = record->term;
    return err;
}

strait_err strait_record_renew(struct strait_record *record) {
    if (record->term == 0) return fail_without_term(record);
    return forget_if_deposed(record, record->ops->renew(record));
}

strait_err strait_record_resign(struct strait_record *record) {
    if (record->term == 0) return STRAIT_OK;
    const strait_err err = record->ops->resign(record);
    record->term = 0;
    return err == STRAIT_EDEPOSED ? STRAIT_OK : err;
}

void strait_record_discard(struct strait_record *record) {
    if (record->term > 0 && record->ops->discard != NULL) record->ops->discard(record);
    resign_quietly(record);
}

strait_err strait_record_await(struct strait_record *record, int wait_ms) {
    return record->ops->await(record, wait_ms);
}

strait_err strait_record_who(struct strait_record *record, strait_record_leader *out) {
    return record->ops->who(record, out);
}

uint64_t strait_record_term(const struct strait_record *record) {
    return record->term;
}

int64_t strait_record_sure_ms(const struct strait_record *record) {
    return record->term != 0 ? record->ops->sure_ms(record) : 0;
}

/* ---- facts ---- */

strait_err strait_record_commit(struct strait_record *record, const strait_record_change *changes,
                                int n_changes, uint64_t *out_version) {
    uint64_t version = 0;
    STRAIT_TRY(check_changes(changes, n_changes));
    if (record->term == 0) return fail_without_term(record);
    STRAIT_TRY(
        forget_if_deposed(record, record->ops->commit(record, changes, n_changes, &version)));
    if (out_version != NULL) *out_version = version;
    return STRAIT_OK;
}

strait_err strait_record_put(struct strait_record *record, const char *key, const void *data,
                             size_t bytes) {
    const strait_record_change change = {.key = key, .data = data, .bytes = bytes};
    if (data == NULL) return STRAIT_FAIL(STRAIT_EINVAL, "store of record: nothing to put");
    return strait_record_commit(record, &change, 1, NULL);
}

strait_err strait_record_read(struct strait_record *record, const char *prefix,
                              strait_record_visit *visit, void *user) {
    if (prefix[0] != 0) STRAIT_TRY(check_key(prefix));
    return record->ops->read(record, prefix, visit, user);
}
