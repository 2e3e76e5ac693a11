/* admission.c - admits workers, not faster than some per second. */
#include "swarm/host/access/admission.h"

#include "base/clock.h"
#include "swarm/host/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ADMIT_MS = 1000 // before an unreachable metastore is contacted again to admit a worker
};

/* Token buckets: how many at once, and how many per second after that. A site with many workers
 * behind one address joins within a minute; a flood of keys cannot displace others. */
static const struct host_bucket all_admissions = {256.0, 10.0}, address_admissions = {64.0, 1.0};

/* ---- how fast ---- */

void strait_host_refill(const struct host_bucket *bucket, struct host_allowance *allowance,
                        int64_t now_ns) {
    const double elapsed_s = (double)(now_ns - allowance->refilled_ns) * 1e-9;
    allowance->left += elapsed_s * bucket->per_s;
    if (allowance->refilled_ns == 0 || allowance->left > bucket->most)
        allowance->left = bucket->most;
    allowance->refilled_ns = now_ns;
}

/* The bucket of an address; a new address takes the place of the one that asked least recently. */
static struct host_allowance *allowance_of(struct host_admission *a,
                                           const unsigned char address[STRAIT_SOURCE_BYTES]) {
    int oldest = 0;
    for (int i = 0; i < a->n_addresses; i++) {
        if (memcmp(a->addresses[i].address, address, STRAIT_SOURCE_BYTES) == 0)
            return &a->addresses[i].allowance;
        if (a->addresses[i].allowance.refilled_ns < a->addresses[oldest].allowance.refilled_ns)
            oldest = i;
    }
    const int at = a->n_addresses < STRAIT_HOST_ADDRESSES ? a->n_addresses++ : oldest;
    memcpy(a->addresses[at].address, address, STRAIT_SOURCE_BYTES);
    a->addresses[at].allowance = (struct host_allowance){0};
    return &a->addresses[at].allowance;
}

static strait_err apply_rate_limit(struct host_admission *a, const struct host_applicant *who) {
    const int64_t now = strait_clock_ns();
    struct host_allowance *address = allowance_of(a, who->address);
    strait_host_refill(&all_admissions, &a->all, now);
    strait_host_refill(&address_admissions, address, now);
    if (a->all.left < 1.0 || address->left < 1.0)
        return STRAIT_FAIL(STRAIT_ECLOSED,
                           "too many new workers joined at once%s: try again in some seconds",
                           address->left < 1.0 ? " from this address" : "");
    a->all.left -= 1.0;
    address->left -= 1.0;
    return STRAIT_OK;
}

/* ---- who ---- */

/* A worker is not refused because the metastore fails: its request stays pending. The metastore is
 * not contacted for every pending request in every loop, since each call may block until it times
 * out. */
static strait_err postpone(struct host *h, const char *name) {
    if (h->admission.retry_ns == 0)
        strait_host_note(h, "worker '%s' waits to be admitted: %s", name, strait_err_detail());
    h->admission.retry_ns = strait_clock_ns() + ADMIT_MS * INT64_C(1000000);
    return STRAIT_EAGAIN;
}

static strait_err check_known(const struct host_key *key) {
    const int64_t left_ns = key->kicked_until_ns - strait_clock_ns();
    if (key->is_banned)
        return STRAIT_FAIL(STRAIT_EAUTH, "this key is banned from this run: it sent invalid data, "
                                         "or the operator removed it");
    if (key->kicked_until_ns != 0 && left_ns > 0)
        return STRAIT_FAIL(STRAIT_ECLOSED,
                           "the operator removed this worker: it may join again in %.0f s",
                           (double)left_ns * 1e-9);
    return STRAIT_OK;
}

static strait_err admit_new(struct host *h, const struct host_applicant *who) {
    const strait_host_events *events = &h->spec->events;
    struct host_invite *invite = NULL;
    STRAIT_TRY(strait_host_check_token(h, who->token, &invite));
    const int must_ask = events->approves != NULL;
    if (must_ask && !events->approves(events->user, &who->key, who->name))
        return STRAIT_FAIL(STRAIT_EAGAIN, "waiting for approval by the operator");
    if (strait_clock_ns() < h->admission.retry_ns) return STRAIT_EAGAIN;
    STRAIT_TRY(apply_rate_limit(&h->admission, who));
    struct host_key *key = strait_host_add_key(h, &who->key);
    if (key == NULL)
        return STRAIT_FAIL(STRAIT_ECLOSED, "too many workers are connected: try again later");
    (void)snprintf(key->name, sizeof key->name, "%s", who->name);
    const uint32_t uses = invite != NULL ? invite->uses : h->invite.uses;
    const uint64_t expires = invite != NULL ? invite->expires : h->invite.expires;
    /* It can join again only if it is remembered. */
    key->must_keep = must_ask || uses != 0 || expires != 0;
    strait_err err = key->must_keep ? strait_host_store_key(h, key) : STRAIT_OK;
    if (err == STRAIT_OK && uses != 0) err = strait_host_use_invite(h, invite);
    if (err == STRAIT_OK) h->admission.retry_ns = 0;
    if (err == STRAIT_OK) return STRAIT_OK;
    *key = h->admission.keys[--h->admission.n_keys];
    return postpone(h, who->name);
}

strait_err strait_host_admit(struct host *h, const struct host_applicant *who) {
    struct host_key *known = strait_host_find_key(h, &who->key);
    if (known != NULL) STRAIT_TRY(check_known(known));
    if (known == NULL) STRAIT_TRY(admit_new(h, who));
    known = strait_host_find_key(h, &who->key);
    if (known == NULL) return STRAIT_OK;
    known->seen_ns = strait_clock_ns();
    (void)snprintf(known->name, sizeof known->name, "%s", who->name);
    return STRAIT_OK;
}

/* A failure of the metastore is not reported: the key is stored the next time. */
static void keep(struct host *h, int worker) {
    struct host_key *key = strait_host_find_key(h, &h->coordinator.workers[worker].key);
    if (key == NULL) return;
    key->must_keep = 1;
    (void)strait_host_store_key(h, key);
}

void strait_host_keep_owners(struct host *h) {
    for (int i = 0; i < h->coordinator.config.n_stages; i++)
        if (h->coordinator.owner[i] >= 0) keep(h, h->coordinator.owner[i]);
}

void strait_host_keep_connected(struct host *h) {
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++)
        if (h->coordinator.workers[i].is_known && h->coordinator.workers[i].is_connected)
            keep(h, i);
}

/* ---- slots ---- */

/* Returns the connection of a spare that never owned a stage; NULL: the worker is not one. */
static struct connection *find_idle(struct host *h, int worker) {
    const strait_swarm_worker *w = &h->coordinator.workers[worker];
    if (!w->is_known || !w->is_connected || w->stage >= 0) return NULL;
    const struct host_key *key = strait_host_find_key(h, &w->key);
    return key == NULL || !key->must_keep ? strait_host_connection(h, worker) : NULL;
}

static int compare_address(const struct connection *a, const struct strait_link *link) {
    return memcmp(a->link->source_address, link->source_address, STRAIT_SOURCE_BYTES);
}

static int compare_connections(const void *a, const void *b) {
    return compare_address(*(struct connection *const *)a, (*(struct connection *const *)b)->link);
}

void strait_host_make_slot(struct host *h, const struct strait_link *link) {
    struct connection *idle[STRAIT_SWARM_WORKERS];
    struct connection *worst = NULL;
    int n_idle = 0;
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++) {
        idle[n_idle] = find_idle(h, i);
        n_idle += idle[n_idle] != NULL;
    }
    int most = 1;
    for (int i = 0; i < n_idle; i++)
        most += compare_address(idle[i], link) == 0;
    qsort(idle, (size_t)n_idle, sizeof(struct connection *), compare_connections);
    for (int i = 0, n = 0; i < n_idle; i++) {
        n = i > 0 && compare_address(idle[i], idle[i - 1]->link) == 0 ? n + 1 : 1;
        if (n <= most) continue;
        most = n;
        worst = idle[i];
    }
    if (worst != NULL)
        strait_host_disconnect(h, worst, STRAIT_ECLOSED,
                               "too many idle workers from this address: try again later");
}
