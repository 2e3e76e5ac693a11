/* admission.h - which keys a host admits: what it remembers of them, its invites, and how fast it
 * admits new ones and logs those that it refuses. One thread, the caller's of strait_host. */
#pragma once

#include "base/digest/sha256.h"
#include "metastore/metastore.h"
#include "net/core/transport.h"
#include "swarm/invite.h"

struct host;

enum {
    STRAIT_HOST_KEYS_MAX = 4096, // keys that a host remembers
    STRAIT_HOST_INVITES = 64,    // at once, besides the one that the host prints
    STRAIT_HOST_ADDRESSES = 256, // whose recent admissions are counted
    STRAIT_HOST_LOG_KEYS = 256   // whose recent log lines are counted
};

/* What is known of a key that was admitted or banned. */
struct host_key {
    strait_fingerprint key;
    int is_banned;           // refused from now on
    int must_keep;           // it owned a stage, used a limited invite, or an operator named it
    int is_stored;           // in the metastore
    int64_t seen_ns;         // when it last joined
    int64_t kicked_until_ns; // not admitted before this time; 0: it may join
    char name[STRAIT_NAME_MAX];
};

/* An invite besides the first. Only the digest of its token is kept. */
struct host_invite {
    uint32_t id; // 0: the slot is free
    strait_digest token;
    uint32_t uses, n_used; // how many keys it admits, 0: any number; and has admitted
    uint64_t expires;      // seconds since 1970; 0: never
};

/* A token bucket: how many at once, and how many per second after that; what may still happen now.
 */
struct host_bucket {
    double most, per_s;
};
struct host_allowance {
    double left;
    int64_t refilled_ns; // 0: full
};

/* A key that comes and goes: the lines about that, and how many of them were left out. */
struct host_log_key {
    strait_fingerprint key;
    char name[STRAIT_NAME_MAX];
    struct host_allowance allowance;
    int64_t n_left_out;
};

struct host_admission {
    struct host_key keys[STRAIT_HOST_KEYS_MAX];
    int n_keys;
    /* After a metastore error no new key is admitted before this time; 0: there was no error. */
    int64_t retry_ns;
    uint32_t n_used; // keys that the first invite has admitted
    int has_count;   // n_used was read from the metastore
    struct host_invite invites[STRAIT_HOST_INVITES];
    uint32_t last_invite; // the newest id
    struct host_allowance all;
    struct {
        unsigned char address[STRAIT_SOURCE_BYTES];
        struct host_allowance allowance;
    } addresses[STRAIT_HOST_ADDRESSES];
    int n_addresses;
    struct host_allowance log;       // lines about strangers
    int64_t n_unlogged;              // refusals without a line
    struct host_allowance all_lines; // about workers that come and go
    struct host_log_key log_keys[STRAIT_HOST_LOG_KEYS];
    int n_log_keys;
    int64_t n_left_out; // of these lines, of all keys
    int64_t summary_ns; // when both were last summed up
};

/* A request to join: who asks, with which token, from where. */
struct host_applicant {
    strait_fingerprint key;
    const unsigned char *token;
    const char *name;
    unsigned char address[STRAIT_SOURCE_BYTES];
};

/* ---- admission.c ---- */
/* Admits a key or says why not. A key that the host remembers needs no token. STRAIT_EAGAIN:
 * undecided until the operator approves or the metastore answers; STRAIT_EAUTH: refused;
 * STRAIT_ECLOSED: it may try again later. */
strait_err strait_host_admit(struct host *h, const struct host_applicant *who);
/* The owners of all stages are ready: remembers them, also after a restart of the host. */
void strait_host_keep_owners(struct host *h);
/* Remembers everyone who is connected, likewise: for a new token. */
void strait_host_keep_connected(struct host *h);
/* All slots of workers or all connections are taken: disconnects a spare that never owned a stage,
 * from the address that has most of them, if that is not the address of `link`. */
void strait_host_make_slot(struct host *h, const struct strait_link *link);
/* Adds to an allowance what a bucket has gained since. */
void strait_host_refill(const struct host_bucket *bucket, struct host_allowance *allowance,
                        int64_t now_ns);

/* ---- log_lines.c ---- */
/* Logs a refusal of someone who has not joined. Only a few per minute get a line of their own; the
 * others are counted and summed up by strait_host_sum_up, which is called often. */
void strait_host_note_stranger(struct host *h, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Returns whether one more line about this worker's coming and going may be logged: a few per
 * minute and key, and a limited number in all. Otherwise it is counted and summed up likewise. */
int strait_host_may_log(struct host *h, const strait_fingerprint *key, const char *name);
/* A worker connects while its older link is still up. */
void strait_host_count_reconnect(struct host *h, int worker, const char *name);
void strait_host_sum_up(struct host *h, int64_t now_ns);

/* ---- admission_keys.c ---- */
struct host_key *strait_host_find_key(struct host *h, const strait_fingerprint *key); // or NULL
/* Returns the entry of a key and makes one if there is none. If all are taken, the key that is gone
 * longest is forgotten: first one without must_keep, then one that is not banned. */
struct host_key *strait_host_add_key(struct host *h, const strait_fingerprint *key);
/* Writes a key to the metastore, once. */
strait_err strait_host_store_key(struct host *h, struct host_key *key);
/* Refuses the key from now on, also after a restart of the host; or not any more. */
strait_err strait_host_ban(struct host *h, const strait_fingerprint *key);
strait_err strait_host_unban(struct host *h, struct host_key *key);
/* Reads an entry of the metastore, if it is about a key. */
strait_err strait_host_read_key(struct host *h, const strait_metastore_entry *entry);

/* ---- admission_invites.c ---- */
/* STRAIT_EAUTH: the token is of no invite, or of one that has expired or was used up. *out is NULL
 * for the first invite. */
strait_err strait_host_check_token(struct host *h, const unsigned char token[STRAIT_TOKEN_BYTES],
                                   struct host_invite **out);
/* Counts a use of an invite, NULL: the first, durably if its uses are limited. */
strait_err strait_host_use_invite(struct host *h, struct host_invite *invite);
/* Makes a further invite; `line` is what a worker needs to join. STRAIT_EINVAL: there are too many.
 */
strait_err strait_host_make_invite(struct host *h, uint32_t uses, uint64_t expires,
                                   struct host_invite **out, char line[STRAIT_INVITE_TEXT]);
/* Removes an invite. Workers that joined with it stay. STRAIT_EINVAL: there is none of this id. */
strait_err strait_host_revoke_invite(struct host *h, uint32_t id);
/* Replaces the token of the first invite, whose uses are then counted from 0. */
strait_err strait_host_rotate_token(struct host *h, char line[STRAIT_INVITE_TEXT]);
/* Reads an entry of the metastore, if it is about an invite. */
strait_err strait_host_read_invite(struct host *h, const strait_metastore_entry *entry);
