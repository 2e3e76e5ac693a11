/* metastore_access.c - writes entries and renews the lease. While the metastore is unreachable, the
 * run pauses here; it continues when the metastore is back, unless another coordinator led
 * meanwhile. */
#include "base/clock.h"
#include "swarm/host/state.h"

#include <string.h>
#include <time.h>

enum {
    RENEW_MS = 1000,
    WAIT_MS = 100, // for the network, at a time
    NAP_MS = 500   // between attempts
};

/* ---- one call ---- */

/* One request to the metastore, and how it ended. */
struct request {
    struct host *host;
    const char *key; // NULL: renew the lease
    const void *data;
    size_t bytes;
    int is_lost; // another coordinator leads, or has led
};

/* Keeps the links alive. Received messages are queued until the metastore has answered, since
 * handling them could change the state that is being written. */
static strait_err keep_links(struct host *h) {
    (void)h->t->ops->progress(h->t, WAIT_MS);
    strait_host_show_due(h, strait_clock_ns());
    return STRAIT_OK;
}

static void pause_briefly(struct host *h) {
    const struct timespec rest = {.tv_nsec = NAP_MS * 1000000L};
    const int64_t until = strait_clock_ns() + NAP_MS * INT64_C(1000000);
    if (h->t == NULL) (void)nanosleep(&rest, NULL);
    while (h->t != NULL && strait_clock_ns() < until)
        (void)h->t->ops->progress(h->t, WAIT_MS);
}

static strait_err put_or_renew(void *arg) {
    const struct request *e = arg;
    struct strait_metastore *metastore = e->host->facts.metastore;
    return e->key != NULL ? strait_metastore_put(metastore, e->key, e->data, e->bytes)
                          : strait_metastore_renew(metastore);
}

/* ---- repeated until it succeeds ---- */

struct comparison {
    const struct host *host;
    int is_ours;
};

static strait_err compare(void *user, const strait_metastore_entry *entry) {
    struct comparison *look = user;
    const struct host *h = look->host;
    if (strcmp(entry->key, "state") != 0) return STRAIT_OK;
    look->is_ours = 0;
    for (int i = 0; i < 2; i++) // the state known to be written, and the one that may have been
        look->is_ours |= entry->bytes == h->facts.state_bytes[i] &&
                         memcmp(entry->data, h->facts.state[i], entry->bytes) == 0;
    return STRAIT_OK;
}

/* Claims again after our lease expired. If another coordinator led meanwhile, the entry 'state'
 * differs from ours, because every generation is recorded before it begins. */
static strait_err regain(struct host *h, int *is_lost) {
    uint64_t term = 0;
    struct comparison look = {.host = h, .is_ours = h->facts.state_bytes[0] == 0};
    if (strait_metastore_term(h->facts.metastore) != 0) return STRAIT_OK;
    strait_err err = strait_metastore_claim(h->facts.metastore, &term);
    *is_lost = err == STRAIT_EAGAIN;
    if (err == STRAIT_EAGAIN) return STRAIT_FAIL(STRAIT_EDEPOSED, "%s", strait_err_detail());
    if (err == STRAIT_OK) err = strait_metastore_read(h->facts.metastore, "state", compare, &look);
    if (err != STRAIT_OK || look.is_ours) return err;
    *is_lost = 1;
    return STRAIT_FAIL(STRAIT_EDEPOSED,
                       "another coordinator led the run while the metastore was unreachable: start "
                       "this one again to stand by or to continue from there");
}

static strait_err claim_and_put(void *arg) {
    struct request *e = arg;
    STRAIT_TRY(regain(e->host, &e->is_lost));
    return put_or_renew(e);
}

static void log_pause(struct host *h, strait_err err) {
    h->facts.is_paused = 1;
    if (err == STRAIT_EIO)
        strait_host_note(h, "paused: %s", strait_err_detail());
    else
        strait_host_note(h, "paused until the metastore is back, for %.0f s at most: %s",
                         h->spec->store_wait_s, strait_err_detail());
    strait_host_show(h);
}

/* Waits for space on a full disk without limit, because only this host can free it; for an
 * unreachable metastore at most --store-wait. */
static strait_err retry(struct host *h, const char *key, const void *data, size_t bytes) {
    const double began = strait_clock_seconds();
    for (;;) {
        struct request e = {.host = h, .key = key, .data = data, .bytes = bytes};
        const strait_err err = strait_host_run_async(h, claim_and_put, &e, keep_links);
        const int is_transient = err == STRAIT_EIO || err == STRAIT_ETIMEDOUT ||
                                 (err == STRAIT_EDEPOSED && !e.is_lost);
        const double waited = strait_clock_seconds() - began;
        if (!is_transient) {
            if (err == STRAIT_OK && h->facts.is_paused)
                strait_host_note(h, "continuing: the metastore is back after %.0f s", waited);
            h->facts.is_paused = 0;
            return err;
        }
        if (!h->facts.is_paused && err != STRAIT_EDEPOSED) log_pause(h, err);
        if (err != STRAIT_EIO && waited > h->spec->store_wait_s)
            return STRAIT_FAIL(
                STRAIT_ETIMEDOUT,
                "the metastore was unreachable for %.0f s: start the host again when "
                "it is back, and the run continues",
                waited);
        if (h->spec->session.must_stop(h->spec->session.user))
            return STRAIT_FAIL(STRAIT_EINTERRUPTED, "stopped while waiting for the metastore");
        pause_briefly(h);
    }
}

strait_err strait_host_put(struct host *h, const char *key, const void *data, size_t bytes) {
    return retry(h, key, data, bytes);
}

strait_err strait_host_put_once(struct host *h, const char *key, const void *data, size_t bytes) {
    struct request e = {.host = h, .key = key, .data = data, .bytes = bytes};
    return strait_host_run_async(h, put_or_renew, &e, keep_links);
}

strait_err strait_host_renew(struct host *h, int64_t now_ns) {
    if (now_ns - h->facts.renew_ns < RENEW_MS * INT64_C(1000000)) return STRAIT_OK;
    h->facts.renew_ns = now_ns;
    struct request e = {.host = h};
    const strait_err err = strait_host_run_async(h, put_or_renew, &e, keep_links);
    if (err == STRAIT_OK) return STRAIT_OK;
    /* An unreachable metastore matters only when our lease is over. */
    if (err == STRAIT_ETIMEDOUT && strait_metastore_sure_ms(h->facts.metastore) > 0)
        return STRAIT_OK;
    return err == STRAIT_ETIMEDOUT || err == STRAIT_EDEPOSED ? retry(h, NULL, NULL, 0) : err;
}

strait_err strait_host_hold_on(struct host *h) {
    STRAIT_TRY(keep_links(h));
    return strait_host_renew(h, strait_clock_ns());
}
