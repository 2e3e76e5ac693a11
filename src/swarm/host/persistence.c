/* host_record.c - the facts of a run: what it is, how far it has come, who was let in. */
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file.h"
#include "swarm/host/state.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    RUN_BYTES = STRAIT_RUN_BYTES + STRAIT_TOKEN_BYTES + STRAIT_ADDRESS_MAX + 2 +
                STRAIT_RUN_STAGES * (4 + 4),
    EXPIRY_BYTES = 8 + 8,
    WAIT_MS = 1000, // for another to go
    NAP_MS = 500,   // before a store out of reach is tried again
    ADMIT_MS = 1000 // likewise, for those who want to be let in
};

static const double tell_s = 10.0; // between two lines about such a store

static const char expiry_key[] = "expires";
static const char member_prefix[] = "member/";
static const char barred_prefix[] = "barred/";

/* ---- until when it is open ---- */

/* A restart with the same words keeps the day; other words make another. */
static strait_err settle_expiry(struct host *h) {
    unsigned char bytes[EXPIRY_BYTES];
    strait_writer w = {bytes, sizeof bytes, 0};
    if (h->has_expiry && h->valid_s == h->spec->valid_s) return STRAIT_OK;
    h->valid_s = h->spec->valid_s;
    h->invite.expires = h->valid_s > 0 ? (uint64_t)time(NULL) + h->valid_s : 0;
    strait_writer_uint(&w, h->valid_s, 8);
    strait_writer_uint(&w, h->invite.expires, 8);
    h->has_expiry = 1;
    return strait_host_put(h, expiry_key, bytes, sizeof bytes);
}

static strait_err read_expiry(struct host *h, const strait_metastore_entry *fact) {
    strait_reader r = {fact->data, fact->bytes, 0};
    h->valid_s = strait_reader_uint(&r, 8);
    h->invite.expires = strait_reader_uint(&r, 8);
    h->has_expiry = !r.is_short && r.left == 0;
    return STRAIT_OK;
}

/* ---- what the run is ---- */

strait_err strait_host_save_run(struct host *h) {
    unsigned char bytes[RUN_BYTES] = {0};
    strait_writer w = {bytes, sizeof bytes, 0};
    STRAIT_TRY(settle_expiry(h));
    strait_writer_copy(&w, h->invite.run, STRAIT_RUN_BYTES);
    strait_writer_copy(&w, h->invite.token, STRAIT_TOKEN_BYTES);
    strait_writer_copy(&w, h->invite.address, STRAIT_ADDRESS_MAX);
    strait_writer_uint(&w, (uint64_t)h->run.stages.split.n, 2);
    for (int i = 0; i < STRAIT_RUN_STAGES; i++) {
        strait_writer_uint(&w, (uint64_t)h->run.stages.split.items[i], 4);
        strait_writer_uint(&w, (uint64_t)h->windows[i], 4);
    }
    return strait_host_put(h, "run", bytes, sizeof bytes);
}

static strait_err read_run(struct host *h, const strait_metastore_entry *fact) {
    strait_reader r = {fact->data, fact->bytes, 0};
    strait_reader_copy(&r, h->invite.run, STRAIT_RUN_BYTES);
    strait_reader_copy(&r, h->invite.token, STRAIT_TOKEN_BYTES);
    strait_reader_copy(&r, h->invite.address, STRAIT_ADDRESS_MAX);
    h->invite.address[STRAIT_ADDRESS_MAX - 1] = '\0';
    const uint64_t n = strait_reader_uint(&r, 2);
    for (int i = 0; i < STRAIT_RUN_STAGES; i++) {
        h->run.stages.split.items[i] = (int64_t)strait_reader_uint(&r, 4);
        h->windows[i] = (int)strait_reader_uint(&r, 4);
    }
    if (r.is_short || r.left != 0 || (n != 0 && n != (uint64_t)h->run.stages.count))
        return STRAIT_FAIL(STRAIT_EDATA,
                           "the record is of a run with another number of stages: use the run file "
                           "it was begun with, or another folder");
    h->run.stages.split.n = (int)n;
    h->was_begun = 1;
    return STRAIT_OK;
}

/* ---- how far it has come ---- */

strait_err strait_host_save_state(struct host *h) {
    unsigned char *bytes = h->state[1];
    strait_swarm_durable facts;
    strait_coordinator_durable(&h->coordinator, &facts);
    strait_writer w = {bytes, STRAIT_HOST_STATE, 0};
    strait_writer_uint(&w, facts.generation, 4);
    strait_writer_uint(&w, (uint64_t)facts.committed, 8);
    strait_writer_uint(&w, (uint64_t)facts.settled, 8);
    for (int i = 0; i < STRAIT_SWARM_GENERATIONS; i++)
        strait_writer_uint(&w, (uint64_t)facts.start_steps[i], 8);
    for (int i = 0; i < STRAIT_RUN_STAGES; i++) {
        strait_writer_uint(&w, (uint64_t)facts.has_owner[i], 1);
        strait_writer_copy(&w, facts.owners[i].bytes, STRAIT_FINGERPRINT_BYTES);
    }
    h->state_bytes[1] = STRAIT_HOST_STATE;
    STRAIT_TRY(strait_host_put(h, "state", bytes, STRAIT_HOST_STATE));
    memcpy(h->state[0], bytes, STRAIT_HOST_STATE);
    h->state_bytes[0] = STRAIT_HOST_STATE;
    return STRAIT_OK;
}

static strait_err read_state(strait_swarm_durable *facts, const strait_metastore_entry *fact) {
    strait_reader r = {fact->data, fact->bytes, 0};
    facts->generation = (uint32_t)strait_reader_uint(&r, 4);
    facts->committed = (int64_t)strait_reader_uint(&r, 8);
    facts->settled = (int64_t)strait_reader_uint(&r, 8);
    for (int i = 0; i < STRAIT_SWARM_GENERATIONS; i++)
        facts->start_steps[i] = (int64_t)strait_reader_uint(&r, 8);
    for (int i = 0; i < STRAIT_RUN_STAGES; i++) {
        facts->has_owner[i] = (int)strait_reader_uint(&r, 1);
        strait_reader_copy(&r, facts->owners[i].bytes, STRAIT_FINGERPRINT_BYTES);
    }
    if (r.is_short || r.left != 0)
        return STRAIT_FAIL(STRAIT_EDATA, "the record's state is not what it should be");
    return STRAIT_OK;
}

/* ---- who was let in ---- */

/* Its place among the members; -1: it is none. */
static int find_member(const struct host *h, const strait_fingerprint *key) {
    for (int i = 0; i < h->n_members; i++)
        if (strait_fingerprint_equal(&h->members[i], key)) return i;
    return -1;
}

typedef strait_err put_fn(struct host *h, const char *key, const void *data, size_t bytes);

static strait_err put_key(struct host *h, put_fn *put, const char *prefix,
                          const strait_fingerprint *key, const char *name) {
    char fact[STRAIT_METASTORE_KEY_MAX];
    char text[STRAIT_FINGERPRINT_TEXT];
    strait_fingerprint_text(key, text);
    (void)snprintf(fact, sizeof fact, "%s%s", prefix, text);
    return put(h, fact, name, strlen(name) + 1);
}

static strait_err may_join(struct host *h, const strait_fingerprint *key, const char *name) {
    const strait_host_events *events = &h->spec->events;
    if (h->invite.expires != 0 && (uint64_t)time(NULL) > h->invite.expires)
        return STRAIT_FAIL(STRAIT_EAUTH, "the invite has expired: ask for a new one");
    if (h->invite.uses != 0 && (uint32_t)h->n_members >= h->invite.uses)
        return STRAIT_FAIL(STRAIT_EAUTH,
                           "the invite was used %u times, which is all it is good for",
                           h->invite.uses);
    if (h->n_members == STRAIT_HOST_MEMBERS)
        return STRAIT_FAIL(STRAIT_EAUTH, "the run has had %d machines: it takes no more",
                           STRAIT_HOST_MEMBERS);
    if (events->approves == NULL || events->approves(events->user, key, name)) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EAGAIN, "waiting to be approved");
}

/* A store that failed is no reason to refuse anybody. Whoever asks waits, and it is not asked for
 * each of them at each look, since it may take its time to fail. */
static strait_err put_off(struct host *h, const char *name) {
    if (h->admit_ns == 0)
        strait_host_note(h, "'%s' waits to be let in: %s", name, strait_err_detail());
    h->admit_ns = strait_clock_ns() + ADMIT_MS * INT64_C(1000000);
    return STRAIT_EAGAIN;
}

strait_err strait_host_admit(struct host *h, const strait_fingerprint *key, const char *name) {
    const int known = find_member(h, key);
    if (known >= 0 && h->is_banned[known])
        return STRAIT_FAIL(STRAIT_EAUTH,
                           "this key is refused for the rest of the run: what it sent was wrong");
    if (known >= 0) return STRAIT_OK;
    STRAIT_TRY(may_join(h, key, name));
    if (strait_clock_ns() < h->admit_ns) return STRAIT_EAGAIN;
    const strait_err err = put_key(h, strait_host_put_once, member_prefix, key, name);
    if (err != STRAIT_OK) return put_off(h, name);
    h->admit_ns = 0;
    h->members[h->n_members++] = *key;
    return STRAIT_OK;
}

strait_err strait_host_ban(struct host *h, const strait_fingerprint *key) {
    const int known = find_member(h, key);
    if (known < 0) return STRAIT_OK; // was never let in
    h->is_banned[known] = 1;
    return put_key(h, strait_host_put, barred_prefix, key, "");
}

/* ---- reading it all ---- */

struct reading {
    struct host *host;
    strait_swarm_durable facts;
    int has_state;
};

/* Whichever of its two facts comes first. */
static strait_err read_member(struct host *h, const char *text, int is_banned) {
    strait_fingerprint key;
    STRAIT_TRY(strait_fingerprint_parse(text, &key));
    int at = find_member(h, &key);
    if (at < 0 && h->n_members == STRAIT_HOST_MEMBERS) return STRAIT_OK;
    if (at < 0) at = h->n_members++;
    h->members[at] = key;
    h->is_banned[at] |= (unsigned char)is_banned;
    return STRAIT_OK;
}

static strait_err visit(void *user, const strait_metastore_entry *fact) {
    struct reading *r = user;
    struct host *h = r->host;
    if (strcmp(fact->key, "run") == 0) return read_run(h, fact);
    if (strcmp(fact->key, expiry_key) == 0) return read_expiry(h, fact);
    if (strcmp(fact->key, "state") == 0) {
        STRAIT_TRY(read_state(&r->facts, fact));
        r->has_state = 1;
        memcpy(h->state[0], fact->data, fact->bytes);
        h->state_bytes[0] = fact->bytes;
        return STRAIT_OK;
    }
    if (strncmp(fact->key, member_prefix, sizeof member_prefix - 1) == 0)
        return read_member(h, fact->key + sizeof member_prefix - 1, 0);
    if (strncmp(fact->key, barred_prefix, sizeof barred_prefix - 1) == 0)
        return read_member(h, fact->key + sizeof barred_prefix - 1, 1);
    return STRAIT_OK;
}

/* ---- leading ---- */

/* How it is with a store that we want to lead in. */
struct seeking {
    double began, told; // when it was first asked or last answered; when its silence was last told
    int was_told;       // that another leads
    int was_reached;
};

static void stand_by(struct host *h, struct seeking *s) {
    if (!s->was_told) strait_host_note(h, "standing by: %s", strait_err_detail());
    s->was_told = s->was_reached = 1;
    s->began = strait_clock_seconds();
    s->told = 0.0;
}

/* One that never answered is given up after as long as a run would pause for it: its address may be
 * wrong. Who has stood by goes on to. */
static strait_err seek(struct host *h, struct seeking *s) {
    const double now = strait_clock_seconds(), waited = now - s->began;
    const char *store = h->spec->store != NULL ? h->spec->store : "of record";
    if (!s->was_reached && waited > h->spec->store_wait_s) {
        strait_err_prefix("store %s: out of reach for %.0f s, longer than --store-wait", store,
                          waited);
        return STRAIT_ETIMEDOUT;
    }
    if (s->told > 0.0 && now - s->told < tell_s) return STRAIT_OK;
    if (s->told > 0.0)
        strait_host_note(h, "store %s: still out of reach, after %.0f s", store, waited);
    else if (s->was_reached)
        strait_host_note(h, "store %s: out of reach, tried until it is back: %s", store,
                         strait_err_detail());
    else
        strait_host_note(h, "store %s: out of reach, tried for %.0f s (--store-wait): %s", store,
                         h->spec->store_wait_s, strait_err_detail());
    s->told = now;
    return STRAIT_OK;
}

/* Until we lead; another coordinator may go first for as long as it lives. */
static strait_err claim(struct host *h) {
    const struct timespec nap = {.tv_nsec = NAP_MS * 1000000L};
    struct seeking s = {.began = strait_clock_seconds()};
    uint64_t term = 0;
    for (;;) {
        const strait_err err = strait_metastore_claim(h->metastore, &term);
        if (err == STRAIT_OK && s.told > 0.0) strait_host_note(h, "the store is there");
        if (err != STRAIT_EAGAIN && err != STRAIT_ETIMEDOUT) return err;
        if (err == STRAIT_EAGAIN)
            stand_by(h, &s);
        else
            STRAIT_TRY(seek(h, &s));
        if (h->spec->session.must_stop(h->spec->session.user))
            return STRAIT_FAIL(STRAIT_EINTERRUPTED, "stopped while standing by");
        if (err == STRAIT_EAGAIN)
            (void)strait_metastore_await(h->metastore, WAIT_MS);
        else
            (void)nanosleep(&nap, NULL);
    }
}

/* ---- the record ---- */

static void record_name(const char *name, char out[STRAIT_RUN_NAME]) {
    (void)snprintf(out, STRAIT_RUN_NAME, "%s", name);
    for (char *c = out; *c != '\0'; c++)
        if (strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-", *c) == NULL)
            *c = '_';
}

strait_err strait_host_open_metastore(struct host *h) {
    char store[STRAIT_PATH_MAX];
    char name[STRAIT_RUN_NAME];
    struct reading reading = {.host = h};
    STRAIT_TRY(strait_file_make_folders(h->spec->folder));
    STRAIT_TRY(strait_file_path(store, "journal:%s/swarm.journal", h->spec->folder));
    record_name(h->run.name, name);
    const strait_metastore_config config = {
        .store = h->spec->store != NULL ? h->spec->store : store,
        .run = name,
        .ca_file = h->spec->store_ca,
        .cert_file = h->spec->store_cert,
        .key_file = h->spec->store_key,
        .owner = h->spec->announce != NULL ? h->spec->announce : h->spec->listen};
    STRAIT_TRY(strait_metastore_open(&config, &h->metastore));
    STRAIT_TRY(claim(h));
    STRAIT_TRY(strait_metastore_read(h->metastore, "", visit, &reading));
    for (int i = 0; i < STRAIT_RUN_STAGES; i++) { // nobody waits for those
        const int owner = find_member(h, &reading.facts.owners[i]);
        if (owner >= 0 && h->is_banned[owner]) reading.facts.has_owner[i] = 0;
    }
    if (reading.has_state)
        strait_coordinator_resume(&h->coordinator, &reading.facts, strait_clock_ns());
    if (h->was_begun) return STRAIT_OK;
    STRAIT_TRY(strait_identity_random(h->invite.run, sizeof h->invite.run));
    return strait_identity_random(h->invite.token, sizeof h->invite.token);
}
