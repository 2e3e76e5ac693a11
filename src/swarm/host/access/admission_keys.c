/* admission_keys.c - the keys that a host remembers, and their entries in the metastore.
 *
 * A token holder can make any number of keys. So a key costs an entry in the metastore only when it
 * has done something that a stranger cannot do at will, and the oldest of the others is forgotten
 * when the table is full: nobody can use up the run's ability to admit workers. */
#include "base/clock.h"
#include "swarm/host/state.h"

#include <stdio.h>
#include <string.h>

/* Keys of existing metastores; the words in them are older than "admitted" and "banned". */
static const char admitted_prefix[] = "member/";
static const char banned_prefix[] = "barred/";

struct host_key *strait_host_find_key(struct host *h, const strait_fingerprint *key) {
    for (int i = 0; i < h->admission.n_keys; i++)
        if (strait_fingerprint_equal(&h->admission.keys[i].key, key)) return &h->admission.keys[i];
    return NULL;
}

static void path_of(const char *prefix, const strait_fingerprint *key,
                    char out[STRAIT_METASTORE_KEY_MAX]) {
    char text[STRAIT_FINGERPRINT_TEXT];
    strait_fingerprint_text(key, text);
    (void)snprintf(out, STRAIT_METASTORE_KEY_MAX, "%s%s", prefix, text);
}

static int is_connected(const struct host *h, const struct host_key *key) {
    const int slot = strait_coordinator_find(&h->coordinator, &key->key);
    return slot >= 0 && h->coordinator.workers[slot].is_connected;
}

/* How much is lost if a key is forgotten. */
static int value_of(const struct host_key *key) {
    return key->is_banned ? 2 : key->must_keep;
}

/* Returns whether forgetting `a` costs less than forgetting `b`. */
static int is_worth_less(const struct host_key *a, const struct host_key *b) {
    if (value_of(a) != value_of(b)) return value_of(a) < value_of(b);
    return a->seen_ns < b->seen_ns;
}

/* Returns the key to forget; NULL: all are connected, which the number of slots prevents. Whether a
 * key is connected takes long to find out, so only the best choice is asked about. */
static struct host_key *choose_forgotten(struct host *h) {
    unsigned char is_excluded[STRAIT_HOST_KEYS_MAX] = {0};
    struct host_admission *a = &h->admission;
    for (;;) {
        struct host_key *worst = NULL;
        for (int i = 0; i < a->n_keys; i++)
            if (!is_excluded[i] && (worst == NULL || is_worth_less(&a->keys[i], worst)))
                worst = &a->keys[i];
        if (worst == NULL || !is_connected(h, worst)) return worst;
        is_excluded[worst - a->keys] = 1;
    }
}

struct host_key *strait_host_add_key(struct host *h, const strait_fingerprint *key) {
    struct host_admission *a = &h->admission;
    struct host_key *at = strait_host_find_key(h, key);
    char path[STRAIT_METASTORE_KEY_MAX];
    if (at != NULL) return at;
    if (a->n_keys < STRAIT_HOST_KEYS_MAX) {
        at = &a->keys[a->n_keys++];
    } else {
        at = choose_forgotten(h);
        if (at == NULL) return NULL;
        path_of(at->is_banned ? banned_prefix : admitted_prefix, &at->key, path);
        if (at->is_stored) (void)strait_host_remove(h, path); // else it is read again: harmless
    }
    *at = (struct host_key){.key = *key, .seen_ns = strait_clock_ns()};
    return at;
}

strait_err strait_host_store_key(struct host *h, struct host_key *key) {
    char path[STRAIT_METASTORE_KEY_MAX];
    if (key->is_stored) return STRAIT_OK;
    path_of(admitted_prefix, &key->key, path);
    STRAIT_TRY(strait_host_put_once(h, path, key->name, strlen(key->name) + 1));
    key->is_stored = 1;
    return STRAIT_OK;
}

strait_err strait_host_ban(struct host *h, const strait_fingerprint *key) {
    char path[STRAIT_METASTORE_KEY_MAX];
    struct host_key *known = strait_host_add_key(h, key);
    if (known == NULL) return STRAIT_OK;
    known->is_banned = known->is_stored = 1;
    path_of(banned_prefix, key, path);
    return strait_host_put(h, path, known->name, strlen(known->name) + 1);
}

strait_err strait_host_unban(struct host *h, struct host_key *key) {
    char path[STRAIT_METASTORE_KEY_MAX];
    path_of(banned_prefix, &key->key, path);
    STRAIT_TRY(strait_host_remove(h, path));
    key->is_banned = 0;
    key->must_keep = 1; // an operator wants it back: it needs no token
    key->is_stored = 0;
    return strait_host_store_key(h, key);
}

/* A banned key may have two entries, which are read in any order. */
strait_err strait_host_read_key(struct host *h, const strait_metastore_entry *entry) {
    const int is_banned = strncmp(entry->key, banned_prefix, sizeof banned_prefix - 1) == 0;
    strait_fingerprint key;
    if (!is_banned && strncmp(entry->key, admitted_prefix, sizeof admitted_prefix - 1) != 0)
        return STRAIT_OK;
    STRAIT_TRY(strait_fingerprint_parse(strchr(entry->key, '/') + 1, &key));
    struct host_key *at = strait_host_find_key(h, &key);
    if (at == NULL && h->admission.n_keys == STRAIT_HOST_KEYS_MAX) return STRAIT_OK;
    if (at == NULL) at = strait_host_add_key(h, &key);
    at->is_banned |= is_banned;
    at->must_keep = at->is_stored = 1;
    if (entry->bytes > 1)
        (void)snprintf(at->name, sizeof at->name, "%.*s", (int)entry->bytes - 1,
                       (const char *)entry->data);
    return STRAIT_OK;
}
