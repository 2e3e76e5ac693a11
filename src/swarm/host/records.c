/* records.c - the violations and penalties of workers in the metastore, one entry per key, so that
 * a worker keeps them when it reconnects and when the host restarts. */
#include "base/bytes.h"
#include "swarm/host/state.h"

#include <stdio.h>
#include <string.h>

enum {
    RECORD_BYTES = 8
};

static const char prefix[] = "record/";

static void path_of(const strait_fingerprint *key, char out[STRAIT_METASTORE_KEY_MAX]) {
    char text[STRAIT_FINGERPRINT_TEXT];
    strait_fingerprint_text(key, text);
    (void)snprintf(out, STRAIT_METASTORE_KEY_MAX, "%s%s", prefix, text);
}

/* Lists a key that has an entry. A token holder can make any number of keys and let each lose a
 * stage, so the oldest entry is removed when there are too many. Bans are kept elsewhere. */
static strait_err list_key(struct host *h, const strait_fingerprint *key) {
    struct host_persistence *p = &h->persistence;
    char path[STRAIT_METASTORE_KEY_MAX];
    for (unsigned i = 0; i < p->n_records && i < STRAIT_HOST_RECORDS; i++)
        if (strait_fingerprint_equal(&p->records[i], key)) return STRAIT_OK;
    strait_fingerprint *at = &p->records[p->n_records % STRAIT_HOST_RECORDS];
    path_of(at, path);
    if (p->n_records >= STRAIT_HOST_RECORDS) STRAIT_TRY(strait_host_remove(h, path));
    *at = *key;
    p->n_records++;
    return STRAIT_OK;
}

strait_err strait_host_save_record(struct host *h, int worker) {
    const strait_swarm_worker *of = &h->coordinator.workers[worker];
    unsigned char bytes[RECORD_BYTES];
    char path[STRAIT_METASTORE_KEY_MAX];
    strait_writer w = {bytes, sizeof bytes, 0};
    strait_writer_uint(&w, (uint64_t)of->n_violations, 4);
    strait_writer_uint(&w, (uint64_t)of->n_penalties, 4);
    STRAIT_TRY(list_key(h, &of->key));
    path_of(&of->key, path);
    return strait_host_put(h, path, bytes, sizeof bytes);
}

strait_err strait_host_read_record(struct host *h, const strait_metastore_entry *entry) {
    strait_reader r = {entry->data, entry->bytes, 0};
    strait_fingerprint key;
    if (strncmp(entry->key, prefix, sizeof prefix - 1) != 0) return STRAIT_OK;
    STRAIT_TRY(strait_fingerprint_parse(entry->key + sizeof prefix - 1, &key));
    const int n_violations = (int)strait_reader_uint(&r, 4);
    const int n_penalties = (int)strait_reader_uint(&r, 4);
    if (r.is_short || r.left != 0 || n_violations < 0 || n_penalties < 0)
        return STRAIT_FAIL(STRAIT_EDATA, "the metastore's entry '%s' has the wrong size",
                           entry->key);
    if (h->persistence.n_records < STRAIT_HOST_RECORDS) STRAIT_TRY(list_key(h, &key));
    strait_coordinator_remember(&h->coordinator, &key, n_violations, n_penalties);
    return STRAIT_OK;
}
