/* host_store.c - a store of record that is out of reach: the run pauses, and goes on when it is
 * back, as long as nobody else has led it meanwhile. */
#include "base/clock.h"
#include "swarm/host_state.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    RENEW_MS = 1000,
    NAP_MS = 500 // between attempts
};

struct looking {
    const struct host *host;
    int is_ours;
};

static strait_err compare(void *user, const strait_record_fact *fact) {
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
    if (strait_record_term(h->record) != 0) return STRAIT_OK;
    strait_err err = strait_record_claim(h->record, &term);
    *is_lost = err == STRAIT_EAGAIN;
    if (err == STRAIT_EAGAIN) return STRAIT_FAIL(STRAIT_EDEPOSED, "%s", strait_err_detail());
    if (err == STRAIT_OK) err = strait_record_read(h->record, "state", compare, &look);
    if (err != STRAIT_OK || look.is_ours) return err;
    *is_lost = 1;
    return STRAIT_FAIL(STRAIT_EDEPOSED,
                       "another coordinator led the run while the store was out of reach: start "
                       "this one again, and it stands by or goes on from there");
}

static strait_err try_once(struct host *h, const char *key, const void *data, size_t bytes,
                           int *is_lost) {
    STRAIT_TRY(regain(h, is_lost));
    return key != NULL ? strait_record_put(h->record, key, data, bytes)
                       : strait_record_renew(h->record);
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
    const struct timespec nap = {.tv_nsec = NAP_MS * 1000000L};
    const double began = strait_clock_seconds();
    for (;;) {
        int is_lost = 0;
        const strait_err err = try_once(h, key, data, bytes, &is_lost);
        const int may_pass = err == STRAIT_EIO || err == STRAIT_ETIMEDOUT ||
                             (err == STRAIT_EDEPOSED && !is_lost);
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
        (void)nanosleep(&nap, NULL);
    }
}

strait_err strait_host_put(struct host *h, const char *key, const void *data, size_t bytes) {
    return endure(h, key, data, bytes);
}

strait_err strait_host_renew(struct host *h, int64_t now_ns) {
    if (now_ns - h->renew_ns < RENEW_MS * INT64_C(1000000)) return STRAIT_OK;
    h->renew_ns = now_ns;
    const strait_err err = strait_record_renew(h->record);
    if (err == STRAIT_OK) return STRAIT_OK;
    /* A store out of reach matters when our lease is over. */
    if (err == STRAIT_ETIMEDOUT && strait_record_sure_ms(h->record) > 0) return STRAIT_OK;
    return err == STRAIT_ETIMEDOUT || err == STRAIT_EDEPOSED ? endure(h, NULL, NULL, 0) : err;
}
