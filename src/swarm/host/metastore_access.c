/* metastore_access.c - writes entries and renews the lease. While the metastore is unreachable, the
 * run pauses here; it continues when the metastore is back, unless another coordinator led
 * meanwhile. */
#include "base/clock.h"
#include "swarm/host/state.h"

#include <string.h>
#include <time.h>

enum {
    RENEW_MS = 1000,
    WAIT_MS = 100, // for the network, per poll
    RETRY_MS = 500 // between attempts
};

/* ---- one call ---- */

/* One request to the metastore, and whether it cost us the leadership. */
struct request {
    struct host *host;
    const char *key;  // NULL: renew the lease
    const void *data; // NULL: remove the entry
    size_t bytes;
    int is_lost; // another coordinator leads, or led meanwhile
};

/* Keeps the links alive. Received messages are queued until the metastore has answered, since
 * handling them could change the state that is being written. */
static strait_err keep_links(struct host *h) {
    (void)h->t->ops->progress(h->t, WAIT_MS);
    strait_host_report_status_if_due(h, strait_clock_ns());
    return STRAIT_OK;
}

static void wait_before_retry(struct host *h) {
    const struct timespec pause = {.tv_nsec = RETRY_MS * 1000000L};
    const int64_t until = strait_clock_ns() + RETRY_MS * INT64_C(1000000);
    if (h->t == NULL) (void)nanosleep(&pause, NULL);
    while (h->t != NULL && strait_clock_ns() < until)
        (void)h->t->ops->progress(h->t, WAIT_MS);
}

static strait_err put_or_renew(void *arg) {
    const struct request *request = arg;
    struct strait_metastore *metastore = request->host->persistence.metastore;
    const strait_metastore_change removal = {.key = request->key};
    if (request->key == NULL) return strait_metastore_renew(metastore);
    if (request->data == NULL) return strait_metastore_commit(metastore, &removal, 1, NULL);
    return strait_metastore_put(metastore, request->key, request->data, request->bytes);
}

/* ---- repeated until it succeeds ---- */

struct comparison {
    const struct host *host;
    int is_ours;
};

static strait_err compare(void *user, const strait_metastore_entry *entry) {
    struct comparison *comparison = user;
    const struct host *h = comparison->host;
    if (strcmp(entry->key, "state") != 0) return STRAIT_OK;
    comparison->is_ours = 0;
    for (int i = 0; i < 2; i++) // the state known to be written, and the one that may have been
        comparison->is_ours |= entry->bytes == h->persistence.state_bytes[i] &&
                               memcmp(entry->data, h->persistence.state[i], entry->bytes) == 0;
    return STRAIT_OK;
}

/* Claims again after our lease expired. If another coordinator led meanwhile, the entry 'state'
 * differs from ours, because every generation is recorded before it begins. */
static strait_err reclaim(struct host *h, int *is_lost) {
    uint64_t term = 0;
    struct comparison comparison = {.host = h, .is_ours = h->persistence.state_bytes[0] == 0};
    if (strait_metastore_term(h->persistence.metastore) != 0) return STRAIT_OK;
    strait_err err = strait_metastore_claim(h->persistence.metastore, &term);
    *is_lost = err == STRAIT_EAGAIN;
    if (err == STRAIT_EAGAIN) return STRAIT_FAIL(STRAIT_EDEPOSED, "%s", strait_err_detail());
    if (err == STRAIT_OK)
        err = strait_metastore_read(h->persistence.metastore, "state", compare, &comparison);
    if (err != STRAIT_OK || comparison.is_ours) return err;
    *is_lost = 1;
    return STRAIT_FAIL(STRAIT_EDEPOSED,
                       "another coordinator led the run while the metastore was unreachable: start "
                       "this one again to stand by or to continue from there");
}

static strait_err claim_and_put(void *arg) {
    struct request *request = arg;
    STRAIT_TRY(reclaim(request->host, &request->is_lost));
    return put_or_renew(request);
}

static void log_pause(struct host *h, strait_err err) {
    h->persistence.is_paused = 1;
    if (err == STRAIT_EIO)
        strait_host_note(h, "paused: %s", strait_err_detail());
    else
        strait_host_note(h, "paused until the metastore is back, for %.0f s at most: %s",
                         h->spec->store_wait_s, strait_err_detail());
    strait_host_report_status(h);
}

/* Waits without limit for space on a full disk, since no other host could continue meanwhile; for
 * an unreachable metastore at most store_wait_s. */
static strait_err retry(struct host *h, const char *key, const void *data, size_t bytes) {
    const double began = strait_clock_seconds();
    for (;;) {
        struct request request = {.host = h, .key = key, .data = data, .bytes = bytes};
        const strait_err err = strait_host_run_async(h, claim_and_put, &request, keep_links);
        const int is_transient = err == STRAIT_EIO || err == STRAIT_ETIMEDOUT ||
                                 (err == STRAIT_EDEPOSED && !request.is_lost);
        const double waited = strait_clock_seconds() - began;
        if (!is_transient) {
            if (err == STRAIT_OK && h->persistence.is_paused)
                strait_host_note(h, "continuing: the metastore is back after %.0f s", waited);
            h->persistence.is_paused = 0;
            return err == STRAIT_OK ? strait_host_keep_folder(h) : err;
        }
        if (!h->persistence.is_paused && err != STRAIT_EDEPOSED) log_pause(h, err);
        if (err != STRAIT_EIO && waited > h->spec->store_wait_s)
            return STRAIT_FAIL(
                STRAIT_ETIMEDOUT,
                "the metastore was unreachable for %.0f s: start the host again when "
                "it is back, and the run continues",
                waited);
        if (h->spec->session.must_stop(h->spec->session.user))
            return STRAIT_FAIL(STRAIT_EINTERRUPTED, "stopped while waiting for the metastore");
        wait_before_retry(h);
    }
}

strait_err strait_host_put(struct host *h, const char *key, const void *data, size_t bytes) {
    return retry(h, key, data, bytes);
}

strait_err strait_host_remove(struct host *h, const char *key) {
    return retry(h, key, NULL, 0);
}

strait_err strait_host_put_once(struct host *h, const char *key, const void *data, size_t bytes) {
    struct request request = {.host = h, .key = key, .data = data, .bytes = bytes};
    return strait_host_run_async(h, put_or_renew, &request, keep_links);
}

strait_err strait_host_renew(struct host *h, int64_t now_ns) {
    if (now_ns - h->persistence.renew_ns < RENEW_MS * INT64_C(1000000)) return STRAIT_OK;
    h->persistence.renew_ns = now_ns;
    struct request request = {.host = h};
    const strait_err err = strait_host_run_async(h, put_or_renew, &request, keep_links);
    if (err == STRAIT_OK) return strait_host_keep_folder(h);
    /* An unreachable metastore matters only once our lease may have expired. */
    if (err == STRAIT_ETIMEDOUT && strait_metastore_lease_left_ms(h->persistence.metastore) > 0)
        return STRAIT_OK;
    return err == STRAIT_ETIMEDOUT || err == STRAIT_EDEPOSED ? retry(h, NULL, NULL, 0) : err;
}

strait_err strait_host_keep_alive(struct host *h) {
    STRAIT_TRY(keep_links(h));
    return strait_host_renew(h, strait_clock_ns());
}
