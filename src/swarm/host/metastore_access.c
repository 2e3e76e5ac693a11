/* host_store.c - what a host asks of its store of record, and a store that is out of reach: the run
 * pauses, and goes on when it is back, as long as nobody else has led it meanwhile. */
#include "base/clock.h"
#include "swarm/host/state.h"

#include <string.h>
#include <time.h>

enum {
    RENEW_MS = 1000,
    WAIT_MS = 100, // for the network, at a time
    NAP_MS = 500   // between attempts
};

/* ---- one call to the store ---- */

/* What is asked, and whether it can be. */
struct errand {
    struct host *host;
    const char *key; // NULL: the lease is renewed
    const void *data;
    size_t bytes;
    int is_lost; // another leads, or has led
};

/* What comes over the links waits until the store has answered. */
static strait_err keep_links(struct host *h) {
    (void)h->t->ops->progress(h->t, WAIT_MS);
    strait_host_show_due(h, strait_clock_ns());
    return STRAIT_OK;
}

static void nap(struct host *h) {
    const struct timespec rest = {.tv_nsec = NAP_MS * 1000000L};
    const int64_t until = strait_clock_ns() + NAP_MS * INT64_C(1000000);
    if (h->t == NULL) (void)nanosleep(&rest, NULL);
    while (h->t != NULL && strait_clock_ns() < until)
        (void)h->t->ops->progress(h->t, WAIT_MS);
}

static strait_err put_or_renew(void *arg) {
    const struct errand *e = arg;
    struct strait_metastore *metastore = e->host->metastore;
    return e->key != NULL ? strait_metastore_put(metastore, e->key, e->data, e->bytes)
                          : strait_metastore_renew(metastore);
}

/* ---- until it succeeds ---- */

struct looking {
    const struct host *host;
    int is_ours;
};

static strait_err compare(void *user, const strait_metastore_entry *fact) {
    struct looking *look = user;
    const struct host *h = look->host;
    if (strcmp(fact->key, "state") != 0) return STRAIT_OK;
    look->is_ours = 0;
    for (int i = 0; i < 2; i++) // what we know was written, and what may have been
        look->is_ours |= fact->bytes == h->state_bytes[i] &&
                         memcmp(fact->data, h->state[i], fact->bytes) == 0;
    return STRAIT_OK;
}

/* Leads again, where our lease ran out. Another that led meanwhile has left its mark: every epoch
 * is on record before it begins. */
static strait_err regain(struct host *h, int *is_lost) {
    uint64_t term = 0;
    struct looking look = {.host = h, .is_ours = h->state_bytes[0] == 0};
    if (strait_metastore_term(h->metastore) != 0) return STRAIT_OK;
    strait_err err = strait_metastore_claim(h->metastore, &term);
    *is_lost = err == STRAIT_EAGAIN;
    if (err == STRAIT_EAGAIN) return STRAIT_FAIL(STRAIT_EDEPOSED, "%s", strait_err_detail());
    if (err == STRAIT_OK) err = strait_metastore_read(h->metastore, "state", compare, &look);
    if (err != STRAIT_OK || look.is_ours) return err;
    *is_lost = 1;
    return STRAIT_FAIL(STRAIT_EDEPOSED,
                       "another coordinator led the run while the store was out of reach: start "
                       "this one again, and it stands by or goes on from there");
}

static strait_err regain_and_do(void *arg) {
    struct errand *e = arg;
    STRAIT_TRY(regain(e->host, &e->is_lost));
    return put_or_renew(e);
}

static void tell_pause(struct host *h, strait_err err) {
    h->is_paused = 1;
    if (err == STRAIT_EIO)
        strait_host_note(h, "waiting: %s", strait_err_detail());
    else
        strait_host_note(h, "paused, for %.0f s at most: %s", h->spec->store_wait_s,
                         strait_err_detail());
    strait_host_show(h);
}

/* A full disk is waited for as long as it takes; a store that others keep, for its time. */
static strait_err endure(struct host *h, const char *key, const void *data, size_t bytes) {
    const double began = strait_clock_seconds();
    for (;;) {
        struct errand e = {.host = h, .key = key, .data = data, .bytes = bytes};
        const strait_err err = strait_host_run_async(h, regain_and_do, &e, keep_links);
        const int may_pass = err == STRAIT_EIO || err == STRAIT_ETIMEDOUT ||
                             (err == STRAIT_EDEPOSED && !e.is_lost);
        const double waited = strait_clock_seconds() - began;
        if (!may_pass) {
            if (err == STRAIT_OK && h->is_paused)
                strait_host_note(h, "goes on: the store is there again, after %.0f s", waited);
            h->is_paused = 0;
            return err;
        }
        if (!h->is_paused && err != STRAIT_EDEPOSED) tell_pause(h, err);
        if (err != STRAIT_EIO && waited > h->spec->store_wait_s)
            return STRAIT_FAIL(STRAIT_ETIMEDOUT,
                               "the store was out of reach for %.0f s: start the host again when "
                               "it is back, and the run goes on",
                               waited);
        if (h->spec->session.must_stop(h->spec->session.user))
            return STRAIT_FAIL(STRAIT_EINTERRUPTED, "stopped while waiting for the store");
        nap(h);
    }
}

strait_err strait_host_put(struct host *h, const char *key, const void *data, size_t bytes) {
    return endure(h, key, data, bytes);
}

strait_err strait_host_put_once(struct host *h, const char *key, const void *data, size_t bytes) {
    struct errand e = {.host = h, .key = key, .data = data, .bytes = bytes};
    return strait_host_run_async(h, put_or_renew, &e, keep_links);
}

strait_err strait_host_renew(struct host *h, int64_t now_ns) {
    if (now_ns - h->renew_ns < RENEW_MS * INT64_C(1000000)) return STRAIT_OK;
    h->renew_ns = now_ns;
    struct errand e = {.host = h};
    const strait_err err = strait_host_run_async(h, put_or_renew, &e, keep_links);
    if (err == STRAIT_OK) return STRAIT_OK;
    /* A store out of reach matters when our lease is over. */
    if (err == STRAIT_ETIMEDOUT && strait_metastore_sure_ms(h->metastore) > 0) return STRAIT_OK;
    return err == STRAIT_ETIMEDOUT || err == STRAIT_EDEPOSED ? endure(h, NULL, NULL, 0) : err;
}

strait_err strait_host_hold_on(struct host *h) {
    STRAIT_TRY(keep_links(h));
    return strait_host_renew(h, strait_clock_ns());
}
