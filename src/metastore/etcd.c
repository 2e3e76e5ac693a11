/* etcd.c - the etcd backend: a cluster that several coordinators share, one leading, the others on
 * standby.
 *
 *     strait/RUN/leader    the leader's name, bound to its lease; its create revision is the term
 *     strait/RUN/commit    a random number of the latest commit; every commit requires the revision
 * of the previous one strait/RUN/fact/KEY  the entries (the name of this key is older than the word
 * "entry")
 *
 * A commit is one transaction with two conditions besides those of its changes: the leader's key is
 * the one we created, and the previous commit is the one we know of. The first fences a deposed
 * leader. The second fences our own earlier requests: one that was delayed in a member while
 * another member answered may arrive after later commits, and then it must change nothing. */
#include "base/clock.h"
#include "metastore/etcd_state.h"

#include <stdio.h>
#include <string.h>

enum {
    RESIGN_MS = 1000,
    NS_PER_MS = 1000000
};

static strait_err init(struct strait_metastore *store, const char *where) {
    struct strait_etcd *self = store->state;
    const char *run = store->config.run;
    (void)snprintf(self->leader, sizeof self->leader, "strait/%s/leader", run);
    (void)snprintf(self->commit, sizeof self->commit, "strait/%s/commit", run);
    (void)snprintf(self->entries, sizeof self->entries, "strait/%s/fact/", run);
    return strait_etcd_http_init(&self->http, where, &store->config);
}

static void fini(struct strait_metastore *store) {
    strait_etcd_http_fini(&((struct strait_etcd *)store->state)->http);
}

strait_err strait_etcd_ask(struct strait_etcd *self, const char *path, json_t *request,
                           json_t **out) {
    if (request == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "no memory for a request to etcd");
    const strait_err err = strait_etcd_http_ask(&self->http, path, request, out);
    json_decref(request);
    return err;
}

/* ---- the lease ---- */

/* Counts from before the request was sent, on our own clock: etcd's lease ends later than that. */
static void set_lease_end(struct strait_etcd *self, int64_t asked_ns, uint64_t ttl_s) {
    self->lease_end_ns = asked_ns + (int64_t)(ttl_s < 86400 ? ttl_s : 86400) * 1000 * NS_PER_MS;
}

static strait_err grant(struct strait_etcd *self, int ttl_ms) {
    const int64_t asked_ns = strait_clock_ns();
    json_t *answer = NULL;
    uint64_t ttl_s = 0;
    STRAIT_TRY(strait_etcd_ask(
        self, "/v3/lease/grant",
        json_pack("{s:o}", "TTL", strait_etcd_number((uint64_t)(ttl_ms + 999) / 1000)), &answer));
    strait_err err = strait_etcd_get(answer, "ID", &self->lease);
    if (err == STRAIT_OK) err = strait_etcd_get(answer, "TTL", &ttl_s);
    json_decref(answer);
    if (err == STRAIT_OK && self->lease == 0)
        err = STRAIT_FAIL(STRAIT_EDATA, "etcd granted a lease without an id");
    set_lease_end(self, asked_ns, ttl_s);
    return err;
}

/* Writes 0 to *out_ttl_s when the lease has expired. */
static strait_err keep_alive(struct strait_etcd *self, uint64_t *out_ttl_s) {
    const int64_t asked_ns = strait_clock_ns();
    json_t *answer = NULL;
    *out_ttl_s = 0;
    const strait_err asked = strait_etcd_ask(
        self, "/v3/lease/keepalive", json_pack("{s:o}", "ID", strait_etcd_number(self->lease)),
        &answer);
    if (asked == STRAIT_EAGAIN) return STRAIT_OK;
    STRAIT_TRY(asked);
    const strait_err err = strait_etcd_get(json_object_get(answer, "result"), "TTL", out_ttl_s);
    json_decref(answer);
    if (err == STRAIT_OK && *out_ttl_s > 0) set_lease_end(self, asked_ns, *out_ttl_s);
    return err;
}

static strait_err revoke(struct strait_etcd *self) {
    json_t *answer = NULL;
    const strait_err err = strait_etcd_ask(
        self, "/v3/lease/revoke", json_pack("{s:o}", "ID", strait_etcd_number(self->lease)),
        &answer);
    json_decref(answer);
    self->lease = 0;
    return err == STRAIT_EAGAIN ? STRAIT_OK : err; // it has expired already
}

/* ---- leading ---- */

static json_t *claim_request(const struct strait_metastore *store) {
    const struct strait_etcd *self = store->state;
    const char *owner = store->config.owner;
    return json_pack("{s:[o],s:[{s:{s:o,s:o,s:o}},o],s:[o]}", "compare",
                     strait_etcd_compare(self->leader, "CREATE", "create_revision", 0), "success",
                     "request_put", "key", strait_etcd_text(self->leader), "value",
                     strait_etcd_text(owner), "lease", strait_etcd_number(self->lease),
                     strait_etcd_put(self->commit, owner, strlen(owner)), "failure",
                     strait_etcd_range(self->leader));
}

/* Three outcomes: we lead now, another one leads, or an earlier attempt that timed out made us the
 * leader after all. */
static strait_err finish_claim(struct strait_metastore *store, const json_t *answer) {
    struct strait_etcd *self = store->state;
    strait_etcd_pair leader = {.key = NULL};
    uint64_t revision = 0;
    STRAIT_TRY(strait_etcd_revision(answer, &revision));
    if (!json_is_true(json_object_get(answer, "succeeded"))) {
        STRAIT_TRY(strait_etcd_pair_parse(strait_etcd_range_of(answer, 0), 0, &leader));
        const int is_ours = (uint64_t)leader.lease == self->lease;
        revision = leader.created;
        strait_err err = STRAIT_OK;
        if (!is_ours)
            err = STRAIT_FAIL(STRAIT_EAGAIN, "run '%s' is led by '%.*s'", store->config.run,
                              (int)leader.bytes, (const char *)leader.data);
        strait_etcd_pair_fini(&leader);
        STRAIT_TRY(err);
    }
    self->latest_commit = revision;
    self->has_unknown_commit = 0;
    store->term = revision;
    return STRAIT_OK;
}

static strait_err claim(struct strait_metastore *store) {
    struct strait_etcd *self = store->state;
    uint64_t ttl_s = 0;
    if (self->lease != 0) STRAIT_TRY(keep_alive(self, &ttl_s)); // from an attempt that timed out
    if (ttl_s == 0) STRAIT_TRY(grant(self, store->config.ttl_ms));
    json_t *answer = NULL;
    strait_err err = strait_etcd_ask(self, "/v3/kv/txn", claim_request(store), &answer);
    if (err == STRAIT_ETIMEDOUT) return err; // it may have taken effect: keep the lease
    if (err == STRAIT_EAGAIN)
        err = STRAIT_FAIL(STRAIT_EAGAIN, "run '%s': the lease expired before the claim was made",
                          store->config.run);
    if (err == STRAIT_OK) err = finish_claim(store, answer);
    json_decref(answer);
    if (err == STRAIT_OK) return STRAIT_OK;
    char detail[256];
    (void)snprintf(detail, sizeof detail, "%.250s", strait_err_detail());
    (void)revoke(self);
    return STRAIT_FAIL(err, "%s", detail);
}

static strait_err renew(struct strait_metastore *store) {
    struct strait_etcd *self = store->state;
    uint64_t ttl_s = 0;
    STRAIT_TRY(keep_alive(self, &ttl_s));
    if (ttl_s > 0) return STRAIT_OK;
    self->lease = 0;
    return strait_metastore_fail_deposed(store);
}

/* Waits only briefly: if etcd is unreachable, the lease expires by itself. */
static strait_err resign(struct strait_metastore *store) {
    struct strait_etcd *self = store->state;
    const int timeout_ms = self->http.timeout_ms;
    if (timeout_ms > RESIGN_MS) self->http.timeout_ms = RESIGN_MS;
    const strait_err err = revoke(self);
    self->http.timeout_ms = timeout_ms;
    return err;
}

static int64_t lease_left_ms(const struct strait_metastore *store) {
    const int64_t left_ns = ((const struct strait_etcd *)store->state)->lease_end_ns -
                            strait_clock_ns();
    return left_ns > 0 ? left_ns / NS_PER_MS : 0;
}

/* Writes the revision of the store at the time of the answer to *out_revision. */
static strait_err find_leader(struct strait_etcd *self, strait_metastore_leader *out,
                              uint64_t *out_revision) {
    json_t *answer = NULL;
    strait_etcd_pair leader = {.key = NULL};
    *out = (strait_metastore_leader){.term = 0};
    STRAIT_TRY(strait_etcd_ask(self, "/v3/kv/range",
                               json_pack("{s:o}", "key", strait_etcd_text(self->leader)), &answer));
    strait_err err = strait_etcd_revision(answer, out_revision);
    if (err == STRAIT_OK && strait_etcd_pairs(answer) > 0)
        err = strait_etcd_pair_parse(answer, 0, &leader);
    json_decref(answer);
    if (err == STRAIT_OK && leader.key != NULL) {
        out->term = leader.created;
        (void)snprintf(out->owner, sizeof out->owner, "%.*s", (int)leader.bytes,
                       (const char *)leader.data);
    }
    strait_etcd_pair_fini(&leader);
    return err;
}

static strait_err who(struct strait_metastore *store, strait_metastore_leader *out) {
    uint64_t revision = 0;
    return find_leader(store->state, out, &revision);
}

static int is_change(const json_t *answer) {
    const json_t *result = json_object_get(answer, "result");
    return result == NULL || json_array_size(json_object_get(result, "events")) > 0 ||
           json_is_true(json_object_get(result, "canceled"));
}

static strait_err await(struct strait_metastore *store, int wait_ms) {
    struct strait_etcd *self = store->state;
    const int64_t until_ns = strait_clock_ns() + (int64_t)wait_ms * NS_PER_MS;
    strait_metastore_leader first = {.term = 0}, now;
    for (;;) {
        uint64_t revision = 0;
        STRAIT_TRY(find_leader(self, &now, &revision));
        if (first.term == 0) first = now;
        if (now.term == 0 || now.term != first.term) return STRAIT_OK;
        const int64_t left_ms = (until_ns - strait_clock_ns()) / NS_PER_MS;
        if (left_ms <= 0) break;
        json_t *request = json_pack("{s:{s:o,s:o}}", "create_request", "key",
                                    strait_etcd_text(self->leader), "start_revision",
                                    strait_etcd_number(revision + 1));
        if (request == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "no memory for a watch");
        const strait_err err = strait_etcd_http_watch(&self->http, request, (int)left_ms,
                                                      is_change);
        json_decref(request);
        if (err == STRAIT_ENOMEM) return err; // after any other error, ask again
    }
    return STRAIT_FAIL(STRAIT_ETIMEDOUT, "run '%s' is still led by '%s' after %d ms",
                       store->config.run, first.owner, wait_ms);
}

const struct strait_metastore_ops strait_metastore_etcd = {
    .scheme = "etcd",
    .state_size = sizeof(struct strait_etcd),
    .init = init,
    .fini = fini,
    .claim = claim,
    .renew = renew,
    .resign = resign,
    .lease_left_ms = lease_left_ms,
    .await = await,
    .who = who,
    .commit = strait_etcd_commit,
    .read = strait_etcd_read,
};
