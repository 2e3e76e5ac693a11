/* persistence.c - the entries of a run in the metastore: its id, token and split of layers, the
 * durable state of the coordinator, the keys that were admitted or banned. Also claims leadership.
 */
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file.h"
#include "net/core/seal.h"
#include "swarm/host/state.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    SEALED_BYTES = STRAIT_TOKEN_BYTES + STRAIT_SEAL_BYTES,
    RUN_BYTES = STRAIT_RUN_BYTES + SEALED_BYTES + STRAIT_ADDRESS_MAX + 2 +
                STRAIT_RUN_STAGES * (4 + 4),
    PLAIN_RUN_BYTES = RUN_BYTES -
                      STRAIT_SEAL_BYTES, // of an earlier version: the token is not sealed
    EXPIRY_BYTES = 8 + 8,
    WAIT_MS = 1000, // for another leader to resign, per attempt
    RETRY_MS = 500, // before an unreachable metastore is contacted again
    ADMIT_MS = 1000 // likewise, to admit a worker that asks to join
};

static const double log_every_s = 10.0; // between two log lines about an unreachable metastore

static const char expiry_key[] = "expires";

/* ---- expiry of the invite ---- */

/* A restart with the same lifetime keeps the time of expiry; another lifetime sets a new one. */
static strait_err save_expiry(struct host *h) {
    unsigned char bytes[EXPIRY_BYTES];
    strait_writer w = {bytes, sizeof bytes, 0};
    if (h->persistence.has_expiry && h->persistence.valid_s == h->spec->valid_s) return STRAIT_OK;
    h->persistence.valid_s = h->spec->valid_s;
    h->invite.expires = h->persistence.valid_s > 0 ? (uint64_t)time(NULL) + h->persistence.valid_s
                                                   : 0;
    strait_writer_uint(&w, h->persistence.valid_s, 8);
    strait_writer_uint(&w, h->invite.expires, 8);
    h->persistence.has_expiry = 1;
    return strait_host_put(h, expiry_key, bytes, sizeof bytes);
}

static strait_err read_expiry(struct host *h, const strait_metastore_entry *entry) {
    strait_reader r = {entry->data, entry->bytes, 0};
    h->persistence.valid_s = strait_reader_uint(&r, 8);
    h->invite.expires = strait_reader_uint(&r, 8);
    h->persistence.has_expiry = !r.is_short && r.left == 0;
    return STRAIT_OK;
}

/* ---- the run ---- */

/* The label that the token is sealed with: an entry of another run does not fit. */
static strait_seal_label token_label(const struct host *h, unsigned char out[32]) {
    static const unsigned char purpose[16] = "strait token of "; // no text: it has no final zero
    memcpy(out, purpose, sizeof purpose);
    memcpy(out + 16, h->invite.run, STRAIT_RUN_BYTES);
    return (strait_seal_label){out, 16 + STRAIT_RUN_BYTES};
}

/* The metastore may be a cluster that others can read, and backups of it. */
static strait_err write_token(const struct host *h, strait_writer *w) {
    unsigned char sealed[SEALED_BYTES], label[32];
    STRAIT_TRY(strait_seal(h->spec->identity, token_label(h, label), h->invite.token,
                           STRAIT_TOKEN_BYTES, sealed));
    strait_writer_copy(w, sealed, sizeof sealed);
    return STRAIT_OK;
}

static strait_err read_token(struct host *h, strait_reader *r, int is_sealed) {
    unsigned char sealed[SEALED_BYTES] = {0}, label[32];
    strait_reader_copy(r, is_sealed ? sealed : h->invite.token,
                       is_sealed ? SEALED_BYTES : STRAIT_TOKEN_BYTES);
    if (!is_sealed || r->is_short) return STRAIT_OK;
    const strait_err err = strait_unseal(h->spec->identity, token_label(h, label), sealed,
                                         STRAIT_TOKEN_BYTES, h->invite.token);
    if (err == STRAIT_EAUTH)
        return STRAIT_FAIL(STRAIT_EAUTH,
                           "the metastore's token of this run was sealed with another host key: "
                           "start the host with the --keys it was begun with, or begin another "
                           "folder");
    return err;
}

strait_err strait_host_save_run(struct host *h) {
    unsigned char bytes[RUN_BYTES] = {0};
    strait_writer w = {bytes, sizeof bytes, 0};
    STRAIT_TRY(save_expiry(h));
    strait_writer_copy(&w, h->invite.run, STRAIT_RUN_BYTES);
    STRAIT_TRY(write_token(h, &w));
    strait_writer_copy(&w, h->invite.address, STRAIT_ADDRESS_MAX);
    strait_writer_uint(&w, (uint64_t)h->run.stages.split.n, 2);
    for (int i = 0; i < STRAIT_RUN_STAGES; i++) {
        strait_writer_uint(&w, (uint64_t)h->run.stages.split.items[i], 4);
        strait_writer_uint(&w, (uint64_t)h->windows[i], 4);
    }
    return strait_host_put(h, "run", bytes, sizeof bytes);
}

static strait_err read_run(struct host *h, const strait_metastore_entry *entry) {
    strait_reader r = {entry->data, entry->bytes, 0};
    strait_reader_copy(&r, h->invite.run, STRAIT_RUN_BYTES);
    STRAIT_TRY(read_token(h, &r, entry->bytes != PLAIN_RUN_BYTES));
    strait_reader_copy(&r, h->invite.address, STRAIT_ADDRESS_MAX);
    h->invite.address[STRAIT_ADDRESS_MAX - 1] = '\0';
    const uint64_t n = strait_reader_uint(&r, 2);
    for (int i = 0; i < STRAIT_RUN_STAGES; i++) {
        const int64_t layers = (int64_t)strait_reader_uint(&r, 4);
        if (n > 0) h->run.stages.split.items[i] = layers; // else the run file's stands
        h->windows[i] = (int)strait_reader_uint(&r, 4);
    }
    if (r.is_short || r.left != 0 || (n != 0 && n != (uint64_t)h->run.stages.count))
        return STRAIT_FAIL(
            STRAIT_EDATA,
            "the metastore holds a run with another number of stages: use the run file "
            "it was begun with, or another folder");
    if (n > 0) h->run.stages.split.n = (int)n;
    h->persistence.was_begun = 1;
    return STRAIT_OK;
}

/* ---- the durable state of the coordinator ---- */

strait_err strait_host_save_state(struct host *h) {
    unsigned char *bytes = h->persistence.state[1];
    strait_swarm_durable durable;
    strait_coordinator_durable(&h->coordinator, &durable);
    strait_writer w = {bytes, STRAIT_HOST_STATE, 0};
    strait_writer_uint(&w, durable.generation, 4);
    strait_writer_uint(&w, (uint64_t)durable.committed, 8);
    strait_writer_uint(&w, (uint64_t)durable.settled, 8);
    for (int i = 0; i < STRAIT_SWARM_GENERATIONS; i++)
        strait_writer_uint(&w, (uint64_t)durable.start_steps[i], 8);
    for (int i = 0; i < STRAIT_RUN_STAGES; i++) {
        strait_writer_uint(&w, (uint64_t)durable.has_owner[i], 1);
        strait_writer_copy(&w, durable.owners[i].bytes, STRAIT_FINGERPRINT_BYTES);
    }
    for (int i = 0; i < h->coordinator.config.n_stages; i++)
        strait_snapshot_records_write(&durable.records[i], &w);
    const size_t n = STRAIT_HOST_STATE - w.left;
    h->persistence.state_bytes[1] = n;
    STRAIT_TRY(strait_host_put(h, "state", bytes, n));
    memcpy(h->persistence.state[0], bytes, n);
    h->persistence.state_bytes[0] = n;
    return STRAIT_OK;
}

static strait_err read_state(strait_swarm_durable *durable, const strait_metastore_entry *entry) {
    strait_reader r = {entry->data, entry->bytes, 0};
    durable->generation = (uint32_t)strait_reader_uint(&r, 4);
    durable->committed = (int64_t)strait_reader_uint(&r, 8);
    durable->settled = (int64_t)strait_reader_uint(&r, 8);
    for (int i = 0; i < STRAIT_SWARM_GENERATIONS; i++)
        durable->start_steps[i] = (int64_t)strait_reader_uint(&r, 8);
    for (int i = 0; i < STRAIT_RUN_STAGES; i++) {
        durable->has_owner[i] = (int)strait_reader_uint(&r, 1);
        strait_reader_copy(&r, durable->owners[i].bytes, STRAIT_FINGERPRINT_BYTES);
    }
    /* A version without records wrote none: its workers restore from the checkpoint. */
    for (int i = 0; i < STRAIT_RUN_STAGES && r.left > 0; i++)
        strait_snapshot_records_read(&r, &durable->records[i]);
    if (r.is_short || r.left != 0)
        return STRAIT_FAIL(
            STRAIT_EDATA,
            "the metastore's entry 'state' has the wrong size: written by another version?");
    return STRAIT_OK;
}

/* ---- reading all entries ---- */

struct reading {
    struct host *host;
    strait_swarm_durable durable;
    int has_state;
};

static strait_err visit(void *user, const strait_metastore_entry *entry) {
    struct reading *r = user;
    struct host *h = r->host;
    if (strcmp(entry->key, "run") == 0) return read_run(h, entry);
    if (strcmp(entry->key, expiry_key) == 0) return read_expiry(h, entry);
    if (strcmp(entry->key, "state") == 0) {
        STRAIT_TRY(read_state(&r->durable, entry));
        r->has_state = 1;
        memcpy(h->persistence.state[0], entry->data, entry->bytes);
        h->persistence.state_bytes[0] = entry->bytes;
        return STRAIT_OK;
    }
    STRAIT_TRY(strait_host_read_invite(h, entry));
    return strait_host_read_key(h, entry);
}

static strait_err visit_record(void *user, const strait_metastore_entry *entry) {
    return strait_host_read_record(user, entry);
}

/* ---- claiming leadership ---- */

/* What was logged during repeated attempts to claim, so that a line appears only every 10 s. */
struct claim_log {
    double began_s;  // when the metastore was last reached, or first tried
    double logged_s; // when "unreachable" was last logged; 0: not since it was reached
    int has_logged_leader;
    int was_reached; // the metastore has answered
};

static void log_standby(struct host *h, struct claim_log *log) {
    if (!log->has_logged_leader)
        strait_host_note(h, "standing by for another coordinator: %s", strait_err_detail());
    log->has_logged_leader = log->was_reached = 1;
    log->began_s = strait_clock_seconds();
    log->logged_s = 0.0;
}

/* A metastore that never answered is given up after store_wait_s, since its address may be wrong. A
 * standby that has reached it before keeps trying. */
static strait_err log_unreachable(struct host *h, struct claim_log *log) {
    const double now = strait_clock_seconds(), waited = now - log->began_s;
    const char *store = h->spec->store != NULL ? h->spec->store : "journal";
    if (!log->was_reached && waited > h->spec->store_wait_s) {
        strait_err_prefix("metastore %s: unreachable for %.0f s", store, waited);
        return STRAIT_ETIMEDOUT;
    }
    if (log->logged_s > 0.0 && now - log->logged_s < log_every_s) return STRAIT_OK;
    if (log->logged_s > 0.0)
        strait_host_note(h, "metastore %s: still unreachable after %.0f s", store, waited);
    else if (log->was_reached)
        strait_host_note(h, "metastore %s: unreachable, trying until it is back: %s", store,
                         strait_err_detail());
    else
        strait_host_note(h, "metastore %s: unreachable, trying for %.0f s: %s", store,
                         h->spec->store_wait_s, strait_err_detail());
    log->logged_s = now;
    return STRAIT_OK;
}

/* Blocks until we lead. Another coordinator may lead for as long as it lives. */
static strait_err claim(struct host *h) {
    const struct timespec pause = {.tv_nsec = RETRY_MS * 1000000L};
    struct claim_log log = {.began_s = strait_clock_seconds()};
    uint64_t term = 0;
    for (;;) {
        const strait_err err = strait_metastore_claim(h->persistence.metastore, &term);
        if (err == STRAIT_OK && log.logged_s > 0.0)
            strait_host_note(h, "the metastore is reachable");
        if (err != STRAIT_EAGAIN && err != STRAIT_ETIMEDOUT) return err;
        if (err == STRAIT_EAGAIN)
            log_standby(h, &log);
        else
            STRAIT_TRY(log_unreachable(h, &log));
        if (h->spec->session.must_stop(h->spec->session.user))
            return STRAIT_FAIL(STRAIT_EINTERRUPTED, "stopped while standing by");
        if (err == STRAIT_EAGAIN)
            (void)strait_metastore_await(h->persistence.metastore, WAIT_MS);
        else
            (void)nanosleep(&pause, NULL);
    }
}

/* ---- opening ---- */

/* The name of a run is free text; in the metastore it may contain only some characters. */
static void make_metastore_name(const char *name, char out[STRAIT_RUN_NAME]) {
    (void)snprintf(out, STRAIT_RUN_NAME, "%s", name);
    for (char *c = out; *c != '\0'; c++)
        if (strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-", *c) == NULL)
            *c = '_';
}

strait_err strait_host_open_metastore(struct host *h) {
    char store[STRAIT_PATH_MAX];
    char name[STRAIT_RUN_NAME], id[STRAIT_HOST_RUN_ID], full_name[STRAIT_METASTORE_NAME_MAX];
    struct reading reading = {.host = h};
    STRAIT_TRY(strait_file_make_folders(h->spec->folder));
    STRAIT_TRY(strait_file_path(store, "journal:%s/swarm.journal", h->spec->folder));
    make_metastore_name(h->run.name, name);
    STRAIT_TRY(strait_host_open_run_id(h, id));
    (void)snprintf(full_name, sizeof full_name, "%s%s", name, id);
    const strait_metastore_config config = {
        .store = h->spec->store != NULL ? h->spec->store : store,
        .run = full_name,
        .ca_file = h->spec->store_ca,
        .cert_file = h->spec->store_cert,
        .key_file = h->spec->store_key,
        .owner = h->spec->announce != NULL ? h->spec->announce : h->spec->listen};
    STRAIT_TRY(strait_metastore_open(&config, &h->persistence.metastore));
    STRAIT_TRY(claim(h));
    STRAIT_TRY(strait_metastore_read(h->persistence.metastore, "", visit, &reading));
    /* Earlier versions did not count: every key had used the invite. */
    if (!h->admission.has_count) h->admission.n_used = (uint32_t)h->admission.n_keys;
    for (int i = 0; i < STRAIT_RUN_STAGES; i++) { // do not wait for banned owners
        const struct host_key *owner = strait_host_find_key(h, &reading.durable.owners[i]);
        if (owner != NULL && owner->is_banned) reading.durable.has_owner[i] = 0;
    }
    if (reading.has_state)
        strait_coordinator_resume(&h->coordinator, &reading.durable, strait_clock_ns());
    STRAIT_TRY(strait_metastore_read(h->persistence.metastore, "record/", visit_record, h));
    if (h->persistence.was_begun) return STRAIT_OK;
    STRAIT_TRY(strait_identity_random(h->invite.run, sizeof h->invite.run));
    return strait_identity_random(h->invite.token, sizeof h->invite.token);
}
